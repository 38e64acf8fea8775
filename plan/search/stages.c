/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines as workers run them: the stages of the plan that a pin makes.  Each stage is priced at
 * the pace of the slowest device. */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/compile/laps.h"
#include "plan/flights.h"
#include "plan/replicas.h"
#include "plan/schedule_pipeline.h"
#include "plan/simulate/pipeline.h"
#include "proto/work.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_DEVICES = 1024, MOST_MICROBATCHES = 256 };

/* A pipeline that is priced. */
struct staged {
    Rb__Plan *plan;
    struct rb_pipeline_stage *shape; /* by stage */
    uint32_t stages;
    uint64_t flights; /* rb_footprint_staged */
    bool pinned;      /* it is what runs */
};

/* One stage of the plan's course of the first program, and the elements that it makes gradients of.
 */
static struct rb_pipeline_stage new_stage(const struct rb_search_work *work,
                                          const Rb__Course *course, uint32_t k,
                                          double *ret_elements)
{
    const struct rb_search_how *how = work->how;
    const struct rb_cluster_device *device = work->slowest;
    const Rb__Program *program = how->model->programs[course->program];
    struct rb_pipeline_stage stage = {0};

    *ret_elements = 0;
    for (size_t i = 0; i < program->n_instructions; i++) {
        if (!(course->stages[i] >> k & 1))
            continue;
        *(i < course->forward ? &stage.forward : &stage.backward) +=
            rb_cost_instruction(how->model, course->program, i, device, how->profile).seconds;
    }
    for (size_t c = 0; c < program->n_contributions; c++)
        if (course->stages[program->contributions[c]->after - 1] >> k & 1)
            *ret_elements +=
                (double)how->model->variables[program->contributions[c]->variable]->elements;
    stage.backward += rb_cost_sums(12 * *ret_elements, device, how->profile).seconds;
    return stage;
}

/* Bytes of a microbatch that go from stage k to later stages, or that come back to it: the
 * larger. */
static double crossing(const Rb__Model *model, const Rb__Course *course, uint32_t k)
{
    const Rb__Program *program = model->programs[course->program];
    double out = 0, back = 0;

    for (size_t c = 0; c < course->n_crossings; c++) {
        const Rb__Crossing *one = course->crossings[c];
        double bytes = rb_work_tensor_bytes(program->tensors[one->tensor]);

        if (one->from == k && one->to > k)
            out += bytes;
        if (one->to == k && one->from > k)
            back += bytes;
    }
    return fmax(out, back);
}

static double update_seconds(const struct rb_search_work *work, double elements)
{
    return rb_cost_update(work->how->model, elements, work->slowest, work->how->profile).seconds;
}

/* Add to all stages the costs of the state, placed as for a job that runs so.  A stage updates for
 * as long as its device that holds most. */
static void add_state(const struct rb_search_work *work, uint32_t copies, Rb__Plan *plan,
                      struct rb_pipeline_stage *stages, uint32_t n, struct rb_traffic *ret_traffic)
{
    RB_CLEANUP(rb_freep) uint32_t *nodes = rb_alloc(work->devices * sizeof *nodes);
    struct rb_replicas where = {.copies = copies,
                                .blocks = work->how->model->n_blocks,
                                .ranks = work->devices,
                                .nodes = nodes};

    for (uint32_t d = 0; d < work->devices; d++)
        nodes[d] = work->how->cluster->devices[d].node;
    rb_replicas_place(&where, work->how->model, plan);
    rb_traffic_find(work->how->model, plan, ret_traffic);
    for (uint32_t k = 0, d = 0; k < n; k++) {
        double held = 0;

        for (uint32_t r = 0; r < stages[k].devices; r++)
            held = fmax(held, ret_traffic->held[d++]);
        stages[k].update = update_seconds(work, held);
    }
}

/* Steps that are played: those of a lap, as far as there is room for them. */
static uint32_t count_steps(const struct rb_search_work *work)
{
    const Rb__Asynchronous *how = work->how->model->asynchronous;

    if (!how)
        return 1;
    return how->lap * work->total > MOST_MICROBATCHES ? MOST_MICROBATCHES / work->total : how->lap;
}

/* In a lap each stage updates its own weights behind each step, and sends no sums. */
static void run_on(const struct rb_search_work *work, double elements,
                   struct rb_pipeline_stage *stage)
{
    stage->backward += update_seconds(work, elements) / work->total;
}

/* The course of the first program that trains in this plan. */
static const Rb__Course *find_course(const Rb__Model *model, const Rb__Plan *plan)
{
    for (size_t c = 0; c < plan->n_courses; c++)
        if (model->programs[plan->courses[c]->program]->recomputes == plan->recomputes)
            return plan->courses[c];
    return plan->courses[0];
}

