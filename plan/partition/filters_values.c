/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers' filters a value of a program has.
 *
 * This follows from instruction to instruction what graph/split.h does with values of the graph, so
 * that each value that is spread is one activation, and costs its words. */
#include "plan/partition/filters_inside.h"

#include "base/arena.h"
#include "plan/compile/makers.h"
#include "proto/blocked.h"
#include "proto/operators.h"
#include "proto/work.h"

#include <string.h>

static const Rb__Attribute *attribute(const Rb__Instruction *one, const char *key)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, key) && one->attributes[i]->n_ints)
            return one->attributes[i];
    return NULL;
}

int64_t rb_filters_number(const Rb__Instruction *one, const char *key, int64_t otherwise)
{
    const Rb__Attribute *found = attribute(one, key);

    return found ? found->ints[0] : otherwise;
}

bool rb_filters_is_trained(const struct rb_filters_reading *reading, const Rb__Tensor *tensor)
{
    return tensor->space == RB__TENSOR__SPACE__VARIABLE &&
           reading->model->variables[tensor->offset]->role == RB__VARIABLE__ROLE__TRAINED;
}

/* ---- What a value is made of -----------------------------------------------------------------*/

static int64_t channels_of(const struct rb_filters_reading *reading,
                           const struct rb_filters_sources *sources)
{
    int64_t channels = 0;

    for (uint32_t i = 0; i < sources->n; i++)
        channels += sources->times[i] * reading->layers[sources->layers[i]].filters;
    return channels;
}

/* How many elements of axis 1 a view makes of each of so many channels, in blocks or not, or about
 * to be turned around; 0: axis 1 is not the axis of the filters. */
static int64_t times_of(const struct rb_filters_reading *reading, const Rb__Tensor *tensor,
                        int64_t channels)
{
    size_t rank = tensor->n_dims;
    const int64_t *dim = tensor->dims;

    if (rank < 2 || !channels || dim[0] != reading->program->batch)
        return 0;
    if (rank == 2 && dim[1] % channels == 0)
        return dim[1] / channels;
    return dim[1] == channels || (rank > 2 && dim[1] * RB_BLOCK == channels &&
                                  (dim[rank - 1] == RB_BLOCK || dim[2] == RB_BLOCK));
}

/* The instruction that made input k; -1: the input depends on no filter. */
static int maker_of(const struct rb_filters_reading *reading, size_t at, size_t k)
{
    const Rb__Instruction *one = reading->program->instructions[at];

    return k < one->n_inputs && one->inputs[k] >= 0
               ? rb_makers_of(reading->program, reading->makers, one->inputs[k], (int)at)
               : -1;
}

/* The sources of input k of an instruction; none where it depends on no filter. */
static struct rb_filters_sources sources_of(const struct rb_filters_reading *reading, size_t at,
                                            size_t k)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    struct rb_filters_sources sources = {.n = 0};
    int maker = maker_of(reading, at, k);
    int64_t times;

    if (maker < 0)
        return sources;
    sources = reading->sources[maker];
    if (!sources.n || sources.last)
        return sources;
    times = times_of(reading, reading->program->tensors[one->inputs[k]],
                     channels_of(reading, &sources));
    for (uint32_t i = 0; i < sources.n; i++)
        sources.times[i] *= times;
    if (!times)
        sources.last = one; /* a view has mixed them */
    return sources;
}

/* ---- Activations -----------------------------------------------------------------------------*/

static bool is_same(const struct rb_filters_activation *a, const struct rb_filters_activation *b)
{
    return a->maker == b->maker && a->place == b->place;
}

/* The layer whose net is `layer` as it is read now: `layer` itself, or a further layer for another
 * activation of the same filters. */
