/* SPDX-License-Identifier: Apache-2.0 */
/* The window on the state: what lets another thread copy blocks of it while training goes on.
 *
 * step thread (update) > [window] > feed
 *
 * Whoever changes the state of a member that trains, and whoever copies a block of it elsewhere,
 * holds the lock; what an update did is told to the feed, if there is one, under the same lock.  So
 * a block is copied at one level, and a log without holes goes on from there. */
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
    bool laps;            /* in laps (worker/stages/lap.h): none tells what those do either */
    struct rb_feed *feed; /* who is told of updates; NULL: nobody */
    uint32_t taken_for; /* the configuration that what is taken stays for (worker/join/taking.h) */
    struct rb_snapshot *snapshot; /* the step thread's: who is told before a block changes; NULL:
                                     nobody */
};

struct rb_window *rb_window_new(void);
void rb_window_free(struct rb_window *window); /* NULL is fine */

/* The step thread trains in configuration `term` from now on, in laps or step by step; 0: in none.
 * A feed that was begun in another term is given up. */
void rb_window_enter(struct rb_window *window, uint32_t term, bool laps);

/* A vote says for which configuration what is taken stays; 0: for none. */
void rb_window_keep(struct rb_window *window, uint32_t taken_for);

#endif
