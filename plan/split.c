/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/split.h"

#include "base/arena.h"
#include "graph/split.h"
#include "plan/compile/compile.h"
#include "plan/partition/filters.h"
#include "plan/schedule_pipeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* While a job's parts are made. */
struct making {
    Rb__Model *model;
    struct rb_arena arena;
    struct rb_compile_part *parts;
    size_t n_parts;
};

/* ---- Which part has which filters ------------------------------------------------------------*/

/* Filters first .. end - 1 of a layer are alike: give each part in order as many of them as it
 * has. */
static void add_alike(const struct rb_filters_cut *cut, uint32_t *vertex, uint32_t first,
                      uint32_t end, struct rb_split_layer *layer)
{
    uint32_t counts[RB_SPLIT_PARTS] = {0};

    for (uint32_t at = first; at < end; ++*vertex) {
        const struct rb_hypergraph_bundle *bundle = &cut->bundles[*vertex];

        counts[cut->parts[*vertex]] += bundle->end - bundle->first;
        at = bundle->end;
    }
    for (uint32_t part = 0; part < cut->n_parts; part++) {
        if (!counts[part])
            continue;
        layer->runs[layer->n++] = (struct rb_split_run){first, first + counts[part], part};
        first += counts[part];
    }
}

/* Layers that are joined have the same vertices and borders, and so the same runs. */
static struct rb_split_layer place_layer(const struct rb_filters_cut *cut, uint32_t l,
                                         uint32_t root, struct rb_arena *arena)
{
    uint32_t filters = cut->layers[l].filters, vertex = 0;
    RB_CLEANUP(rb_freep) bool *borders = rb_alloc(filters + 1);
    struct rb_split_layer layer = {0};
    size_t segments = 1;

    rb_hypergraph_borders(cut->layers, cut->n_layers, l, borders);
    for (uint32_t f = 1; f < filters; f++)
        segments += borders[f];
    layer.runs = RB_ARENA_NEW(arena, struct rb_split_run, segments * cut->n_parts);
    while (cut->bundles[vertex].layer != root)
        vertex++;
    for (uint32_t first = 0, f = 1; f <= filters; f++)
        if (f == filters || borders[f]) {
            add_alike(cut, &vertex, first, f, &layer);
            first = f;
        }
    return layer;
}

/* Place the filters of all products; the loss, the last layer, has its place. */
static struct rb_split_layer *place_filters(const struct rb_filters_cut *cut,
                                            struct rb_arena *arena, int *ret_n)
{
    struct rb_split_layer *layers = RB_ARENA_NEW(arena, struct rb_split_layer, cut->n_layers);
    RB_CLEANUP(rb_freep) uint32_t *roots = rb_alloc(cut->n_layers * sizeof *roots);

    rb_hypergraph_roots(cut->layers, cut->n_layers, roots);
    *ret_n = 0;
    for (uint32_t l = 0; l + 1 < cut->n_layers; l++)
        if (!cut->layers[l].n_joins)
            layers[(*ret_n)++] = place_layer(cut, l, roots[l], arena);
    return layers;
}

/* ---- Programs --------------------------------------------------------------------------------*/

static int change(struct rb_graph **graph, const void *owner, struct rb_why *why)
{
    struct rb_graph *whole = *graph;

    *graph = NULL;
    return rb_graph_split(whole, owner, graph, why);
}

static void add_part(struct making *making, const struct rb_split *split, int64_t batch)
{
    making->parts = rb_realloc(making->parts, (making->n_parts + 1) * sizeof *making->parts);
    making->parts[making->n_parts++] = (struct rb_compile_part){
        .batch = batch,
        .parts = split->parts,
        .part = split->mine,
        .change = change,
        .owner = split,
    };
}

static int add_parts(struct making *making, uint32_t parts, enum rb_filters_aim aim,
                     struct rb_why *why)
{
    const Rb__Model *model = making->model;
    int64_t rest = model->global_batch % model->micro_batch;
    struct rb_split_layer *layers;
    struct rb_filters_cut cut;
    int n, err = rb_filters_cut(model, parts, aim, &cut, why);

    if (err)
        return err;
    layers = place_filters(&cut, &making->arena, &n);
    for (uint32_t part = 0; part < parts; part++) {
        struct rb_split *split = RB_ARENA_NEW(&making->arena, struct rb_split, 1);

        *split = (struct rb_split){parts, part, layers, n};
        add_part(making, split, model->micro_batch);
        if (rest)
            add_part(making, split, rest);
    }
    rb_filters_cut_done(&cut);
    return 0;
}

