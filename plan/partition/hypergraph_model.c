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
    uint32_t *roots;                      /* by layer */
    struct rb_hypergraph_bundle *bundles; /* by vertex */
    uint32_t *first_bundle;               /* by layer, and one behind; of roots only */
    uint32_t *seen;                       /* by vertex: the net that has it, and one more */
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

static bool is_among(const uint32_t *layers, uint32_t n, uint32_t layer)
{
    for (uint32_t i = 0; i < n; i++)
        if (layers[i] == layer)
            return true;
    return false;
}

bool rb_hypergraph_reads(const struct rb_hypergraph_layer *layer, uint32_t other)
{
    return is_among(layer->inputs, layer->n_inputs, other);
}

bool rb_hypergraph_joins(const struct rb_hypergraph_layer *layer, uint32_t other)
{
    return is_among(layer->joins, layer->n_joins, other);
}

void rb_hypergraph_roots(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t *ret_roots)
{
    for (uint32_t l = 0; l < n; l++) {
        ret_roots[l] = l;
        for (uint32_t j = 0; j < layers[l].n_joins; j++) {
            uint32_t a = ret_roots[l], b = ret_roots[layers[l].joins[j]];

            for (uint32_t k = 0; k <= l; k++)
                if (ret_roots[k] == (a > b ? a : b))
                    ret_roots[k] = a > b ? b : a;
        }
    }
}

/* Borders of one layer, without those that it is joined with. */
static void mark_borders(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t layer,
                         bool *borders)
{
    const struct rb_hypergraph_layer *own = &layers[layer];
    uint32_t offset;

    for (uint32_t g = 1; g < groups_of(own); g++)
        borders[(uint64_t)own->filters * g / groups_of(own)] = true;
    for (uint32_t to = layer + 1; to < n; to++) {
        const struct rb_hypergraph_layer *reader = &layers[to];
        uint32_t channels = channels_of(layers, reader), groups = groups_of(reader);

        if (!offset_in(layers, layer, to, &offset))
            continue;
        for (uint32_t g = 1; g < groups; g++) {
            uint64_t at = (uint64_t)channels * g / groups;

            if (at > offset && at < (uint64_t)offset + own->filters)
                borders[at - offset] = true;
        }
    }
}

void rb_hypergraph_borders(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t layer,
                           bool *ret_borders)
{
    RB_CLEANUP(rb_freep) uint32_t *roots = rb_alloc((n + 1) * sizeof *roots);

    rb_hypergraph_roots(layers, n, roots);
    for (uint32_t l = 0; l < n; l++)
        if (roots[l] == roots[layer])
            mark_borders(layers, n, l, ret_borders);
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

        making->first_bundle[l] = n;
        if (making->roots[l] != l)
            continue;
        rb_hypergraph_borders(making->layers, making->n, l, borders);
        for (uint32_t f = 1; f <= all; f++)
            if (f == all || f - first >= size || borders[f]) {
                making->bundles[n++] = (struct rb_hypergraph_bundle){l, first, f};
                first = f;
            }
    }
    making->first_bundle[making->n] = making->graph->n_vertices = n;
}

/* Each vertex once a net: the maker of an activation may be joined with a reader. */
static void add_pin(struct making *making, uint32_t vertex)
{
    if (making->seen[vertex] == making->graph->n_nets + 1)
        return;
    making->seen[vertex] = making->graph->n_nets + 1;
    if (making->n_pins == making->room) {
        making->room = 2 * making->room + 1024;
        making->graph->pins =
            rb_realloc(making->graph->pins, making->room * sizeof *making->graph->pins);
    }
    making->graph->pins[making->n_pins++] = vertex;
}

/* Does `reader`, of layer `to`, read any of what `maker` makes, `offset` channels into its input?
 */
static bool reads(const struct making *making, uint32_t to,
                  const struct rb_hypergraph_bundle *reader,
                  const struct rb_hypergraph_bundle *maker, uint32_t offset)
{
    const struct rb_hypergraph_layer *layer = &making->layers[to];
    uint64_t channels = channels_of(making->layers, layer), groups = groups_of(layer);
    uint64_t first = reader->first * groups / layer->filters * channels / groups;
    uint64_t end = ((reader->end - 1) * groups / layer->filters + 1) * channels / groups;

    return offset + maker->first < end && offset + maker->end > first;
}

