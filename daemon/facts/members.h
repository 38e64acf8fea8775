/* SPDX-License-Identifier: Apache-2.0 */
/* What facts say about the processes of a configuration.
 *
 * facts > [members] > allocate, job rules */
#ifndef RB_DAEMON_FACTS_MEMBERS_H
#define RB_DAEMON_FACTS_MEMBERS_H

#include "daemon/facts/facts.h"

enum rb_life {
    RB_LIFE_COMING, /* not spawned yet, or starting */
    RB_LIFE_HERE,
    RB_LIFE_AWAY, /* its node has lost its lease: what it does is not known, and that is no death */
    RB_LIFE_GONE, /* proven: reaped, failed, or another process has its device */
};

/* Is it proven that the process of this rank has ended? */
bool rb_member_gone(const struct rb_job_facts *job, const Rb__Configuration *configuration,
                    size_t rank);

/* ret_report: may be NULL where there is none. */
enum rb_life rb_member_life(const struct rb_facts *facts, const struct rb_job_facts *job,
                            const Rb__Configuration *configuration, size_t rank,
                            const Rb__WorkerReport **ret_report);

/* Does the process hold the job's state, or its part of a state in shards? */
bool rb_report_holds_state(const Rb__WorkerReport *report);

/* Must the node be left, also by workers that are there: is it leaving, or drained? */
bool rb_node_must_be_left(const struct rb_facts *facts, const char *node);

/* The same of one of the node's devices: also where the device is sick. */
bool rb_device_must_be_left(const struct rb_facts *facts, const char *node, uint32_t device);

/* What is wrong with the device; NULL: nothing that is known of. */
const char *rb_device_sick(const struct rb_facts *facts, const char *node, uint32_t device);

/* When the node must have been left, unix ms; UINT64_MAX: there is no deadline. */
uint64_t rb_node_deadline(const struct rb_facts *facts, const char *node);

/* From when on leaving the node does not wait for newcomers any more: the last quarter of the time
 * that was given, at most 10 s.  UINT64_MAX: never. */
uint64_t rb_node_hurry(const struct rb_facts *facts, const char *node);

/* How many members of the configuration live, have the state and are on nodes that need not be
 * left: with at least `min` of them, members that must leave may as well be killed. */
uint32_t rb_members_staying(const struct rb_facts *facts, const struct rb_job_facts *job,
                            const Rb__Configuration *configuration);

/* A phase in which a job has no use for devices any more. */
bool rb_phase_final(Rb__Phase phase);

#endif
