/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/facts.h"

#include <stdio.h>
#include <string.h>

const struct rb_fact *rb_fact_find(const struct rb_fact_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->at[i].name, name))
            return &list->at[i];
    return NULL;
}

const struct rb_job_facts *rb_facts_job(const struct rb_facts *facts, const char *id)
{
    for (size_t i = 0; i < facts->n_jobs; i++)
        if (!strcmp(facts->jobs[i].id, id))
            return &facts->jobs[i];
    return NULL;
}

const struct rb_fact *rb_facts_configuration(const struct rb_job_facts *job, uint32_t number)
{
    for (size_t i = job->configurations.n; i-- > 0;)
        if (job->configurations.at[i].configuration->number == number)
            return &job->configurations.at[i];
    return NULL;
}

const struct rb_fact *rb_facts_report(const struct rb_job_facts *job, const char *node,
                                      uint32_t device)
{
    char name[300];
    if ((size_t)snprintf(name, sizeof(name), "%s:%u", node, device) >= sizeof(name))
        return NULL;
    return rb_fact_find(&job->workers, name);
}

size_t rb_facts_count_members(const struct rb_job_facts *job)
{
    size_t n = 0;
    for (size_t c = 0; c < job->configurations.n; c++)
        n += job->configurations.at[c].configuration->n_members;
    return n;
}

const struct rb_fact *rb_facts_member(const struct rb_job_facts *job,
                                      const Rb__Configuration *configuration, size_t rank)
{
    if (rank >= configuration->n_members)
        return NULL;
    const Rb__Member *member = configuration->members[rank];
    const struct rb_fact *report = rb_facts_report(job, member->node, member->device);
    if (!report)
        return NULL;
    bool same = member->worker ? !strcmp(member->worker, report->worker->worker)
                               : report->worker->spawned_for == configuration->number;
    return same ? report : NULL;
}

const Rb__Straggler *rb_straggler_told(const Rb__JobState *state, const char *node, uint32_t device)
{
    for (size_t i = 0; i < state->n_stragglers; i++) {
        const Rb__Straggler *one = state->stragglers[i];

        if (one->has_told && one->device == device && !strcmp(one->node, node))
            return one;
    }
    return NULL;
}

bool rb_configuration_live(const Rb__Configuration *configuration)
{
    return configuration->state == RB__CONFIGURATION__STATE__PREPARING ||
           configuration->state == RB__CONFIGURATION__STATE__GO ||
           configuration->state == RB__CONFIGURATION__STATE__ACTIVE;
}

bool rb_configuration_took_over(const Rb__Configuration *configuration)
{
    return configuration->state == RB__CONFIGURATION__STATE__ACTIVE ||
           configuration->state == RB__CONFIGURATION__STATE__RETIRED;
}

bool rb_configuration_given_up(const struct rb_job_facts *job,
                               const Rb__Configuration *configuration)
{
    const Rb__JobState *state = job->state.state;

    return state && state->phase == RB__PHASE__Running && !state->saver && state->active &&
           configuration->number > state->active && configuration->went &&
           !configuration->left_of && configuration->state == RB__CONFIGURATION__STATE__ABANDONED;
}

bool rb_configuration_names(const Rb__Configuration *configuration, const char *worker)
{
    for (size_t m = 0; m < configuration->n_members; m++)
        if (configuration->members[m]->worker && !strcmp(configuration->members[m]->worker, worker))
            return true;
    return false;
}

bool rb_facts_names_blob(const struct rb_facts *facts, const char *digest)
{
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const Rb__Job *job = facts->jobs[i].job.job;

        if (job && (!strcmp(job->model, digest) || !strcmp(job->weights, digest) ||
                    (job->profile && !strcmp(job->profile, digest))))
            return true;
    }
    return false;
}
