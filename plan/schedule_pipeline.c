/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_pipeline.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "plan/compile/laps.h"
#include "plan/partition/chain.h"
#include "plan/partition/course.h"
#include "plan/partition/uses.h"
#include "plan/partition/versions.h"
#include "plan/schedule.h"
#include "plan/simulate/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    LAP_LIMIT = 1 << 16,    /* steps */
    ORDERS_LIMIT = 1 << 20, /* microbatches of a lap */
};

uint32_t rb_pipeline_stages(uint32_t pinned, uint32_t ranks)
{
    uint32_t stages = pinned < ranks ? pinned : ranks;

    return stages > 1 ? stages : 0;
}

bool rb_pipeline_pinned(const Rb__Spec *spec)
{
    const Rb__ParallelSpec *parallel = spec->parallel;

    return parallel && (parallel->has_pipeline || parallel->has_hypergraph || parallel->schedule);
}

uint32_t rb_pipeline_ranks(uint32_t stages, uint32_t ranks, uint32_t stage)
{
    return ranks / stages + (stage < ranks % stages);
}

void rb_pipeline_text(uint32_t stages, uint32_t ranks, uint32_t microbatches, const char *schedule,
                      struct rb_buffer *out)
{
    rb_buffer_format(out, "pipeline of %" PRIu32 " stages x%" PRIu32 ":", stages, ranks);
    for (uint32_t k = 0; k < stages && k < 16; k++)
        rb_buffer_format(out, " %" PRIu32, rb_pipeline_ranks(stages, ranks, k));
    rb_buffer_format(out, "%s, %s, %" PRIu32 " microbatch%s", stages > 16 ? " ..." : "",
                     schedule ? schedule : "1F1B", microbatches, microbatches == 1 ? "" : "es");
}

/* ---- Where to cut ----------------------------------------------------------------------------*/

/* The device on which agents agree that know nothing of each other's devices. */
static const struct rb_cluster_device nominal = {.flops = 1e11, .bandwidth = 1e10};
static const double nominal_link = 1e9;

/* While a chain is cut into a given number of stages. */
struct cut {
    const struct rb_chain_layer *layers;
    uint32_t n, ranks, stages;
    double *seconds; /* of all layers in front of each */
    double *best;    /* by stages and layers: the slowest of so many stages that have the first
                        layers */
    uint32_t *from;  /* and where the last of them begins */
};

static double stage_seconds(const struct cut *cut, uint32_t stage, uint32_t first, uint32_t end)
{
    double link = first ? 2 * cut->layers[first - 1].crossing / nominal_link : 0;

    return (cut->seconds[end] - cut->seconds[first] + link) /
           rb_pipeline_ranks(cut->stages, cut->ranks, stage);
}

/* Cut the first `end` layers into stages 0 .. stage.  The last stage grows from the end: once its
 * layers alone take longer than the best so far, a longer stage cannot be better. */
static void find_best(struct cut *cut, uint32_t stage, uint32_t end)
{
    uint32_t ranks = rb_pipeline_ranks(cut->stages, cut->ranks, stage);
    size_t row = cut->n + 1, at = stage * row + end;

    if (!stage) {
        cut->best[at] = stage_seconds(cut, 0, 0, end);
        return;
    }
    cut->best[at] = INFINITY;
    for (uint32_t first = end; first-- > stage;) {
        double one = fmax(cut->best[at - row - end + first], stage_seconds(cut, stage, first, end));

        if ((cut->seconds[end] - cut->seconds[first]) / ranks > cut->best[at])
            break;
        if (one <= cut->best[at]) {
            cut->best[at] = one;
            cut->from[at] = first;
        }
    }
}

static void weigh(struct cut *cut)
{
    static const struct rb_cost_profile none;

    for (uint32_t i = 0; i < cut->n; i++) {
        const struct rb_chain_layer *layer = &cut->layers[i];
        /* the gradients of inputs and of weights take about as long as the forward part each */
        double seconds =
            3 * layer->forward + rb_cost_bytes(12 * layer->elements, &nominal, &none).seconds;

        cut->seconds[i + 1] = cut->seconds[i] + seconds;
    }
}

int rb_pipeline_cut(const Rb__Model *model, uint32_t ranks, uint32_t stages, uint32_t *ret_cuts,
                    struct rb_why *why)
{
    static const struct rb_cost_profile none;
    struct rb_chain_layer *layers = NULL;
    struct cut cut = {.ranks = ranks, .stages = stages};
    size_t row;

