/* SPDX-License-Identifier: Apache-2.0 */
/* From nothing to a first active configuration: waiting for devices, and what to start from. */
#include "daemon/decide/turn.h"

#include "daemon/facts/restore.h"

#include <inttypes.h>
#include <string.h>

static bool in_share(const struct rb_turn *turn, const Rb__Member *member)
{
    for (size_t i = 0; i < turn->share->n; i++)
        if (rb_place_is(&turn->share->places[i], member->node, member->device))
            return true;
    return false;
}

/* Is another start asked for by now? */
static bool start_outdated(const struct rb_turn *turn, const Rb__Configuration *next)
{
    for (size_t m = 0; m < next->n_members; m++)
        if (!in_share(turn, next->members[m]))
            return true;
    return turn->share->n > next->n_members && turn->in->wish.wish->asked > next->created;
}

static void set_restore(struct rb_turn *turn, Rb__Configuration *conf)
{
    bool local, found = false;
    const Rb__Checkpoint *source = rb_restore_source(turn->in, turn->arena, &local);

    conf->restore = (Rb__Checkpoint *)source;
    for (size_t m = 0; m < conf->n_members; m++) {
        Rb__Member *member = conf->members[m];

        member->has_restores = 1;
        member->restores = !source || !strcmp(member->node, source->node);
        found |= member->restores;
    }
    if (!found) /* a shared folder, then */
        conf->members[0]->restores = 1;
}

/* A parked state is on one node: a share that keeps the devices of the start under way may lack
 * that node by now. */
static bool share_has_state(const struct rb_turn *turn)
{
    bool local;
    const Rb__Checkpoint *source = rb_restore_source(turn->in, turn->arena, &local);

    for (size_t i = 0; source && local && i < turn->share->n; i++)
        if (!strcmp(turn->share->places[i].node, source->node))
            return true;
    return !source || !local;
}

static uint64_t asked_of_start(const struct rb_turn *turn)
{
    const struct rb_fact_list *past = &turn->in->configurations;
    uint64_t asked =
        turn->in->wish.wish->asked ? turn->in->wish.wish->asked : turn->in->job.job->created;

    for (size_t i = 0; i < past->n; i++)
        if (past->at[i].configuration->state == RB__CONFIGURATION__STATE__RETIRED)
            return turn->now;
    return asked;
}

/* Tells of a start from an older state than the one that the last start could not load. */
static void tell_older(struct rb_turn *turn, const Rb__Checkpoint *source)
{
    const Rb__Configuration *last;

    rb_turn_failures(turn, false, &last);
    if (source && last && last->unreadable && last->restore->step > source->step)
        rb_turn_event(turn, NULL, "checkpoint-unreadable",
                      "step %" PRId64 " in %s cannot be loaded; goes on from step %" PRId64
                      " in %s",
                      last->restore->step, last->restore->path, source->step, source->path);
}

static void begin(struct rb_turn *turn)
{
    bool local;
    const Rb__Checkpoint *source = rb_restore_source(turn->in, turn->arena, &local);
    const char *cause = source ? "resume" : "start";

    tell_older(turn, source);
    set_restore(turn, rb_turn_create(turn, turn->share->places, turn->share->n, cause,
                                     asked_of_start(turn)));
    rb_turn_phase(turn, RB__PHASE__Preparing, NULL);
}

static void say_paused(struct rb_turn *turn)
{
    rb_turn_event(turn, NULL, "paused",
                  turn->state.parked ? "paused before it went on from its saved state"
                                     : "paused before it ran");
}

/* How many starts from the state that it would start from now have failed. */
static unsigned failed_starts(const struct rb_turn *turn, const Rb__Configuration **ret_last)
{
    bool local;
    const Rb__Checkpoint *source = rb_restore_source(turn->in, turn->arena, &local);
    unsigned failures = rb_turn_failures(turn, false, ret_last);

    return source ? rb_restore_failures(turn->in, source) : failures;
}

static void wait_for_devices(struct rb_turn *turn)
{
    const Rb__Configuration *last;
    unsigned failures = failed_starts(turn, &last);
    uint64_t until = rb_turn_hold_off(turn, false, 1000);

    if (turn->in->wish.wish->paused) {
        rb_turn_phase(turn, RB__PHASE__Paused, "paused");
        say_paused(turn);
    } else if (failures >= RB_START_TRIES) {
        rb_decide_fail(turn, rb_turn_text(turn, "it could not be started: %s", last->reason));
    } else if (until) {
        rb_turn_reason(turn, rb_turn_text(turn, "tries again soon: %s", last->reason));
        rb_turn_wake(turn, until);
    } else if (rb_turn_enough(turn)) {
        begin(turn);
    } else {
        rb_turn_reason(turn,
                       rb_share_reason(turn->share, turn->in, rb_turn_min(turn), turn->arena));
        rb_turn_wake(turn, turn->share->wake_ms);
    }
}

void rb_decide_start(struct rb_turn *turn)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    if (!next) {
        if (turn->state.phase == RB__PHASE__Preparing)
            rb_turn_phase(turn, RB__PHASE__Pending, NULL);
        else
            wait_for_devices(turn);
    } else if (next->state == RB__CONFIGURATION__STATE__GO && rb_decide_flipped(turn, next)) {
        rb_decide_activate(turn, next);
    } else if (turn->in->wish.wish->paused && next->state == RB__CONFIGURATION__STATE__PREPARING) {
        /* One that was told to go may train by now: it is parked when it has said so. */
        rb_turn_abandon(turn, "the job was paused", false, NULL);
        rb_turn_phase(turn, RB__PHASE__Paused, "paused");
        say_paused(turn);
    } else if (rb_decide_tend(turn, next)) {
        if (!turn->state.next)
            rb_turn_phase(turn, RB__PHASE__Pending, NULL);
    } else if (next->state == RB__CONFIGURATION__STATE__PREPARING && start_outdated(turn, next)) {
        rb_turn_abandon(turn, "the wish has changed", false, NULL);
        if (rb_turn_enough(turn) && share_has_state(turn))
            begin(turn);
        else
            rb_turn_phase(turn, RB__PHASE__Pending, NULL);
    }
}
