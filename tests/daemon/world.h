/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in a box: nodes with agents, workers that vote and flip, and facts that all of them
 * write.
 *
 * Nothing here runs by itself: a test moves the agents, the workers, the coordinator and the clock,
 * in whatever order it likes.  After each decision the promises of the coordinator are checked. */
#ifndef RB_TESTS_DAEMON_WORLD_H
#define RB_TESTS_DAEMON_WORLD_H

#include "daemon/decide/decide.h"
#include "daemon/facts/mirror.h"

enum {
    WORLD_NODES = 4,
    WORLD_JOBS = 3,
    WORLD_WORKERS = 512,
    WORLD_LEFTS = 256,
    WORLD_PATIENCE = 10000,
    WORLD_BALANCE_STEPS = 10,
    WORLD_BALANCE_MS = 3000,
    WORLD_REPLAN_MS = 5000,
    WORLD_BALANCE_GAIN_MS = 100,
};

struct worker {
    bool alive;
    char name[32], job[16], node[16];
    uint32_t device, spawned_for;
    Rb__WorkerReport__State state; /* DEAD and FAILED: as in its last words */
    uint32_t ready, go, active, unready, opening;
    uint32_t microbatch_us;
    int64_t level, first;
    bool saves, has_saved, dirty, unreadable; /* saves: it was told to, and to leave then */
    bool unsaved;                             /* and it could not, or not at the end */
    int64_t saved;
    unsigned known_dead; /* a bit a node whose agent knows of its death */
};

/* What is left of a configuration, as some agent foresaw it. */
struct world_left {
    char job[16];
    Rb__Configuration *conf; /* owned */
    char without[8][32];
    size_t n_without;
};

struct world {
    struct rb_mirror *mirror;
    uint64_t now, wake, decisions;
    struct world_node {
        char name[16];
        uint32_t devices;
        bool up; /* its agent runs and has its lease */
        bool leaving;
    } nodes[WORLD_NODES];
    size_t n_nodes;
    struct worker workers[WORLD_WORKERS];
    size_t n_workers, spawned;
    struct world_left lefts[WORLD_LEFTS];
    size_t n_lefts, n_entered;        /* ever; and entered before facts had it */
    uint32_t highest[WORLD_JOBS + 1]; /* configuration numbers taken */
    size_t n_jobs;
    bool slow;                        /* reports of deaths may reach facts late */
    bool full;                        /* no state can be saved */
    unsigned unready_one_in;          /* 0: never */
    uint32_t max_restarts;            /* of jobs that are added, */
    int32_t priority;                 /* and their priority */
    uint32_t replicas;                /* of each block of their state; 0: all */
    bool even;                        /* spec.parallel.balance */
    struct rb_decide_planner planner; /* asked about the jobs */
    const char *silent;               /* a node that does not answer; NULL: none */
    uint64_t random;
};

void world_begin(struct world *world, uint64_t seed);
void world_end(struct world *world);
void world_commit(struct world *world, struct rb_writes *writes); /* and empty them */
uint64_t world_random(struct world *world, uint64_t below);

void world_add_node(struct world *world, const char *name, uint32_t devices);
void world_add_job(struct world *world, const char *id, uint32_t min, uint32_t max, uint32_t want,
                   int64_t steps);

const struct rb_job_facts *world_job(struct world *world, const char *id);
const Rb__JobState *world_state(struct world *world, const char *id);
const Rb__Configuration *world_active(struct world *world, const char *id);
const Rb__Configuration *world_next(struct world *world, const char *id);
bool world_event(struct world *world, const char *kind); /* has there been one? */

void world_wish(struct world *world, const char *id, void (*change)(Rb__Wish *wish, uint64_t to),
                uint64_t to);
void world_want(Rb__Wish *wish, uint64_t to);
void world_pause(Rb__Wish *wish, uint64_t to);
void world_cancel(Rb__Wish *wish, uint64_t to);
void world_cancel_keeping(Rb__Wish *wish, uint64_t to);
void world_cancel_at_once(Rb__Wish *wish, uint64_t to);
void world_delete(Rb__Wish *wish, uint64_t to);
void world_cordon(struct world *world, const char *node, bool on, bool drain);
void world_drain(struct world *world, const char *node, uint64_t within_ms);
void world_node_up(struct world *world, size_t node, bool up);
void world_node_leaving(struct world *world, size_t node, bool leaving);
void world_checkpoint(struct world *world, const char *id, int64_t step, const char *node);

/* Progress of the active configuration, as its agent writes it to facts. */
void world_progress(struct world *world, const char *id, int64_t steps);

struct worker *world_worker(struct world *world, const char *job, const char *node,
                            uint32_t device);
void world_kill(struct world *world, struct worker *worker);

/* One move each. */
void world_agent(struct world *world, size_t node);
void world_train(struct world *world, const char *id); /* one vote, or one opening */
void world_decide(struct world *world);                /* until there is nothing to write */

/* Agents, workers, decisions and some time, so many times. */
void world_rounds(struct world *world, unsigned rounds);

/* A world of one node, "a", with so many devices, on which one job trains. */
#define WORLD_JOB "j1"
void world_running(struct world *world, uint32_t devices, uint32_t min, uint32_t want);

#endif
