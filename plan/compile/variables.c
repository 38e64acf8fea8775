/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a model: its variables in one flat range, cut into blocks and buckets. */
#include "base/arena.h"
#include "plan/compile/lower.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 16,          /* elements between starts of variables in the flat state */
    FIXED_ALIGN = 64,    /* bytes */
    BLOCK = 65536,       /* elements: a block is never larger */
    BUCKET = 16 * BLOCK, /* elements: a bucket is about as large */
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* How often a microbatch contributes to the variable, and the last node that does. */
static uint32_t count_uses(const struct rb_graph *graph, const struct rb_value *variable,
                           int *ret_last)
{
    uint32_t uses = 0;

    *ret_last = -1;
    for (int i = 0; i < graph->n_contributions; i++) {
        const struct rb_contribution *contribution = &graph->contributions[i];

        if (contribution->variable != variable)
            continue;
        uses++;
        if (contribution->value->maker && contribution->value->maker->id > *ret_last)
            *ret_last = contribution->value->maker->id;
    }
    return uses;
}

/* A weight that the loss does not reach stays as it is, as in other frameworks: no gradient, no
 * decay.  In a graph without a loss every weight that could be trained is TRAINED. */
static Rb__Variable__Role role_of(const struct rb_graph *graph, const struct rb_value *value,
                                  uint32_t uses)
{
    if (value->type.dtype != RB_F32)
        return RB__VARIABLE__ROLE__FIXED;
    if (value->role == RB_VALUE_BUFFER)
        return value->statistic ? RB__VARIABLE__ROLE__STATISTIC : RB__VARIABLE__ROLE__FIXED;
    if (value->frozen || (graph->loss && !uses))
        return RB__VARIABLE__ROLE__FIXED;
    return RB__VARIABLE__ROLE__TRAINED;
}

static Rb__Variable *new_variable(const struct rb_graph *graph, const struct rb_value *value,
                                  int *ret_last)
{
    Rb__Variable *variable = rb_alloc(sizeof(*variable));
    uint32_t uses = count_uses(graph, value, ret_last);

    rb__variable__init(variable);
    variable->name = rb_string(value->name);
    variable->role = role_of(graph, value, uses);
    variable->n_dims = (size_t)value->type.rank;
    variable->dims = rb_alloc(sizeof(*variable->dims) * (size_t)value->type.rank);
    memcpy(variable->dims, value->type.dim, sizeof(*variable->dims) * (size_t)value->type.rank);
    variable->dtype = value->type.dtype;
    variable->elements = (uint64_t)rb_tensor_elements(&value->type);
    if (variable->role == RB__VARIABLE__ROLE__TRAINED) {
        variable->has_decay = 1;
        variable->decay = value->type.rank >= 2;
    }
    if (variable->role != RB__VARIABLE__ROLE__FIXED) {
        variable->has_uses = 1;
        variable->uses = uses ? uses : 1;
    }
    if (variable->role == RB__VARIABLE__ROLE__STATISTIC) {
        variable->has_momentum = 1;
        variable->momentum = value->momentum;
    }
    return variable;
}

/* Offsets of all variables of one role, in their order; returns the end. */
static uint64_t place(Rb__Model *model, Rb__Variable__Role role, uint64_t from)
{
    bool fixed = role == RB__VARIABLE__ROLE__FIXED;

    for (size_t i = 0; i < model->n_variables; i++) {
        Rb__Variable *variable = model->variables[i];

        if (variable->role != role)
            continue;
        variable->offset = from;
        if (fixed)
            from =
                round_up(from + variable->elements * rb_dtype_size((enum rb_dtype)variable->dtype),
                         FIXED_ALIGN);
        else
            from = round_up(from + variable->elements, ALIGN);
    }
    return from;
}

