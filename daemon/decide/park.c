/* SPDX-License-Identifier: Apache-2.0 */
/* Parking: one worker saves the state and leaves, the others are dismissed.
 *
 *     in shards: first a configuration of one member, to which the others give what they have; it
 *                stands behind its flip, and is not made the active one, so that the others are
 *                there until it has saved
 *
 *     chosen: saver  --saved-->  parked: Paused, Cancelled (it was asked for) or Pending (devices
 *        |  ^                             are missing)
 *        +--+ it dies without having saved: the next one that has the state, until there is none
 *
 * A parking is taken back (stay.c) as long as the state is not saved, where saving fails. */
#include "daemon/decide/turn.h"
#include "daemon/facts/holding.h"
#include "daemon/facts/members.h"

#include <inttypes.h>
#include <string.h>

enum { FREEZE_MS = 500 }; /* from a death until all that are left have frozen, at most */

/* The level is known only of members that have frozen: behind a death in a vote some may be one
 * step ahead. */
static bool is_ahead(const Rb__WorkerReport *report, const Rb__WorkerReport *of)
{
    return report->state == RB__WORKER_REPORT__STATE__FROZEN &&
           of->state == RB__WORKER_REPORT__STATE__FROZEN && report->level > of->level;
}

/* Is a member gone, and have others with the state not all frozen for it yet? */
static bool are_freezing(const struct rb_roll *roll)
{
    for (size_t i = 0; roll->gone && i < roll->n; i++)
        if (rb_roll_holder(&roll->at[i]) &&
            roll->at[i].report->state == RB__WORKER_REPORT__STATE__TRAINING)
            return true;
    return false;
}

/* Behind a GO members flip without being asked, and a member that is not in `next` trains no
 * further step. */
static bool is_left_behind(const struct rb_turn *turn, const struct rb_roll_entry *entry)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    return next && turn->state.next == next->number &&
           next->state == RB__CONFIGURATION__STATE__GO &&
           !rb_configuration_names(next, entry->report->worker);
}

/* The member that has come farthest, as far as is known; else the lowest rank with the state, if
 * there is one that goes on and is on a node that stays. */
static const struct rb_roll_entry *choose_saver(struct rb_turn *turn, const struct rb_roll *roll,
                                                const char *not_this)
{
    const struct rb_roll_entry *best = NULL;
    bool best_stays = false;

    for (size_t i = 0; i < roll->n; i++) {
        const struct rb_roll_entry *entry = &roll->at[i];
        bool stays;

        if (!rb_roll_holder(entry) || (not_this && !strcmp(entry->report->worker, not_this)))
            continue;
        stays = !rb_device_must_be_left(turn->facts, entry->member->node, entry->member->device) &&
                !is_left_behind(turn, entry);
        if (best && is_ahead(best->report, entry->report))
            continue;
        if (!best || is_ahead(entry->report, best->report) || (stays && !best_stays)) {
            best = entry;
            best_stays = stays;
        }
    }
    return best;
}

/* How long it is worth waiting for reports before `saver` is taken at its word; saver NULL: no
 * member can save. */
static uint64_t patience_of(const struct rb_turn *turn, const struct rb_roll *roll,
                            const struct rb_roll_entry *saver)
{
    if (saver)
        return are_freezing(roll) ? FREEZE_MS : 0;
    return roll->away ? RB_ABSENCE_MS : roll->unsaid ? turn->options->patience_ms : 0;
}

/* Where no member can save. */
static const char *whom_it_waits_for(struct rb_turn *turn, const struct rb_roll *roll)
{
    for (size_t i = 0; i < roll->n; i++)
        if (roll->at[i].life == RB_LIFE_AWAY)
            return rb_decide_missed_reason(turn, roll, roll->at[i].member->node);
    return "no worker has reported yet that it has the state";
}

