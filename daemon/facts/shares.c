/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/shares.h"

#include "base/buffer.h"
#include "plan/partition/balance.h"
#include "plan/replicas.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "plan/split.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int take_run(const Rb__Run *run, int32_t rank, uint32_t microbatches, int32_t *owners,
                    struct rb_why *why)
{
    if (run->first > microbatches || run->count > microbatches - run->first)
        return rb_why_set(why, RB_EINVAL,
                          "rank %" PRId32 " computes %" PRIu32 " microbatches from %" PRIu32
                          " on, there are %" PRIu32,
                          rank, run->count, run->first, microbatches);
    for (uint32_t m = run->first; m < run->first + run->count; m++) {
        if (owners[m] != RB_SCHEDULE_LOST)
            return rb_why_set(why, RB_EINVAL, "two ranks compute microbatch %" PRIu32, m);
        owners[m] = rank;
    }
    return RB_OK;
}

int rb_shares_of(const Rb__Configuration *configuration, uint32_t microbatches,
                 struct rb_arena *arena, int32_t **ret_owners, struct rb_why *why)
{
    int32_t *owners = RB_ARENA_NEW(arena, int32_t, microbatches + 1);
    size_t n = 0;
    int err = RB_OK;

    for (uint32_t m = 0; m < microbatches; m++)
        owners[m] = RB_SCHEDULE_LOST;
    for (size_t r = 0; r < configuration->n_members; r++) {
        const Rb__Member *member = configuration->members[r];

        n += member->n_runs;
        for (size_t i = 0; i < member->n_runs && !err; i++)
            err = take_run(member->runs[i], (int32_t)r, microbatches, owners, why);
    }
    if (!n && configuration->n_members)
        rb_schedule_even(microbatches, (uint32_t)configuration->n_members, owners);
    for (uint32_t m = 0; m < microbatches && !err; m++)
        if (owners[m] == RB_SCHEDULE_LOST)
            err = rb_why_set(why, RB_EINVAL, "nobody computes microbatch %" PRIu32, m);
    if (!err)
        *ret_owners = owners;
    return err;
}

uint32_t *rb_shares_counts(const Rb__Configuration *configuration, uint32_t microbatches,
                           struct rb_arena *arena)
{
    uint32_t *counts = RB_ARENA_NEW(arena, uint32_t, configuration->n_members + 1);
    int32_t *owners;

    if (!rb_shares_has(configuration) || !configuration->n_members ||
        rb_shares_of(configuration, microbatches, arena, &owners, NULL))
        return NULL;
    for (uint32_t m = 0; m < microbatches; m++)
        counts[owners[m]]++;
    return counts;
}

/* A member's microbatches as runs. */
static void write_runs(const int32_t *owners, uint32_t microbatches, int32_t rank,
                       Rb__Member *member, struct rb_arena *arena)
{
    member->runs = RB_ARENA_NEW(arena, Rb__Run *, microbatches + 1);
    member->n_runs = 0;
    for (uint32_t m = 0; m < microbatches; m++) {
        if (owners[m] != rank)
            continue;
        if (m && member->n_runs && owners[m - 1] == rank) {
            member->runs[member->n_runs - 1]->count++;
            continue;
        }
        Rb__Run *run = RB_ARENA_NEW(arena, Rb__Run, 1);
        rb__run__init(run);
        run->first = m;
        run->count = 1;
        member->runs[member->n_runs++] = run;
    }
}

/* The rank that a process has in `next`. */
static int32_t rank_of(const Rb__Member *member, const Rb__Configuration *next)
{
    for (size_t r = 0; member->worker && r < next->n_members; r++)
        if (next->members[r]->worker && !strcmp(next->members[r]->worker, member->worker))
            return (int32_t)r;
    return RB_SCHEDULE_LOST;
}

bool rb_shares_has(const Rb__Configuration *configuration)
{
    return configuration->pipeline < 2 && configuration->hypergraph < 2;
}

struct rb_shape rb_shares_shape(const Rb__Configuration *configuration)
{
    bool split = configuration->hypergraph > 1;
    uint32_t stages =
        rb_pipeline_stages(split ? configuration->hypergraph : configuration->pipeline,
                           (uint32_t)configuration->n_members);

    return (struct rb_shape){stages, split && stages};
}

char *rb_shares_summary(const Rb__Configuration *configuration, const int32_t *owners,
                        uint32_t microbatches, uint64_t blocks, struct rb_arena *arena)
{
    uint32_t ranks = (uint32_t)configuration->n_members;
    struct rb_shape shape = rb_shares_shape(configuration);
    struct rb_replicas how = {.copies = configuration->replicas, .blocks = blocks, .ranks = ranks};
    struct rb_buffer text = {0};
    char *summary;

    if (shape.split) {
        rb_split_text(shape.stages, ranks, microbatches, &text);
    } else if (shape.stages) {
        rb_pipeline_text(shape.stages, ranks, microbatches, configuration->schedule, &text);
    } else {
        RB_CLEANUP(rb_freep) char *shares = rb_schedule_summary(microbatches, owners, ranks);

        rb_buffer_text(&text, shares);
    }
    rb_replicas_text(&how, &text);
    if (configuration->recomputes)
        rb_buffer_text(&text, ", activations computed again");
    summary = rb_arena_string(arena, text.data);
    rb_buffer_done(&text);
    return summary;
}