static void cut_blocks(Rb__Model *model)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->role != RB__VARIABLE__ROLE__FIXED)
            n += (model->variables[i]->elements + BLOCK - 1) / BLOCK;
    model->blocks = rb_alloc(sizeof(*model->blocks) * n);
    for (int role = RB__VARIABLE__ROLE__TRAINED; role <= RB__VARIABLE__ROLE__STATISTIC; role++)
        for (size_t i = 0; i < model->n_variables; i++) {
            const Rb__Variable *variable = model->variables[i];

            if ((int)variable->role != role)
                continue;
            for (uint64_t first = 0; first < variable->elements; first += BLOCK) {
                Rb__Block *block = rb_alloc(sizeof(*block));
                uint64_t left = variable->elements - first;

                rb__block__init(block);
                block->variable = (uint32_t)i;
                block->first = variable->offset + first;
                block->count = left < BLOCK ? left : BLOCK;
                model->blocks[model->n_blocks++] = block;
            }
        }
}

/* A bucket while it is made, with the node behind which it is done. */
struct range {
    uint64_t first, end;
    int done;
};

static int by_done(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->done != y->done)
        return x->done < y->done ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Whole variables while they are small; a large variable alone, in pieces of whole blocks. */
static size_t cut_ranges(const Rb__Model *model, const int *last, struct range *ranges)
{
    struct range open = {.done = -1};
    size_t n = 0;

    for (int role = RB__VARIABLE__ROLE__TRAINED; role <= RB__VARIABLE__ROLE__STATISTIC; role++)
        for (size_t i = 0; i < model->n_variables; i++) {
            const Rb__Variable *variable = model->variables[i];
            uint64_t size = round_up(variable->elements, ALIGN);

            if ((int)variable->role != role || !size)
                continue;
            if (open.end > open.first && open.end - open.first + size > BUCKET) {
                ranges[n++] = open;
                open = (struct range){open.end, open.end, -1};
            }
            for (; size > BUCKET; size -= BUCKET) {
                ranges[n++] = (struct range){open.first, open.first + BUCKET, last[i]};
                open.first = open.end = open.first + BUCKET;
            }
            open.end += size;
            if (last[i] > open.done)
                open.done = last[i];
        }
    if (open.end > open.first)
        ranges[n++] = open;
    return n;
}

static void cut_buckets(Rb__Model *model, const int *last)
{
    size_t most = model->n_variables + model->state_elements / BUCKET + 1, n;
    struct range *ranges = rb_alloc(sizeof(*ranges) * most);

    n = cut_ranges(model, last, ranges);
    qsort(ranges, n, sizeof(*ranges), by_done);
    model->buckets = rb_alloc(sizeof(*model->buckets) * n);
    for (size_t i = 0; i < n; i++) {
        Rb__Bucket *bucket = rb_alloc(sizeof(*bucket));

        rb__bucket__init(bucket);
        bucket->first = ranges[i].first;
        bucket->count = ranges[i].end - ranges[i].first;
        model->buckets[model->n_buckets++] = bucket;
    }
    free(ranges);
}

int rb_lower_variables(const struct rb_graph *graph, Rb__Model *model, struct rb_why *why)
{
    int *last = rb_alloc(sizeof(*last) * (size_t)(graph->n_values + 1)), err = 0;

    model->variables = rb_alloc(sizeof(*model->variables) * (size_t)(graph->n_values + 1));
    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];

        if (value->role != RB_VALUE_WEIGHT && value->role != RB_VALUE_BUFFER)
            continue;
        for (size_t j = 0; j < model->n_variables && !err; j++)
            if (!strcmp(model->variables[j]->name, value->name))
                err = rb_why_set(why, RB_EINVAL, "two initializers are called '%s'", value->name);
        model->variables[model->n_variables] =
            new_variable(graph, value, &last[model->n_variables]);
        model->n_variables++;
    }
    model->trained_elements = place(model, RB__VARIABLE__ROLE__TRAINED, 0);
    model->state_elements = place(model, RB__VARIABLE__ROLE__STATISTIC, model->trained_elements);
    model->fixed_bytes = place(model, RB__VARIABLE__ROLE__FIXED, 0);
    cut_blocks(model);
    cut_buckets(model, last);
    free(last);
    return err;
}