/* ---- Blocks ----------------------------------------------------------------------------------*/

static int by_place(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Elements of the state at which the contributions of a part begin or end. */
static uint64_t *find_borders(const Rb__Model *model, size_t *ret_n)
{
    uint64_t *borders = NULL;
    size_t n = 0, room = 0;

    for (size_t p = 0; p < model->n_programs; p++)
        for (size_t c = 0; model->programs[p]->parts && c < model->programs[p]->n_contributions;
             c++) {
            const Rb__Contribution *one = model->programs[p]->contributions[c];
            const Rb__Tensor *tensor = model->programs[p]->tensors[one->tensor];
            uint64_t first = model->variables[one->variable]->offset + one->first, elements = 1;

            for (size_t d = 0; d < tensor->n_dims; d++)
                elements *= (uint64_t)tensor->dims[d];
            if (n + 2 > room)
                borders = rb_realloc(borders, (room = 2 * room + 64) * sizeof *borders);
            borders[n++] = first;
            borders[n++] = first + elements;
        }
    if (n)
        qsort(borders, n, sizeof *borders, by_place);
    *ret_n = n;
    return borders;
}

static void add_block(Rb__Model *model, size_t *room, const Rb__Block *like, uint64_t first,
                      uint64_t end)
{
    Rb__Block *block = rb_alloc(sizeof *block);

    rb__block__init(block);
    block->variable = like->variable;
    block->first = first;
    block->count = end - first;
    if (model->n_blocks == *room)
        model->blocks = rb_realloc(model->blocks, (*room = 2 * *room + 64) * sizeof(Rb__Block *));
    model->blocks[model->n_blocks++] = block;
}

/* Blocks are in the order of the state, and so are borders. */
static void cut_blocks(Rb__Model *model)
{
    size_t n, at = 0, n_old = model->n_blocks, room = 0;
    RB_CLEANUP(rb_freep) uint64_t *borders = find_borders(model, &n);
    RB_CLEANUP(rb_freep) Rb__Block **old = model->blocks;

    model->blocks = NULL;
    model->n_blocks = 0;
    for (size_t b = 0; b < n_old; b++) {
        uint64_t first = old[b]->first, end = first + old[b]->count;

        for (; at < n && borders[at] < end; at++)
            if (borders[at] > first) {
                add_block(model, &room, old[b], first, borders[at]);
                first = borders[at];
            }
        add_block(model, &room, old[b], first, end);
        rb__block__free_unpacked(old[b], NULL);
    }
}

/* ---- The whole -------------------------------------------------------------------------------*/

static int check(const Rb__Spec *spec, uint32_t parts, struct rb_why *why)
{
    if (parts > RB_SPLIT_PARTS)
        return rb_why_set(why, RB_EINVAL, "at most %d are possible", RB_SPLIT_PARTS);
    if (!strcmp(spec->train->precision, "bf16"))
        return rb_why_set(why, RB_EUNSUPPORTED, "filters are split in fp32 alone");
    return 0;
}

int rb_split_make(const Rb__Spec *spec, const char *numeric_class, struct rb_compiled *compiled,
                  struct rb_why *why)
{
    uint32_t most = rb_pipeline_stages(spec->parallel->hypergraph, spec->devices->max);
    struct making making = {.model = compiled->model};
    int err = most ? check(spec, most, why) : 0;

    for (uint32_t parts = 2; !err && parts <= most; parts++)
        err = add_parts(&making, parts, rb_filters_aim_of(spec->parallel), why);
    if (!err && most)
        err =
            rb_compile_parts(spec, numeric_class, making.parts, making.n_parts, making.model, why);
    if (!err && most)
        cut_blocks(making.model);
    free(making.parts);
    rb_arena_done(&making.arena);
    return err ? rb_why_add(why, err, "spec.parallel.hypergraph") : 0;
}

int rb_split_program(const Rb__Model *model, uint32_t parts, uint32_t part, uint32_t batch)
{
    for (size_t p = 0; p < model->n_programs; p++)
        if (model->programs[p]->parts == parts && model->programs[p]->part == part &&
            model->programs[p]->batch == batch && model->programs[p]->train)
            return (int)p;
    return -1;
}
