/* SPDX-License-Identifier: Apache-2.0 */
/* Stragglers: members of the active configuration that take much longer for a microbatch than the
 * others of their kind.  Users are told when that lasts, and when it is over.
 *
 *     none --slow--> seen --slow for WATCH_MS--> told --keeps up for WATCH_MS--> none
 *       ^             |                           |
 *       +--keeps up---+--- it trains no more -----+
 *
 * Shares by speed (balance.c) hide a straggler, but do not heal it: times of a microbatch do not
 * depend on shares, so it is told of all the same.  Stages of a pipeline have different work, and
 * are not compared.  While a change is prepared no measurement counts: a member that was only seen
 * is seen anew behind the change, and one that was told of stays told of. */
#include "daemon/decide/turn.h"
#include "daemon/facts/shares.h"

#include <stdlib.h>
#include <string.h>

enum {
    WATCH_MS = 30000, /* far beyond a checkpoint, an evaluation or a neighbour's build */
    EVENTS_MOST = RB_TURN_EVENTS / 2, /* the rest is for what else the turn does */
};

/* Half as long again is far more than devices of a kind differ by.  Beside a single other device
 * nothing says which time is the usual one, and the other may be a quick device: then the time must
 * be twice as long.  A straggler that was told of is over well below that, so that a device at the
 * limit does not come and go. */
static double times_allowed(size_t others, bool told)
{
    if (others < 2)
        return told ? 1.5 : 2;
    return told ? 1.25 : 1.5;
}

static bool trains_undisturbed(const struct rb_turn *turn)
{
    const Rb__JobState *state = turn->in->state.state;

    return state->phase == RB__PHASE__Running && !state->next && !state->saver && !state->suspected;
}

static Rb__Straggler *find(const struct rb_turn *turn, const Rb__Member *member)
{
    const Rb__JobState *state = turn->in->state.state;

    for (size_t i = 0; member->worker && i < state->n_stragglers; i++)
        if (!strcmp(state->stragglers[i]->worker, member->worker))
            return state->stragglers[i];
    return NULL;
}

static Rb__Straggler *copy(struct rb_turn *turn, const Rb__Straggler *known)
{
    return rb_arena_copy(turn->arena, known, sizeof(*known));
}

/* ---- What is told ---------------------------------------------------------------------------- */

static void tell(struct rb_turn *turn, const Rb__Straggler *one, const char *kind)
{
    rb_turn_event(turn, one->node, "straggler",
                  "%s takes %.3g ms for a microbatch, the other %s devices %.3g ms in the median",
                  rb_turn_place(turn, one->node, one->device), one->microbatch_us / 1e3, kind,
                  one->others_us / 1e3);
}

static void tell_over(struct rb_turn *turn, const Rb__Straggler *one, uint32_t us, uint32_t others)
{
    rb_turn_event(turn, one->node, "straggler-over",
                  "%s keeps up again: %.3g ms for a microbatch, the others %.3g ms in the median",
                  rb_turn_place(turn, one->node, one->device), us / 1e3, others / 1e3);
}

static void tell_left(struct rb_turn *turn, const Rb__Straggler *one)
{
    rb_turn_event(turn, one->node, "straggler-over",
                  "%s no longer trains beside others of its kind",
                  rb_turn_place(turn, one->node, one->device));
}

/* ---- Who is how quick ------------------------------------------------------------------------ */

struct pace {
    const Rb__Member *member;
    const char *kind;
    uint32_t us;
};

/* One member beside the others of its kind. */
struct look {
    const char *kind;
    uint32_t us, others_us; /* the median; 0: nobody has measured */
    size_t others;          /* that have measured */
};

static int kinds_then_quicker_first(const void *a, const void *b)
{
    const struct pace *x = a, *y = b;
    int kinds = strcmp(x->kind, y->kind);

    return kinds ? kinds : (x->us > y->us) - (x->us < y->us);
}

/* The paces of members that have measured. */
static struct pace *measure(const struct rb_turn *turn, const Rb__Configuration *active,
                            size_t *ret_n)
{
    struct pace *paces = RB_ARENA_NEW(turn->arena, struct pace, active->n_members + 1);
    size_t n = 0;

    for (size_t m = 0; m < active->n_members; m++) {
        const Rb__Member *member = active->members[m];
        uint32_t us = rb_decide_pace(turn, member);

        if (us)
            paces[n++] = (struct pace){member, rb_decide_kind(turn, member), us};
    }
    qsort(paces, n, sizeof(*paces), kinds_then_quicker_first);
    *ret_n = n;
    return paces;
}

static struct look look_at(const struct pace *paces, size_t n, const Rb__Member *member)
{
    struct look look = {0};
    size_t self = 0, first, end, middle;

    while (self < n && paces[self].member != member)
        self++;
    if (self == n)
        return look;
    for (first = self; first && !strcmp(paces[first - 1].kind, paces[self].kind);)
        first--;
    for (end = self; end < n && !strcmp(paces[end].kind, paces[self].kind);)
        end++;
    look.kind = paces[self].kind;
    look.us = paces[self].us;
    look.others = end - first - 1;
    middle = first + look.others / 2;
    if (look.others)
        look.others_us = paces[middle + (middle >= self)].us; /* leaving itself out */
    return look;
}

