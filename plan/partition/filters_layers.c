/* SPDX-License-Identifier: Apache-2.0 */
/* A program's layers: its products, what is made of several of them filter by filter, the loss. */
#include "plan/partition/filters_inside.h"

#include "base/arena.h"
#include "plan/compile/makers.h"
#include "proto/operators.h"
#include "proto/work.h"

#include <stdlib.h>
#include <string.h>

uint32_t rb_filters_add_layer(struct rb_filters_reading *reading,
                              const struct rb_hypergraph_layer *layer)
{
    if (reading->n == reading->room) {
        reading->room = 2 * reading->room + 64;
        reading->layers = rb_realloc(reading->layers, reading->room * sizeof *reading->layers);
        reading->activations =
            rb_realloc(reading->activations, reading->room * sizeof *reading->activations);
    }
    reading->layers[reading->n] = *layer;
    reading->activations[reading->n] = (struct rb_filters_activation){.maker = -1};
    return reading->n++;
}

static int refuse(const Rb__Instruction *one, const char *text, struct rb_why *why)
{
    const struct rb_op_info *info = rb_op_info(one->operator_);

    return rb_why_set(why, RB_EUNSUPPORTED, "node '%.80s' (%s) cannot be split over devices: %s",
                      one->name ? one->name : "", info ? info->name : "?", text);
}

/* Are a product's neurons the rows of its weight, and is its input samples by channels? */
static bool has_rows(const Rb__Program *program, const Rb__Instruction *one)
{
    return program->tensors[one->inputs[0]]->n_dims == 2 &&
           program->tensors[one->inputs[1]]->n_dims == 2 && !rb_filters_number(one, "transA", 0) &&
           rb_filters_number(one, "transB", 0);
}

/* Refuse because of the instruction between a product and the filters that the product is to
 * read. */
static int refuse_last(const Rb__Instruction *last, struct rb_why *why)
{
    return refuse(last, "it needs all filters of a layer, and others are made of what it makes",
                  why);
}

/* A product with a weight is a layer. */
static int add_product(struct rb_filters_reading *reading, size_t at, struct rb_why *why)
{
    const Rb__Instruction *one = reading->program->instructions[at];
    const Rb__Tensor *weight = reading->program->tensors[one->inputs[1]];
    struct rb_hypergraph_layer layer = {.groups = (uint32_t)rb_filters_number(one, "group", 1)};
    struct rb_filters_sources from;

    if (weight->space != RB__TENSOR__SPACE__VARIABLE || weight->dims[0] < 1)
        return refuse(one, "it is no product with a weight", why);
    if (one->operator_ == RB_OP_MATMUL && !has_rows(reading->program, one))
        return refuse(one,
                      "its neurons are no rows of its weight; Gemm with transB=1 on samples by "
                      "channels has them so",
                      why);
    from = rb_filters_read(reading, at, 0);
    if (from.last)
        return refuse_last(from.last, why);
    if (from.many)
        return refuse(one, "it reads too many layers", why);
    layer.filters = (uint32_t)weight->dims[0];
    layer.work =
        1.5 * rb_work_flops(reading->program, at) / reading->program->batch / layer.filters;
    layer.memory = rb_work_elements(weight) / layer.filters + 1;
    layer.n_inputs = from.n;
    memcpy(layer.inputs, from.layers, sizeof layer.inputs);
    reading->same[at] = (int)at;
    reading->sources[at] =
        (struct rb_filters_sources){{rb_filters_add_layer(reading, &layer)}, .n = 1, .times = {1}};
    return 0;
}

/* The loss becomes a layer of one filter that reads all filters that are needed at once: the words
 * of a sample that it needs, and next to no work. */
static int add_loss(struct rb_filters_reading *reading, size_t at, struct rb_why *why)
{
    struct rb_hypergraph_layer layer = {.filters = 1, .work = 1};
    const struct rb_filters_sources *from = &reading->sources[at];

    if (from->many || !from->n || !from->last)
        return refuse(reading->program->instructions[at], "it reads too many layers, or none", why);
    layer.n_inputs = from->n;
    memcpy(layer.inputs, from->layers, sizeof layer.inputs);
    rb_filters_add_layer(reading, &layer);
    return 0;
}

/* Add an instruction that is no product. */
static int add_other(struct rb_filters_reading *reading, size_t at, struct rb_why *why)
{
    const Rb__Instruction *one = reading->program->instructions[at];

    if (rb_op_info(one->operator_)->kind == RB_KIND_RANDOM)
        return refuse(one, "its random numbers are those of a whole layer", why);
    reading->sources[at] = rb_filters_take(reading, at);
    for (size_t k = 0; !reading->sources[at].n && k < one->n_inputs; k++)
        if (one->inputs[k] >= 0 &&
            rb_filters_is_trained(reading, reading->program->tensors[one->inputs[k]]))
            return refuse(one, "it has weights, and reads no filters", why);
    return 0;
}

static int read_program(struct rb_filters_reading *reading, uint32_t forward, struct rb_why *why)
{
    int err = 0;

    if (!forward)
        return rb_why_set(why, RB_EUNSUPPORTED, "the model has no loss");
    for (uint32_t i = 0; !err && i < forward; i++) {
        uint32_t op = reading->program->instructions[i]->operator_;

        err = op == RB_OP_MATMUL || op == RB_OP_CONV ? add_product(reading, i, why)
                                                     : add_other(reading, i, why);
    }
    return err ? err : add_loss(reading, forward - 1, why);
}

int rb_filters_layers(const Rb__Model *model, struct rb_hypergraph_layer **ret_layers,
                      uint32_t *ret_n, struct rb_why *why)
{
    const Rb__Program *program = model->programs[0];
    RB_CLEANUP(rb_freep) int *makers = rb_makers_find(program);
    uint32_t forward = rb_makers_forward(program, makers);
    RB_CLEANUP(rb_freep)
    struct rb_filters_sources *sources = rb_alloc((forward + 1) * sizeof *sources);
    RB_CLEANUP(rb_freep) int *same = rb_alloc((forward + 1) * sizeof *same);
    struct rb_filters_reading reading = {
        .model = model, .program = program, .makers = makers, .sources = sources, .same = same};
    int err = read_program(&reading, forward, why);

    free(reading.activations);
    if (err) {
        free(reading.layers);
        return err;
    }
    *ret_layers = reading.layers;
    *ret_n = reading.n;
    return 0;
}
