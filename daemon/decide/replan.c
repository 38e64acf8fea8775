/* SPDX-License-Identifier: Apache-2.0 */
/* The same members in another way: what the planner knows has changed since their configuration was
 * made, a link was measured, a blob has come, or a death has left what nobody would have chosen.
 *
 *     the planner names another kind --long enough ago--> PREPARING: the same members; nobody is
 *                                                         new, and training goes on until the flip
 *
 * Its answer for what trains is not left again for the same facts, so this comes to rest. */
#include "daemon/decide/turn.h"
#include "plan/schedule_pipeline.h"

#include <string.h>

enum { REPLAN_MS = 5000 }; /* of a configuration that trains until it is thought over */

bool rb_decide_is_replan(const Rb__Configuration *conf)
{
    return !strcmp(conf->cause, "replan");
}

/* One that could not be prepared is not tried again. */
static bool has_failed(const struct rb_turn *turn, const Rb__Configuration *active)
{
    for (size_t i = 0; i < turn->in->configurations.n; i++) {
        const Rb__Configuration *conf = turn->in->configurations.at[i].configuration;

        if (conf->from == active->number && rb_decide_is_replan(conf) && conf->has_failed)
            return true;
    }
    return false;
}

static bool all_train(const struct rb_turn *turn, const Rb__Configuration *active)
{
    for (size_t m = 0; m < active->n_members; m++) {
        const struct rb_fact *fact = rb_facts_member(turn->in, active, m);

        if (!fact || fact->worker->active != active->number ||
            fact->worker->state != RB__WORKER_REPORT__STATE__TRAINING)
            return false;
    }
    return true;
}

/* Returns true where a configuration follows. */
bool rb_decide_replan(struct rb_turn *turn, const Rb__Configuration *active)
{
    uint32_t ranks = (uint32_t)active->n_members;
    struct rb_place *places = RB_ARENA_NEW(turn->arena, struct rb_place, ranks + 1);
    struct rb_decide_plan plan;

    if (!turn->in->job.job->profile || ranks < 2 || has_failed(turn, active) ||
        !all_train(turn, active))
        return false;
    if (turn->now < active->went + REPLAN_MS) {
        rb_turn_wake(turn, active->went + REPLAN_MS);
        return false;
    }
    if (!rb_turn_ask(turn, active, &plan) ||
        plan.stages == rb_pipeline_stages(active->pipeline, ranks))
        return false;
    for (uint32_t m = 0; m < ranks; m++)
        places[m] = (struct rb_place){active->members[m]->node, active->members[m]->device};
    rb_turn_create(turn, places, ranks, "replan", turn->now);
    return true;
}
