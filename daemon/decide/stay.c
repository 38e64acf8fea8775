/* SPDX-License-Identifier: Apache-2.0 */
/* A parking that is taken back: the job may run again, and its state is not saved.
 *
 *     gathered, no worker is told to save yet --+--> the worker that has the state, or was to
 *     told to save, and cannot                --+    save it, stays with it, frozen: all recover
 *                                                    (crash.c)
 *
 * A worker that was told to save and can is let do so.  One that could not so far may be able to
 * before it hears that it is to stay: then what it has saved is there, and the worker is gone. */
#include "daemon/decide/turn.h"

/* Is a node of the members to be left so soon that newcomers are not waited for (resize.c)? */
static bool is_hurried(const struct rb_turn *turn)
{
    const Rb__Configuration *active = rb_turn_active(turn);

    for (size_t m = 0; active && m < active->n_members; m++)
        if (turn->now >= rb_node_hurry(turn->facts, active->members[m]->node))
            return true;
    return false;
}

bool rb_decide_may_stay(const struct rb_turn *turn)
{
    const Rb__Wish *wish = turn->in->wish.wish;

    return !wish->paused && !wish->cancelled && rb_turn_enough(turn) && !is_hurried(turn);
}

void rb_decide_stay(struct rb_turn *turn)
{
    const Rb__Configuration *next = rb_turn_next(turn);

    if (next && rb_decide_gathers(next))
        rb_turn_abandon(turn, "the job goes on", false, NULL);
    turn->state.saver = NULL;
    turn->state_changed = true;
    rb_turn_suspect(turn, false);
    rb_turn_event(turn, NULL, "resumed", "the job goes on with the state that was to be saved");
    rb_turn_reason(turn, "goes on with the state that was to be saved");
}

bool rb_decide_saved_meanwhile(struct rb_turn *turn, const struct rb_roll *roll)
{
    for (size_t i = 0; i < roll->n; i++)
        if (roll->at[i].life == RB_LIFE_GONE && roll->at[i].report && roll->at[i].report->saved) {
            rb_decide_parked(turn, roll->at[i].report->saved);
            return true;
        }
    return false;
}
