/* SPDX-License-Identifier: Apache-2.0 */
/* From the active configuration to the share: grow, shrink, move, leave nodes that must be left.
 *
 * Where a node must be left by some time, newcomers are waited for as long as that leaves room;
 * then the members that stay go on without them, or the state is saved.
 *
 * A new configuration needs a member that has the state: where the share has none of the members
 * that train now, the lowest rank goes along for one configuration and leaves with the next. */
#include "daemon/decide/turn.h"

#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

struct target {
    struct rb_place *places;
    size_t n;
    bool bridge; /* a member with the state goes along that is not in the share */
};

static bool has_place(const struct rb_place *places, size_t n, const Rb__Member *member)
{
    for (size_t i = 0; i < n; i++)
        if (rb_place_is(&places[i], member->node, member->device))
            return true;
    return false;
}

static struct target aim(struct rb_turn *turn, const Rb__Configuration *active)
{
    struct target target = {.places =
                                RB_ARENA_NEW(turn->arena, struct rb_place, turn->share->n + 1)};

    for (size_t m = 0; m < active->n_members; m++)
        if (has_place(turn->share->places, turn->share->n, active->members[m]))
            target.n++;
    target.bridge = !target.n && turn->share->n;

    target.n = 0;
    if (target.bridge)
        target.places[target.n++] =
            (struct rb_place){active->members[0]->node, active->members[0]->device};
    for (size_t i = 0; i < turn->share->n; i++)
        target.places[target.n++] = turn->share->places[i];
    return target;
}

static bool same_places(const struct target *target, const Rb__Configuration *conf)
{
    if (target->n != conf->n_members)
        return false;
    for (size_t m = 0; m < conf->n_members; m++)
        if (!has_place(target->places, target->n, conf->members[m]))
            return false;
    return true;
}

/* Does `next` have the members of `active` again (own.c)?  It goes on beside wishes that ask for no
 * others now. */
static bool is_own_of(const Rb__Configuration *next, const Rb__Configuration *active)
{
    return rb_decide_is_own(next) && next->from == active->number;
}

static bool out_of_reach(struct rb_turn *turn, const Rb__Configuration *active)
{
    for (size_t m = 0; m < active->n_members; m++)
        if (!rb_fact_find(&turn->facts->nodes, active->members[m]->node)) {
            rb_turn_reason(turn, rb_turn_text(turn, "node %s is out of reach: changes wait for it",
                                              active->members[m]->node));
            return true;
        }
    return false;
}

/* When the change was asked for: by the user, if no configuration has answered the wish yet, else
 * now.  A configuration that was only on the way there ("move", "drain"), or that nobody asked for,
 * is no answer. */
static uint64_t asked_of(const struct rb_turn *turn)
{
    const struct rb_fact_list *past = &turn->in->configurations;
    uint64_t asked = turn->in->wish.wish->asked;

    for (size_t i = 0; i < past->n && asked; i++) {
        const Rb__Configuration *conf = past->at[i].configuration;

        if (conf->asked >= asked && strcmp(conf->cause, "move") != 0 &&
            strcmp(conf->cause, "drain") != 0 && !rb_decide_is_own(conf) &&
            rb_configuration_took_over(conf))
            return turn->now;
    }
    return asked ? asked : turn->now;
}

/* Why the job has fewer devices than it wants; NULL: it has what it wants. */
static const char *shortage(struct rb_turn *turn, const Rb__Configuration *active)
{
    uint32_t want = turn->in->wish.wish->want;

    if (active->n_members >= want)
        return NULL;
    rb_turn_wake(turn, turn->share->wake_ms);
    return rb_turn_text(turn, "has %zu and %s", active->n_members,
                        rb_share_reason(turn->share, turn->in, want, turn->arena));
}

/* Why the state behind the last step is not saved, where the job waits for that alone; NULL: it
 * does not. */
static const char *unsaved(struct rb_turn *turn, const Rb__Configuration *active)
{
    const struct rb_fact *first = rb_facts_member(turn->in, active, 0);
    const Rb__WorkerReport *report = first ? first->worker : NULL;

    if (!report || report->state != RB__WORKER_REPORT__STATE__DONE || !report->unsaved)
        return NULL;
    return rb_turn_text(turn, "all steps are done: %s",
                        report->reason ? report->reason : "the final state could not be saved");
}

/* "leaves node b by 14:30:05 UTC" */
static const char *leaving_text(struct rb_turn *turn, const Rb__Configuration *active)
{
    char by[RB_CLOCK_TEXT];

    for (size_t m = 0; m < active->n_members; m++) {
        const char *node = active->members[m]->node;
        const char *sick = rb_device_sick(turn->facts, node, active->members[m]->device);
        uint64_t deadline = rb_node_deadline(turn->facts, node);

        if (rb_node_must_be_left(turn->facts, node) && deadline != UINT64_MAX)
            return rb_turn_text(turn, "leaves node %s by %s", node, rb_clock_text(deadline, by));
        if (rb_node_must_be_left(turn->facts, node))
            return rb_turn_text(turn, "leaves node %s", node);
        if (sick)
            return rb_turn_text(turn, "leaves %s:%" PRIu32 ", which is sick: %s", node,
                                active->members[m]->device, sick);
    }
    return NULL;
}

