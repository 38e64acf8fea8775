/* SPDX-License-Identifier: Apache-2.0 */
/* A member is lost: the others go on.
 *
 *     proof of death (reaped)
 *       -> what is left of the configuration, as it was foreseen: agents have gone to it by
 *          themselves (daemon/facts/contingency.h), and here it is recorded
 *
 *     what is not foreseen; silent (daemon/silence.h); out of reach or frozen by a broken link for
 *     longer than a grace
 *       -> survivors that have the state: configuration of them, filled up to `min`, in which each
 *          keeps its microbatches and has a fair part of the dead one's
 *       -> too few of them: park           -> none, or a block that none of them holds: back to a
 *                                             checkpoint or the start
 *
 * A configuration that is being prepared is given up, but a recovery under way is tended like any
 * preparation. */
#include "daemon/decide/turn.h"
#include "daemon/facts/contingency.h"
#include "daemon/facts/shares.h"

#include <inttypes.h>
#include <string.h>

enum {
    LINK_MS = 2000,    /* for the report of a death to follow the freeze that it causes */
    HOLD_OFF_MS = 200, /* behind the first recovery that could not be prepared */
    SLOW_MS = 1000,    /* a recovery that takes longer may have lost another member; */
    STUCK_MS = 2000,   /* and for so long it waits for a node that does not answer */
};

/* How long to wait for members of which nothing is heard.  A silent member that lives has lost its
 * links as the others have: it trains on nothing, and may come back. */
static uint64_t patience_with(const struct rb_turn *turn, const struct rb_roll *roll)
{
    if (!roll->whole)
        return roll->away ? RB_ABSENCE_MS : turn->options->patience_ms;
    if (roll->away > roll->silent)
        return turn->options->patience_ms;
    return roll->silent && !roll->unsaid ? 0 : LINK_MS;
}

/* Is there nothing to do, or nothing yet? */
static bool must_wait(struct rb_turn *turn, const struct rb_roll *roll)
{
    const uint64_t leases = rb_turn_patient_until(turn, turn->options->patience_ms);
    uint64_t until;

    if (roll->gone && !roll->away && !roll->unsaid)
        return false; /* else a member that was just fed may be ahead of the others */
    if (!roll->gone && !roll->frozen && !roll->ends && roll->away < roll->n)
        return true; /* members that are away may well train on */
    if (roll->gone)
        rb_turn_suspect(turn, true);
    until = rb_turn_patient_until(turn, patience_with(turn, roll));
    if (turn->now >= until)
        return false;
    rb_turn_wake(turn, until);
    if (roll->silent && turn->now < leases)
        rb_turn_wake(turn, leases); /* a node that has one then counts again */
    return true;
}

/* A process that could not prepare the last recoveries is left behind, if others have the state. */
static bool left_behind(const struct rb_turn *turn, const struct rb_roll_entry *entry)
{
    const Rb__Configuration *last;

    if (rb_turn_sharded(turn) || rb_turn_failures(turn, true, &last) < RB_CRASH_TRIES)
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
        bool there =
            !rb_fact_find(&turn->facts->nodes, place->node) || rb_turn_silent(turn, place->node);

        for (size_t i = 0; i < n && !there; i++)
            there = rb_place_is(&places[i], place->node, place->device);
        if (!there)
            places[n++] = *place;
    }
    return n;
}