    cut.n = model->n_programs ? rb_chain_layers(model, &nominal, &none, &layers) : 0;
    if (stages < 1 || stages > RB_COURSE_STAGES || ranks < stages || cut.n < stages) {
        free(layers);
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "a forward part of %" PRIu32 " instructions cannot be cut into %" PRIu32
                          " stages on %" PRIu32 " devices",
                          cut.n, stages, ranks);
    }
    row = cut.n + 1;
    cut.layers = layers;
    cut.seconds = rb_alloc(row * sizeof *cut.seconds);
    cut.best = rb_alloc(stages * row * sizeof *cut.best);
    cut.from = rb_alloc(stages * row * sizeof *cut.from);
    weigh(&cut);
    for (uint32_t k = 0; k < stages; k++)
        for (uint32_t end = k + 1; end <= cut.n; end++)
            find_best(&cut, k, end);
    for (uint32_t k = stages, end = cut.n; k-- > 0;) {
        end = cut.from[k * row + end];
        ret_cuts[k] = model->programs[0]->instructions[end]->id;
    }
    free(cut.seconds);
    free(cut.best);
    free(cut.from);
    free(layers);
    return 0;
}

/* ---- Orders ----------------------------------------------------------------------------------*/

static void add_order(Rb__RankPlan *rank, Rb__Order__Kind kind, uint32_t argument)
{
    Rb__Order *order = rb_alloc(sizeof *order);

    rb__order__init(order);
    order->kind = kind;
    order->has_argument = kind != RB__ORDER__KIND__VOTE && kind != RB__ORDER__KIND__UPDATE;
    order->argument = argument;
    rank->orders[rank->n_orders++] = order;
}

/* Seconds of a step in each stage of a pipeline with these cuts, by the cost model. */
static void time_stages(const Rb__Model *model, const uint32_t *cuts, uint32_t stages,
                        double *ret_forward, double *ret_backward)
{
    static const struct rb_cost_profile none;
    struct rb_chain_layer *layers = NULL;
    uint32_t n = rb_chain_layers(model, &nominal, &none, &layers), stage = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (stage + 1 < stages && model->programs[0]->instructions[i]->id == cuts[stage + 1])
            stage++;
        ret_forward[stage] += layers[i].forward;
        ret_backward[stage] +=
            layers[i].backward + rb_cost_bytes(12 * layers[i].elements, &nominal, &none).seconds;
    }
    free(layers);
}

/* By stage * steps + step of a lap; NULL: weights are not predicted.  The caller frees it. */
static struct rb_versions *count_ahead(const Rb__Model *model, const uint32_t *cuts,
                                       uint32_t stages)
{
    const Rb__Asynchronous *how = model->asynchronous;
    RB_CLEANUP(rb_freep) double *times = rb_alloc(2 * (size_t)stages * sizeof *times);
    struct rb_versions *ahead;

    if (!how || how->kind != RB__ASYNCHRONOUS__KIND__SPECTRAIN)
        return NULL;
    ahead = rb_alloc((size_t)stages * how->lap * sizeof *ahead);
    if (how->formula) {
        for (uint32_t i = 0; i < stages * how->lap; i++)
            ahead[i] = rb_versions_paper(stages, i / how->lap);
        return ahead;
    }
    time_stages(model, cuts, stages, times, times + stages);
    rb_versions_lap(times, times + stages, stages, how->lap, ahead);
    return ahead;
}

/* Steps of such a lap have one microbatch each, so `ahead` is indexed by microbatch. */
static void set_ahead(Rb__RankPlan *rank, const struct rb_versions *ahead)
{
    for (size_t i = 0; i < rank->n_orders; i++) {
        Rb__Order *order = rank->orders[i];

        if (order->kind == RB__ORDER__KIND__FORWARD)
            order->ahead = ahead[order->argument].forward;
        else if (order->kind == RB__ORDER__KIND__BACKWARD)
            order->ahead = ahead[order->argument].backward;
        order->has_ahead = order->ahead != 0;
    }
}

/* Microbatches replica, replica + replicas, ...: `ahead` of them forward, then in turn. */
static void add_microbatches(Rb__RankPlan *rank, uint32_t total, uint32_t replica,
                             uint32_t replicas, uint32_t ahead)
{
    uint32_t mine = replica < total ? (total - replica - 1) / replicas + 1 : 0;

    for (uint32_t f = 0, b = 0; b < mine;)
        if (f < mine && f - b < ahead)
            add_order(rank, RB__ORDER__KIND__FORWARD, replica + f++ * replicas);
        else
            add_order(rank, RB__ORDER__KIND__BACKWARD, replica + b++ * replicas);
}

static Rb__RankPlan *new_rank(const Rb__Model *model, uint32_t total, uint32_t stage,
                              uint32_t replica, uint32_t replicas, uint32_t ahead)
{
    Rb__RankPlan *rank = rb_alloc(sizeof *rank);

    rb__rank_plan__init(rank);
    rank->has_stage = 1;
    rank->stage = stage;
    rank->orders = rb_alloc(sizeof *rank->orders * (2 * (size_t)total + model->n_buckets + 2));
    add_microbatches(rank, total, replica, replicas, ahead);
    for (size_t b = 0; b < model->n_buckets; b++)
        add_order(rank, RB__ORDER__KIND__REDUCE, (uint32_t)b);
    add_order(rank, RB__ORDER__KIND__VOTE, 0);
    add_order(rank, RB__ORDER__KIND__UPDATE, 0);
    return rank;
}

