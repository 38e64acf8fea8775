/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent's files share. */
#ifndef RB_DAEMON_AGENT_INSIDE_H
#define RB_DAEMON_AGENT_INSIDE_H

#include "daemon/agent/agent.h"
#include "daemon/agent/rows.h"
#include "daemon/agent/rules.h"
#include "daemon/agent/spawn.h"
#include "daemon/agent/worker_link.h"
#include "daemon/daemon.h"
#include "plan.pb-c.h"

enum {
    RB_AGENT_WINDOW = 32,
    RB_AGENT_PROGRESS_MS = 500,
    RB_AGENT_SKIP_MS = 60000,
    RB_AGENT_PACE_MS = 2000,
    RB_AGENT_RETRY_MS = 500
};

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
    bool deleted;                    /* its wish said so, or its deletion */
    struct rb_rows *rows;            /* NULL until needed */
    bool rows_failed;                /* the last one could not be written */

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
    uint32_t planned_ahead;      /* the configuration whose next loss is among them, */
    size_t planned_ranks;        /* for the first so many of its ranks */
    Rb__Model *planned_model;    /* while there are more to plan for */
};

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
    uint64_t flipped, bytes_moved;
    uint32_t rank;
    bool has_rank;
    uint32_t microbatch_us; /* 0: not measured */
    uint64_t pace_due;      /* loop time to look at it again */
    bool answers;           /* pings */
    bool unheard; /* adopted, and it has not said yet how it is: what facts have of it stays */
    char *reason;
    uint64_t ended;    /* unix ms when it was reaped; 0: it lives, or nobody knows */
    uint32_t foreseen; /* what it goes to without being told by the coordinator ... */
    char **without;    /* ... and who died for that */
    size_t n_without;
    char *checkpoints;     /* where it was told to write them; NULL: nowhere */
    Rb__Checkpoint *saved; /* owned */
    bool save_failed;      /* the final or the parked state, of late: has been told */
    uint64_t final_due;    /* loop time to try again; 0: no need */
    bool report_sent;      /* its commit is under way */
};

/* A node-save that waits for its worker. */
struct rb_agent_save {
    struct rb_agent_save *next;
    uint64_t number;
    struct rb_worker *worker;
    bool export_only;
    struct rb_request *request;
};

/* The death of a worker, of ours or told us by its agent. */
struct rb_agent_known_death;

struct rb_agent {
    struct rb_daemon *daemon;
    const char *node;
    char *run_folder, *jobs_folder, *worker_program, *host;
    uv_timer_t soon;  /* act on what has changed */
    uv_timer_t clock; /* progress, retries, patience */
    uv_timer_t watch; /* looks at the processes, while there are any */
    unsigned looks;
    struct rb_agent_job *jobs;
    int64_t deletions_heard; /* up to this revision */
    struct rb_worker *workers;
    struct rb_agent_known_death *deaths;
    struct rb_agent_save *saves;
    struct rb_agent_check *checks; /* checkpoints.c */
    uint64_t next_save;
    unsigned events; /* told of, in their keys: several may be of one millisecond */
    uint64_t fence;
    uint32_t fetches; /* tries, to go round the nodes */
    bool started;
    int closing;
};

/* agent.c: a round of the rules, soon or in so long */
void rb_agent_poke(struct rb_agent *agent);
void rb_agent_poke_in(struct rb_agent *agent, uint64_t ms);

/* jobs.c */
struct rb_agent_job *rb_agent_job(struct rb_agent *agent, const char *id); /* makes it */
struct rb_agent_job *rb_agent_job_known(struct rb_agent *agent, const char *id);
bool rb_agent_id_valid(const char *id); /* fit to be a folder's name */
struct rb_rows *rb_agent_rows(struct rb_agent_job *job, struct rb_why *why);
/* Make the table level with facts; of jobs that were deleted, and have no worker here any more,
 * remove folders and blobs. */
void rb_agent_jobs_follow(struct rb_agent *agent);
void rb_agent_jobs_free(struct rb_agent *agent);

