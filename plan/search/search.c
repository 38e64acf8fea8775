/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/balance.h"
#include "plan/partition/course.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rb_search_verdict_text(enum rb_search_verdict verdict)
{
    static const char *const words[] = {"chosen", "runs", "priced only", "does not fit"};

    return words[verdict];
}

struct rb_search_candidate *rb_search_add(struct rb_search_work *work,
                                          enum rb_search_verdict verdict, const char *format, ...)
{
    struct rb_search *search = work->search;
    struct rb_search_candidate *one;
    va_list args;

    search->candidates =
        rb_realloc(search->candidates, (search->n + 1) * sizeof *search->candidates);
    one = &search->candidates[search->n++];
    *one = (struct rb_search_candidate){.verdict = verdict};
    va_start(args, format);
    vsnprintf(one->name, sizeof one->name, format, args);
    va_end(args);
    return one;
}

void rb_search_say(struct rb_search_candidate *one, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(one->reason, sizeof one->reason, format, args);
    va_end(args);
}

/* ---- Data parallel ---------------------------------------------------------------------------*/

/* What the smallest of the devices has for a job; 0: not known. */
static uint64_t memory_limit(const struct rb_search_work *work)
{
    uint64_t limit = work->how->machine, asked = rb_footprint_limit(work->how->spec);

    if (asked)
        return asked;
    for (uint32_t r = 0; r < work->devices; r++) {
        uint64_t has = work->how->cluster->devices[r].memory;

        if (has && (!limit || has < limit))
            limit = has;
    }
    return limit;
}

static int price(struct rb_search_work *work, struct rb_search_candidate *one,
                 const uint32_t *shares, uint32_t copies)
{
    const struct rb_search_how *how = work->how;
    struct rb_predict_how step = {how->model,    how->cluster, how->profile,
                                  work->devices, shares,       copies};
    struct rb_predict_step found;
    int err = rb_predict_data(&step, &found, work->why);

    if (err)
        return err;
    one->seconds = found.seconds;
    one->sent = found.sent;
    one->idle = found.idle;
    one->computing = found.computing;
    one->summing = found.summing;
    one->updating = found.updating;
    one->gathering = found.gathering;
    one->simulate = found.simulate;
    one->moves = how->from && how->from <= how->cluster->n_devices;
    if (one->moves)
        rb_move_price(how->model, how->cluster, (struct rb_move_side){how->from, copies},
                      (struct rb_move_side){work->devices, copies}, found.seconds, &one->move);
    return 0;
}

void rb_search_check_memory(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    uint64_t limit = memory_limit(work);

    if (!limit || one->memory <= (double)limit)
        return;
    one->verdict = RB_SEARCH_MISFIT;
    rb_search_say(one, "needs %.1f MiB of %.1f on each device", one->memory / 0x1p20,
                  (double)limit / 0x1p20);
}

static int try_data(struct rb_search_work *work, const uint32_t *shares, uint32_t copies, bool even)
{
    bool sharded = copies && work->devices > copies;
    char state[48] = "all of the state everywhere";
    struct rb_search_candidate *one;

    if (sharded)
        snprintf(state, sizeof state, "%" PRIu32 " replica%s of the state", copies,
                 copies == 1 ? "" : "s");
    one = rb_search_add(work, RB_SEARCH_RUNS, "data parallel x%" PRIu32 ", %s%s", work->devices,
                        state, even ? "" : ", shares by speed");
    one->memory = (double)rb_footprint_bytes(work->how->model, copies, work->devices);
    if (work->pinned || work->split) {
        rb_search_say(one, "spec.parallel.%s",
                      work->pinned ? "pipeline asks for stages" : "hypergraph asks for parts");
    } else if (even != work->even) {
        rb_search_say(one, even ? "a job has it as long as it has not measured its devices"
                                : "spec.parallel.balance asks for even shares");
    } else if (copies == work->chosen || (!sharded && work->devices <= work->chosen)) {
        work->data = work->search->n - 1;
    }
    rb_search_check_memory(work, one);
    return price(work, one, shares, copies);
}

static bool alike(const struct rb_search_work *work)
{
    const struct rb_cluster_device *devices = work->how->cluster->devices;

    for (uint32_t r = 1; r < work->devices; r++)
        if (rb_predict_microbatch(work->how->model, &devices[r], work->how->profile) !=
            rb_predict_microbatch(work->how->model, &devices[0], work->how->profile))
            return false;
    return true;
}

static const struct rb_cluster_device *find_slowest(const struct rb_search_work *work)
{
    const struct rb_cluster_device *devices = work->how->cluster->devices, *slowest = devices;

    for (uint32_t r = 1; r < work->devices; r++)
        if (rb_predict_microbatch(work->how->model, &devices[r], work->how->profile) >
            rb_predict_microbatch(work->how->model, slowest, work->how->profile))
            slowest = &devices[r];
    return slowest;
}

