/* SPDX-License-Identifier: Apache-2.0 */
/* Facts: what etcd holds below /rubato/v1/, typed, as one snapshot in memory.
 *
 * store > mirror > [facts] > decide, agent rules, RPC methods
 *
 * Pure.  Keys are written without the prefix: "jobs/ab12/wish".  Revisions are etcd's. */
#ifndef RB_DAEMON_FACTS_FACTS_H
#define RB_DAEMON_FACTS_FACTS_H

#include "base/error.h"
#include "facts.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RB_FACTS_PREFIX "/rubato/v1/"

/* One key.  `message` is NULL where there is no such key (then revision is 0). */
struct rb_fact {
    const char *key;  /* "nodes/a" */
    const char *name; /* its last part: "a" */
    const char *text; /* the value as etcd holds it */
    int64_t revision; /* of its newest change: what writes are guarded by */
    int64_t created;  /* revision at which the key came into being */
    int64_t lease;    /* 0: none */
    union {
        const ProtobufCMessage *message;
        const Rb__Leader *leader;
        const Rb__Node *node;
        const Rb__Cordon *cordon;
        const Rb__Job *job;
        const Rb__Wish *wish;
        const Rb__JobState *state;
        const Rb__Configuration *configuration;
        const Rb__WorkerReport *worker;
        const Rb__Progress *progress;
        const Rb__Checkpoint *checkpoint;
        const Rb__Deletion *deletion;
        const Rb__Event *event;
    };
};

/* Sorted by key: configurations by number, checkpoints by step, deletions and events by time. */
struct rb_fact_list {
    const struct rb_fact *at;
    size_t n;
};

struct rb_job_facts {
    const char *id;
    struct rb_fact job, wish, state, progress; /* a job without `job` is being deleted: leave it */
    struct rb_fact_list configurations, workers, checkpoints;
};

struct rb_facts {
    int64_t revision; /* everything up to here is in it */
    struct rb_fact leader;
    struct rb_fact_list nodes, cordons, deletions, events;
    const struct rb_job_facts *jobs; /* sorted by id */
    size_t n_jobs;
};

/* NULL where there is none. */
const struct rb_fact *rb_fact_find(const struct rb_fact_list *list, const char *name);
const struct rb_job_facts *rb_facts_job(const struct rb_facts *facts, const char *id);
const struct rb_fact *rb_facts_configuration(const struct rb_job_facts *job, uint32_t number);
size_t rb_facts_count_members(const struct rb_job_facts *job); /* of all its configurations */

/* The report on device `device` of `node`, whatever process it speaks of. */
const struct rb_fact *rb_facts_report(const struct rb_job_facts *job, const char *node,
                                      uint32_t device);

/* The report of the process that serves as `rank` of a configuration, or NULL: a member that names
 * a worker is served by that one; a fresh member by the process whose report says spawned_for = the
 * configuration's number.  NULL for a named one means that another process has its device: it is
 * gone.  NULL for a fresh one means that it is not spawned yet. */
const struct rb_fact *rb_facts_member(const struct rb_job_facts *job,
                                      const Rb__Configuration *configuration, size_t rank);

/* The straggler on this device that users were told of, or NULL. */
const Rb__Straggler *rb_straggler_told(const Rb__JobState *state, const char *node,
                                       uint32_t device);

/* PREPARING, GO or ACTIVE. */
bool rb_configuration_live(const Rb__Configuration *configuration);
/* Does it train, or has it? */
bool rb_configuration_took_over(const Rb__Configuration *configuration);

/* Is this process a member?  A process that was not there yet when the configuration was made is
 * not named. */
bool rb_configuration_names(const Rb__Configuration *configuration, const char *worker);

/* Was the configuration given up behind its GO, while nothing newer is active?  Members may have
 * flipped to it before they heard of that: then one of them says that it trains there. */
bool rb_configuration_given_up(const struct rb_job_facts *job,
                               const Rb__Configuration *configuration);

/* The class that a device computes in. */
static inline const char *rb_facts_class(const Rb__Node *node, const Rb__Device *device)
{
    return device->numeric_class ? device->numeric_class : node->numeric_class;
}

/* Does a job have a blob of this digest? */
bool rb_facts_names_blob(const struct rb_facts *facts, const char *digest);

#endif
