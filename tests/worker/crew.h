/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a job as threads of this process: they run what workers run, and can be watched.
 *
 * FOLDER/model, plan, weights > [crew] > rb_configuration_meet, rb_opening_run, rb_step_run */
#ifndef RB_TESTS_WORKER_CREW_H
#define RB_TESTS_WORKER_CREW_H

#include "base/sanitized.h"
#include "worker/stages/lap.h"
#include "worker/step/step.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Ranks load one after the other, and the first waits for all of them. */
enum { CREW_MOST = 16, CREW_MEET_MS = RB_SANITIZED ? 200000 : 60000 };

struct crew_rank {
    struct crew *crew;
    uint32_t rank;
    struct rb_model *model;
    struct rb_configuration *configuration;
    struct rb_listener *listener;
    struct rb_why why;
    int err;
    void *own; /* the watcher's */
};

struct crew {
    const char *folder;
    uint32_t size;
    /* Each is called in the thread of its rank; may be NULL. */
    void (*joined)(struct crew_rank *rank); /* before the first step; may set the rank's error */
    void (*watch)(struct crew_rank *rank, const struct rb_lap_pass *pass);
    void (*stepped)(struct crew_rank *rank, const struct rb_step_result *result);
    void *owner;
    struct crew_rank ranks[CREW_MOST];
    pthread_mutex_t loading;
};

/* From the initial weights to the last step, on devices of RUBATO_TEST_KIND (default: cores).  0,
 * or the first error of a rank, whose links the others lose. */
int crew_run(struct crew *crew, struct rb_why *why);

/* Frees what the ranks have, except for `own`. */
void crew_done(struct crew *crew);

#endif
