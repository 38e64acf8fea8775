/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/members.h"

bool rb_member_gone(const struct rb_job_facts *job, const Rb__Configuration *configuration,
                    size_t rank)
{
    const struct rb_fact *fact = rb_facts_member(job, configuration, rank);

    if (!fact)
        return configuration->members[rank]->worker != NULL;
    return fact->worker->state == RB__WORKER_REPORT__STATE__DEAD ||
           fact->worker->state == RB__WORKER_REPORT__STATE__FAILED;
}

enum rb_life rb_member_life(const struct rb_facts *facts, const struct rb_job_facts *job,
                            const Rb__Configuration *configuration, size_t rank,
                            const Rb__WorkerReport **ret_report)
{
    const Rb__Member *member = configuration->members[rank];
    const struct rb_fact *fact = rb_facts_member(job, configuration, rank);
    const Rb__WorkerReport *report = fact ? fact->worker : NULL;

    *ret_report = report;
    if (rb_member_gone(job, configuration, rank))
        return RB_LIFE_GONE;
    if (!rb_fact_find(&facts->nodes, member->node))
        return RB_LIFE_AWAY;
    if (!report || report->state == RB__WORKER_REPORT__STATE__STARTING)
        return RB_LIFE_COMING;
    return RB_LIFE_HERE;
}

bool rb_report_holds_state(const Rb__WorkerReport *report)
{
    /* A process that froze while it opened its first configuration has none. */
    return report && (report->level >= 0 || report->state == RB__WORKER_REPORT__STATE__TRAINING ||
                      report->state == RB__WORKER_REPORT__STATE__DONE);
}

bool rb_node_must_be_left(const struct rb_facts *facts, const char *node)
{
    const struct rb_fact *there = rb_fact_find(&facts->nodes, node);
    const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node);

    return (there && there->node->leaving) || (cordon && cordon->cordon->drain);
}

const char *rb_device_sick(const struct rb_facts *facts, const char *node, uint32_t device)
{
    const struct rb_fact *there = rb_fact_find(&facts->nodes, node);

    for (size_t d = 0; there && d < there->node->n_devices; d++)
        if (there->node->devices[d]->index == device)
            return there->node->devices[d]->sick;
    return NULL;
}

bool rb_device_must_be_left(const struct rb_facts *facts, const char *node, uint32_t device)
{
    return rb_node_must_be_left(facts, node) || rb_device_sick(facts, node, device);
}

/* Of the drain and of the node's own end, whichever comes first. */
static void find_deadline(const struct rb_facts *facts, const char *node, uint64_t *ret_since,
                          uint64_t *ret_deadline)
{
    const struct rb_fact *there = rb_fact_find(&facts->nodes, node);
    const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node);

    *ret_deadline = UINT64_MAX;
    if (cordon && cordon->cordon->drain && cordon->cordon->has_deadline) {
        *ret_since = cordon->cordon->since;
        *ret_deadline = cordon->cordon->deadline;
    }
    if (there && there->node->leaving && there->node->has_deadline &&
        there->node->deadline < *ret_deadline) {
        *ret_since = there->node->leaving_since;
        *ret_deadline = there->node->deadline;
    }
}

uint64_t rb_node_deadline(const struct rb_facts *facts, const char *node)
{
    uint64_t since, deadline;

    find_deadline(facts, node, &since, &deadline);
    return deadline;
}

uint64_t rb_node_hurry(const struct rb_facts *facts, const char *node)
{
    enum { HURRY_MS = 10000 };
    uint64_t since = 0, deadline, rest;

    find_deadline(facts, node, &since, &deadline);
    if (deadline == UINT64_MAX)
        return UINT64_MAX;
    rest = deadline > since ? (deadline - since) / 4 : 0;
    return deadline - (rest < HURRY_MS ? rest : HURRY_MS);
}

uint32_t rb_members_staying(const struct rb_facts *facts, const struct rb_job_facts *job,
                            const Rb__Configuration *configuration)
{
    uint32_t staying = 0;

    for (size_t m = 0; m < configuration->n_members; m++) {
        const Rb__WorkerReport *report;

        staying += !rb_device_must_be_left(facts, configuration->members[m]->node,
                                           configuration->members[m]->device) &&
                   rb_member_life(facts, job, configuration, m, &report) == RB_LIFE_HERE &&
                   rb_report_holds_state(report);
    }
    return staying;
}

bool rb_phase_final(Rb__Phase phase)
{
    return phase == RB__PHASE__Succeeded || phase == RB__PHASE__Failed ||
           phase == RB__PHASE__Cancelled;
}
