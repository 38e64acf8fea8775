/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/shares.h"

#include "base/buffer.h"
#include "plan/replicas.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"

#include <inttypes.h>
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

/* A member's microbatches as runs. */
static void write_runs(const int32_t *owners, uint32_t microbatches, int32_t rank,
                       Rb__Member *member, struct rb_arena *arena)
{
    member->runs = RB_ARENA_NEW(arena, Rb__Run *, microbatches + 1);
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

char *rb_shares_summary(const Rb__Configuration *configuration, const int32_t *owners,
                        uint32_t microbatches, uint64_t blocks, struct rb_arena *arena)
{
    uint32_t ranks = (uint32_t)configuration->n_members;
    uint32_t stages = rb_pipeline_stages(configuration->pipeline, ranks);
    struct rb_replicas how = {.copies = configuration->replicas, .blocks = blocks, .ranks = ranks};
    struct rb_buffer text = {0};
    char *summary;

    if (stages) {
        rb_pipeline_text(stages, ranks, microbatches, &text);
    } else {
        RB_CLEANUP(rb_freep) char *shares = rb_schedule_summary(microbatches, owners, ranks);

        rb_buffer_text(&text, shares);
    }
    rb_replicas_text(&how, &text);
    summary = rb_arena_string(arena, text.data);
    rb_buffer_done(&text);
    return summary;
}

void rb_shares_after(const Rb__Configuration *last, uint32_t microbatches, Rb__Configuration *next,
                     struct rb_arena *arena)
{
    int32_t *owners, *became = RB_ARENA_NEW(arena, int32_t, last->n_members + 1);
    uint32_t ranks = (uint32_t)next->n_members;

    if (!ranks || rb_shares_of(last, microbatches, arena, &owners, NULL))
        return; /* even shares are always right */
    if (next->pipeline > 1) {
        rb_schedule_even(microbatches, ranks, owners);
        next->plan = rb_shares_summary(next, owners, microbatches, UINT64_MAX, arena);
        return;
    }
    for (size_t r = 0; r < last->n_members; r++)
        became[r] = rank_of(last->members[r], next);
    rb_schedule_after(microbatches, owners, became, ranks, owners);
    for (uint32_t r = 0; r < ranks; r++)
        write_runs(owners, microbatches, (int32_t)r, next->members[r], arena);
    next->plan = rb_shares_summary(next, owners, microbatches, UINT64_MAX, arena);
}
