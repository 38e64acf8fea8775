/* SPDX-License-Identifier: Apache-2.0 */
/* How any configuration gets ready and takes over, the first one like those that follow.
 *
 *     PREPARING --all ready--> GO --one has flipped--> ACTIVE --> RETIRED
 *         |                     |
 *         +-- member dead, unready, late; superseded --> ABANDONED */
#include "daemon/decide/turn.h"

#include "daemon/facts/contingency.h"

#include <inttypes.h>
#include <string.h>

/* The level at which the configuration took over, by the first member to say so. */
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

/* Noted while the members say so: a later configuration makes them forget it. */
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

/* A node of the configuration before `next` that `next` is not on; NULL: it is on all of them. */
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

/* May `next` have been flipped to behind our back?  All members that trained before are out of
 * reach.  They are waited for, or given up, and with them what they were told (crash.c).  What is
 * foreseen for a death happens anyway. */
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

/* What has gone wrong with a member; NULL: nothing.  *ret_blamed: the place of that member. */
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

/* All are ready: the members get their processes' names, so that a process that has the device
 * later is not taken for the member. */
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

/* Has a member said that the state to start from could not be loaded? */
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

bool rb_decide_is_spoiled(struct rb_turn *turn, const Rb__Configuration *next)
{
    const char *blamed;
    bool failed;

    return spoiled(turn, next, &blamed, &failed) != NULL;
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
