/* SPDX-License-Identifier: Apache-2.0 */
/* A member is lost: the others go on.
 *
 *     proof of death (reaped; or out of reach, or frozen by a broken link, for longer than a grace)
 *       -> survivors that have the state: configuration of them, filled up to `min`, in which each
 *          keeps its microbatches and has a fair part of the dead one's
 *       -> too few of them: park           -> none: back to a checkpoint or the start
 *
 * What prepares beside is given up, but a recovery under way is tended like any preparation. */
#include "daemon/shares.h"
#include "daemon/turn.h"

#include <inttypes.h>
#include <string.h>

enum { LINK_MS = 2000 }; /* for the report of a death to come behind the freeze that it causes */

static uint64_t patient_until(const struct rb_turn *turn, uint64_t patience)
{
    uint64_t since = turn->state.suspected;

    if (!since)
        since = turn->now;
    if (turn->options->since_ms > since)
        since = turn->options->since_ms;
    return since + patience;
}

/* Is there nothing to do, or nothing yet? */
static bool must_wait(struct rb_turn *turn, const struct rb_roll *roll)
{
    uint64_t patience = !roll->holders ? RB_ABSENCE_MS
                        : roll->away   ? turn->options->patience_ms
                                       : LINK_MS;
    uint64_t until;

    if (roll->gone && !roll->away)
        return false;
    if (!roll->gone && !roll->frozen && roll->away < roll->n)
        return true; /* whoever is away may well train on */
    if (roll->gone)
        rb_turn_suspect(turn, true);
    until = patient_until(turn, patience);
    if (turn->now >= until)
        return false;
    rb_turn_wake(turn, until);
    return true;
}

/* Processes that could not prepare the last recoveries are left behind, if others have the state.
 */
static bool left_behind(const struct rb_turn *turn, const struct rb_roll_entry *entry)
{
    const Rb__Configuration *last;

    if (rb_turn_failures(turn, true, &last) < RB_CRASH_TRIES)
        return false;
    return entry->report->unready == last->number;
}

static size_t gather(struct rb_turn *turn, const struct rb_roll *roll, bool all,
                     struct rb_place *places)
{
    size_t n = 0;

    for (size_t i = 0; i < roll->n; i++)
        if (rb_roll_holder(&roll->at[i]) && (all || !left_behind(turn, &roll->at[i])))
            places[n++] = (struct rb_place){roll->at[i].member->node, roll->at[i].member->device};
    return n;
}

static size_t fill_to_min(struct rb_turn *turn, struct rb_place *places, size_t n, uint32_t min)
{
    for (size_t s = 0; s < turn->share->n && n < min; s++) {
        const struct rb_place *place = &turn->share->places[s];
        bool there = !rb_fact_find(&turn->facts->nodes, place->node);

        for (size_t i = 0; i < n && !there; i++)
            there = rb_place_is(&places[i], place->node, place->device);
        if (!there)
            places[n++] = *place;
    }
    return n;
}

static void blame_the_lost(struct rb_turn *turn, const struct rb_roll *roll,
                           Rb__Configuration *conf)
{
    const Rb__Configuration *last;
    bool first = rb_turn_failures(turn, true, &last) == 0;

    conf->blamed = RB_ARENA_NEW(turn->arena, char *, roll->n + 1);
    for (size_t i = 0; i < roll->n; i++) {
        const struct rb_roll_entry *entry = &roll->at[i];
        const char *place = rb_turn_place(turn, entry->member->node, entry->member->device);

        if (entry->life != RB_LIFE_GONE && entry->life != RB_LIFE_AWAY)
            continue;
        conf->blamed[conf->n_blamed++] = rb_arena_string(turn->arena, place);
        if (first && entry->life == RB_LIFE_GONE)
            rb_turn_event(
                turn, entry->member->node, "worker-died", "the worker on %s ended: %s", place,
                entry->report && entry->report->reason ? entry->report->reason : "no reason known");
        else if (first)
            rb_turn_event(turn, entry->member->node, "node-lost", "node %s is out of reach",
                          entry->member->node);
    }
}

static void recover(struct rb_turn *turn, const struct rb_roll *roll)
{
    uint32_t min = rb_turn_min(turn);
    struct rb_place *places = RB_ARENA_NEW(turn->arena, struct rb_place, roll->n + min + 1);
    size_t n = gather(turn, roll, false, places);
    uint64_t until = rb_turn_hold_off(turn, true, 200);
    Rb__Configuration *conf;

    if (!n)
        n = gather(turn, roll, true, places);
    n = fill_to_min(turn, places, n, min);
    if (n < min) {
        rb_decide_park(turn, roll, "too few devices are left");
        return;
    }
    if (until) {
        rb_turn_wake(turn, until);
        return;
    }
    conf = rb_turn_create(turn, places, n, "crash", turn->now);
    if (rb_turn_active(turn))
        rb_shares_after(rb_turn_active(turn), turn->in->job.job->microbatches, conf, turn->arena);
    blame_the_lost(turn, roll, conf);
    rb_turn_reason(turn, "recovers from the loss of a worker");
}

bool rb_decide_crash(struct rb_turn *turn, const struct rb_roll *roll)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    if (next && !strcmp(next->cause, "crash")) {
        bool spoilt = rb_decide_tend(turn, next);

        return spoilt || roll->gone || roll->frozen || roll->away;
    }
    if (must_wait(turn, roll))
        return roll->gone > 0 || roll->frozen > 0;
    if (next)
        rb_turn_abandon(turn, "a worker was lost", false, NULL);
    if (!roll->holders)
        rb_decide_restart(turn, roll);
    else
        recover(turn, roll);
    return true;
}
