/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/chain.h"
#include "plan/partition/stages.h"
#include "plan/simulate/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The layers of a part as a stage, with its weights and the bytes that it makes. */
static struct rb_pipeline_stage new_stage(const struct rb_search_work *work,
                                          const struct rb_chain_layer *layers,
                                          const struct rb_stages_part *part, double *ret_elements,
                                          double *ret_made)
{
    const struct rb_search_how *how = work->how;
    struct rb_pipeline_stage stage = {.devices = part->devices};
    double elements = 0, made = 0;

    for (uint32_t i = part->first; i < part->first + part->count; i++) {
        stage.forward += layers[i].forward;
        stage.backward += layers[i].backward;
        elements += layers[i].elements;
        made += layers[i].made;
    }
    stage.backward += rb_cost_sums(12 * elements, &how->cluster->devices[0], how->profile).seconds;
    stage.activations = layers[part->first + part->count - 1].crossing;
    stage.weights = 4 * elements;
    stage.update =
        rb_cost_update(how->model, elements, &how->cluster->devices[0], how->profile).seconds;
    *ret_elements = elements;
    *ret_made = made;
    return stage;
}

/* State, sums, and the activations of the microbatches in flight, of the stage that needs most. */
static double stage_memory(const struct rb_search_work *work,
                           const struct rb_pipeline_stage *stages, const double *elements,
                           const double *made, uint32_t n)
{
    double arrays = 4 * (3 + rb_footprint_moments(work->how->model)), most = 0;

    for (uint32_t k = 0; k < n; k++)
        most = fmax(most, arrays * elements[k] + made[k] * rb_pipeline_ahead(stages, n, k));
    return most;
}

static int price_pipeline(struct rb_search_work *work, const struct rb_chain_layer *layers,
                          const struct rb_stages_part *parts, uint32_t n)
{
    RB_CLEANUP(rb_freep) struct rb_pipeline_stage *stages = rb_alloc(n * sizeof *stages);
    RB_CLEANUP(rb_freep) double *elements = rb_alloc(n * sizeof *elements);
    RB_CLEANUP(rb_freep) double *made = rb_alloc(n * sizeof *made);
    struct rb_pipeline_how how = {stages, n, work->total, work->link.bandwidth, work->link.latency,
                                  NULL};
    struct rb_pipeline_step step;
    struct rb_search_candidate *one;
    uint32_t used = 0;
    int err;

    for (uint32_t k = 0; k < n; k++) {
        stages[k] = new_stage(work, layers, &parts[k], &elements[k], &made[k]);
        used += parts[k].devices;
    }
    err = rb_pipeline_run(&how, &step, work->why);
    if (err)
        return err;
    one = rb_search_add(work, RB_SEARCH_PRICED,
                        "pipeline of %" PRIu32 " stages on %" PRIu32 ", 1F1B", n, used);
    one->seconds = step.seconds;
    one->idle = step.idle;
    one->sent = step.sent;
    one->simulate = step.simulate;
    one->memory = stage_memory(work, stages, elements, made, n);
    rb_search_say(one, "a pin cuts into as many stages, but not here");
    rb_search_check_memory(work, one);
    return 0;
}

/* The best cuts with one device a stage, and with replicas; on devices that are alike. */
int rb_search_pipelines(struct rb_search_work *work)
{
    RB_CLEANUP(rb_freep) struct rb_chain_layer *layers = NULL;
    RB_CLEANUP(rb_freep) struct rb_stages_layer *chain = NULL;
    RB_CLEANUP(rb_freep)
    struct rb_stages_part *parts = rb_alloc(work->devices * sizeof *parts);
    uint32_t n = rb_chain_layers(work->how->model, &work->how->cluster->devices[0],
                                 work->how->profile, &layers);
    uint32_t stages[2] = {0};
    int err = 0;

    if (!rb_search_played(work))
        return 0;
    chain = rb_alloc((n + 1) * sizeof *chain);
    for (uint32_t i = 0; i < n; i++)
        chain[i] =
            (struct rb_stages_layer){layers[i].forward + layers[i].backward,
                                     4 * layers[i].elements / work->total, layers[i].crossing};
    for (int straight = 1; !err && n && straight >= 0; straight--) {
        rb_stages_cut(chain, n, work->devices, work->link.bandwidth, straight, parts,
                      &stages[straight]);
        if (stages[straight] > 1 && (straight || stages[0] != stages[1]))
            err = price_pipeline(work, layers, parts, stages[straight]);
    }
    return err;
}
