/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: shares for all jobs, then a turn for each, then old events and deletions go. */
#include "daemon/decide/decide.h"

#include "daemon/decide/turn.h"

#include <string.h>

enum {
    KEPT = 1000, /* of events, and of deletions; what is older goes */
    AT_ONCE = 50,
};

static void take_turn(const struct rb_facts *facts, const struct rb_job_facts *job,
                      const struct rb_share *share, uint64_t now_ms,
                      const struct rb_decide_options *options, struct rb_arena *arena,
                      struct rb_writes *writes, unsigned *sequence, uint64_t *wake)
{
    struct rb_turn turn = {
        .facts = facts,
        .in = job,
        .share = share,
        .options = options,
        .arena = arena,
        .now = now_ms,
        .wake = UINT64_MAX,
    };

    if (!job->job.message || !job->wish.message || !job->state.message || !job->job.job->spec)
        return;
    turn.state = *job->state.state;
    rb_decide_job(&turn);
    rb_turn_write(&turn, writes, sequence);
    if (turn.wake < *wake)
        *wake = turn.wake;
}

static void forget_old(const struct rb_fact_list *list, struct rb_writes *writes)
{
    if (list->n <= KEPT + AT_ONCE)
        return;
    rb_writes_next(writes);
    for (size_t i = 0; i < AT_ONCE; i++)
        rb_writes_delete(writes, RB_ANY_REVISION, "%s", list->at[i].key);
    rb_writes_next(writes);
}

int rb_decide(const struct rb_facts *facts, uint64_t now_ms,
              const struct rb_decide_options *options, struct rb_writes *ret_writes,
              uint64_t *ret_wake_ms, struct rb_why *why)
{
    struct rb_arena arena = {0};
    struct rb_share *shares = rb_allocate(facts, now_ms, &arena);
    uint64_t wake = UINT64_MAX;
    unsigned sequence = 0;

    (void)why;
    for (size_t j = 0; j < facts->n_jobs; j++)
        take_turn(facts, &facts->jobs[j], &shares[j], now_ms, options, &arena, ret_writes,
                  &sequence, &wake);
    forget_old(&facts->events, ret_writes);
    forget_old(&facts->deletions, ret_writes);
    *ret_wake_ms = wake;
    rb_arena_done(&arena);
    return 0;
}