/* ---- By speed ---------------------------------------------------------------------------------*/

static double *speeds_of(const Rb__Configuration *configuration, struct rb_arena *arena)
{
    double *speeds = RB_ARENA_NEW(arena, double, configuration->n_members + 1);

    for (size_t r = 0; r < configuration->n_members; r++) {
        if (!configuration->members[r]->microbatch_us)
            return NULL;
        speeds[r] = 1.0 / configuration->members[r]->microbatch_us;
    }
    return speeds;
}

static double last_done(const uint32_t *shares, const Rb__Configuration *configuration)
{
    double last = 0;

    for (size_t r = 0; r < configuration->n_members; r++)
        last = fmax(last, (double)shares[r] * configuration->members[r]->microbatch_us);
    return last;
}

bool rb_shares_price(const Rb__Configuration *configuration, uint32_t microbatches,
                     struct rb_arena *arena, double *ret_as_it_is, double *ret_by_speed)
{
    const double *speeds = speeds_of(configuration, arena);
    uint32_t *shares = rb_shares_counts(configuration, microbatches, arena);

    if (!speeds || !shares)
        return false;
    *ret_as_it_is = last_done(shares, configuration);
    rb_balance_shares(microbatches, speeds, (uint32_t)configuration->n_members, shares);
    *ret_by_speed = last_done(shares, configuration);
    return true;
}

void rb_shares_cut(Rb__Configuration *configuration, uint32_t microbatches, struct rb_arena *arena)
{
    uint32_t ranks = (uint32_t)configuration->n_members;
    uint32_t *shares = RB_ARENA_NEW(arena, uint32_t, ranks + 1);
    int32_t *owners = RB_ARENA_NEW(arena, int32_t, microbatches + 1);
    double even, by_speed;

    if (!rb_shares_price(configuration, microbatches, arena, &even, &by_speed) ||
        !rb_balance_worth(even, by_speed))
        return;
    rb_balance_shares(microbatches, speeds_of(configuration, arena), ranks, shares);
    rb_balance_owners(shares, ranks, owners);
    for (uint32_t r = 0; r < ranks; r++)
        write_runs(owners, microbatches, (int32_t)r, configuration->members[r], arena);
}

/* ---- Behind a crash ---------------------------------------------------------------------------*/

/* Microbatches of lost members go, in index order, where they are done soonest. */
static void hand_on(const Rb__Configuration *next, uint32_t microbatches, int32_t *owners,
                    struct rb_arena *arena)
{
    uint32_t ranks = (uint32_t)next->n_members;
    double *done = RB_ARENA_NEW(arena, double, ranks + 1);

    for (uint32_t m = 0; m < microbatches; m++)
        if (owners[m] != RB_SCHEDULE_LOST)
            done[owners[m]] += next->members[owners[m]]->microbatch_us;
    for (uint32_t m = 0; m < microbatches; m++) {
        uint32_t best = 0;

        if (owners[m] != RB_SCHEDULE_LOST)
            continue;
        for (uint32_t r = 1; r < ranks; r++)
            if (done[r] + next->members[r]->microbatch_us <
                done[best] + next->members[best]->microbatch_us)
                best = r;
        owners[m] = (int32_t)best;
        done[best] += next->members[best]->microbatch_us;
    }
}

/* A member that was there is as quick as it was. */
static void copy_speeds(const Rb__Configuration *last, const int32_t *became,
                        Rb__Configuration *next)
{
    for (size_t r = 0; r < last->n_members; r++)
        if (became[r] != RB_SCHEDULE_LOST) {
            next->members[became[r]]->has_microbatch_us = last->members[r]->has_microbatch_us;
            next->members[became[r]]->microbatch_us = last->members[r]->microbatch_us;
        }
}

void rb_shares_after(const Rb__Configuration *last, uint32_t microbatches, Rb__Configuration *next,
                     struct rb_arena *arena)
{
    int32_t *owners, *became = RB_ARENA_NEW(arena, int32_t, last->n_members + 1);
    uint32_t ranks = (uint32_t)next->n_members;

    if (!ranks || rb_shares_of(last, microbatches, arena, &owners, NULL))
        return; /* even shares are always right */
    for (size_t r = 0; r < last->n_members; r++)
        became[r] = rank_of(last->members[r], next);
    copy_speeds(last, became, next);
    if (!rb_shares_has(next)) {
        rb_schedule_even(microbatches, ranks, owners);
        next->plan = rb_shares_summary(next, owners, microbatches, UINT64_MAX, arena);
        return;
    }
    if (speeds_of(next, arena)) {
        for (uint32_t m = 0; m < microbatches; m++)
            owners[m] = became[owners[m]];
        hand_on(next, microbatches, owners, arena);
    } else {
        rb_schedule_after(microbatches, owners, became, ranks, owners);
    }
    for (uint32_t r = 0; r < ranks; r++)
        write_runs(owners, microbatches, (int32_t)r, next->members[r], arena);
    next->plan = rb_shares_summary(next, owners, microbatches, UINT64_MAX, arena);
}