static void choose(struct rb_turn *turn, const struct rb_roll *roll, const char *why,
                   const char *not_this)
{
    const struct rb_roll_entry *saver = choose_saver(turn, roll, not_this);
    const Rb__Configuration *next = rb_turn_next(turn);
    uint64_t patience = patience_of(turn, roll, saver);

    if (patience && (!turn->state.suspected || turn->now < turn->state.suspected + patience)) {
        rb_turn_suspect(turn, true);
        rb_turn_wake(turn, turn->state.suspected + patience);
        if (!saver)
            rb_turn_reason(turn, rb_turn_text(turn, "%s: %s", why, whom_it_waits_for(turn, roll)));
        return;
    }
    if (!saver) {
        rb_decide_restart(turn, roll);
        return;
    }
    if (next && next->state == RB__CONFIGURATION__STATE__PREPARING)
        rb_turn_abandon(turn, "the job is being parked", false, NULL);
    turn->state.saver = saver->report->worker;
    turn->state_changed = true;
    rb_turn_reason(turn,
                   rb_turn_text(turn, "%s: %s saves the state", why,
                                rb_turn_place(turn, saver->member->node, saver->member->device)));
}

/* Is the job's state in shards, or may it be by now?  Behind a GO members flip without being
 * asked. */
static bool may_be_sharded(const struct rb_turn *turn)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    return rb_turn_sharded(turn) || (next && turn->state.next == next->number &&
                                     next->state == RB__CONFIGURATION__STATE__GO &&
                                     rb_holding_sharded(turn->in->job.job, next));
}

/* A configuration of one, which takes what it lacks from the others. */
static void create_gathering(struct rb_turn *turn, const struct rb_roll *roll, const char *why)
{
    const struct rb_roll_entry *saver = choose_saver(turn, roll, NULL);
    uint64_t until = rb_turn_hold_off(turn, false, 1000);
    struct rb_place place;

    if (until) {
        rb_turn_wake(turn, until);
        return;
    }
    if (!saver)
        return; /* a crash, which has its own rule */
    place = (struct rb_place){saver->member->node, saver->member->device};
    rb_turn_create(turn, &place, 1, "park", turn->now);
    rb_turn_reason(turn, rb_turn_text(turn, "%s: its state is gathered on %s", why,
                                      rb_turn_place(turn, place.node, place.device)));
}

bool rb_decide_gathers(const Rb__Configuration *conf)
{
    return !strcmp(conf->cause, "park");
}

bool rb_decide_gathered(struct rb_turn *turn, const Rb__Configuration *next)
{
    struct rb_roll_entry entry = {.member = next->members[0]};

    entry.life = rb_member_life(turn->facts, turn->in, next, 0, &entry.report);
    if (turn->state.saver || !rb_roll_holder(&entry))
        return false;
    if (rb_decide_may_stay(turn)) {
        rb_decide_stay(turn);
        return true;
    }
    turn->state.saver = entry.report->worker;
    turn->state_changed = true;
    rb_decide_tell(turn, next);
    rb_turn_reason(turn,
                   rb_turn_text(turn, "%s saves the state",
                                rb_turn_place(turn, entry.member->node, entry.member->device)));
    return true;
}

static void gather(struct rb_turn *turn, const struct rb_roll *roll, const char *why)
{
    const Rb__Configuration *next;

    rb_decide_suspect(turn, roll);
    if ((roll->gone || roll->frozen || roll->away) && rb_decide_crash(turn, roll))
        return;
    next = rb_turn_next(turn);
    if (next && (rb_decide_gathers(next) || next->state != RB__CONFIGURATION__STATE__PREPARING)) {
        rb_decide_tend(turn, next); /* it flips any moment, or is given up */
        return;
    }
    if (next)
        rb_turn_abandon(turn, "the job is being parked", false, NULL);
    create_gathering(turn, roll, why);
}

void rb_decide_park(struct rb_turn *turn, const struct rb_roll *roll, const char *why)
{
    if (may_be_sharded(turn))
        gather(turn, roll, why);
    else
        choose(turn, roll, why, NULL);
}

