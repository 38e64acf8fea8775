/* SPDX-License-Identifier: Apache-2.0 */
/* A job's phases: which rule has its turn.  The table of phases is in turn.c.
 *
 *     Pending    no process serves it: start as soon as its share is large enough
 *     Preparing  a first configuration gets ready
 *     Running    a configuration is active; the next one may be getting ready beside it
 *     Paused     its state is parked, if it had one
 *     the rest   over */
#include "daemon/decide/turn.h"
#include "daemon/facts/holding.h"

#include <inttypes.h>
#include <string.h>

bool rb_roll_holder(const struct rb_roll_entry *entry)
{
    return entry->life == RB_LIFE_HERE && rb_report_holds_state(entry->report);
}

static bool is_unsaid(const struct rb_roll_entry *entry, uint32_t number)
{
    return entry->life == RB_LIFE_HERE && !rb_roll_holder(entry) &&
           entry->report->active < number && entry->report->unready < number;
}

/* Is the process frozen in `number`, or behind a flip to it that not all members have survived? */
static bool is_frozen(const struct rb_roll_entry *entry, uint32_t number)
{
    return entry->life == RB_LIFE_HERE &&
           entry->report->state == RB__WORKER_REPORT__STATE__FROZEN &&
           (entry->report->active >= number || entry->report->unready == number);
}

/* Was the member blamed for a recovery that was given up (crash.c)? */
static bool was_waited_for(struct rb_turn *turn, const Rb__Member *member)
{
    const struct rb_fact_list *past = &turn->in->configurations;
    const char *place = rb_turn_place(turn, member->node, member->device);

    for (size_t i = past->n; i-- > 0;) {
        const Rb__Configuration *conf = past->at[i].configuration;

        if (rb_configuration_took_over(conf))
            break;
        if (conf->state != RB__CONFIGURATION__STATE__ABANDONED || strcmp(conf->cause, "crash"))
            continue;
        if (rb_decide_blames(conf, place))
            return true;
    }
    return false;
}

/* A member that has frozen has said so, and may join a recovery.  Of other members whose node does
 * not answer nothing is heard, whether the node's lease has ended by now or not. */
static struct rb_roll_entry call(struct rb_turn *turn, const Rb__Configuration *conf, size_t rank,
                                 bool *ret_silent)
{
    struct rb_roll_entry entry = {.member = conf->members[rank]};

    entry.life = rb_member_life(turn->facts, turn->in, conf, rank, &entry.report);
    *ret_silent = (entry.life == RB_LIFE_AWAY || entry.life == RB_LIFE_HERE) &&
                  rb_turn_silent(turn, entry.member->node) &&
                  (entry.life == RB_LIFE_AWAY || !is_frozen(&entry, conf->number) ||
                   was_waited_for(turn, entry.member));
    if (*ret_silent)
        entry.life = RB_LIFE_AWAY;
    return entry;
}

static void call_members(struct rb_turn *turn, const Rb__Configuration *conf, struct rb_roll *roll)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        bool called = false, silent;
        struct rb_roll_entry entry = call(turn, conf, m, &silent);

        for (size_t i = 0; i < roll->n && !called; i++)
            called = roll->at[i].member->device == entry.member->device &&
                     !strcmp(roll->at[i].member->node, entry.member->node);
        if (called)
            continue;
        roll->gone += entry.life == RB_LIFE_GONE;
        roll->away += entry.life == RB_LIFE_AWAY;
        roll->silent += silent;
        roll->frozen += is_frozen(&entry, conf->number);
        roll->holders += rb_roll_holder(&entry);
        roll->unsaid += is_unsaid(&entry, conf->number);
        roll->at[roll->n++] = entry;
    }
}