static void create(struct rb_turn *turn, const Rb__Configuration *active,
                   const struct target *target)
{
    const char *cause = target->bridge                  ? "move"
                        : target->n > active->n_members ? "grow"
                        : target->n < active->n_members ? "shrink"
                                                        : "move";

    if (turn->share->leaving)
        cause = "drain";
    rb_turn_create(turn, target->places, target->n, cause, asked_of(turn));
    rb_turn_reason(turn, turn->share->leaving ? leaving_text(turn, active) : NULL);
    if (turn->share->given) {
        rb_turn_event(turn, NULL, "preempted",
                      "gives %zu device%s to %s, which has a higher priority", turn->share->given,
                      turn->share->given == 1 ? "" : "s", turn->share->to);
        rb_turn_reason(turn, rb_turn_text(turn, "gives devices to %s", turn->share->to));
    }
}

static bool in_a_hurry(const struct rb_turn *turn, const Rb__Member *member)
{
    return turn->now >= rb_node_hurry(turn->facts, member->node);
}

/* The time to leave a node is nearly over: go on without newcomers, then.  Returns true if that is
 * so. */
static bool hurry(struct rb_turn *turn, const Rb__Configuration *active,
                  const Rb__Configuration *next)
{
    struct target target = {.places =
                                RB_ARENA_NEW(turn->arena, struct rb_place, active->n_members)};
    uint64_t until = rb_turn_hold_off(turn, false, 200);
    struct rb_roll roll;

    for (size_t m = 0; m < active->n_members; m++) {
        const Rb__Member *member = active->members[m];

        if (!in_a_hurry(turn, member))
            target.places[target.n++] = (struct rb_place){member->node, member->device};
    }
    if (target.n == active->n_members || (next && same_places(&target, next)))
        return target.n < active->n_members;
    if (target.n < rb_turn_min(turn)) {
        rb_turn_roll(turn, &roll);
        rb_decide_park(turn, &roll, leaving_text(turn, active));
    } else if (until && !next) {
        rb_turn_wake(turn, until);
    } else {
        if (next)
            rb_turn_abandon(turn, "there is no time left to wait for its newcomers", false, NULL);
        rb_turn_create(turn, target.places, target.n, "drain", turn->now);
        rb_turn_reason(turn, leaving_text(turn, active));
    }
    return true;
}

/* Come back when the time to leave a node is nearly over. */
static void wake_for_hurry(struct rb_turn *turn, const Rb__Configuration *active)
{
    for (size_t m = 0; m < active->n_members; m++)
        rb_turn_wake(turn, rb_node_hurry(turn->facts, active->members[m]->node));
}

void rb_decide_resize(struct rb_turn *turn)
{
    const Rb__Configuration *active = rb_turn_active(turn), *next = rb_turn_next(turn);
    const Rb__Configuration *last;
    const char *why;
    struct target target;
    struct rb_roll roll;
    uint64_t until;

    if (out_of_reach(turn, active))
        return;
    if (next && next->state != RB__CONFIGURATION__STATE__PREPARING)
        return; /* it flips any moment; newer wishes follow behind it */
    if (hurry(turn, active, next))
        return;
    wake_for_hurry(turn, active);
    if (turn->share->leaving && !rb_turn_enough(turn)) {
        rb_turn_roll(turn, &roll);
        rb_decide_park(turn, &roll, "its node is left and there is no other device");
        return;
    }
    target = aim(turn, active);
    if (!rb_turn_enough(turn) || same_places(&target, active)) {
        if (next && !is_own_of(next, active)) /* too few devices, or no change: stay as it is */
            rb_turn_abandon(turn, "it is not wanted any more", false, NULL);
        why = unsaved(turn, active);
        rb_turn_reason(turn, why ? why : shortage(turn, active));
        if (!next && !rb_decide_replan(turn, active))
            rb_decide_balance(turn, active);
        return;
    }
    if (next && same_places(&target, next))
        return;
    until = rb_turn_hold_off(turn, false, 1000);
    if (until && !next) {
        rb_turn_failures(turn, false, &last);
        rb_turn_reason(turn, rb_turn_text(turn, "tries again soon: %s", last->reason));
        rb_turn_wake(turn, until);
        return;
    }
    if (next)
        rb_turn_abandon(turn, "a newer wish replaces it", false, NULL);
    create(turn, active, &target);
}
