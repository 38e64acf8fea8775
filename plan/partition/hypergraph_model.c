/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/hypergraph_model.h"

#include "base/arena.h"
#include "base/error.h"
#include "plan/partition/stages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* While a hypergraph is made. */
struct making {
    const struct rb_hypergraph_layer *layers;
    uint32_t n;
    struct rb_hypergraph_bundle *bundles; /* by vertex */
    uint32_t *first_bundle;               /* by layer, and one behind */
    struct rb_hypergraph *graph;
    uint32_t n_pins, room;
};

struct rb_hypergraph_layer rb_hypergraph_convolution(uint32_t filters, uint32_t groups,
                                                     uint32_t channels, uint32_t kernel,
                                                     uint32_t pixels, uint32_t pooled)
{
    double reads = (double)kernel * kernel * channels / (groups ? groups : 1);

    return (struct rb_hypergraph_layer){
        .filters = filters,
        .groups = groups,
        .work = 3 * reads * pixels,
        .memory = 4 * (reads + 1),
        .words = pooled,
    };
}

static uint32_t groups_of(const struct rb_hypergraph_layer *layer)
{
    return layer->groups ? layer->groups : 1;
}

static uint32_t channels_of(const struct rb_hypergraph_layer *layers,
                            const struct rb_hypergraph_layer *layer)
{
    uint32_t channels = 0;

    for (uint32_t i = 0; i < layer->n_inputs; i++)
        channels += layers[layer->inputs[i]].filters;
    return channels;
}

/* Where the channels of `from` begin among those that `to` reads; false: it does not read them. */
static bool offset_in(const struct rb_hypergraph_layer *layers, uint32_t from, uint32_t to,
                      uint32_t *ret)
{
    const struct rb_hypergraph_layer *layer = &layers[to];

    *ret = 0;
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == from)
            return true;
        *ret += layers[layer->inputs[i]].filters;
    }
    return false;
}

void rb_hypergraph_borders(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t layer,
                           bool *ret_borders)
{
    const struct rb_hypergraph_layer *own = &layers[layer];
    uint32_t offset;

    for (uint32_t g = 1; g < groups_of(own); g++)
        ret_borders[(uint64_t)own->filters * g / groups_of(own)] = true;
    for (uint32_t to = layer + 1; to < n; to++) {
        const struct rb_hypergraph_layer *reader = &layers[to];
        uint32_t channels = channels_of(layers, reader), groups = groups_of(reader);

        if (!offset_in(layers, layer, to, &offset))
            continue;
        for (uint32_t g = 1; g < groups; g++) {
            uint64_t at = (uint64_t)channels * g / groups;

            if (at > offset && at < (uint64_t)offset + own->filters)
                ret_borders[at - offset] = true;
        }
    }
}

static void make_bundles(struct making *making, uint32_t grain)
{
    uint32_t filters = 0, n = 0;

    for (uint32_t l = 0; l < making->n; l++)
        filters += making->layers[l].filters;
    making->bundles = rb_alloc((filters + 1) * sizeof *making->bundles);
    making->first_bundle = rb_alloc((making->n + 1) * sizeof *making->first_bundle);
    for (uint32_t l = 0; l < making->n; l++) {
        uint32_t all = making->layers[l].filters, first = 0;
        uint32_t size = grain ? (all + grain - 1) / grain : 1;
        RB_CLEANUP(rb_freep) bool *borders = rb_alloc(all + 1);

        rb_hypergraph_borders(making->layers, making->n, l, borders);
        making->first_bundle[l] = n;
        for (uint32_t f = 1; f <= all; f++)
            if (f == all || f - first >= size || borders[f]) {
                making->bundles[n++] = (struct rb_hypergraph_bundle){l, first, f};
                first = f;
            }
    }
    making->first_bundle[making->n] = making->graph->n_vertices = n;
}

