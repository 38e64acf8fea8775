/* SPDX-License-Identifier: Apache-2.0 */
/* A rubatod: presence and candidacy (daemon/presence.c), the coordinator (coordinator.c), the agent
 * (agent*.c), as thin here as the rules let them be.
 *
 * client > [sim_rubatod] > commits, worker processes */
#ifndef RB_TESTS_DAEMON_SIM_RUBATOD_H
#define RB_TESTS_DAEMON_SIM_RUBATOD_H

#include "sim_store.h"
#include "sim_worker.h"

#include "daemon/agent/rules.h"
#include "daemon/election.h"

enum { SIM_LEAVE_US = 30000000 }; /* from SIGTERM to the end */

/* A process of this node, as its agent knows it. */
struct sim_own {
    struct sim_own *next;
    struct sim_process *process;
    struct rb_agent_worker told;
    bool frozen, done, failed, lost, unsaved, reports, has_rank, has_addresses;
    int64_t level, first_step, newest;
    uint64_t flipped;
    uint32_t rank, microbatch_us;
    char *reason;
    Rb__Checkpoint *saved;
    bool unheard;      /* adopted, and has not spoken */
    uint64_t ended;    /* unix ms */
    uint32_t foreseen; /* where it goes without an order from the coordinator, */
    char **without;    /* and the dead that this is without */
    size_t n_without;
};

/* A death that an agent knows of; the agent tells other agents of those of its own processes. */
struct sim_death {
    struct sim_death *next;
    const char *job, *worker;
    bool knows[SIM_NODES], asked[SIM_NODES]; /* nodes that know of it; nodes asked now */
};

struct sim_pending { /* a checkpoint that is written and not in facts */
    struct sim_pending *next;
    Rb__Checkpoint value;
    bool sent;
};

/* What an agent knows of a job. */
struct sim_known {
    Rb__Progress progress;
    bool dirty, sent;
    uint64_t due;
    struct sim_pending *checkpoints;
    int64_t rows; /* kept */
};

struct sim_silence { /* daemon/silence.h */
    uint64_t
        since[SIM_NODES]; /* nothing has come since then, us; 0: not asked, or an answer came */
};

struct sim_rubatod {
    struct sim *sim;
    struct sim_node *node;
    struct sim_client *client;
    uint64_t stamp; /* no other rubatod has it */
    bool alive, leaving, killed;
    uint64_t leaves; /* when patience ends */
    uint64_t leaving_since;

    /* presence */
    struct rb_election election;
    bool announced, writing;
    uint64_t looks, taken_since;

    /* coordinator */
    int64_t fence;
    uint64_t since_ms, decides;
    bool committing, connected, quits;
    struct sim_silence silence;

    /* agent */
    bool started, poked;
    uint64_t orders_fence, clock, clock_at;
    struct sim_own *own;
    struct sim_death *deaths;
    struct sim_known known[SIM_JOBS];
    bool fetching[SIM_JOBS];
    struct sim_silence asked;
    bool asks[SIM_NODES];
};

void sim_rubatod_start(struct sim *sim, struct sim_node *node);
void sim_rubatod_stop(struct sim_rubatod *rubatod);  /* kill -9 */
void sim_rubatod_leave(struct sim_rubatod *rubatod); /* SIGTERM */

/* sim_presence.c, sim_coordinator.c */
void sim_presence_look(struct sim_rubatod *rubatod);
void sim_presence_leased(struct sim *sim, void *who, int64_t lease);
void sim_coordinator_poke(struct sim_rubatod *rubatod);
void sim_coordinator_lead(struct sim_rubatod *rubatod, int64_t fence);
/* Is the node silent, as far as this rubatod knows?  *wake_us: when the node may be, if that is
 * sooner. */
bool sim_silent(struct sim_rubatod *rubatod, struct sim_silence *silence, size_t node, bool asks,
                uint64_t *wake_us);
/* sim_own.c */
void sim_agent_start(struct sim_rubatod *rubatod);
struct sim_own *sim_own_find(struct sim_rubatod *rubatod, const struct sim_process *process);
struct sim_own *sim_own_take_on(struct sim_rubatod *rubatod, struct sim_process *process,
                                uint32_t spawned_for);
void sim_own_drop(struct sim_rubatod *rubatod, struct sim_own *own);
/* sim_agent.c */
void sim_agent_poke(struct sim_rubatod *rubatod);
void sim_agent_poke_in(struct sim_rubatod *rubatod, uint64_t us);
/* sim_death.c */
void sim_deaths_tell(struct sim_rubatod *rubatod);
const struct rb_agent_death *sim_deaths_known(const struct sim_rubatod *rubatod,
                                              struct rb_arena *arena, size_t *ret_n);
void sim_goes_without(struct sim_own *own, const struct rb_job_facts *job,
                      const Rb__Configuration *left);
/* sim_report.c */
void sim_report_all(struct sim_rubatod *rubatod);
void sim_take_row(struct sim_rubatod *rubatod, struct sim_own *own, const struct sim_word *row);
void sim_take_saved(struct sim_rubatod *rubatod, struct sim_own *own, const struct sim_word *word);
struct sim_known *sim_known(struct sim_rubatod *rubatod, const char *job);

#endif
