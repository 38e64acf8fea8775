/* SPDX-License-Identifier: Apache-2.0 */
/* Shares by speed.  What workers have measured is in their reports, and goes into each new
 * configuration, so that agents, and anyone who looks at it later, need nothing else.
 *
 *     speeds have changed --worth it, and long enough ago--> PREPARING: the same members, other
 *                                                            shares; nobody is new, so the next
 *                                                            vote but one flips
 *
 * The patience doubles with each such configuration that follows another: where speeds come and go,
 * changes do not. */
#include "daemon/decide/turn.h"
#include "daemon/facts/shares.h"
#include "plan/partition/balance.h"

#include <stdlib.h>
#include <string.h>

enum {
    DOUBLINGS = 5,   /* of the patience */
    FORGET_TIMES = 8 /* patiences, until what is known of a member without a share is doubted */
};

static bool is_balance(const Rb__Configuration *conf)
{
    return !strcmp(conf->cause, "balance");
}

/* Steps that a configuration must have done. */
static int64_t patience(const struct rb_turn *turn, const Rb__Configuration *active)
{
    const Rb__Configuration *conf = active;
    unsigned doublings = 0;

    while (is_balance(conf) && doublings < DOUBLINGS) {
        const struct rb_fact *fact = rb_facts_configuration(turn->in, conf->from);

        doublings++;
        if (!fact)
            break;
        conf = fact->configuration;
    }
    return (int64_t)turn->options->balance_steps << doublings;
}

/* ---- Speeds -----------------------------------------------------------------------------------*/

const char *rb_decide_kind(const struct rb_turn *turn, const Rb__Member *member)
{
    const struct rb_fact *fact = rb_fact_find(&turn->facts->nodes, member->node);

    for (size_t d = 0; fact && d < fact->node->n_devices; d++)
        if (fact->node->devices[d]->index == member->device)
            return fact->node->devices[d]->kind;
    return "";
}

/* A member that computes nothing measures nothing either: after a while it is taken for one like
 * the others, so that whatever slowed it down is not held against it for ever. */
static bool is_stale(const struct rb_turn *turn, const Rb__Member *member)
{
    const Rb__Configuration *active = rb_turn_active(turn);
    const Rb__Progress *progress = turn->in->progress.message ? turn->in->progress.progress : NULL;
    bool runs = false, own = true;

    if (!active || !progress || progress->configuration != active->number ||
        progress->step - active->level < FORGET_TIMES * patience(turn, active))
        return false;
    for (size_t m = 0; m < active->n_members; m++) {
        runs |= active->members[m]->n_runs > 0;
        if (active->members[m]->worker && !strcmp(active->members[m]->worker, member->worker))
            own = active->members[m]->n_runs > 0;
    }
    return runs && !own;
}

uint32_t rb_decide_pace(const struct rb_turn *turn, const Rb__Member *member)
{
    const struct rb_fact *report = rb_facts_report(turn->in, member->node, member->device);

    if (!member->worker || !report || strcmp(report->worker->worker, member->worker) != 0 ||
        is_stale(turn, member))
        return 0;
    return report->worker->microbatch_us;
}

static int smaller_first(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The median of what others of its kind have measured; 0: nobody has. */
static uint32_t guess(const struct rb_turn *turn, const Rb__Configuration *conf,
                      const Rb__Member *member)
{
    uint32_t *known = RB_ARENA_NEW(turn->arena, uint32_t, conf->n_members + 1);
    size_t n = 0;

    for (size_t m = 0; m < conf->n_members; m++) {
        uint32_t us = conf->members[m] == member ? 0 : rb_decide_pace(turn, conf->members[m]);

        if (us && !strcmp(rb_decide_kind(turn, conf->members[m]), rb_decide_kind(turn, member)))
            known[n++] = us;
    }
    qsort(known, n, sizeof(*known), smaller_first);
    return n ? known[n / 2] : 0;
}

static bool is_pinned(const struct rb_turn *turn, const char *word)
{
    const Rb__ParallelSpec *parallel = turn->in->job.job->spec->parallel;

    return parallel && parallel->balance && !strcmp(parallel->balance, word);
}

bool rb_decide_steals(const struct rb_turn *turn)
{
    return is_pinned(turn, "auto");
}

void rb_decide_speeds(struct rb_turn *turn, Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members && !is_pinned(turn, "even"); m++) {
        Rb__Member *member = conf->members[m];
        uint32_t us = rb_decide_pace(turn, member);

        member->microbatch_us = us ? us : guess(turn, conf, member);
        member->has_microbatch_us = member->microbatch_us != 0;
    }
}

/* ---- The same members -------------------------------------------------------------------------*/

Rb__Configuration rb_decide_measured(struct rb_turn *turn, const Rb__Configuration *from)
{
    Rb__Configuration conf = *from;

    conf.members = RB_ARENA_NEW(turn->arena, Rb__Member *, from->n_members + 1);
    for (size_t m = 0; m < from->n_members; m++)
        conf.members[m] = rb_arena_copy(turn->arena, from->members[m], sizeof(Rb__Member));
    rb_decide_speeds(turn, &conf);
    return conf;
}

/* Would other shares pay for the change? */
static bool pays(struct rb_turn *turn, const Rb__Configuration *active, int64_t steps_left)
{
    Rb__Configuration now = rb_decide_measured(turn, active);
    double as_it_is, by_speed;

    return rb_shares_price(&now, turn->in->job.job->microbatches, turn->arena, &as_it_is,
                           &by_speed) &&
           rb_balance_worth(as_it_is, by_speed) &&
           (as_it_is - by_speed) * (double)steps_left >= 1e3 * turn->options->balance_gain_ms;
}

void rb_decide_balance(struct rb_turn *turn, const Rb__Configuration *active)
{
    const Rb__Progress *progress = turn->in->progress.message ? turn->in->progress.progress : NULL;

    if (!progress || progress->configuration != active->number ||
        progress->step - active->level < patience(turn, active) || /* each progress asks again */
        !rb_decide_may_follow(turn, active, "balance") ||
        !pays(turn, active, turn->in->job.job->steps - progress->step) ||
        rb_decide_is_young(turn, active, turn->options->balance_ms))
        return;
    rb_decide_follow(turn, active, "balance");
}
