/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of this node: its process, its link, what it is told, what it said.
 *
 * act, adopt > orders > [worker] > rubato-worker
 *        what it says > [worker] > rules, report */
#ifndef RB_DAEMON_AGENT_WORKER_H
#define RB_DAEMON_AGENT_WORKER_H

#include "control.pb-c.h"
#include "daemon/agent/inside.h"
#include "daemon/agent/rules.h"

#include <sys/types.h>

struct rb_agent_job;
struct rb_process;
struct rb_worker_link;

struct rb_worker {
    struct rb_worker *next;
    struct rb_agent *agent;
    struct rb_agent_job *job;
    struct rb_agent_worker told; /* what the rules look at; strings are owned */
    struct rb_process *process;
    struct rb_worker_link *link;
    pid_t pid;

    /* What it said. */
    char **addresses;
    size_t n_addresses;
    bool frozen, done, failed;
    bool lost;       /* failed because some of the state has no holder any more, */
    bool unreadable; /* or because nobody could load what there is to start from */
    int64_t level, first_step;
    int64_t newest; /* level that it told, in rows, too */
    uint64_t flipped, bytes_moved;
    uint32_t rank;
    bool has_rank;
    uint32_t microbatch_us; /* 0: not measured */
    uint64_t pace_due;      /* loop time to look at it again */
    bool answers;           /* pings */
    bool unheard; /* adopted, its Hello has not come yet: facts keep what they have of it */
    char *reason;
    uint64_t ended;    /* unix ms when it was reaped; 0: it lives, or that is not known */
    uint32_t foreseen; /* configuration that it enters without the coordinator's word ... */
    char **without;    /* ... and the workers whose deaths led to it */
    size_t n_without;
    char *checkpoints;     /* where it was told to write them; NULL: nowhere */
    Rb__Checkpoint *saved; /* owned */
    bool save_failed;      /* of the final or the parked state, the last time, which was told */
    uint64_t final_due;    /* loop time to try again; 0: no need */
    bool report_sent;      /* its commit is under way */
};

/* worker.c: one process, and what it is told */
struct rb_worker *rb_worker_new(struct rb_agent *agent, const char *job, const char *name,
                                uint32_t device, uint32_t spawned_for);
void rb_worker_free(struct rb_worker *worker);
int rb_worker_spawn(struct rb_worker *worker, struct rb_why *why);
int rb_worker_adopt(struct rb_worker *worker, pid_t pid, struct rb_why *why);
void rb_worker_send(struct rb_worker *worker, Rb__ToWorker *message);
void rb_worker_goes_without(struct rb_worker *worker, const struct rb_job_facts *job,
                            const Rb__Configuration *left);
int64_t
rb_worker_rows_known(const struct rb_worker *worker); /* rows up to here are kept for good */

/* worker_said.c */
void rb_worker_hear(struct rb_worker *worker, const Rb__FromWorker *message);
/* Set the reason of its end, or of what it cannot do; it goes into the worker's report. */
void rb_worker_set_reason(struct rb_worker *worker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rb_worker_forget_said(struct rb_worker *worker); /* addresses, what it saved, the reason */

/* watch.c: workers that live and do nothing */
void rb_agent_watch(struct rb_agent *agent);
void rb_agent_heard(struct rb_worker *worker);
/* why: NULL: it was told to leave and did not. */
void rb_agent_kill(struct rb_worker *worker, const char *why);

#endif
