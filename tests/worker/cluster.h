/* SPDX-License-Identifier: Apache-2.0 */
/* Plays agent and coordinator for real rubato-worker processes, over their control sockets.
 *
 * Every row that any worker reports is compared with what others reported of the same step: a
 * single different bit fails the test. */
#ifndef RB_TESTS_WORKER_CLUSTER_H
#define RB_TESTS_WORKER_CLUSTER_H

#include "base/buffer.h"
#include "control.pb-c.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CLUSTER_WORKERS = 64, CLUSTER_SAVED = 32, CLUSTER_PATIENCE_MS = 120000 };

struct cluster_worker {
    char name[32];
    pid_t pid;
    int pidfd, fd; /* -1: gone, not connected */
    struct rb_buffer in;
    Rb__FromWorker *hello;
    uint32_t ready, unready, flipped, frozen_in, active;
    int64_t level;  /* newest that it reported */
    uint64_t bytes; /* moved at the newest flip */
    bool frozen, done;
    char reason[512]; /* of unready, frozen or failed */
    bool failed, exited;
    int code; /* exit code, or minus the signal */
    int n_saved;
    struct {
        uint64_t request;
        int64_t step;
        char folder[256], error[256];
    } saved[CLUSTER_SAVED];
    char final[256]; /* folder of the final checkpoint */
    int64_t rows;    /* newest row */
    uint32_t kept;   /* microbatches that it did not compute again after a crash */
    int hellos;
};

struct cluster {
    const char *program; /* rubato-worker */
    char folder[64];     /* of the job: model, plan.N, ... */
    struct cluster_worker workers[CLUSTER_WORKERS];
    int n;
    uint32_t number; /* newest configuration */
    int spares[CLUSTER_WORKERS], n_spares;
    int members[CLUSTER_WORKERS], n_members; /* of the active one, by rank */
    uint64_t fence, request;
    bool recovers;         /* what is configured now follows a death */
    bool stands;           /* and it only gathers the state */
    bool mortal;           /* a worker is to die as soon as it trains */
    char *checkpoint_path; /* what Settings say */
    int64_t checkpoint_every, checkpoint_keep;
    char saved[256]; /* folder of the checkpoint with which the run was broken off */
    Rb__Row **rows;  /* by step; NULL: no worker reported it */
    int64_t n_rows;
};

/* A fresh temporary folder; the caller writes the files before the first worker is configured. */
void cluster_open(struct cluster *cluster, const char *program);
/* Kills the workers that are left and removes the folder. */
void cluster_close(struct cluster *cluster);

/* RUBATO_TEST_KIND: the kind of its device; default a core. */
int cluster_spawn(struct cluster *cluster);
/* Have `n` spare workers started and connected. */
void cluster_spare(struct cluster *cluster, int n);
/* A spare worker, or a fresh one. */
int cluster_newcomer(struct cluster *cluster);
void cluster_connect(struct cluster *cluster, int worker, int64_t rows_after);
void cluster_disconnect(struct cluster *cluster, int worker);
void cluster_send(struct cluster *cluster, int worker, Rb__ToWorker *message);

/* Take events until condition(cluster, argument); fails the test after CLUSTER_PATIENCE_MS. */
void cluster_until(struct cluster *cluster, bool (*condition)(struct cluster *, int64_t),
                   int64_t argument, const char *what);
void cluster_until_step(struct cluster *cluster, int64_t step);

/* Orders for configuration `number` to the workers that are to be its members.  restore: what all
 * of them load when no member has state; NULL: nothing. */
void cluster_configure(struct cluster *cluster, uint32_t number, const int *members, int n,
                       const char *restore);
void cluster_go(struct cluster *cluster, int worker, uint32_t number);
void cluster_abandon(struct cluster *cluster, int worker, uint32_t number);
void cluster_until_ready(struct cluster *cluster, uint32_t number, const int *members, int n);
void cluster_until_unready(struct cluster *cluster, uint32_t number, const int *members, int n);
/* Until all survivors of `members` froze in `number`; or, with `or_unready`, withdrew from it. */
void cluster_until_frozen(struct cluster *cluster, uint32_t number, const int *members, int n,
                          bool or_unready);
/* Until all survivors of the active configuration froze. */
void cluster_until_stopped(struct cluster *cluster);
void cluster_until_flipped(struct cluster *cluster, uint32_t number, const int *members, int n);

/* All of the above: a new configuration with these members, tried again where it is given up, as a
 * coordinator does; leavers are dismissed. */
void cluster_move(struct cluster *cluster, const int *members, int n, const char *restore);
/* Spawn `n` workers and start. */
void cluster_start(struct cluster *cluster, int n, const char *restore);
/* Grow or shrink to `n`: keeps the lowest ranks. */
void cluster_resize(struct cluster *cluster, int n);

void cluster_kill(struct cluster *cluster, int worker);      /* -9 */
void cluster_terminate(struct cluster *cluster, int worker); /* SIGTERM; it must end with 0 */
void cluster_until_exit(struct cluster *cluster, int worker);
/* After a kill: the survivors go on in a configuration of their own. */
void cluster_recover(struct cluster *cluster);
void cluster_leave(struct cluster *cluster, int worker, const char *folder, int code);
uint64_t cluster_save(struct cluster *cluster, int worker, const char *folder, bool export_only);
/* The outcome of a request, as an index into workers[worker].saved. */
int cluster_until_saved(struct cluster *cluster, int worker, uint64_t request);

/* Wait for the end and dismiss all workers.  ret_digest: of the final checkpoint, all files. */
void cluster_finish(struct cluster *cluster, char ret_digest[33]);
void cluster_digest(const char *folder, char ret_digest[33]);

/* Save a job that has no end, where its test has seen enough, and dismiss all workers.  Returns its
 * step. */
int64_t cluster_break_off(struct cluster *cluster);
/* The same job on one device, up to that step, which is saved too. */
void cluster_alone_until(struct cluster *cluster, const char *restore, int64_t step);

/* Show what all workers have reported, and where each of them stands. */
void cluster_show_logs(struct cluster *cluster);

#define CLUSTER_FAIL(cluster, ...)                                                                 \
    do {                                                                                           \
        cluster_show_logs(cluster);                                                                \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

#endif