/* The net of what `vertex` passes on of `layer`. */
static void add_net(struct making *making, uint32_t layer, uint32_t vertex)
{
    struct rb_hypergraph *graph = making->graph;
    const struct rb_hypergraph_bundle *maker = &making->bundles[vertex];
    uint32_t first = making->n_pins, offset;

    add_pin(making, vertex);
    for (uint32_t to = layer + 1; to < making->n; to++) {
        uint32_t root = making->roots[to];

        if (!offset_in(making->layers, layer, to, &offset))
            continue;
        for (uint32_t b = making->first_bundle[root]; b < making->first_bundle[root + 1]; b++)
            if (reads(making, to, &making->bundles[b], maker, offset))
                add_pin(making, b);
    }
    making->seen[vertex] = 0; /* if this net is dropped, the next one has its number */
    if (making->n_pins - first < 2) {
        making->n_pins = first;
        return;
    }
    graph->layers[graph->n_nets] = layer;
    graph->costs[graph->n_nets] = making->layers[layer].words * (maker->end - maker->first);
    graph->first_pin[graph->n_nets++] = first;
}

/* A vertex has the work and memory of all that is joined in it; each layer has its own nets. */
static void add_layer(struct making *making, uint32_t layer)
{
    const struct rb_hypergraph_layer *from = &making->layers[layer];
    uint32_t root = making->roots[layer];

    for (uint32_t v = making->first_bundle[root]; v < making->first_bundle[root + 1]; v++) {
        uint32_t filters = making->bundles[v].end - making->bundles[v].first;

        making->graph->work[v] += from->work * filters;
        making->graph->memory[v] += from->memory * filters;
        add_net(making, layer, v);
    }
}

static size_t most_nets(const struct making *making)
{
    size_t n = 0;

    for (uint32_t l = 0; l < making->n; l++)
        n += making->first_bundle[making->roots[l] + 1] - making->first_bundle[making->roots[l]];
    return n;
}

void rb_hypergraph_of_layers(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t grain,
                             struct rb_hypergraph *ret_graph,
                             struct rb_hypergraph_bundle **ret_bundles)
{
    struct rb_hypergraph graph = {0};
    struct making making = {.layers = layers, .n = n, .graph = &graph};
    size_t vertices, nets;

    making.roots = rb_alloc((n + 1) * sizeof *making.roots);
    rb_hypergraph_roots(layers, n, making.roots);
    make_bundles(&making, grain);
    vertices = graph.n_vertices + 1;
    nets = most_nets(&making) + 1;
    making.seen = rb_alloc(vertices * sizeof *making.seen);
    graph.work = rb_alloc(vertices * sizeof(double));
    graph.memory = rb_alloc(vertices * sizeof(double));
    graph.costs = rb_alloc(nets * sizeof(double));
    graph.layers = rb_alloc(nets * sizeof(uint32_t));
    graph.first_pin = rb_alloc((nets + 1) * sizeof(uint32_t));
    for (uint32_t l = 0; l < n; l++)
        add_layer(&making, l);
    graph.first_pin[graph.n_nets] = making.n_pins;
    rb_hypergraph_index(&graph);
    if (ret_bundles)
        *ret_bundles = making.bundles;
    else
        free(making.bundles);
    free(making.roots);
    free(making.first_bundle);
    free(making.seen);
    *ret_graph = graph;
}

/* ---- By layer --------------------------------------------------------------------------------*/

/* By layer: the unit that it is in; joined layers are in one, and so is what lies between them.
 * Returns how many units there are. */
static uint32_t find_units(const struct rb_hypergraph_layer *layers, uint32_t n,
                           uint32_t *ret_units)
{
    RB_CLEANUP(rb_freep) uint32_t *roots = rb_alloc((n + 1) * sizeof *roots);
    RB_CLEANUP(rb_freep) uint32_t *last = rb_alloc((n + 1) * sizeof *last);
    uint32_t units = 0, end = 0;

    rb_hypergraph_roots(layers, n, roots);
    for (uint32_t l = 0; l < n; l++)
        last[roots[l]] = l;
    for (uint32_t l = 0; l < n; l++) {
        units += l == 0 || l > end;
        end = last[roots[l]] > end ? last[roots[l]] : end;
        ret_units[l] = units - 1;
    }
    return units;
}

double rb_hypergraph_by_layer(const struct rb_hypergraph_layer *layers, uint32_t count, uint32_t n,
                              uint32_t *ret_parts)
{
    RB_CLEANUP(rb_freep) uint32_t *units = rb_alloc((count + 1) * sizeof *units);
    RB_CLEANUP(rb_freep) struct rb_stages_layer *chain = rb_alloc((count + 1) * sizeof *chain);
    RB_CLEANUP(rb_freep) struct rb_stages_part *stages = rb_alloc(n * sizeof *stages);
    uint32_t n_units = find_units(layers, count, units), used;
    double all = 0, most;

    for (uint32_t l = 0; l < count; l++) {
        double work = layers[l].work * layers[l].filters;

        chain[units[l]].seconds += work;
        all += work;
    }
    most = rb_stages_cut(chain, n_units, n, 0, true, stages, &used);
    for (uint32_t l = 0; l < count; l++)
        for (uint32_t s = 0; s < used; s++)
            if (units[l] >= stages[s].first && units[l] < stages[s].first + stages[s].count)
                ret_parts[l] = s;
    return most / (all / n) - 1;
}