static uint32_t find_activation(struct rb_filters_reading *reading, uint32_t layer,
                                const struct rb_filters_activation *read, double words)
{
    struct rb_hypergraph_layer another = {.joins = {layer}, .n_joins = 1};
    uint32_t found = layer;

    for (uint32_t l = layer + 1; reading->activations[found].maker >= 0; l++) {
        if (is_same(&reading->activations[found], read))
            return found;
        while (l < reading->n &&
               (reading->layers[l].n_joins != 1 || reading->layers[l].joins[0] != layer))
            l++;
        if (l == reading->n) {
            another.filters = reading->layers[layer].filters;
            rb_filters_add_layer(reading, &another);
        }
        found = l;
    }
    reading->activations[found] = *read;
    reading->layers[found].words = words;
    return found;
}

static void add_source(struct rb_filters_sources *to, uint32_t layer, int64_t times)
{
    if (to->n == RB_HYPERGRAPH_INPUTS) {
        to->many = true;
        return;
    }
    to->times[to->n] = times;
    to->layers[to->n++] = layer;
}

static void add_once(struct rb_filters_sources *to, uint32_t layer)
{
    for (uint32_t i = 0; i < to->n; i++)
        if (to->layers[i] == layer)
            return;
    add_source(to, layer, 1);
}

struct rb_filters_sources rb_filters_read(struct rb_filters_reading *reading, size_t at, size_t k)
{
    struct rb_filters_sources all = sources_of(reading, at, k), from = all;
    struct rb_filters_activation read = {.maker = maker_of(reading, at, k)};
    double words; /* of an element of axis 1 */

    if (!from.n || reading->sources[read.maker].last)
        return from;
    from = reading->sources[read.maker];
    words =
        rb_work_elements(reading->program->tensors[reading->program->instructions[at]->inputs[k]]) /
        reading->program->batch / (double)channels_of(reading, &from);
    read.maker = reading->same[read.maker];
    for (; read.place < from.n; read.place++)
        all.layers[read.place] = find_activation(reading, from.layers[read.place], &read,
                                                 words * (double)from.times[read.place]);
    return all;
}

/* ---- What follows filters one by one ---------------------------------------------------------*/

/* The sources of an instruction that needs all filters of its inputs, or reads from one that
 * does. */
static struct rb_filters_sources need_all(struct rb_filters_reading *reading, size_t at)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    struct rb_filters_sources all = {.n = 0};

    for (size_t k = 0; k < one->n_inputs; k++) {
        struct rb_filters_sources from = rb_filters_read(reading, at, k);

        for (uint32_t i = 0; i < from.n; i++)
            add_once(&all, from.layers[i]);
        all.many |= from.many;
        all.last = all.last ? all.last : from.last;
    }
    if (all.n && !all.last)
        all.last = one;
    return all;
}

/* The filters of the inputs one after the other; false: an input is something else. */
static bool concatenate(struct rb_filters_reading *reading, size_t at,
                        struct rb_filters_sources *ret)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    struct rb_filters_sources all = {.n = 0};

    if (rb_filters_number(one, "axis", 0) != 1)
        return false;
    for (size_t k = 0; k < one->n_inputs; k++) {
        struct rb_filters_sources from = sources_of(reading, at, k);

        if (!from.n || from.last)
            return false;
        for (uint32_t i = 0; i < from.n; i++)
            add_source(&all, from.layers[i], from.times[i]);
        all.many |= from.many;
    }
    *ret = all;
    return true;
}

/* Do both have equally many layers, of equally many filters, with equally many elements each? */
static bool match(const struct rb_filters_reading *reading, const struct rb_filters_sources *a,
                  const struct rb_filters_sources *b)
{
    bool same = a->n == b->n && !a->many && !b->many;

    for (uint32_t i = 0; same && i < a->n; i++)
        same = a->times[i] == b->times[i] &&
               reading->layers[a->layers[i]].filters == reading->layers[b->layers[i]].filters;
    return same;
}

/* Is input k just a number that is not trained, which every part may have? */
static bool is_number(const struct rb_filters_reading *reading, const Rb__Instruction *one,
                      size_t k)
{
    const Rb__Tensor *tensor =
        one->inputs[k] < 0 ? NULL : reading->program->tensors[one->inputs[k]];

    return !tensor || (rb_work_elements(tensor) == 1 && !rb_filters_is_trained(reading, tensor));
}

