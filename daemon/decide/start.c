/* SPDX-License-Identifier: Apache-2.0 */
/* From nothing to a first active configuration; and how any configuration gets ready.
 *
 *     PREPARING --all ready--> GO --one has flipped--> ACTIVE --> RETIRED
 *         |                     |
 *         +-- member dead, unready, late; superseded --> ABANDONED */
#include "daemon/decide/turn.h"

#include "daemon/facts/contingency.h"
#include "daemon/facts/restore.h"

#include <inttypes.h>
#include <string.h>

/* The level at which the first one to say so took over. */
static void note_level(const struct rb_turn *turn, Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members && !conf->has_level; m++) {
        const struct rb_fact *fact = rb_facts_member(turn->in, conf, m);

        if (fact && fact->worker->active == conf->number && fact->worker->has_first_step) {
            conf->has_level = 1;
            conf->level = fact->worker->first_step;
        }
    }
}

/* While they say so: a later configuration makes them forget it. */
void rb_decide_note_bytes(struct rb_turn *turn, const Rb__Configuration *active)
{
    uint64_t bytes = 0;

    for (size_t m = 0; m < active->n_members; m++) {
        const struct rb_fact *fact = rb_facts_member(turn->in, active, m);

        if (fact && fact->worker->active == active->number)
            bytes += fact->worker->bytes_moved;
    }
    if (bytes > active->bytes_moved) {
        Rb__Configuration *conf = rb_turn_edit(turn, active);

        conf->has_bytes_moved = 1;
        conf->bytes_moved = bytes;
    }
}

bool rb_decide_flipped(const struct rb_turn *turn, const Rb__Configuration *next)
{
    const Rb__Configuration *base = rb_contingency_base(turn->in, next);

    for (size_t m = 0; m < next->n_members; m++) {
        const struct rb_fact *fact = rb_facts_member(turn->in, next, m);

        if (fact && rb_contingency_entered(fact->worker, next, base))
            return true;
    }
    return false;
}

/* A node of those before it that it is not on; NULL: it is on all of them. */
static const char *node_left(const struct rb_turn *turn, const Rb__Configuration *next)
{
    const struct rb_fact *before = rb_facts_configuration(turn->in, next->from);

    for (size_t m = 0; before && m < before->configuration->n_members; m++) {
        const char *node = before->configuration->members[m]->node;
        bool there = false;

        for (size_t i = 0; i < next->n_members && !there; i++)
            there = !strcmp(next->members[i]->node, node);
        if (!there)
            return node;
    }
    return NULL;
}

void rb_decide_tell(struct rb_turn *turn, const Rb__Configuration *next)
{
    static const struct {
        const char *cause, *kind, *text;
    } words[] = {
        {"start", "started", "trains on"},
        {"resume", "started", "goes on from its saved state on"},
        {"grow", "grown", "grew to"},
        {"shrink", "shrunk", "shrank to"},
        {"move", "moved", "moved and is on"},
        {"drain", "moved", "is leaving a node and is on"},
        {"crash", "recovered", "goes on without loss on"},
        {"replan", "replanned", "runs in another way on"},
        {"park", "gathered", "has its whole state on"},
        {"balance", "balanced", "shares by speed on"},
    };
    const char *left = strcmp(next->cause, "drain") ? NULL : node_left(turn, next);

    for (size_t i = 0; i < RB_COUNT(words); i++)
        if (!strcmp(next->cause, words[i].cause))
            rb_turn_event(turn, NULL, words[i].kind, "configuration %" PRIu32 ": %s %zu device%s",
                          next->number,
                          left ? rb_turn_text(turn, "left node %s and is on", left) : words[i].text,
                          next->n_members, next->n_members == 1 ? "" : "s");
}

void rb_decide_activate(struct rb_turn *turn, const Rb__Configuration *next)
{
    const Rb__Configuration *active = rb_turn_active(turn);
    Rb__Configuration *conf = rb_turn_edit(turn, next);

    conf->state = RB__CONFIGURATION__STATE__ACTIVE;
    note_level(turn, conf);
    rb_turn_end(turn, active, NULL);
    turn->state.has_active = turn->state.has_next = 1;
    turn->state.active = conf->number;
    turn->state.next = 0;
    turn->state_changed = true;
    rb_turn_suspect(turn, false);
    rb_turn_phase(turn, RB__PHASE__Running, turn->state.saver ? turn->state.reason : NULL);
    rb_decide_tell(turn, next);
}

/* May it have been flipped to behind our back?  Who trained before is out of reach, all of them;
 * they are waited for, or given up and with them what they were told (crash.c).  What is foreseen
 * for a death they do anyway. */
static bool is_unheard(struct rb_turn *turn, const Rb__Configuration *next)
{
    const Rb__Configuration *active = rb_turn_active(turn);

    if (!active || next->state != RB__CONFIGURATION__STATE__GO || !strcmp(next->cause, "crash"))
        return false;
    for (size_t m = 0; m < active->n_members; m++) {
        const Rb__WorkerReport *report;

        if (rb_member_life(turn->facts, turn->in, active, m, &report) == RB_LIFE_HERE)
            return false;
    }
    return true;
}

