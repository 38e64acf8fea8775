/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/filters.h"

#include <inttypes.h>

enum {
    MOST_DEVICES = 16, /* and microbatches, that are played */
    MOST_MICROBATCHES = 256,
};

static int price_filters(struct rb_search_work *work, const struct rb_filters_cut *cut,
                         enum rb_filters_aim aim, bool pinned)
{
    const struct rb_search_how *how = work->how;
    const struct rb_cluster_device *device = work->slowest;
    uint32_t sets = work->devices / cut->n_parts; /* that share a step's microbatches */
    uint32_t microbatches = (work->total + sets - 1) / sets;
    double part = rb_cost_together(microbatches, device, how->profile);
    double elements = (double)how->model->state_elements;
    struct rb_filters_how step = {
        .layers = cut->layers,
        .n_layers = cut->n_layers,
        .graph = &cut->graph,
        .bundles = cut->bundles,
        .parts = cut->parts,
        .n_parts = cut->n_parts,
        .microbatches = microbatches,
        .samples = how->model->programs[0]->batch,
        .together = part < 1 ? how->profile->lanes : 1,
        .microbatch = work->microbatch[device - how->cluster->devices] * part,
        .update = rb_cost_update(how->model, elements, device, how->profile).seconds,
        .bandwidth = work->link.bandwidth,
        .latency = work->link.latency,
    };
    struct rb_pipeline_step found;
    struct rb_search_candidate *one;
    int err = rb_filters_step(&step, &found, work->why);

    if (err)
        return err;
    one = rb_search_add(work, pinned ? RB_SEARCH_CHOSEN : RB_SEARCH_RUNS,
                        "filters split over %" PRIu32 "%s", cut->n_parts,
                        aim == RB_FILTERS_LAYERS ? ", layer by layer" : "");
    one->seconds = found.seconds;
    one->idle = found.idle;
    one->sent = found.sent;
    one->simulate = found.simulate;
    one->memory = (double)rb_footprint_bytes(how->model, work->copies[0], work->devices);
    rb_search_say(
        one,
        "pin spec.parallel: {hypergraph: %" PRIu32
        ", cut: %s} and spec.state.replicas: 1 to have it; %.1f k words a sample change devices, "
        "%.1f %% over the mean on the fullest",
        cut->n_parts, aim == RB_FILTERS_LAYERS ? "layers" : "words",
        rb_hypergraph_volume(&cut->graph, cut->parts, cut->n_parts) / 1e3,
        100 * rb_hypergraph_imbalance(&cut->graph, cut->parts, cut->n_parts));
    rb_search_check_memory(work, one);
    return 0;
}

static int try_cut(struct rb_search_work *work, uint32_t parts, enum rb_filters_aim aim,
                   bool pinned)
{
    struct rb_filters_cut cut;
    int err = rb_filters_cut(work->how->model, parts, aim, &cut, pinned ? work->why : NULL);

    if (err)
        return pinned ? err : 0;
    if (pinned || cut.n_layers > 2)
        err = price_filters(work, &cut, aim, pinned);
    rb_filters_cut_done(&cut);
    return err;
}

int rb_search_filters(struct rb_search_work *work, uint32_t parts, bool pinned)
{
    enum rb_filters_aim aim = rb_filters_aim_of(work->how->spec->parallel);
    bool few = parts <= MOST_DEVICES && work->total <= MOST_MICROBATCHES;
    int err = 0;

    for (int i = RB_FILTERS_WORDS; !err && i <= RB_FILTERS_LAYERS; i++) {
        bool this = pinned && i == (int)aim;

        if (this || few)
            err = try_cut(work, parts, (enum rb_filters_aim)i, this);
    }
    return err;
}