static void add_pin(struct making *making, uint32_t vertex)
{
    if (making->n_pins == making->room) {
        making->room = 2 * making->room + 1024;
        making->graph->pins =
            rb_realloc(making->graph->pins, making->room * sizeof *making->graph->pins);
    }
    making->graph->pins[making->n_pins++] = vertex;
}

/* Does `reader` read any of what `maker` makes, `offset` channels into its input? */
static bool reads(const struct making *making, const struct rb_hypergraph_bundle *reader,
                  const struct rb_hypergraph_bundle *maker, uint32_t offset)
{
    const struct rb_hypergraph_layer *layer = &making->layers[reader->layer];
    uint64_t channels = channels_of(making->layers, layer), groups = groups_of(layer);
    uint64_t from = reader->first * groups / layer->filters * channels / groups;
    uint64_t to = ((reader->end - 1) * groups / layer->filters + 1) * channels / groups;

    return offset + maker->first < to && offset + maker->end > from;
}

static void add_net(struct making *making, uint32_t vertex)
{
    struct rb_hypergraph *graph = making->graph;
    const struct rb_hypergraph_bundle *maker = &making->bundles[vertex];
    uint32_t first = making->n_pins, offset;

    add_pin(making, vertex);
    for (uint32_t to = maker->layer + 1; to < making->n; to++) {
        if (!offset_in(making->layers, maker->layer, to, &offset))
            continue;
        for (uint32_t b = making->first_bundle[to]; b < making->first_bundle[to + 1]; b++)
            if (reads(making, &making->bundles[b], maker, offset))
                add_pin(making, b);
    }
    if (making->n_pins - first < 2) {
        making->n_pins = first;
        return;
    }
    graph->costs[graph->n_nets] = making->layers[maker->layer].words * (maker->end - maker->first);
    graph->first_pin[graph->n_nets++] = first;
}

void rb_hypergraph_of_layers(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t grain,
                             struct rb_hypergraph *ret_graph,
                             struct rb_hypergraph_bundle **ret_bundles)
{
    struct rb_hypergraph graph = {0};
    struct making making = {.layers = layers, .n = n, .graph = &graph};
    size_t room;

    make_bundles(&making, grain);
    room = graph.n_vertices + 1;
    graph.work = rb_alloc(room * sizeof(double));
    graph.memory = rb_alloc(room * sizeof(double));
    graph.costs = rb_alloc(room * sizeof(double));
    graph.first_pin = rb_alloc((room + 1) * sizeof(uint32_t));
    for (uint32_t v = 0; v < graph.n_vertices; v++) {
        const struct rb_hypergraph_bundle *bundle = &making.bundles[v];

        graph.work[v] = layers[bundle->layer].work * (bundle->end - bundle->first);
        graph.memory[v] = layers[bundle->layer].memory * (bundle->end - bundle->first);
        add_net(&making, v);
    }
    graph.first_pin[graph.n_nets] = making.n_pins;
    rb_hypergraph_index(&graph);
    if (ret_bundles)
        *ret_bundles = making.bundles;
    else
        free(making.bundles);
    free(making.first_bundle);
    *ret_graph = graph;
}

double rb_hypergraph_by_layer(const struct rb_hypergraph_layer *layers, uint32_t count, uint32_t n,
                              uint32_t *ret_parts)
{
    RB_CLEANUP(rb_freep) struct rb_stages_layer *chain = rb_alloc(count * sizeof *chain);
    RB_CLEANUP(rb_freep) struct rb_stages_part *stages = rb_alloc(n * sizeof *stages);
    double all = 0, most;
    uint32_t used;

    for (uint32_t l = 0; l < count; l++) {
        chain[l].seconds = layers[l].work * layers[l].filters;
        all += chain[l].seconds;
    }
    most = rb_stages_cut(chain, count, n, 0, true, stages, &used);
    for (uint32_t s = 0; s < used; s++)
        for (uint32_t l = stages[s].first; l < stages[s].first + stages[s].count; l++)
            ret_parts[l] = s;
    return most / (all / n) - 1;
}