static void add_ranks(const Rb__Model *model, uint32_t total, uint32_t ranks, uint32_t stages,
                      Rb__Plan *plan)
{
    RB_CLEANUP(rb_freep) struct rb_pipeline_stage *shape = rb_alloc(stages * sizeof *shape);

    for (uint32_t k = 0; k < stages; k++)
        shape[k].devices = rb_pipeline_ranks(stages, ranks, k);
    plan->ranks = rb_alloc(ranks * sizeof *plan->ranks);
    for (uint32_t k = 0; k < stages; k++)
        for (uint32_t i = 0; i < shape[k].devices; i++)
            plan->ranks[plan->n_ranks++] =
                new_rank(model, total, k, i, shape[k].devices, rb_pipeline_ahead(shape, stages, k));
}

/* ---- The plan --------------------------------------------------------------------------------*/

static int add_courses(const Rb__Model *model, const uint32_t *cuts, Rb__Plan *plan,
                       struct rb_why *why)
{
    int err = 0;

    plan->courses = rb_alloc((model->n_programs + 1) * sizeof *plan->courses);
    for (uint32_t p = 0; !err && p < model->n_programs; p++)
        if (model->programs[p]->train) {
            err =
                rb_course_make(model, p, cuts, plan->stages, &plan->courses[plan->n_courses], why);
            plan->n_courses += !err;
        }
    return err;
}

/* The same check as in workers (worker/model_check.c): the model is a blob, and may be anything. */
static int check_laps(const Rb__Asynchronous *how, uint32_t microbatches, struct rb_why *why)
{
    if (how && (how->lap < 1 || how->lap > LAP_LIMIT || microbatches > ORDERS_LIMIT / how->lap ||
                (microbatches > 1 && how->kind != RB__ASYNCHRONOUS__KIND__TWO_BUFFERS)))
        return rb_why_set(why, RB_EINVAL,
                          "impossible laps: of %" PRIu32 " steps in %" PRIu32 " microbatches",
                          how->lap, microbatches);
    return 0;
}

int rb_pipeline_plan(const Rb__Model *model, uint32_t ranks, uint32_t stages, Rb__Plan **ret_plan,
                     struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint32_t *cuts = rb_alloc((stages + 1) * sizeof *cuts);
    RB_CLEANUP(rb_freep) struct rb_versions *ahead = NULL;
    uint32_t total = rb_schedule_microbatches(model);
    uint32_t steps = model->asynchronous ? model->asynchronous->lap : 1;
    struct rb_buffer summary = {0};
    Rb__Plan *plan;
    int err = rb_pipeline_cut(model, ranks, stages, cuts, why);

    if (!err && !total)
        err = rb_why_set(why, RB_EINVAL,
                         "a batch of %" PRId64 " in microbatches of %" PRId64 " cannot be planned",
                         model->global_batch, model->micro_batch);
    if (!err)
        err = check_laps(model->asynchronous, total, why);
    if (!err && model->asynchronous && ranks != stages)
        err = rb_why_set(why, RB_EUNSUPPORTED,
                         "%" PRIu32 " devices for %" PRIu32 " stages that run by themselves", ranks,
                         stages);
    if (err)
        return err;
    plan = rb_alloc(sizeof *plan);
    rb__plan__init(plan);
    plan->format = 1;
    plan->has_stages = 1;
    plan->stages = stages;
    rb_pipeline_text(stages, ranks, total, rb_laps_word(model->asynchronous), &summary);
    plan->summary = rb_buffer_take(&summary);
    add_ranks(model, total * steps, ranks, stages, plan);
    ahead = count_ahead(model, cuts, stages);
    for (uint32_t k = 0; ahead && k < stages; k++)
        set_ahead(plan->ranks[k], ahead + (size_t)k * steps);
    err = add_courses(model, cuts, plan, why);
    if (err) {
        rb__plan__free_unpacked(plan, NULL);
        return err;
    }
    *ret_plan = plan;
    return 0;
}

static int check_stages(const Rb__Model *model, uint32_t stages, struct rb_why *why)
{
    Rb__Plan *plan = NULL;
    int err = rb_pipeline_plan(model, stages, stages, &plan, why);

    if (!err && model->asynchronous && model->n_blocks < stages)
        err = rb_why_set(why, RB_EUNSUPPORTED, "so few weights are not cut into %" PRIu32 " stages",
                         stages);
    for (size_t c = 0; !err && model->asynchronous && c < plan->n_courses; c++)
        err = rb_uses_separate(model, plan->courses[c], why);
    if (plan)
        rb__plan__free_unpacked(plan, NULL);
    return err;
}

/* An asynchronous pipeline is also checked with fewer stages, which it may come to have. */
int rb_pipeline_check(const Rb__Spec *spec, const Rb__Model *model, struct rb_why *why)
{
    uint32_t stages = rb_pipeline_stages(spec->parallel->pipeline, spec->devices->max);
    int err = stages ? check_stages(model, stages, why) : 0;

    for (uint32_t n = 2; !err && model->asynchronous && n < stages; n++)
        err = check_stages(model, n, why);
    return err ? rb_why_add(why, err, "spec.parallel.pipeline") : 0;
}
