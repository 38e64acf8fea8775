/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/filters.h"

#include "base/arena.h"
#include "plan/compile/makers.h"
#include "proto/operators.h"
#include "proto/work.h"

#include <stdbool.h>
#include <string.h>

/* Layers whose filters a value is made of, one after the other. */
struct sources {
    uint32_t layers[RB_HYPERGRAPH_INPUTS], n;
    bool many; /* more than fit */
};

/* While a program is read. */
struct reading {
    const Rb__Model *model;
    const Rb__Program *program;
    const int *makers;
    struct sources *sources; /* by instruction */
    struct rb_hypergraph_layer *layers;
    uint32_t n;
};

static void join(struct sources *to, const struct sources *from)
{
    to->many |= from->many;
    for (uint32_t i = 0; i < from->n; i++) {
        bool there = false;

        for (uint32_t k = 0; k < to->n; k++)
            there |= to->layers[k] == from->layers[i];
        if (there)
            continue;
        if (to->n == RB_HYPERGRAPH_INPUTS)
            to->many = true;
        else
            to->layers[to->n++] = from->layers[i];
    }
}

static struct sources sources_of(const struct reading *reading, size_t instruction)
{
    const Rb__Instruction *one = reading->program->instructions[instruction];
    struct sources all = {.n = 0};

    for (size_t k = 0; k < one->n_inputs; k++) {
        int from = one->inputs[k] < 0 ? -1
                                      : rb_makers_of(reading->program, reading->makers,
                                                     one->inputs[k], (int)instruction);

        if (from >= 0)
            join(&all, &reading->sources[from]);
    }
    return all;
}

static int64_t attribute(const Rb__Instruction *one, const char *key, int64_t otherwise)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, key) && one->attributes[i]->n_ints)
            return one->attributes[i]->ints[0];
    return otherwise;
}

/* What those in front of it give on is what it reads, pooled or not. */
static void note_words(struct reading *reading, const struct sources *from, double elements)
{
    double filters = 0;

    for (uint32_t i = 0; i < from->n; i++)
        filters += reading->layers[from->layers[i]].filters;
    for (uint32_t i = 0; i < from->n; i++) {
        struct rb_hypergraph_layer *layer = &reading->layers[from->layers[i]];

        if (elements / filters > layer->words)
            layer->words = elements / filters;
    }
}

/* A product with a weight is a layer; false: it is one of two activations, or reads too many. */
static bool add_layer(struct reading *reading, size_t instruction)
{
    const Rb__Instruction *one = reading->program->instructions[instruction];
    const Rb__Tensor *read = reading->program->tensors[one->inputs[0]];
    const Rb__Tensor *weight = reading->program->tensors[one->inputs[1]];
    struct sources from = sources_of(reading, instruction);
    struct rb_hypergraph_layer *layer = &reading->layers[reading->n];
    bool dense = one->operator_ == RB_OP_MATMUL;
    double batch = reading->program->batch;
    size_t axis =
        !dense || (attribute(one, "transB", 0) && weight->n_dims > 1) ? 0 : weight->n_dims - 1;

    if (weight->space != RB__TENSOR__SPACE__VARIABLE || from.many ||
        (dense && weight->n_dims != 2) || weight->dims[axis] < 1)
        return false;
    *layer = (struct rb_hypergraph_layer){
        .filters = (uint32_t)weight->dims[axis],
        .groups = (uint32_t)attribute(one, "group", 1),
        .n_inputs = from.n,
    };
    memcpy(layer->inputs, from.layers, sizeof layer->inputs);
    layer->work = 1.5 * rb_work_flops(reading->program, instruction) / batch / layer->filters;
    layer->memory = rb_work_elements(weight) / layer->filters + 1;
    note_words(reading, &from, rb_work_elements(read) / batch);
    reading->sources[instruction] = (struct sources){.layers = {reading->n}, .n = 1};
    reading->n++;
    return true;
}

uint32_t rb_filters_layers(const Rb__Model *model, struct rb_hypergraph_layer **ret_layers)
{
    const Rb__Program *program = model->programs[0];
    RB_CLEANUP(rb_freep) int *makers = rb_makers_find(program);
    uint32_t forward = rb_makers_forward(program, makers);
    RB_CLEANUP(rb_freep) struct sources *sources = rb_alloc((forward + 1) * sizeof *sources);
    RB_CLEANUP(rb_freep)
    struct rb_hypergraph_layer *layers = rb_alloc((forward + 1) * sizeof *layers);
    struct reading reading = {model, program, makers, sources, layers, 0};

    for (uint32_t i = 0; i < forward; i++) {
        uint32_t op = program->instructions[i]->operator_;

        if (op != RB_OP_MATMUL && op != RB_OP_CONV)
            sources[i] = sources_of(&reading, i);
        else if (!add_layer(&reading, i))
            return 0;
    }
    if (reading.n)
        *ret_layers = RB_TAKE(layers);
    return reading.n;
}
