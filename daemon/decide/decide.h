/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's mind: from facts and the time to guarded writes.
 *
 * facts, now > [decide] > writes
 *
 * Pure: the same arguments give the same writes.  The leader calls it (daemon/coordinator.c) after
 * each change of facts and at the time it asked for.  Its writes are committed, each transaction
 * guarded by the leader key too; once facts have them it is called again, until it has nothing to
 * write.  So one call need not do everything, and a refused write is simply decided anew.
 *
 * What agents do with configurations, which the rules rely on (daemon/agent/rules.h):
 *   - A member that names no worker is served by a fresh process; its report says `spawned_for` =
 *     the configuration's number (rb_facts_member finds it).  Name an idle process to use it again.
 *   - On writing GO fill in the members' `worker` from the reports, so that later configurations
 *     and dead reports can be told apart when a device gets another process.
 *   - Workers in no live configuration (PREPARING, GO, ACTIVE) are dismissed at once: abandon and
 *     replace in one transaction if idle workers are to be kept.
 *   - Reports of dead, failed and finished processes stay until no live configuration names them
 *     and no `saver` does.  A saver that has written its state has a report with `saved`.  Then it
 *     dies.
 *   - Where facts have no report of a named worker, that worker is gone.
 *   - Keys of a job with wish.deleted may be removed (rb_writes_delete_all "jobs/ID/") once no
 *     report of a living process is left.  Agents then remove the job's folders; an agent that is
 *     away does so when it hears of the job's Deletion. */
#ifndef RB_DAEMON_DECIDE_DECIDE_H
#define RB_DAEMON_DECIDE_DECIDE_H

#include "base/arena.h"
#include "daemon/facts/facts.h"
#include "daemon/facts/writes.h"

/* What the planner says of a configuration. */
struct rb_decide_plan {
    uint32_t stages;   /* of a pipeline; 0: data parallel */
    uint32_t replicas; /* of each block of the state; 0: on every device */
    bool recomputes;   /* activations, where the Model leaves that open */
    double seconds;    /* of a step */
    const char *why;   /* a clause; the arena's */
};

/* Finds how a configuration whose members are known is run quickest.  Pure: the same facts, the
 * same plan.  running: the configuration that trains on several devices; NULL: none does.  Returns
 * false where the planner cannot say. */
struct rb_decide_planner {
    bool (*choose)(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                   const Rb__Configuration *configuration, const Rb__Configuration *running,
                   struct rb_arena *arena, struct rb_decide_plan *ret);
    void *context;
};

struct rb_decide_options {
    const char *node;     /* this coordinator's */
    uint64_t since_ms;    /* unix: when this coordinator took over (or came back to etcd after an
                             outage): from then on, absent nodes that are not silent, and workers
                             that say nothing, are given `patience_ms` */
    uint64_t patience_ms; /* a lease time plus reconnection */
    const char *const *silent; /* nodes that do not answer (daemon/silence.h) */
    size_t n_silent;
    struct rb_decide_planner planner; /* choose NULL: there is none */
    /* Shares are cut anew for the same members when a configuration has done balance_steps steps
     * and is balance_ms old, and the rest of the job gains balance_gain_ms by it. */
    uint32_t balance_steps, balance_ms, balance_gain_ms;
    uint32_t replan_ms; /* how long a configuration trains before the planner is asked again */
    uint64_t random;    /* another number at each call: for keys of events */
};

/* ret_writes: zeroed by the caller, added to.  *ret_wake_ms: unix time at which to call again even
 * if nothing changes; UINT64_MAX: no need.  now_ms: unix. */
int rb_decide(const struct rb_facts *facts, uint64_t now_ms,
              const struct rb_decide_options *options, struct rb_writes *ret_writes,
              uint64_t *ret_wake_ms, struct rb_why *why);

#endif
