/* SPDX-License-Identifier: Apache-2.0 */
/* A whole cluster in one process: the pure rules of the product, driven over a simulated world.
 *
 * seed > [sim] > a story: nodes, rubatods, workers, an etcd, users and what befalls them
 *
 * Everything is an event in one heap, and all chance comes from sim_chance.  So a seed is a story,
 * the same one each time.  What is real: rb_decide, rb_election, rb_agent_decide, shares and
 * schedule, votes, rosters, placements, recoveries, facts and writes.  What is modelled: what
 * carries their decisions out (sim_rubatod.c, sim_agent*.c), the worker's threads (sim_worker.c and
 * those beside it), links (sim_net.c), etcd (sim_store.c).  Checks (sim_check*.c) look at the truth
 * after each event; the first violation ends the story. */
#ifndef RB_TESTS_DAEMON_SIM_H
#define RB_TESTS_DAEMON_SIM_H

#include "base/arena.h"
#include "base/error.h"
#include "daemon/facts/mirror.h"
#include "daemon/facts/writes.h"
#include "plan.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_NODES = 4,
    SIM_DEVICES = 3, /* of a node */
    SIM_JOBS = 3,
    SIM_RANKS = SIM_NODES * SIM_DEVICES,
    SIM_BLOCKS = 5,
    SIM_MICROBATCHES = 8,
    SIM_STEPS = 160,
    SIM_PROCESSES = 1024,
    SIM_FILES = 4096,
    SIM_NUMBERS = 4096, /* of configurations */
    SIM_KINDS = 22,
};

/* Rules that can be broken on purpose, to see that the checks find it. */
#define SIM_BREAKS(X)                                                                              \
    X(NO_FREEZE, "no-freeze", "who froze still takes the last words of the old configuration")     \
    X(NO_GUARDS, "no-guards", "etcd applies every transaction, whatever it was guarded by")        \
    X(NO_FENCE, "no-fence", "progress and checkpoints are published without a guard")              \
    X(NO_PROOF, "no-proof", "a worker that does not answer at once is reported dead, and lives")   \
    X(NO_LEASE, "no-lease", "who is out of reach counts as dead at once")                          \
    X(NO_VOUCH, "no-vouch", "newcomers are not vouched for before the flip")                       \
    X(NO_VOTE, "no-vote", "a rank commits what it has reduced, without the others' records")       \
    X(NO_ADOPT, "no-adopt", "a rubatod that comes back does not look for its workers")             \
    X(NO_WATCH, "no-watch", "a watch goes on behind a compaction as if nothing were missing")      \
    X(NO_KILL, "no-kill", "stopped and silent workers are left alone")                             \
    X(NO_RUNS, "no-runs", "behind a crash sums are kept, and shares are even")                     \
    X(NO_LEVELS, "no-levels", "an opening trusts rank 0, not the highest level")                   \
    X(NO_WAIT, "no-wait", "who has flipped says so before all newcomers are in")                   \
    X(NO_LINGER, "no-linger", "what others are to hold is let go at the flip")                     \
    X(NO_TAKING, "no-taking", "a flip does not wait until all is taken")                           \
    X(NO_STAND, "no-stand", "who gathered a state to be saved trains on")                          \
    X(NO_OTHER, "no-other", "who is told to go to a recovery stays in the opening of another one") \
    X(NO_BREAK, "no-break", "who is told to go to a recovery waits for the end of its step")       \
    X(NO_ORDER, "no-order", "a coordinator decides on facts of before what it has decided last")

enum sim_break {
    SIM_WHOLE,
#define X(name, word, text) SIM_##name,
    SIM_BREAKS(X)
#undef X
        SIM_BREAKS_N
};

struct sim;
struct sim_process;
struct sim_rubatod;
struct sim_store;
struct sim_conf;
struct sim_client;

/* What happens at some time.  `stamp` lets `who` see whether the event is still meant. */
typedef void sim_act(struct sim *sim, void *who, uint64_t stamp, void *what);

/* A job's state, as one process or file has it (worker/state/state.h): the weights of each block,
 * and the moments where the block is held. */
struct sim_state {
    int64_t level;
    uint64_t blocks[SIM_BLOCKS], moments[SIM_BLOCKS];
    uint8_t held[SIM_BLOCKS]; /* enum rb_held */
    bool torn;                /* weights of blocks that are not held may be older */
};

struct sim_file {
    char path[64];
    int node; /* -1: a shared folder */
    struct sim_state state;
};

struct sim_job {
    char id[8];
    int64_t steps, checkpoint_every;
    uint32_t microbatches, replicas;
    bool open;        /* all of its state, or two replicas, as the planner says */
    Rb__Model *model; /* its blocks; the story's */
    bool submitted;
    uint64_t step_us; /* of one microbatch */
    struct sim_state reference[SIM_STEPS + 1];
    int64_t known; /* how many levels of `reference` are computed */

    /* The observer's. */
    bool numbers[SIM_NUMBERS]; /* of configurations that there were */
    int64_t published, committed;
    uint32_t fell_back; /* the newest configuration when published steps were lost; 0: they count */
    uint32_t last_fall; /* the same, never reset: what ran up to it was not gone on with, */
    uint32_t fall_before; /* nor what ran up to this one, when those up to last_fall began */
    uint32_t trains[SIM_STEPS + 1]; /* by level, the configuration that committed it first */
    bool doubled;                   /* whichever process dies, the others have all of its state */
    uint64_t stepped;               /* when a process committed a step last */
    uint64_t able;                  /* since when nothing prevents a step; 0: something does */
};

