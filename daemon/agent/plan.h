/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker is told of a configuration: its plan, as a file, and the order to enter it.
 *
 * facts > [plan, configure] > STATE/jobs/ID/plans/DIGEST, Configure > worker */
#ifndef RB_DAEMON_AGENT_PLAN_H
#define RB_DAEMON_AGENT_PLAN_H

#include "control.pb-c.h"
#include "daemon/agent/inside.h"

struct rb_agent_job;
struct rb_arena;
struct rb_job_facts;

/* plan.c: put the plan of `configuration` into `order`.  *ret_digest: of the plan.  All of it is
 * the arena's. */
int rb_agent_plan(struct rb_agent *agent, const struct rb_job_facts *facts,
                  const Rb__Configuration *configuration, struct rb_arena *arena,
                  Rb__Configure *order, const char **ret_digest, struct rb_why *why);
void rb_agent_plan_ahead(struct rb_agent *agent, const struct rb_job_facts *facts);
void rb_agent_plans_free(struct rb_agent_job *job);

/* configure.c: *ret_* are the arena's */
int rb_agent_configure(struct rb_agent *agent, const struct rb_job_facts *job,
                       const Rb__Configuration *configuration, size_t rank, struct rb_arena *arena,
                       Rb__Configure *ret, struct rb_why *why);

#endif
