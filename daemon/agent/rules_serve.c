/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/rules_inside.h"

#include <string.h>

struct rb_agent_action *rb_rules_act(struct rb_rules *rules, enum rb_agent_action_kind kind,
                                     const struct rb_job_facts *job)
{
    struct rb_agent_actions *actions = rules->actions;
    if (actions->n == actions->room) {
        size_t room = actions->room ? actions->room * 2 : 16;
        struct rb_agent_action *more = RB_ARENA_NEW(rules->arena, struct rb_agent_action, room);
        if (actions->n)
            memcpy(more, actions->at, actions->n * sizeof(*more));
        actions->at = more;
        actions->room = room;
    }
    struct rb_agent_action *action = &actions->at[actions->n++];
    *action = (struct rb_agent_action){.kind = kind, .job = job};
    return action;
}

struct rb_agent_action *rb_rules_act_on(struct rb_rules *rules, enum rb_agent_action_kind kind,
                                        const struct rb_job_facts *job, size_t worker)
{
    struct rb_agent_action *action = rb_rules_act(rules, kind, job);
    action->worker = worker;
    return action;
}

const struct rb_agent_action *rb_rules_spawning(const struct rb_rules *rules, uint32_t device)
{
    for (size_t i = 0; i < rules->actions->n; i++) {
        const struct rb_agent_action *action = &rules->actions->at[i];
        if (action->kind == RB_AGENT_SPAWN && action->device == device)
            return action;
    }
    return NULL;
}

bool rb_rules_serves(const struct rb_rules *rules, const Rb__Configuration *configuration,
                     size_t rank, uint32_t device, const char *worker, uint32_t spawned_for)
{
    const Rb__Member *member = configuration->members[rank];
    if (strcmp(member->node, rules->view->node) || member->device != device)
        return false;
    return member->worker ? !strcmp(member->worker, worker) : spawned_for == configuration->number;
}

bool rb_rules_member_of(const struct rb_rules *rules, const Rb__Configuration *configuration,
                        uint32_t device, const char *worker, uint32_t spawned_for)
{
    for (size_t rank = 0; rank < configuration->n_members; rank++)
        if (rb_rules_serves(rules, configuration, rank, device, worker, spawned_for))
            return true;
    return false;
}

bool rb_rules_needed(const struct rb_rules *rules, const struct rb_job_facts *job, uint32_t device,
                     const char *worker, uint32_t spawned_for, uint32_t active)
{
    if (!job || !job->job.message)
        return false;
    if (job->state.message && job->state.state->saver && !strcmp(job->state.state->saver, worker))
        return true;
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *configuration = job->configurations.at[i].configuration;
        bool counts =
            rb_configuration_live(configuration) ||
            (active == configuration->number && rb_configuration_given_up(job, configuration));
        if (counts && rb_rules_member_of(rules, configuration, device, worker, spawned_for))
            return true;
    }
    return false;
}