/* The sources of an elementwise operator: a layer of its own wherever its inputs' filters are of
 * several layers.  false: the filters do not go together. */
static bool join(struct rb_filters_reading *reading, size_t at, struct rb_filters_sources *ret)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    struct rb_filters_sources all = {.n = 0}, joined[RB_HYPERGRAPH_INPUTS];

    memset(joined, 0, sizeof joined);
    for (size_t k = 0; k < one->n_inputs; k++) {
        struct rb_filters_sources from = sources_of(reading, at, k);

        if (!from.n && is_number(reading, one, k))
            continue;
        if (!from.n || from.last || from.many || (all.n && !match(reading, &all, &from)))
            return false;
        if (!all.n)
            all = from;
        for (uint32_t i = 0; i < all.n; i++)
            add_once(&joined[i], from.layers[i]);
    }
    for (uint32_t i = 0; i < all.n; i++) {
        struct rb_hypergraph_layer layer = {.filters = reading->layers[all.layers[i]].filters,
                                            .n_joins = joined[i].n};

        memcpy(layer.joins, joined[i].layers, sizeof layer.joins);
        if (joined[i].n > 1)
            all.layers[i] = rb_filters_add_layer(reading, &layer);
    }
    *ret = all;
    return true;
}

/* Does the instruction make or undo blocks of channels (graph/layout.c)? */
static bool turns_blocks(const struct rb_filters_reading *reading, const Rb__Instruction *one)
{
    const Rb__Attribute *perm = one->operator_ == RB_OP_TRANSPOSE ? attribute(one, "perm") : NULL;
    size_t rank = perm ? perm->n_ints : 0;
    const Rb__Tensor *x;

    if (rank < 4 || perm->ints[0] != 0 || perm->ints[1] != 1)
        return false;
    x = reading->program->tensors[one->inputs[0]];
    return (x->dims[2] == RB_BLOCK && perm->ints[rank - 1] == 2) ||
           (x->dims[rank - 1] == RB_BLOCK && perm->ints[2] == (int64_t)rank - 1);
}

/* Does it sum over axes behind that of the filters? */
static bool sums_places(const Rb__Instruction *one)
{
    const Rb__Attribute *axes = attribute(one, "axes");

    for (size_t i = 0; axes && i < axes->n_ints; i++)
        if (axes->ints[i] < 2)
            return false;
    return axes != NULL;
}

/* Does each filter of its first input become one filter of its result? */
static bool follows(const Rb__Instruction *one)
{
    switch (one->operator_) {
    case RB_OP_MAX_POOL:
    case RB_OP_AVERAGE_POOL:
    case RB_OP_BATCH_NORM:
    case RB_OP_BATCH_NORM_EVAL:
        return true;
    case RB_OP_REDUCE_SUM:
    case RB_OP_REDUCE_MEAN:
    case RB_OP_REDUCE_MAX:
        return sums_places(one);
    default:
        return false;
    }
}

struct rb_filters_sources rb_filters_take(struct rb_filters_reading *reading, size_t at)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    const Rb__Tensor *made =
        one->n_outputs && one->outputs[0] >= 0 ? reading->program->tensors[one->outputs[0]] : NULL;
    struct rb_filters_sources found = {.n = 0};
    bool taken;

    reading->same[at] = (int)at;
    if (turns_blocks(reading, one)) {
        int maker = maker_of(reading, at, 0);

        reading->same[at] = maker < 0 ? (int)at : reading->same[maker];
        return sources_of(reading, at, 0);
    }
    if (one->operator_ == RB_OP_CONCAT)
        taken = concatenate(reading, at, &found);
    else if (rb_op_info(one->operator_)->kind == RB_KIND_POINT)
        taken = join(reading, at, &found);
    else if ((taken = follows(one)))
        found = sources_of(reading, at, 0);
    if (taken && !found.last &&
        (!found.n || (made && times_of(reading, made, channels_of(reading, &found)) == 1)))
        return found;
    return need_all(reading, at);
}