bool rb_turn_whole(struct rb_turn *turn, const Rb__Configuration *conf, bool frozen)
{
    struct rb_replicas how = rb_holding_of(turn->in->job.job, conf, turn->arena);
    bool *here = RB_ARENA_NEW(turn->arena, bool, conf->n_members + 1), any = false;

    for (size_t m = 0; m < conf->n_members; m++) {
        bool silent;
        struct rb_roll_entry entry = call(turn, conf, m, &silent);

        here[m] = rb_roll_holder(&entry) && (frozen || !rb_turn_silent(turn, entry.member->node));
        any |= here[m];
    }
    return rb_holding_sharded(turn->in->job.job, conf) ? rb_replicas_whole(&how, here) : any;
}

bool rb_turn_sharded(const struct rb_turn *turn)
{
    const Rb__Configuration *active = rb_turn_active(turn);

    return active && rb_holding_sharded(turn->in->job.job, active);
}

static bool ends(const struct rb_roll *roll)
{
    bool done = false;

    for (size_t i = 0; i < roll->n; i++)
        done |= roll->at[i].life == RB_LIFE_HERE &&
                roll->at[i].report->state == RB__WORKER_REPORT__STATE__DONE;
    return done && roll->at[0].life == RB_LIFE_AWAY;
}

void rb_turn_roll(struct rb_turn *turn, struct rb_roll *ret_roll)
{
    const Rb__Configuration *active = rb_turn_active(turn), *next = rb_turn_next(turn);
    size_t most = (active ? active->n_members : 0) + (next ? next->n_members : 0);

    *ret_roll = (struct rb_roll){.at = RB_ARENA_NEW(turn->arena, struct rb_roll_entry, most + 1)};
    if (active) {
        call_members(turn, active, ret_roll);
        ret_roll->ends = ends(ret_roll);
        ret_roll->whole = rb_turn_whole(turn, active, true);
    }
    if (next && (next->state == RB__CONFIGURATION__STATE__GO || !strcmp(next->cause, "crash")))
        call_members(turn, next, ret_roll);
    if (!active || !rb_holding_sharded(turn->in->job.job, active))
        ret_roll->whole = ret_roll->holders > 0;
}

static void end_all(struct rb_turn *turn, const char *reason)
{
    rb_turn_end(turn, rb_turn_next(turn), reason);
    rb_turn_end(turn, rb_turn_active(turn), reason);
    turn->state.saver = NULL;
    rb_turn_suspect(turn, false);
}

/* Is a living process of the job left on a node that can be seen? */
static bool workers_live(const struct rb_turn *turn)
{
    for (size_t i = 0; i < turn->in->workers.n; i++) {
        const struct rb_fact *fact = &turn->in->workers.at[i];
        const char *colon = strrchr(fact->name, ':');
        char node[256];

        if (fact->worker->state == RB__WORKER_REPORT__STATE__DEAD ||
            fact->worker->state == RB__WORKER_REPORT__STATE__FAILED || !colon ||
            (size_t)(colon - fact->name) >= sizeof(node))
            continue;
        memcpy(node, fact->name, (size_t)(colon - fact->name));
        node[colon - fact->name] = 0;
        if (rb_fact_find(&turn->facts->nodes, node))
            return true;
    }
    return false;
}

void rb_decide_cancel(struct rb_turn *turn)
{
    end_all(turn, "the job was cancelled");
    rb_turn_phase(turn, RB__PHASE__Cancelled, "cancelled");
    rb_turn_event(turn, NULL, "cancelled", "the job was cancelled");
}

/* Rank 0 has saved the state behind the last step. */
static bool finish(struct rb_turn *turn)
{
    const Rb__Configuration *confs[] = {rb_turn_active(turn), rb_turn_next(turn)};

    for (size_t c = 0; c < RB_COUNT(confs); c++) {
        const struct rb_fact *first;

        if (!confs[c] || !confs[c]->n_members ||
            (c && confs[c]->state != RB__CONFIGURATION__STATE__GO))
            continue;
        first = rb_facts_member(turn->in, confs[c], 0);
        if (!first || !first->worker->saved ||
            first->worker->saved->step < turn->in->job.job->steps)
            continue;
        turn->state.parked = first->worker->saved;
        end_all(turn, "the job has finished");
        rb_turn_phase(turn, RB__PHASE__Succeeded, NULL);
        rb_turn_event(turn, NULL, "succeeded", "all %" PRId64 " steps are done",
                      turn->in->job.job->steps);
        return true;
    }
    return false;
}