/* Has something gone wrong with a member?  Blames the newcomers where it is not its own fault. */
static const char *spoiled(struct rb_turn *turn, const Rb__Configuration *next,
                           const char **ret_blamed, bool *ret_failed)
{
    uint64_t patient_until = turn->options->since_ms + turn->options->patience_ms;
    bool unheard = is_unheard(turn, next);

    for (size_t m = 0; m < next->n_members; m++) {
        const Rb__Member *member = next->members[m];
        const Rb__WorkerReport *report;
        enum rb_life life = rb_member_life(turn->facts, turn->in, next, m, &report);
        const char *place = rb_turn_place(turn, member->node, member->device);
        const char *said = report && report->reason ? report->reason : "no reason known";

        *ret_blamed = place;
        *ret_failed = true;
        if (life == RB_LIFE_GONE)
            return rb_turn_text(turn, "the worker on %s ended: %s", place, said);
        if (report && report->unready == next->number)
            return rb_turn_text(turn, "%s could not prepare it: %s", place, said);
        if (report && report->active > next->number + next->spare)
            return rb_turn_text(turn, "%s trains in configuration %" PRIu32, place, report->active);
        if (life == RB_LIFE_AWAY) {
            *ret_failed = false; /* and is not tried again while it is away */
            if (unheard)
                continue;
            if (turn->now >= patient_until)
                return rb_turn_text(turn, "node %s is out of reach", member->node);
            rb_turn_wake(turn, patient_until);
        }
    }
    *ret_blamed = NULL;
    return NULL;
}

static size_t count_ready(struct rb_turn *turn, const Rb__Configuration *next,
                          const char **ret_late)
{
    size_t ready = 0;

    for (size_t m = 0; m < next->n_members; m++) {
        const Rb__WorkerReport *report;
        enum rb_life life = rb_member_life(turn->facts, turn->in, next, m, &report);

        if (life == RB_LIFE_HERE && report->ready == next->number)
            ready++;
        else
            *ret_late = rb_turn_place(turn, next->members[m]->node, next->members[m]->device);
    }
    return ready;
}

/* All are ready: the members get their processes' names, so that whoever has the device later is
 * not taken for them. */
static void go(struct rb_turn *turn, const Rb__Configuration *next)
{
    Rb__Configuration *conf = rb_turn_edit(turn, next);
    Rb__Member **members = RB_ARENA_NEW(turn->arena, Rb__Member *, next->n_members);

    for (size_t m = 0; m < next->n_members; m++) {
        members[m] = RB_ARENA_NEW(turn->arena, Rb__Member, 1);
        *members[m] = *next->members[m];
        members[m]->worker = rb_facts_member(turn->in, next, m)->worker->worker;
    }
    conf->members = members;
    conf->state = RB__CONFIGURATION__STATE__GO;
    conf->has_went = 1;
    conf->went = turn->now;
}

static bool in_share(const struct rb_turn *turn, const Rb__Member *member)
{
    for (size_t i = 0; i < turn->share->n; i++)
        if (rb_place_is(&turn->share->places[i], member->node, member->device))
            return true;
    return false;
}

/* A start that is asked for otherwise meanwhile. */
static bool start_outdated(const struct rb_turn *turn, const Rb__Configuration *next)
{
    for (size_t m = 0; m < next->n_members; m++)
        if (!in_share(turn, next->members[m]))
            return true;
    return turn->share->n > next->n_members && turn->in->wish.wish->asked > next->created;
}

/* Has a member said that nobody could load what it was to start from? */
static bool is_unreadable(const struct rb_turn *turn, const Rb__Configuration *next)
{
    for (size_t m = 0; next->restore && m < next->n_members; m++) {
        const Rb__WorkerReport *report;

        rb_member_life(turn->facts, turn->in, next, m, &report);
        if (report && report->unreadable)
            return true;
    }
    return false;
}

bool rb_decide_tend(struct rb_turn *turn, const Rb__Configuration *next)
{
    const char *blamed = NULL, *late = NULL, *why;
    bool failed, going = next->state == RB__CONFIGURATION__STATE__GO;

    why = spoiled(turn, next, &blamed, &failed);
    if (why) {
        rb_turn_event(turn, NULL, "abandoned", "configuration %" PRIu32 ": %s", next->number, why);
        rb_turn_abandon(turn, why, failed, blamed);
        if (is_unreadable(turn, next)) {
            Rb__Configuration *conf = rb_turn_edit(turn, next);

            conf->has_unreadable = conf->unreadable = 1;
        }
        return true;
    }
    if (going)
        return false;
    if (count_ready(turn, next, &late) == next->n_members) {
        go(turn, next);
        return true;
    }
    if (turn->now >= next->created + RB_PREPARE_MS) {
        rb_turn_event(turn, NULL, "abandoned",
                      "configuration %" PRIu32 ": %s was not ready in time", next->number, late);
        rb_turn_abandon(turn, rb_turn_text(turn, "%s was not ready in time", late), true, late);
        return true;
    }
    rb_turn_wake(turn, next->created + RB_PREPARE_MS);
    return false;
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

/* What was parked is on one node: a share that keeps what a start has may lack that node by now. */
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

/* An older state than that which the last start could not load. */
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

/* Of what it would start from now. */
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