void rb_decide_parked(struct rb_turn *turn, Rb__Checkpoint *saved)
{
    const Rb__Wish *wish = turn->in->wish.wish;
    bool asked = wish->paused && !wish->cancelled;

    turn->state.parked = saved;
    turn->state.saver = NULL;
    rb_turn_end(turn, rb_turn_next(turn), "the job is parked");
    rb_turn_end(turn, rb_turn_active(turn), NULL);
    rb_turn_suspect(turn, false);
    if (wish->cancelled) {
        rb_turn_phase(turn, RB__PHASE__Cancelled, "cancelled");
        rb_turn_event(turn, NULL, "cancelled",
                      "the job was cancelled; step %" PRId64 " is kept at %s on %s", saved->step,
                      saved->path, saved->node);
        return;
    }
    rb_turn_phase(turn, asked ? RB__PHASE__Paused : RB__PHASE__Pending,
                  asked ? "paused" : "parked: waits for devices");
    rb_turn_event(turn, NULL, asked ? "paused" : "parked", "step %" PRId64 " is kept at %s on %s",
                  saved->step, saved->path, saved->node);
}

/* The saver's report, whatever configuration it served. */
static const struct rb_fact *find_saver(const struct rb_turn *turn)
{
    for (size_t i = 0; i < turn->in->workers.n; i++)
        if (!strcmp(turn->in->workers.at[i].worker->worker, turn->in->state.state->saver))
            return &turn->in->workers.at[i];
    return NULL;
}

static bool saver_away(const struct rb_turn *turn, const struct rb_roll *roll)
{
    for (size_t i = 0; i < roll->n; i++)
        if (roll->at[i].report && roll->at[i].life == RB_LIFE_AWAY &&
            !strcmp(roll->at[i].report->worker, turn->in->state.state->saver))
            return true;
    return false;
}

/* As things are now: a job that was paused may have been resumed meanwhile, but a saver that was
 * told to leave does so if it can. */
static const char *why_parking(const struct rb_turn *turn)
{
    if (turn->in->wish.wish->cancelled)
        return "cancelled";
    if (turn->in->wish.wish->paused)
        return "paused";
    return rb_decide_may_stay(turn) ? "goes on when its state is saved"
                                    : "it has no device to go to";
}

void rb_decide_parking(struct rb_turn *turn, const struct rb_roll *roll)
{
    const struct rb_fact *saver = find_saver(turn);
    const char *why = why_parking(turn);
    bool ended = !saver || saver->worker->state == RB__WORKER_REPORT__STATE__DEAD ||
                 saver->worker->state == RB__WORKER_REPORT__STATE__FAILED;
    char *old = turn->in->state.state->saver;
    uint64_t until;

    if (saver && saver->worker->saved) {
        rb_decide_parked(turn, saver->worker->saved);
        return;
    }
    if (!ended && !saver_away(turn, roll)) {
        rb_turn_suspect(turn, false);
        if (saver->worker->unsaved && rb_decide_may_stay(turn))
            rb_decide_stay(turn);
        else if (saver->worker->unsaved && saver->worker->reason)
            rb_turn_reason(turn, rb_turn_text(turn, "%s: %s", why, saver->worker->reason));
        return;
    }
    if (!ended) {
        rb_turn_suspect(turn, true);
        until = rb_turn_patient_until(turn, turn->options->patience_ms);
        if (turn->now < until || !roll->holders) {
            rb_turn_wake(turn, until > turn->now ? until : turn->state.suspected + RB_ABSENCE_MS);
            if (turn->now < turn->state.suspected + RB_ABSENCE_MS)
                return;
        }
    }
    rb_turn_event(turn, NULL, "saver-lost", "%s ended before it had saved the state: %s", old,
                  saver && saver->worker->reason ? saver->worker->reason : "no reason known");
    turn->state.saver = NULL;
    turn->state_changed = true;
    if (!may_be_sharded(turn)) /* else the state is brought together again */
        choose(turn, roll, why, old);
}