void rb_decide_suspect(struct rb_turn *turn, const struct rb_roll *roll)
{
    const Rb__Configuration *next = rb_turn_next(turn);
    bool under_way = next && !strcmp(next->cause, "crash");

    if (roll->gone || under_way)
        return;
    rb_turn_suspect(turn, roll->frozen || roll->ends || (roll->n && roll->away == roll->n));
}

static void run(struct rb_turn *turn)
{
    const Rb__Configuration *active = rb_turn_active(turn), *next = rb_turn_next(turn);
    struct rb_roll roll;

    if (finish(turn))
        return;
    if (!active) {
        /* The job's configuration is gone from facts: nothing can be known of its processes. */
        rb_turn_roll(turn, &roll);
        rb_decide_restart(turn, &roll);
        return;
    }
    rb_decide_note_bytes(turn, active);
    if (next && next->state == RB__CONFIGURATION__STATE__GO && rb_decide_flipped(turn, next)) {
        if (!rb_decide_gathers(next))
            rb_decide_activate(turn, next);
        if (!rb_decide_gathers(next) || rb_decide_gathered(turn, next))
            return;
    }
    if (rb_decide_revive(turn))
        return;
    rb_turn_roll(turn, &roll);
    if (turn->in->state.state->saver) {
        rb_decide_parking(turn, &roll);
        return;
    }
    if (turn->in->wish.wish->cancelled || turn->in->wish.wish->paused) {
        rb_decide_park(turn, &roll, turn->in->wish.wish->cancelled ? "cancelled" : "paused");
        return;
    }
    rb_decide_suspect(turn, &roll);
    if (rb_decide_crash(turn, &roll))
        return;
    if (active->n_members < rb_turn_min(turn) && !rb_turn_enough(turn)) {
        rb_decide_park(turn, &roll, "too few devices are left");
        return;
    }
    if (next && rb_decide_tend(turn, next))
        return;
    rb_decide_resize(turn);
}

static void wait_paused(struct rb_turn *turn)
{
    if (turn->in->wish.wish->paused)
        return;
    rb_turn_phase(turn, RB__PHASE__Pending, NULL);
    rb_turn_event(turn, NULL, "resumed", "the job may run again");
}

/* Does the job train, or may it by now?  Members that were told to go may have gone before the
 * coordinator hears of it. */
static bool may_train(const struct rb_turn *turn)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    return turn->state.phase == RB__PHASE__Running ||
           (next && next->state == RB__CONFIGURATION__STATE__GO);
}

/* A job that trains is parked first, if its user may want the weights; one that does not has
 * nothing that is not kept already. */
static bool ends_now(const struct rb_turn *turn)
{
    const Rb__Wish *wish = turn->in->wish.wish;

    return wish->deleted || (wish->cancelled && !(wish->keep && may_train(turn)));
}

void rb_decide_job(struct rb_turn *turn)
{
    const Rb__Wish *wish = turn->in->wish.wish;
    Rb__Phase phase = turn->state.phase;

    if (rb_phase_final(phase)) {
        turn->forget = wish->deleted && !workers_live(turn);
        return;
    }
    if (ends_now(turn)) {
        rb_decide_cancel(turn);
        return;
    }
    rb_decide_stragglers(turn);
    switch (phase) {
    case RB__PHASE__Pending:
    case RB__PHASE__Preparing:
        rb_decide_start(turn);
        break;
    case RB__PHASE__Running:
        run(turn);
        break;
    case RB__PHASE__Paused:
        wait_paused(turn);
        break;
    default:
        break;
    }
}