/* ---- One member ------------------------------------------------------------------------------ */

static Rb__Straggler *see(struct rb_turn *turn, const Rb__Member *member, const struct look *look)
{
    Rb__Straggler *seen = RB_ARENA_NEW(turn->arena, Rb__Straggler, 1);

    rb__straggler__init(seen);
    seen->node = member->node;
    seen->device = member->device;
    seen->worker = member->worker;
    seen->since = turn->now;
    seen->microbatch_us = look->us;
    seen->others_us = look->others_us;
    return seen;
}

/* Has this lasted long enough?  If not, the turn wakes when it has. */
static bool lasts(struct rb_turn *turn, uint64_t since)
{
    if (turn->now >= since + WATCH_MS)
        return turn->n_events < EVENTS_MOST;
    rb_turn_wake(turn, since + WATCH_MS);
    return false;
}

static Rb__Straggler *while_slow(struct rb_turn *turn, const Rb__Member *member,
                                 const struct look *look, Rb__Straggler *known)
{
    Rb__Straggler *next;

    if (!known)
        return see(turn, member, look);
    if (known->has_told ? !known->has_better : !lasts(turn, known->since))
        return known;
    next = copy(turn, known);
    next->has_better = false;
    if (known->has_told)
        return next;
    next->has_told = true;
    next->told = turn->now;
    next->microbatch_us = look->us;
    next->others_us = look->others_us;
    tell(turn, next, look->kind);
    return next;
}

static Rb__Straggler *while_keeping_up(struct rb_turn *turn, const struct look *look,
                                       Rb__Straggler *known)
{
    Rb__Straggler *next;

    if (!known || !known->has_told)
        return NULL;
    if (known->has_better && !lasts(turn, known->better))
        return known;
    if (known->has_better) {
        tell_over(turn, known, look->us, look->others_us);
        return NULL;
    }
    next = copy(turn, known);
    next->has_better = true;
    next->better = turn->now;
    return next;
}

static Rb__Straggler *while_disturbed(struct rb_turn *turn, Rb__Straggler *known)
{
    Rb__Straggler *next = known;

    if (!known || !known->has_told)
        return NULL;
    if (known->has_better) {
        next = copy(turn, known);
        next->has_better = false;
    }
    return next;
}

/* What is to be known of a member; `known` itself where that does not change, NULL: nothing. */
static Rb__Straggler *judge(struct rb_turn *turn, const Rb__Member *member, const struct look *look,
                            Rb__Straggler *known)
{
    double allowed = times_allowed(look->others, known && known->has_told);

    if (!look->others)
        return known; /* nobody can say */
    return look->us > allowed * look->others_us ? while_slow(turn, member, look, known)
                                                : while_keeping_up(turn, look, known);
}

/* ---- All ------------------------------------------------------------------------------------- */

static bool is_member(const Rb__Configuration *active, const Rb__Straggler *known)
{
    for (size_t m = 0; active && m < active->n_members; m++)
        if (active->members[m]->worker && !strcmp(active->members[m]->worker, known->worker))
            return true;
    return false;
}

/* Stragglers that were told of and have left stay until there is room for their event. */
static size_t let_go(struct rb_turn *turn, const Rb__Configuration *active, Rb__Straggler **next)
{
    const Rb__JobState *state = turn->in->state.state;
    size_t n = 0;

    for (size_t i = 0; i < state->n_stragglers; i++) {
        Rb__Straggler *known = state->stragglers[i];

        if (is_member(active, known) || !known->has_told)
            continue;
        if (turn->n_events < EVENTS_MOST)
            tell_left(turn, known);
        else
            next[n++] = known;
    }
    return n;
}

/* Of the members, in their order. */
static size_t judge_all(struct rb_turn *turn, const Rb__Configuration *active, Rb__Straggler **next)
{
    bool undisturbed = trains_undisturbed(turn);
    size_t n = 0, n_paces = 0;
    struct pace *paces = undisturbed ? measure(turn, active, &n_paces) : NULL;

    for (size_t m = 0; m < active->n_members; m++) {
        const Rb__Member *member = active->members[m];
        struct look look = look_at(paces, n_paces, member);
        Rb__Straggler *known = find(turn, member);

        known = undisturbed ? judge(turn, member, &look, known) : while_disturbed(turn, known);
        if (known)
            next[n++] = known;
    }
    return n;
}

void rb_decide_stragglers(struct rb_turn *turn)
{
    const Rb__JobState *state = turn->in->state.state;
    const Rb__Configuration *active = rb_turn_active(turn);
    Rb__Straggler **next;
    size_t n = 0;
    bool same;

    if (active && !rb_shares_has(active))
        active = NULL;
    next = RB_ARENA_NEW(turn->arena, Rb__Straggler *,
                        (active ? active->n_members : 0) + state->n_stragglers + 1);
    if (active)
        n = judge_all(turn, active, next);
    n += let_go(turn, active, next + n);
    same = n == state->n_stragglers;
    for (size_t i = 0; same && i < n; i++)
        same = next[i] == state->stragglers[i];
    if (same)
        return;
    turn->state.stragglers = next;
    turn->state.n_stragglers = n;
    turn->state_changed = true;
}