static void find_even(const struct rb_search_work *work, uint32_t n, uint32_t *ret_shares)
{
    for (uint32_t r = 0; r < n; r++)
        ret_shares[r] = work->total / n + (r < work->total % n);
}

static double *find_speeds(const struct rb_search_work *work)
{
    double *speeds = rb_alloc(work->devices * sizeof *speeds);

    for (uint32_t r = 0; r < work->devices; r++)
        speeds[r] = 1 / rb_predict_microbatch(work->how->model, &work->how->cluster->devices[r],
                                              work->how->profile);
    return speeds;
}

/* With all of the state everywhere, and with less of it. */
static int try_shares(struct rb_search_work *work, const uint32_t *shares, bool even)
{
    int err = try_data(work, shares, 0, even);

    for (uint32_t copies = 2; !err && copies; copies--)
        if (work->devices > copies)
            err = try_data(work, shares, copies, even);
    return err;
}

/* As the coordinator cuts shares when it knows how quick devices are (daemon/facts/shares.h). */
static int try_all_data(struct rb_search_work *work)
{
    const Rb__ParallelSpec *parallel = work->how->spec->parallel;
    RB_CLEANUP(rb_freep) uint32_t *shares = rb_alloc(work->devices * sizeof *shares);
    RB_CLEANUP(rb_freep) uint32_t *balanced = rb_alloc(work->devices * sizeof *balanced);
    RB_CLEANUP(rb_freep) double *speeds = find_speeds(work);
    bool worth;
    int err;

    find_even(work, work->devices, shares);
    rb_balance_shares(work->total, speeds, work->devices, balanced);
    worth = rb_balance_worth(rb_balance_excess(shares, speeds, work->devices),
                             rb_balance_excess(balanced, speeds, work->devices));
    work->even = !worth || (parallel && !strcmp(parallel->balance, "even"));
    if (work->how->brief)
        return try_data(work, work->even ? shares : balanced, work->chosen, work->even);
    err = try_shares(work, shares, true);
    return err || !worth ? err : try_shares(work, balanced, false);
}

/* 2, 4, 8, ... stages, one device a stage, and as many as there are now. */
static int try_stages(struct rb_search_work *work)
{
    uint32_t most = work->devices < RB_COURSE_STAGES ? work->devices : RB_COURSE_STAGES;
    uint32_t now = work->how->running ? *work->how->running : 0;
    int err = 0;

    for (uint32_t stages = 2; !err && stages < most; stages++)
        if (!(stages & (stages - 1)) || stages == now)
            err = rb_search_stages(work, stages, false);
    return err ? err : rb_search_stages(work, most, false);
}

static void narrow(struct rb_cluster_link *link, double bandwidth)
{
    if (bandwidth > 0 && (link->bandwidth <= 0 || bandwidth < link->bandwidth))
        link->bandwidth = bandwidth;
}

/* The slowest link between the devices. */
struct rb_cluster_link rb_search_link(const struct rb_search_work *work)
{
    const struct rb_cluster *cluster = work->how->cluster;
    const struct rb_cluster_node *first = &cluster->nodes[cluster->devices[0].node];
    struct rb_cluster_link link = {0, rb_cluster_latency(cluster, work->devices)};

    for (uint32_t r = 1; r < work->devices; r++) {
        const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[r].node];

        if (node == first) {
            narrow(&link, node->inside.bandwidth);
        } else {
            narrow(&link, node->network.bandwidth);
            narrow(&link, first->network.bandwidth);
        }
    }
    return link;
}

/* ---- Reasons ---------------------------------------------------------------------------------*/

static const struct rb_search_candidate *find_chosen(const struct rb_search *search)
{
    for (size_t i = 0; i < search->n; i++)
        if (search->candidates[i].verdict == RB_SEARCH_CHOSEN)
            return &search->candidates[i];
    return NULL;
}

/* Fewer devices that are quicker, of halves and their halves; 0: none. */
static uint32_t find_quicker(const struct rb_search_work *work, double *seconds)
{
    const struct rb_search_how *how = work->how;
    RB_CLEANUP(rb_freep) uint32_t *shares = rb_alloc(work->devices * sizeof *shares);
    uint32_t found = 0;

    for (uint32_t n = work->devices / 2; n; n /= 2) {
        struct rb_predict_how step = {how->model, how->cluster, how->profile, n, shares, 0};
        struct rb_predict_step one;

        find_even(work, n, shares);
        if (rb_predict_data(&step, &one, NULL))
            continue;
        rb_simulate_free(one.simulate);
        if (one.seconds < *seconds) {
            *seconds = one.seconds;
            found = n;
        }
    }
    return found;
}

/* "12.3 % slower" */
static void compare(double seconds, double chosen, char *text, size_t room)
{
    double ratio = seconds / chosen;

    if (fabs(ratio - 1) < 0.0005)
        snprintf(text, room, "as fast");
    else
        snprintf(text, room, "%.1f %% %s", 100 * fabs(ratio - 1), ratio > 1 ? "slower" : "faster");
}