static void recover(struct rb_turn *turn, const struct rb_roll *roll)
{
    uint32_t min = rb_turn_min(turn);
    struct rb_place *places = RB_ARENA_NEW(turn->arena, struct rb_place, roll->n + min + 1);
    size_t n = gather(turn, roll, false, places);
    uint64_t until = rb_turn_hold_off(turn, true, HOLD_OFF_MS);
    Rb__Configuration *conf;

    if (!n)
        n = gather(turn, roll, true, places);
    n = fill_to_min(turn, places, n, min);
    if (n < min && !rb_turn_sharded(turn)) { /* else the survivors bring the state together first */
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
    rb_decide_blame_lost(turn, roll, conf);
    rb_turn_reason(turn, rb_decide_recovery_reason(conf));
}

/* When the first of the members died that `foreseen` is without, as far as reports say. */
static uint64_t died(const struct rb_turn *turn, const struct rb_roll *roll,
                     const Rb__Configuration *foreseen)
{
    uint64_t first = turn->now;

    for (size_t i = 0; i < roll->n; i++) {
        const Rb__WorkerReport *report = roll->at[i].report;
        uint64_t time = report && report->active == foreseen->number ? report->flipped : 0;

        if (report && !rb_decide_is_on(foreseen, roll->at[i].member))
            time = report->ended;
        if (time && time < first)
            first = time;
    }
    return first;
}

/* What is left was foreseen: agents that know of the death go to it without being told.  Here it is
 * only recorded, with what the agents may not know yet. */
static bool take_foreseen(struct rb_turn *turn, const struct rb_roll *roll,
                          const Rb__Configuration *next)
{
    const struct rb_contingency_known nothing = {0};
    Rb__Configuration *foreseen = rb_contingency_next(turn->in, &nothing, turn->arena), *conf;

    if (!foreseen || (roll->away && !rb_decide_flipped(turn, foreseen)))
        return false;
    rb_turn_abandon(turn, next && next->left_of ? "another worker was lost" : "a worker was lost",
                    false, NULL);
    conf = rb_turn_take(turn, foreseen, died(turn, roll, foreseen));
    rb_decide_blame_lost(turn, roll, conf);
    rb_turn_reason(turn, rb_decide_recovery_reason(conf));
    return true;
}

/* Is this member of `next` on a silent node and, as far as is known, in the way of `next`? */
static bool is_in_the_way(const struct rb_turn *turn, const Rb__Configuration *next, size_t rank)
{
    const struct rb_fact *fact = rb_facts_member(turn->in, next, rank);

    return rb_turn_silent(turn, next->members[rank]->node) &&
           (next->state == RB__CONFIGURATION__STATE__GO || !fact ||
            fact->worker->ready != next->number);
}

/* The silent members are not in the next recovery, whatever they have said (job.c). */
static void blame_the_silent(struct rb_turn *turn, const Rb__Configuration *next)
{
    Rb__Configuration *conf = rb_turn_edit(turn, next);
    char **blamed = RB_ARENA_NEW(turn->arena, char *, conf->n_blamed + next->n_members + 1);

    for (size_t i = 0; i < conf->n_blamed; i++)
        blamed[i] = conf->blamed[i];
    conf->blamed = blamed;
    for (size_t m = 0; m < next->n_members; m++)
        if (is_in_the_way(turn, next, m))
            blamed[conf->n_blamed++] =
                (char *)rb_turn_place(turn, next->members[m]->node, next->members[m]->device);
}

/* Does a loss hold the job up?  Else other rules decide, and the reason is theirs. */
static bool is_held_up(const struct rb_roll *roll)
{
    return roll->gone || roll->frozen || roll->away;
}

/* A member that is in the way of the recovery, or NULL. */
static const Rb__Member *who_is_in_the_way(const struct rb_turn *turn,
                                           const Rb__Configuration *next)
{
    for (size_t m = 0; m < next->n_members; m++)
        if (is_in_the_way(turn, next, m))
            return next->members[m];
    return NULL;
}

/* A recovery that takes long may have lost another node.  Where a node does not answer, and the
 * others have all of the state, the recovery is made again without that node.  Until then no member
 * gets any further. */
static bool give_up_silent(struct rb_turn *turn, const struct rb_roll *roll,
                           const Rb__Configuration *next)
{
    const Rb__Configuration *active = rb_turn_active(turn);
    uint64_t begun = next->state == RB__CONFIGURATION__STATE__GO ? next->went : next->created;
    const Rb__Member *missed;
    const char *why;

    if (turn->now < begun + SLOW_MS) {
        rb_turn_wake(turn, begun + SLOW_MS);
        return false;
    }
    rb_turn_suspect(turn, true);
    missed = who_is_in_the_way(turn, next);
    if (!missed || !active || !rb_turn_whole(turn, active, false)) {
        if (missed && is_held_up(roll))
            rb_decide_tell_missed(turn, roll, missed->node);
        else if (is_held_up(roll))
            rb_turn_reason(turn, rb_decide_recovery_reason(next));
        return false;
    }
    if (turn->now < begun + STUCK_MS) {
        rb_turn_wake(turn, begun + STUCK_MS);
        return false;
    }
    why = rb_turn_text(turn, "node %s does not answer", missed->node);
    rb_turn_event(turn, NULL, "abandoned", "configuration %" PRIu32 ": %s", next->number, why);
    rb_turn_abandon(turn, why, false, NULL);
    blame_the_silent(turn, next);
    return true;
}

/* Does a process have the state that is not in the active configuration?  It came with a
 * configuration that was given up behind its flip, and only the recovery knows of it. */
static bool has_heirs(const struct rb_turn *turn, const struct rb_roll *roll)
{
    const Rb__Configuration *active = rb_turn_active(turn);

    for (size_t i = 0; i < roll->n; i++)
        if (rb_roll_holder(&roll->at[i]) && !rb_decide_is_on(active, roll->at[i].member))
            return true;
    return false;
}

/* Heirs go from one recovery to the next in one turn, and no earlier than the next may be made:
 * between the two no configuration would need them, and their agents would dismiss them with the
 * state. */
static bool tend_recovery(struct rb_turn *turn, const struct rb_roll *roll,
                          const Rb__Configuration *next)
{
    bool heirs = roll->whole && has_heirs(turn, roll);
    uint64_t until = heirs ? rb_turn_hold_off(turn, true, HOLD_OFF_MS) : 0;

    if (give_up_silent(turn, roll, next))
        return true;
    if (until && rb_decide_is_spoiled(turn, next)) {
        rb_turn_wake(turn, until);
        return false;
    }
    if (!rb_decide_tend(turn, next))
        return false;
    if (heirs && !turn->state.next)
        recover(turn, roll);
    return true;
}

bool rb_decide_crash(struct rb_turn *turn, const struct rb_roll *roll)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    if (take_foreseen(turn, roll, next))
        return true;
    if (next && !strcmp(next->cause, "crash")) {
        bool done = tend_recovery(turn, roll, next);

        return done || is_held_up(roll);
    }
    if (must_wait(turn, roll)) {
        if (!roll->gone && !roll->frozen)
            return false;
        rb_decide_tell_wait(turn, roll);
        return true;
    }
    if (next)
        rb_turn_abandon(turn, "a worker was lost", false, NULL);
    if (!roll->whole)
        rb_decide_restart(turn, roll);
    else
        recover(turn, roll);
    return true;
}
