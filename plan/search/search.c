/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/course.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"

#include <inttypes.h>
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

static uint32_t held_by(uint32_t copies, uint32_t devices)
{
    return copies && copies < devices ? copies : devices;
}

bool rb_search_same_copies(uint32_t a, uint32_t b, uint32_t devices)
{
    return held_by(a, devices) == held_by(b, devices);
}

void rb_search_state_text(uint32_t copies, uint32_t devices, char *text, size_t room)
{
    if (held_by(copies, devices) == devices)
        snprintf(text, room, ", all of the state everywhere");
    else
        snprintf(text, room, ", %" PRIu32 " replica%s of the state", copies,
                 copies == 1 ? "" : "s");
}

/* The memory that the smallest of the devices has for a job; 0: not known. */
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

void rb_search_check_memory(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    uint64_t limit = memory_limit(work);

    if (!limit || one->memory <= (double)limit)
        return;
    one->verdict = RB_SEARCH_MISFIT;
    rb_search_say(one, "needs %.1f MiB of %.1f on each device", one->memory / 0x1p20,
                  (double)limit / 0x1p20);
}

bool rb_search_again(const struct rb_search_work *work)
{
    const struct rb_search *search = work->search;

    return search->n && rb_footprint_has_both(work->how->model) &&
           (!work->how->brief || search->candidates[search->n - 1].verdict == RB_SEARCH_MISFIT);
}

static void time_devices(struct rb_search_work *work)
{
    const struct rb_cluster_device *devices = work->how->cluster->devices;
    uint32_t slowest = 0;

    for (uint32_t r = 0; r < work->devices; r++) {
        work->microbatch[r] =
            r && rb_cost_alike(&devices[r], &devices[r - 1])
                ? work->microbatch[r - 1]
                : rb_predict_microbatch(work->how->model, &devices[r], work->how->profile);
        if (work->microbatch[r] > work->microbatch[slowest])
            slowest = r;
    }
    work->slowest = &devices[slowest];
}

static bool alike(const struct rb_search_work *work)
{
    for (uint32_t r = 1; r < work->devices; r++)
        if (work->microbatch[r] != work->microbatch[0])
            return false;
    return true;
}

/* Try 2, 4, 8, ... stages, one device a stage, and the number of stages that trains now. */
static int try_stages(struct rb_search_work *work)
{
    uint32_t most = work->devices < RB_COURSE_STAGES ? work->devices : RB_COURSE_STAGES;
    uint32_t now = work->how->running ? work->how->running->stages : 0;
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

/* Devices of the same node, and of the same rack, as device d. */
static void count_sharers(const struct rb_search_work *work, uint32_t d, uint32_t *ret_node,
                          uint32_t *ret_rack)
{
    const struct rb_cluster *cluster = work->how->cluster;
    uint32_t node = cluster->devices[d].node, rack = cluster->nodes[node].rack;

    *ret_node = *ret_rack = 0;
    for (uint32_t r = 0; r < work->devices; r++) {
        uint32_t other = cluster->devices[r].node;

        *ret_node += other == node;
        *ret_rack +=
            other == node || (rack != RB_CLUSTER_NO_RACK && cluster->nodes[other].rack == rack);
    }
}

struct rb_cluster_link rb_search_link(const struct rb_search_work *work)
{
    const struct rb_cluster *cluster = work->how->cluster;
    struct rb_cluster_link link = {0, rb_cluster_latency(cluster, work->devices)};

    for (uint32_t r = 0; r < work->devices; r++) {
        const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[r].node];
        uint32_t on_node, in_rack;

        if (r && cluster->devices[r].node == cluster->devices[r - 1].node)
            continue; /* same as the device in front */
        count_sharers(work, r, &on_node, &in_rack);
        if (on_node > 1)
            narrow(&link, node->inside.bandwidth);
        if (on_node < work->devices)
            narrow(&link, node->network.bandwidth / on_node);
        if (node->rack != RB_CLUSTER_NO_RACK && in_rack < work->devices)
            narrow(&link, cluster->racks[node->rack].bandwidth / in_rack);
    }
    return link;
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
    int err = rb_search_data(work);

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

/* GPUs of one machine sum without their hosts, at a speed that is not measured. */
static bool sums_are_known(const struct rb_search_work *work)
{
    const struct rb_cluster_device *devices = work->how->cluster->devices;

    for (uint32_t r = 0; r < work->devices; r++)
        for (uint32_t s = 0; s < r && strcmp(devices[r].kind, "cpu"); s++)
            if (devices[r].node == devices[s].node)
                return false;
    return true;
}

/* Does all of the state fit? */
static bool is_roomy(const struct rb_search_work *work)
{
    uint64_t limit = memory_limit(work);

    return !limit || rb_footprint_bytes(work->how->model, 0, work->devices) <= limit;
}

/* How many copies of each block the job has, or would have, and how many it may have. */
static int find_copies(struct rb_search_work *work)
{
    const struct rb_search_how *how = work->how;
    uint32_t copies = how->replicas ? *how->replicas : 0;
    int err = how->replicas ? 0
                            : rb_footprint_replicas(how->spec, how->model, memory_limit(work),
                                                    &copies, work->why);

    if (err)
        return err;
    work->open = !rb_pipeline_pinned(how->spec) && work->devices > 1 &&
                 (copies || !is_roomy(work) || sums_are_known(work));
    work->copies[work->n_copies++] = copies;
    if (work->open && work->devices > 2 && rb_footprint_open(how->spec, copies))
        work->copies[work->n_copies++] = 2;
    return 0;
}

int rb_search_run(const struct rb_search_how *how, uint32_t devices, struct rb_search *ret,
                  struct rb_why *why)
{
    const Rb__ParallelSpec *parallel = how->spec->parallel;
    struct rb_search search = {.devices = devices};
    struct rb_search_work work = {.how = how, .search = &search, .devices = devices, .why = why};
    RB_CLEANUP(rb_freep) double *microbatch = NULL;
    int err;

    work.total = rb_schedule_microbatches(how->model);
    work.pinned = rb_pipeline_stages(parallel ? parallel->pipeline : 0, devices);
    work.split = rb_pipeline_stages(parallel ? parallel->hypergraph : 0, devices);
    if (devices < 1 || devices > how->cluster->n_devices)
        return rb_why_set(why, RB_EINVAL, "%" PRIu32 " devices: the cluster has %" PRIu32, devices,
                          how->cluster->n_devices);
    if (devices > how->spec->devices->max)
        return rb_why_set(why, RB_EINVAL, "%" PRIu32 " devices: spec.devices.max is %" PRIu32,
                          devices, how->spec->devices->max);
    work.microbatch = microbatch = rb_alloc(devices * sizeof *microbatch);
    time_devices(&work);
    work.link = rb_search_link(&work);
    err = find_copies(&work);
    if (!err)
        err = try_all(&work);
    if (err) {
        rb_search_done(&search);
        return err;
    }
    if (!work.pinned && !work.split)
        rb_search_choose(&work);
    if (!how->brief)
        rb_search_explain(&work);
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
