/* SPDX-License-Identifier: Apache-2.0 */
/* The window on the state: what lets another thread copy blocks of it while training goes on.
 *
 * step thread (update) > [window] > feed
 *
 * A thread that changes the state of a member that trains, or copies a block of it elsewhere, holds
 * the lock; what an update did is told to the feed, if there is one, under the same lock.  So a
 * block is copied at one level, and a log without holes goes on from there. */
#ifndef RB_WORKER_STATE_WINDOW_H
#define RB_WORKER_STATE_WINDOW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rb_feed;
struct rb_snapshot;

struct rb_window {
    pthread_mutex_t lock;
    uint32_t term;        /* the configuration that is trained in; 0: none, the state may change
                             in ways that no log tells */
    bool laps;            /* in laps (worker/stages/lap.h): no log tells what those do either */
    struct rb_feed *feed; /* is told of updates; NULL: none */
    uint32_t taken_for;   /* the configuration for which taken blocks stay (worker/join/taking.h) */
    struct rb_snapshot *snapshot; /* the step thread's: is told before a block changes; NULL:
                                   * none */
};

struct rb_window *rb_window_new(void);
void rb_window_free(struct rb_window *window); /* NULL is fine */

/* The step thread trains in configuration `term` from now on, in laps or step by step; 0: in none.
 * A feed that was begun in another term is given up. */
void rb_window_enter(struct rb_window *window, uint32_t term, bool laps);

/* A vote says for which configuration taken blocks stay; 0: for none. */
void rb_window_keep(struct rb_window *window, uint32_t taken_for);

#endif
