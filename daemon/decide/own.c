/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations that nobody asked for: the members of the active one again, with other shares
 * (balance.c) or in another way (replan.c).  Wishes go first, and do not wait where such a
 * configuration has failed. */
#include "daemon/decide/turn.h"

#include <string.h>

bool rb_decide_is_own(const Rb__Configuration *conf)
{
    return !strcmp(conf->cause, "balance") || !strcmp(conf->cause, "replan");
}

/* A configuration from `active` for this cause that could not be prepared is not tried again. */
static bool has_failed(const struct rb_turn *turn, const Rb__Configuration *active,
                       const char *cause)
{
    for (size_t i = 0; i < turn->in->configurations.n; i++) {
        const Rb__Configuration *conf = turn->in->configurations.at[i].configuration;

        if (conf->from == active->number && !strcmp(conf->cause, cause) && conf->has_failed)
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

bool rb_decide_may_follow(const struct rb_turn *turn, const Rb__Configuration *active,
                          const char *cause)
{
    return active->n_members > 1 && !has_failed(turn, active, cause) && all_train(turn, active);
}

bool rb_decide_is_young(struct rb_turn *turn, const Rb__Configuration *active, uint64_t ms)
{
    if (turn->now >= active->went + ms)
        return false;
    rb_turn_wake(turn, active->went + ms);
    return true;
}

void rb_decide_follow(struct rb_turn *turn, const Rb__Configuration *active, const char *cause)
{
    struct rb_place *places = RB_ARENA_NEW(turn->arena, struct rb_place, active->n_members + 1);

    for (size_t m = 0; m < active->n_members; m++)
        places[m] = (struct rb_place){active->members[m]->node, active->members[m]->device};
    rb_turn_create(turn, places, active->n_members, cause, turn->now);
}