/* Of a pipeline that is chosen. */
static void explain_stages(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    char speed[32] = "", rest[64] = "parallel.pipeline says so";

    if (!work->pinned) {
        compare(work->search->candidates[work->data].seconds, one->seconds, speed, sizeof speed);
        snprintf(rest, sizeof rest, "data parallelism is %s", speed);
    }
    rb_search_say(one, "what a submit runs: %s; devices wait %.0f %% of the step", rest,
                  100 * one->idle);
}

static void explain(const struct rb_search_work *work, struct rb_search_candidate *one,
                    const struct rb_search_candidate *chosen)
{
    char speed[32] = "", rest[sizeof one->reason] = "";

    if (one->verdict == RB_SEARCH_CHOSEN && one->stages) {
        explain_stages(work, one);
        return;
    }
    if (one->verdict == RB_SEARCH_CHOSEN) {
        double quickest = one->seconds;
        uint32_t fewer = find_quicker(work, &quickest);

        if (fewer)
            snprintf(rest, sizeof rest, "; %" PRIu32 " device%s would take %.4g ms", fewer,
                     fewer == 1 ? "" : "s", 1e3 * quickest);
        rb_search_say(
            one,
            "what a submit runs: %s; computing %.0f %% of the step, sums %.0f %%, update %.0f "
            "%%%.60s",
            work->how->spec->state && work->how->spec->state->replicas ? "state.replicas says so"
            : work->chosen ? "all of the state would not fit"
                           : "it fits, and a death loses nothing",
            100 * one->computing / one->seconds, 100 * one->summing / one->seconds,
            100 * (one->updating + one->gathering) / one->seconds, rest);
        return;
    }
    if (!chosen || one->verdict == RB_SEARCH_MISFIT)
        return;
    compare(one->seconds, chosen->seconds, speed, sizeof speed);
    if (one->verdict == RB_SEARCH_RUNS && !one->reason[0])
        snprintf(rest, sizeof rest, "%.0f %% of the memory; pin state.replicas to have it",
                 100 * one->memory / chosen->memory);
    else
        snprintf(rest, sizeof rest, "%s", one->reason);
    rb_search_say(one, "%s; %.200s", speed, rest);
}

static int by_verdict(const void *a, const void *b)
{
    const struct rb_search_candidate *x = a, *y = b;

    if (x->verdict != y->verdict)
        return x->verdict < y->verdict ? -1 : 1;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int try_all(struct rb_search_work *work)
{
    bool several = work->devices > 1 && alike(work);
    int err = try_all_data(work);

    if (!err && work->pinned)
        err = rb_search_stages(work, work->pinned, true);
    else if (!err && work->devices > 1 && (work->open || !work->how->brief))
        err = try_stages(work);
    if (!err && several && !work->how->brief)
        err = rb_search_pipelines(work);
    if (!err && (work->split ? work->devices > 1 : several) && !work->how->brief)
        err = rb_search_filters(work, work->split ? work->split : work->devices, work->split > 0);
    return err;
}

int rb_search_run(const struct rb_search_how *how, uint32_t devices, struct rb_search *ret,
                  struct rb_why *why)
{
    const Rb__ParallelSpec *parallel = how->spec->parallel;
    struct rb_search search = {.devices = devices};
    struct rb_search_work work = {.how = how, .search = &search, .devices = devices, .why = why};
    int err = 0;

    work.total = rb_schedule_microbatches(how->model);
    work.pinned = rb_pipeline_stages(parallel ? parallel->pipeline : 0, devices);
    work.split = rb_pipeline_stages(parallel ? parallel->hypergraph : 0, devices);
    if (devices < 1 || devices > how->cluster->n_devices)
        return rb_why_set(why, RB_EINVAL, "%" PRIu32 " devices: the cluster has %" PRIu32, devices,
                          how->cluster->n_devices);
    if (devices > how->spec->devices->max)
        return rb_why_set(why, RB_EINVAL, "%" PRIu32 " devices: spec.devices.max is %" PRIu32,
                          devices, how->spec->devices->max);
    if (how->replicas)
        work.chosen = *how->replicas;
    else
        err = rb_footprint_replicas(how->spec, how->model, memory_limit(&work), &work.chosen, why);
    work.slowest = find_slowest(&work);
    work.open = !rb_pipeline_pinned(how->spec) && work.chosen && devices > work.chosen;
    if (!err)
        err = try_all(&work);
    if (err) {
        rb_search_done(&search);
        return err;
    }
    if (!work.pinned && !work.split)
        rb_search_choose(&work);
    for (size_t i = 0; !how->brief && i < search.n; i++)
        explain(&work, &search.candidates[i], find_chosen(&search));
    qsort(search.candidates, search.n, sizeof *search.candidates, by_verdict);
    *ret = search;
    return 0;
}

void rb_search_done(struct rb_search *search)
{
    for (size_t i = 0; i < search->n; i++)
        rb_simulate_free(search->candidates[i].simulate);
    free(search->candidates);
    *search = (struct rb_search){0};
}
