/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/filters.h"

#include "base/arena.h"
#include "plan/compile/makers.h"
#include "proto/operators.h"
#include "proto/work.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 64, TRIES = 4 }; /* vertices a layer; partitions that are tried */

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

static int refuse(const Rb__Instruction *one, const char *text, struct rb_why *why)
{
    const struct rb_op_info *info = rb_op_info(one->operator_);

    return rb_why_set(why, RB_EUNSUPPORTED, "node '%.80s' (%s) cannot be split over devices: %s",
                      one->name ? one->name : "", info ? info->name : "?", text);
}

/* A product with a weight is a layer. */
static int add_layer(struct reading *reading, size_t instruction, struct rb_why *why)
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

    if (weight->space != RB__TENSOR__SPACE__VARIABLE || (dense && weight->n_dims != 2) ||
        weight->dims[axis] < 1)
        return refuse(one, "it is no product with a weight", why);
    if (from.many)
        return refuse(one, "it reads too many layers", why);
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
    return 0;
}

/* As a layer of one filter that reads all of the last ones: the words of a sample that it needs,
 * and next to no work. */
static int add_loss(struct reading *reading, size_t instruction, struct rb_why *why)
{
    const Rb__Instruction *one = reading->program->instructions[instruction];
    struct sources from = sources_of(reading, instruction);
    struct rb_hypergraph_layer *layer = &reading->layers[reading->n];

    if (from.many || !from.n)
        return refuse(one, "it reads too many layers, or none", why);
    *layer = (struct rb_hypergraph_layer){.filters = 1, .work = 1, .n_inputs = from.n};
    memcpy(layer->inputs, from.layers, sizeof layer->inputs);
    for (uint32_t i = 0; i < from.n; i++)
        if (!reading->layers[from.layers[i]].words)
            note_words(reading, &from,
                       rb_work_elements(reading->program->tensors[one->inputs[0]]) /
                           reading->program->batch);
    reading->n++;
    return 0;
}

int rb_filters_layers(const Rb__Model *model, struct rb_hypergraph_layer **ret_layers,
                      uint32_t *ret_n, struct rb_why *why)
{
    const Rb__Program *program = model->programs[0];
    RB_CLEANUP(rb_freep) int *makers = rb_makers_find(program);
    uint32_t forward = rb_makers_forward(program, makers);
    RB_CLEANUP(rb_freep) struct sources *sources = rb_alloc((forward + 1) * sizeof *sources);
    RB_CLEANUP(rb_freep)
    struct rb_hypergraph_layer *layers = rb_alloc((forward + 2) * sizeof *layers);
    struct reading reading = {model, program, makers, sources, layers, 0};
    int err = 0;

    for (uint32_t i = 0; !err && i < forward; i++) {
        uint32_t op = program->instructions[i]->operator_;

        if (op != RB_OP_MATMUL && op != RB_OP_CONV)
            sources[i] = sources_of(&reading, i);
        else
            err = add_layer(&reading, i, why);
    }
    if (!err && !forward)
        err = rb_why_set(why, RB_EUNSUPPORTED, "the model has no loss");
    err = err ? err : add_loss(&reading, forward - 1, why);
    if (err)
        return err;
    *ret_layers = RB_TAKE(layers);
    *ret_n = reading.n;
    return 0;
}

/* ---- Cutting ---------------------------------------------------------------------------------*/

/* Parts have no order: so the loss, the last vertex, is in the last of them. */
static void put_loss_last(const struct rb_filters_cut *cut)
{
    uint32_t of_loss = cut->parts[cut->graph.n_vertices - 1], last = cut->n_parts - 1;

    for (uint32_t v = 0; v < cut->graph.n_vertices; v++)
        if (cut->parts[v] == of_loss)
            cut->parts[v] = last;
        else if (cut->parts[v] == last)
            cut->parts[v] = of_loss;
}

int rb_filters_cut(const Rb__Model *model, uint32_t parts, struct rb_filters_cut *ret_cut,
                   struct rb_why *why)
{
    struct rb_hypergraph_how how = {.parts = parts, .epsilon = 0.03, .seed = 1, .tries = TRIES};
    struct rb_filters_cut cut = {.n_parts = parts};
    int err = rb_filters_layers(model, &cut.layers, &cut.n_layers, why);

    if (err)
        return err;
    rb_hypergraph_of_layers(cut.layers, cut.n_layers, GRAIN, &cut.graph, &cut.bundles);
    cut.parts = rb_alloc((cut.graph.n_vertices + 1) * sizeof *cut.parts);
    rb_hypergraph_partition(&cut.graph, &how, cut.parts);
    put_loss_last(&cut);
    *ret_cut = cut;
    return 0;
}

void rb_filters_cut_done(struct rb_filters_cut *cut)
{
    free(cut->layers);
    free(cut->bundles);
    free(cut->parts);
    rb_hypergraph_done(&cut->graph);
    *cut = (struct rb_filters_cut){0};
}