/* All that does not depend on where the state is; the caller frees its shape. */
static struct staged new_staged(const struct rb_search_work *work, Rb__Plan *plan, bool pinned)
{
    const Rb__Course *course = find_course(work->how->model, plan);
    struct staged staged = {plan, NULL, plan->stages, 0, pinned};
    double elements;

    staged.shape = rb_alloc(staged.stages * sizeof *staged.shape);
    for (uint32_t k = 0; k < staged.stages; k++) {
        staged.shape[k] = new_stage(work, course, k, &elements);
        staged.shape[k].devices = rb_pipeline_ranks(staged.stages, work->devices, k);
        staged.shape[k].activations = crossing(work->how->model, course, k);
        if (work->how->model->asynchronous)
            run_on(work, elements, &staged.shape[k]);
    }
    if (!rb_footprint_on_gpus(work->how->spec, work->how->model))
        staged.flights = rb_flights_find(work->how->model, staged.stages);
    return staged;
}

static void add(struct rb_search_work *work, const struct staged *staged, uint32_t copies,
                const struct rb_pipeline_step *step)
{
    const Rb__Asynchronous *laps = work->how->model->asynchronous;
    struct rb_footprint footprint = rb_footprint_of(work->how->model);
    bool recomputes = staged->plan->recomputes;
    struct rb_search_candidate *one;
    char state[48];

    rb_search_state_text(copies, work->devices, state, sizeof state);
    one = rb_search_add(work, staged->pinned ? RB_SEARCH_CHOSEN : RB_SEARCH_RUNS,
                        "pipeline of %" PRIu32 " stages x%" PRIu32 ", %s%s%s%s", staged->stages,
                        work->devices, laps ? rb_laps_word(laps) : "1F1B", state,
                        laps ? ", bits of its own" : "",
                        recomputes ? ", activations computed again" : "");
    one->recomputes = recomputes;
    one->open = work->open;
    one->way = (struct rb_search_way){staged->stages, copies};
    one->seconds = step->seconds / count_steps(work);
    one->idle = step->idle;
    one->sent = step->sent / count_steps(work);
    one->simulate = step->simulate;
    one->memory = (double)rb_footprint_staged(&footprint, recomputes, copies, work->devices,
                                              staged->stages, staged->flights);
    rb_search_check_memory(work, one);
}

/* Price it with so many copies of each block; the plan has no shards yet. */
static int price(struct rb_search_work *work, const struct staged *staged, uint32_t copies)
{
    bool laps = work->how->model->asynchronous;
    struct rb_traffic traffic = {0};
    struct rb_pipeline_how how = {
        .stages = staged->shape,
        .n = staged->stages,
        .microbatches = work->total * count_steps(work),
        .bandwidth = work->link.bandwidth,
        .latency = work->link.latency,
        .traffic = laps ? NULL : &traffic,
    };
    struct rb_pipeline_step step;
    int err;

    if (!laps)
        add_state(work, copies, staged->plan, staged->shape, staged->stages, &traffic);
    err = rb_pipeline_run(&how, &step, work->why);
    rb_traffic_done(&traffic);
    if (!err)
        add(work, staged, copies, &step);
    return err;
}

bool rb_search_played(const struct rb_search_work *work)
{
    return work->devices <= MOST_DEVICES && work->total <= MOST_MICROBATCHES;
}

static int try_set(struct rb_search_work *work, uint32_t stages, bool pinned, bool recomputes)
{
    struct staged staged;
    Rb__Plan *plan = NULL;
    int err;

    if (!rb_search_played(work))
        return 0;
    err = rb_pipeline_plan(work->how->model, work->devices, stages, &plan, work->why);
    if (err)
        return err == RB_EUNSUPPORTED && !pinned ? 0 : err;
    plan->has_recomputes = plan->recomputes = recomputes;
    staged = new_staged(work, plan, pinned);
    for (uint32_t i = 0; !err && i < work->n_copies; i++) /* all of the state, no shards, first */
        err = price(work, &staged, work->copies[i]);
    free(staged.shape);
    rb__plan__free_unpacked(plan, NULL);
    return err;
}

/* Where each configuration decides whether activations are kept, the copies of the state are not
 * open. */
int rb_search_stages(struct rb_search_work *work, uint32_t stages, bool pinned)
{
    struct rb_search *search = work->search;
    size_t before = search->n;
    int err = try_set(work, stages, pinned, false);
    bool fits;

    if (err || search->n == before || !rb_search_again(work))
        return err;
    fits = search->candidates[before].verdict != RB_SEARCH_MISFIT;
    err = try_set(work, stages, pinned && !fits, true);
    if (!err && fits) {
        search->candidates[search->n - 1].open = false;
        rb_search_say(&search->candidates[search->n - 1], "activations that are kept fit");
    }
    return err;
}
