/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/filters.h"

#include <inttypes.h>

enum {
    MOST_DEVICES = 16, /* and microbatches, that are played */
    MOST_MICROBATCHES = 256,
    GRAIN = 64, /* vertices a layer */
};

static int price_filters(struct rb_search_work *work, const struct rb_hypergraph_layer *layers,
                         uint32_t n, const struct rb_hypergraph *graph,
                         const uint32_t *vertex_layers)
{
    const struct rb_search_how *how = work->how;
    const struct rb_cluster_device *device = &how->cluster->devices[0];
    struct rb_hypergraph_how cut = {.parts = work->devices, .epsilon = 0.03, .seed = 1, .tries = 4};
    RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc((graph->n_vertices + 1) * sizeof *parts);
    struct rb_cluster_link link = rb_search_link(work);
    double elements = (double)how->model->state_elements;
    struct rb_filters_how step = {
        .layers = layers,
        .n_layers = n,
        .graph = graph,
        .vertex_layers = vertex_layers,
        .parts = parts,
        .n_parts = work->devices,
        .microbatches = work->total,
        .samples = how->model->programs[0]->batch,
        .microbatch = rb_predict_microbatch(how->model, device, how->profile),
        .update =
            rb_cost_bytes(rb_cost_update_bytes(how->model, elements), device, how->profile).seconds,
        .bandwidth = link.bandwidth,
        .latency = link.latency,
    };
    struct rb_pipeline_step found;
    struct rb_search_candidate *one;
    int err;

    rb_hypergraph_partition(graph, &cut, parts);
    err = rb_filters_step(&step, &found, work->why);
    if (err)
        return err;
    one = rb_search_add(work, RB_SEARCH_PRICED, "filters split over %" PRIu32, work->devices);
    one->seconds = found.seconds;
    one->idle = found.idle;
    one->sent = found.sent;
    one->simulate = found.simulate;
    one->memory = 4 * (3 + rb_footprint_moments(how->model)) * elements / work->devices +
                  (double)how->model->programs[0]->arena_bytes;
    rb_search_say(
        one,
        "this release splits no layers; %.1f k words a sample change devices, %.1f %% over the "
        "mean on the fullest",
        rb_hypergraph_volume(graph, parts, work->devices) / 1e3,
        100 * rb_hypergraph_imbalance(graph, parts, work->devices));
    rb_search_check_memory(work, one);
    return 0;
}

/* Where all products are with weights: each filter on one device, and no weight is ever sent. */
int rb_search_filters(struct rb_search_work *work)
{
    RB_CLEANUP(rb_freep) struct rb_hypergraph_layer *layers = NULL;
    RB_CLEANUP(rb_freep) uint32_t *vertex_layers = NULL;
    struct rb_hypergraph graph;
    uint32_t n = rb_filters_layers(work->how->model, &layers);
    int err;

    if (n < 2 || work->devices > MOST_DEVICES || work->total > MOST_MICROBATCHES)
        return 0;
    rb_hypergraph_of_layers(layers, n, GRAIN, &graph, &vertex_layers);
    err = price_filters(work, layers, n, &graph, vertex_layers);
    rb_hypergraph_done(&graph);
    return err;
}