struct sim_node {
    char name[4];
    uint32_t devices;
    bool down;          /* the machine */
    uint64_t stopped;   /* all that runs there stands still: the number of that stop; 0: no */
    bool severed;       /* from etcd */
    bool lags;          /* its watch says nothing */
    bool full;          /* no state can be saved there to be parked */
    uint64_t seen_away; /* when its key was last missing */
    bool blobs[SIM_JOBS];
    int64_t lease_file;
    uint64_t born; /* of the newest rubatod */
    struct sim_rubatod *rubatod;
};

struct sim {
    uint64_t seed, random, now; /* us */
    enum sim_break broken;
    bool traces, quiet; /* quiet: no more faults */
    char failure[512];  /* the first violation */

    struct sim_event *heap;
    size_t events, room;
    uint64_t sequence, happened;
    struct rb_arena arena; /* of the story: freed at its end */

    struct sim_store *store;
    struct sim_client *clients;
    struct sim_conf *confs;     /* all, for what they have that is not the arena's */
    struct rb_mirror *observer; /* what etcd holds, at once */
    struct sim_node nodes[SIM_NODES];
    size_t n_nodes;
    bool apart[SIM_NODES][SIM_NODES]; /* what is sent does not arrive, from there to here */
    struct sim_job jobs[SIM_JOBS];
    size_t n_jobs;
    struct sim_process *processes[SIM_PROCESSES];
    size_t n_processes;
    struct sim_group *groups;
    struct sim_file files[SIM_FILES];
    size_t n_files;
    uint64_t calm;            /* no fault begins until then */
    uint64_t disturbed;       /* when a fault began or ended last */
    bool watched;             /* does sim_check_stop.c look now? */
    unsigned faults, changes; /* how many there were */
    unsigned seen[SIM_KINDS]; /* events by kind (sim_check.c) */
    unsigned succeeded, failed_jobs, others, foreseen;
};

/* ---- sim_clock.c: time, chance, words ---------------------------------------------------------*/

void sim_in(struct sim *sim, uint64_t us, sim_act *act, void *who, uint64_t stamp, void *what);
bool sim_next(struct sim *sim); /* one event; false: there is none */
uint64_t sim_chance(struct sim *sim, uint64_t below);
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high);
uint64_t sim_ms(const struct sim *sim); /* unix */
void *sim_new(struct sim *sim, size_t size);
void sim_say(struct sim *sim, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sim_state.c: blocks, steps, files --------------------------------------------------------*/

const struct sim_state *sim_reference(struct sim *sim, struct sim_job *job, int64_t level);
struct sim_job *sim_job(struct sim *sim, const char *id);
struct sim_node *sim_node(struct sim *sim, const char *name);
bool sim_same(const struct sim_state *a, const struct sim_state *b); /* both whole */
/* The same, for the blocks that `part` holds. */
bool sim_agrees(const struct sim_state *part, const struct sim_state *whole);
uint64_t sim_gradient(const struct sim_state *state, uint32_t microbatch, unsigned block);
void sim_apply(struct sim_state *state, unsigned block, int64_t level, uint64_t sum, bool skip);
bool sim_redoes(const struct sim_job *job, int64_t level); /* the first attempt of a step */
bool sim_skips(const struct sim_job *job, int64_t level);
void sim_file_put(struct sim *sim, const char *path, int node, const struct sim_state *state);
const struct sim_file *sim_file_get(struct sim *sim, const char *path, int node);

/* ---- sim_user.c, sim_fault.c, sim_check.c -----------------------------------------------------*/

void sim_users_begin(struct sim *sim);
void sim_users_settle(struct sim *sim); /* nodes are uncordoned, and paused jobs resumed */
void sim_faults_begin(struct sim *sim);
void sim_faults_heal(struct sim *sim);
void sim_node_stop(struct sim *sim, struct sim_node *node, bool machine);
void sim_node_start(struct sim *sim, struct sim_node *node);
void sim_node_stand(struct sim *sim, struct sim_node *node); /* a long stop, from now on */

/* Before and after a transaction of etcd. */
void sim_check_txn(struct sim *sim, const struct rb_write *writes, size_t n);
void sim_check_stragglers(struct sim *sim, const Rb__JobState *before, const Rb__JobState *after,
                          const struct rb_write *writes, size_t n);
void sim_check_facts(struct sim *sim);
void sim_check_commit(struct sim *sim, struct sim_process *process);
void sim_check_once(struct sim *sim, const struct sim_process *process);
void sim_check_stands(struct sim *sim, const struct sim_process *process);
void sim_check_processes(struct sim *sim);
enum sim_moment { SIM_COMMITS, SIM_CHANGES, SIM_DIES };
void sim_check_doubled(struct sim *sim, struct sim_job *job, enum sim_moment moment);
bool sim_check_over(struct sim *sim); /* every job has ended, and nobody is left */
void sim_check_liveness(struct sim *sim);
void sim_check_ends(struct sim *sim);
/* sim_check_stop.c: check from now on, until no node is stopped any more */
void sim_check_goes_on(struct sim *sim);
extern const char *const sim_kinds[SIM_KINDS]; /* of events, which sim->seen counts */

#endif