/* act.c: do it; `worker`, of actions that are about one, may be gone behind it */
void rb_agent_act(struct rb_agent *agent, const struct rb_agent_action *action,
                  struct rb_worker *worker, struct rb_arena *arena);

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
/* Of its end, or of what it cannot do; it goes into its report. */
void rb_worker_set_reason(struct rb_worker *worker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rb_worker_forget_said(struct rb_worker *worker); /* addresses, what it saved, the reason */

/* watch.c: those that live and do nothing */
void rb_agent_watch(struct rb_agent *agent);
void rb_agent_heard(struct rb_worker *worker);
/* why: NULL: it was told to leave and did not. */
void rb_agent_kill(struct rb_worker *worker, const char *why);

/* plan.c: *ret_* are the arena's */
int rb_agent_plan(struct rb_agent *agent, const struct rb_job_facts *facts,
                  const Rb__Configuration *configuration, struct rb_arena *arena,
                  const char **ret_digest, const char **ret_path, struct rb_why *why);
void rb_agent_plan_ahead(struct rb_agent *agent, const struct rb_job_facts *facts);
void rb_agent_plans_free(struct rb_agent_job *job);

/* deaths.c: deaths of which every agent of a job must know at once */
extern const struct rb_server_method rb_agent_death_methods[];
void rb_agent_deaths_tell(struct rb_agent *agent);
const struct rb_agent_death *rb_agent_deaths_known(const struct rb_agent *agent,
                                                   struct rb_arena *arena, size_t *ret_n);
void rb_agent_deaths_free(struct rb_agent *agent);

/* configure.c: *ret_* are the arena's */
int rb_agent_configure(struct rb_agent *agent, const struct rb_job_facts *job,
                       const Rb__Configuration *configuration, size_t rank, struct rb_arena *arena,
                       Rb__Configure *ret, struct rb_why *why);

/* commit.c: a commit may end when what it is about is gone, so that is known by name */
struct rb_agent_about {
    struct rb_agent *agent;
    const char *job, *worker; /* worker: or NULL */
    int64_t step;
};
typedef void rb_agent_committed(int err, const struct rb_agent_about *about);
/* `about` is copied; `done` runs once, but not where rubatod is stopping. */
void rb_agent_commit(const struct rb_writes *writes, const struct rb_agent_about *about,
                     rb_agent_committed *done);

/* report.c: what goes to facts */
void rb_agent_report_all(struct rb_agent *agent);
void rb_agent_tell(struct rb_worker *worker, const char *kind, const char *text); /* an event */

/* progress.c */
void rb_agent_take_row(struct rb_worker *worker, const Rb__Row *row, bool rank_0);
void rb_agent_publish_progress(struct rb_agent_job *job, const struct rb_job_facts *facts);
/* Comes no row behind what it has told?  It is done, has saved what is parked, or is gone, and no
 * other of its job is here. */
bool rb_agent_rows_end(const struct rb_worker *worker);

/* checkpoints.c */
void rb_agent_take_checkpoint(struct rb_worker *worker, const Rb__Saved *saved);
Rb__Checkpoint *rb_agent_checkpoint_of(const struct rb_agent *agent, const Rb__Saved *saved,
                                       uint32_t configuration);
/* daemon/agent/half_saved.c: of what it has not written to the end nothing stays. */
void rb_agent_remove_half_saved(const struct rb_worker *worker);
/* daemon/agent/parked.c: what the saver of this job has written, of which nobody has heard; NULL:
 * nothing that is new, or `worker` is not its saver. */
Rb__Checkpoint *rb_agent_find_parked(const struct rb_agent *agent, const struct rb_job_facts *job,
                                     const char *worker, uint32_t configuration);
void rb_agent_publish_checkpoints(struct rb_agent_job *job, const struct rb_job_facts *facts);
void rb_agent_checks_drop(struct rb_agent *agent); /* those under way end without it */

/* methods.c */
extern const struct rb_server_method rb_agent_methods[];
void rb_agent_saved(struct rb_worker *worker, const Rb__Saved *saved);
void rb_agent_saves_lost(struct rb_worker *worker);

/* adopt.c */
int rb_agent_adopt(struct rb_agent *agent, struct rb_why *why);

#endif
