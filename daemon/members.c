/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/members.h"

enum rb_life rb_member_life(const struct rb_facts *facts, const struct rb_job_facts *job,
                            const Rb__Configuration *configuration, size_t rank,
                            const Rb__WorkerReport **ret_report)
{
    const Rb__Member *member = configuration->members[rank];
    const struct rb_fact *fact = rb_facts_member(job, configuration, rank);
    const Rb__WorkerReport *report = fact ? fact->worker : NULL;

    *ret_report = report;
    if (!report && member->worker)
        return RB_LIFE_GONE;
    if (report && (report->state == RB__WORKER_REPORT__STATE__DEAD ||
                   report->state == RB__WORKER_REPORT__STATE__FAILED))
        return RB_LIFE_GONE;
    if (!rb_fact_find(&facts->nodes, member->node))
        return RB_LIFE_AWAY;
    if (!report || report->state == RB__WORKER_REPORT__STATE__STARTING)
        return RB_LIFE_COMING;
    return RB_LIFE_HERE;
}

bool rb_report_holds_state(const Rb__WorkerReport *report)
{
    return report && (report->level >= 0 || report->state == RB__WORKER_REPORT__STATE__TRAINING ||
                      report->state == RB__WORKER_REPORT__STATE__FROZEN ||
                      report->state == RB__WORKER_REPORT__STATE__DONE);
}

bool rb_node_must_be_left(const struct rb_facts *facts, const char *node)
{
    const struct rb_fact *there = rb_fact_find(&facts->nodes, node);
    const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node);

    return (there && there->node->leaving) || (cordon && cordon->cordon->drain);
}

bool rb_phase_final(Rb__Phase phase)
{
    return phase == RB__PHASE__Succeeded || phase == RB__PHASE__Failed ||
           phase == RB__PHASE__Cancelled;
}
