/* SPDX-License-Identifier: Apache-2.0 */
/* The same members in another way: in stages, or with another part of the state each.  What the
 * planner knows has changed since their configuration was made: a link was measured, a blob has
 * come, or a death has left a configuration that nobody would have chosen.
 *
 *     the planner names another kind --long enough ago--> PREPARING: the same members; nobody is
 *                                                         new, and training goes on until the flip
 *
 * Once the members train as the planner answered, the same facts do not make it leave that answer
 * again, so this comes to rest. */
#include "daemon/decide/turn.h"
#include "plan/schedule_pipeline.h"

/* With no more members than replicas, each member has all of the state. */
static uint32_t held_by(uint32_t replicas, size_t members)
{
    return replicas && replicas < members ? replicas : (uint32_t)members;
}

static bool is_as_planned(const Rb__Configuration *active, const struct rb_decide_plan *plan)
{
    return plan->stages == rb_pipeline_stages(active->pipeline, (uint32_t)active->n_members) &&
           held_by(plan->replicas, active->n_members) ==
               held_by(active->replicas, active->n_members) &&
           plan->recomputes == active->recomputes;
}

bool rb_decide_replan(struct rb_turn *turn, const Rb__Configuration *active)
{
    struct rb_decide_plan plan;

    if (!turn->in->job.job->profile || !rb_decide_may_follow(turn, active, "replan") ||
        rb_decide_is_young(turn, active, turn->options->replan_ms) ||
        !rb_turn_ask(turn, active, &plan) || is_as_planned(active, &plan))
        return false;
    rb_decide_follow(turn, active, "replan");
    return true;
}
