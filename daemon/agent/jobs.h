/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that this node has seen: their folders, their rows, and what goes with them when they are
 * deleted.
 *
 * facts, what workers say > [jobs] > STATE/jobs/ID, and what is to be told of them */
#ifndef RB_DAEMON_AGENT_JOBS_H
#define RB_DAEMON_AGENT_JOBS_H

#include "daemon/agent/inside.h"
#include "plan.pb-c.h"

struct rb_rows;

enum { RB_AGENT_WINDOW = 32 };

/* A checkpoint that was written and is not yet in facts. */
struct rb_agent_checkpoint {
    struct rb_agent_checkpoint *next;
    Rb__Checkpoint value; /* its strings are owned */
    bool sent;            /* a commit is under way */
};

/* A job that this node has seen. */
struct rb_agent_job {
    struct rb_agent_job *next;
    struct rb_agent *agent;
    char *id;
    char *folder;                    /* STATE/jobs/ID */
    char *model, *weights, *profile; /* digests, to be removed with the job; no profile: NULL */
    bool deleted;                    /* its wish said so, or its deletion key */
    bool met;                        /* facts have told of it */
    struct rb_rows *rows;            /* NULL until needed */
    bool rows_failed;                /* the last row could not be written */

    /* What rank 0 told: throughput is over the last rows. */
    Rb__Progress progress;
    Rb__Progress heard; /* of any rank */
    bool progress_dirty, progress_sent;
    uint64_t progress_due; /* loop time */
    struct {
        uint64_t time, samples;
    } window[RB_AGENT_WINDOW];
    size_t n_window;
    uint64_t skip_due; /* loop time: before it no further skipped step is an event */

    struct rb_agent_checkpoint *checkpoints;

    struct rb_agent_plan *plans; /* by the shares that they are for */
    uint32_t planned_ahead;      /* the configuration for whose next loss there are plans, */
    size_t planned_ranks;        /* of one of its first so many ranks */
    Rb__Model *planned_model;    /* while ranks are left to plan for */
};

struct rb_agent_job *rb_agent_job(struct rb_agent *agent, const char *id); /* makes it */
struct rb_agent_job *rb_agent_job_known(struct rb_agent *agent, const char *id);
bool rb_agent_id_valid(const char *id); /* fit to be a folder's name */
struct rb_rows *rb_agent_rows(struct rb_agent_job *job, struct rb_why *why);
/* Bring the table up to date with facts; remove the folders and blobs of deleted jobs that have no
 * worker here any more. */
void rb_agent_jobs_follow(struct rb_agent *agent);
void rb_agent_jobs_free(struct rb_agent *agent);

#endif
