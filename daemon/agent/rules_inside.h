/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the agent's rules share: a look at the world, and what is to be done.
 *
 *     rules.c: configurations and deaths > rules_processes.c > rules_serve.c: who serves whom
 *
 * Private to daemon/agent/rules*.c. */
#ifndef RB_DAEMON_AGENT_RULES_INSIDE_H
#define RB_DAEMON_AGENT_RULES_INSIDE_H

#include "daemon/agent/rules.h"

struct rb_rules {
    const struct rb_agent_view *view;
    struct rb_arena *arena;
    struct rb_agent_actions *actions;
};

/* Add an action, whose other fields the caller sets; the pointer is valid until the next one is
 * added.  rb_rules_act_on adds one about a worker of the view. */
struct rb_agent_action *rb_rules_act(struct rb_rules *rules, enum rb_agent_action_kind kind,
                                     const struct rb_job_facts *job);
struct rb_agent_action *rb_rules_act_on(struct rb_rules *rules, enum rb_agent_action_kind kind,
                                        const struct rb_job_facts *job, size_t worker);

/* The action that spawns a process on this device of ours, of whatever job; NULL: none. */
const struct rb_agent_action *rb_rules_spawning(const struct rb_rules *rules, uint32_t device);

/* Is the process (named, spawned for a configuration, on a device of this node) this member?  Any
 * member? */
bool rb_rules_serves(const struct rb_rules *rules, const Rb__Configuration *configuration,
                     size_t rank, uint32_t device, const char *worker, uint32_t spawned_for);
bool rb_rules_member_of(const struct rb_rules *rules, const Rb__Configuration *configuration,
                        uint32_t device, const char *worker, uint32_t spawned_for);

/* Is this process needed?  It is the saver of a job that is to be parked, a member of a live
 * configuration, or a member of one that was given up and in which it trains (active).  job: NULL:
 * there is none. */
bool rb_rules_needed(const struct rb_rules *rules, const struct rb_job_facts *job, uint32_t device,
                     const char *worker, uint32_t spawned_for, uint32_t active);

/* rules_processes.c: a process of ours; and reports under our name whose processes we do not have.
 */
void rb_rules_tend_worker(struct rb_rules *rules, size_t worker);
void rb_rules_tend_reports(struct rb_rules *rules, const struct rb_job_facts *job);

#endif
