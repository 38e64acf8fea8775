/* SPDX-License-Identifier: Apache-2.0 */
/* A feed from inside: for feed.c (what the step thread does with it), feed_thread.c (its thread),
 * feed_log.c (the queue from one to the other) and feed_tell.c (what newcomers are told, and what
 * they say) alone. */
#ifndef RB_WORKER_JOIN_FEED_INSIDE_H
#define RB_WORKER_JOIN_FEED_INSIDE_H

#include "worker/join/feed.h"
#include "worker/parcels.h"
#include "worker/join/wire.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SPARES = 2 };

/* What a step did: one item of the log. */
struct entry {
    struct entry *next;
    int64_t level; /* that it leads to */
    uint32_t flags;
    int32_t *sums; /* NULL: a skip */
    uint8_t *body;
};

/* A newcomer, as its source sees it. */
struct taker {
    uint32_t rank;
    uint32_t index; /* among the newcomers */
    size_t next;    /* its blocks in front of this one are given (worker/join/roster.h) */
    size_t fixed;   /* bytes given, of those that this source is to give */
    uint64_t headers, answers;
    struct rb_parcels parcels;         /* from here to the newcomer, where it has found them */
    uint8_t address[RB_SHELF_ADDRESS]; /* of their shelf, */
    bool asked;                        /* asked whether it finds that; no answer yet */
    uint64_t taken;                    /* how many parcels it has taken */
    _Atomic int64_t level;             /* that it has acknowledged, -1: none */
    int64_t waited_at;      /* that, when the step thread last waited in vain; -1: never */
    _Atomic uint64_t heard; /* when it last said something */
};

/*   FEEDING --entry of the flip is queued--> FLIPPING --acknowledged--> DONE
 *       |                                       |
 *       +------ halted, lost a newcomer --------+--> FAILED */
enum phase { FEEDING, FLIPPING, DONE, FAILED };

struct rb_feed {
    struct rb_model *model;
    struct rb_window *window;
    struct rb_coll *coll;
    uint32_t number;
    const struct rb_roster *roster;
    const struct rb_placement *placement; /* of the configuration to come */
    uint32_t source;                      /* this member's index among the sources */
    struct rb_reports *reports;
    pthread_t thread;
    cpu_set_t home; /* the cores that the thread may use beside the training */
    int news;       /* an eventfd: the queue is not empty, or look around */
    struct taker *takers;
    bool *from; /* by rank: newcomers that have something to say still */
    uint8_t *staging, *counters;
    int64_t flip; /* level of the last entry, once that is being sent; INT64_MAX before */

    unsigned pauses; /* the step thread's: how often it waited for an answer in vain */
    atomic_int phase;
    _Atomic uint64_t moved; /* when something was last sent or heard */
    /* the window's lock guards what is below */
    pthread_cond_t ended;
    struct entry *first, *last;
    unsigned queued, most; /* entries with sums: that wait now, and the most that ever waited */
    int32_t *spares[SPARES];
    unsigned n_spares;
    uint64_t eases_from, eased; /* when training began to wait for the feed, 0: it does not; ns of
                                 * earlier waits */
    bool halted, closing;
    int err;
    struct rb_why why;
};

/* ---- The log: with the window's lock held, but for the last two ------------------------------*/

void rb_feed_free_entry(struct rb_feed *feed, struct entry *entry);
void rb_feed_nudge(struct rb_feed *feed);

/* Has a newcomer fallen silent?  NULL: no. */
const char *rb_feed_hopeless(const struct rb_feed *feed);

/* The oldest entry, NULL where there is none; and what to do with it afterwards. */
struct entry *rb_feed_take(struct rb_feed *feed);
void rb_feed_done_with(struct rb_feed *feed, struct entry *entry);

/* ---- The thread -------------------------------------------------------------------------------*/

void *rb_feed_run(void *feed);

/* Is it worth going on?  An error, and why, where newcomers are silent or the feed was halted. */
int rb_feed_check_patience(struct rb_feed *feed, struct rb_why *why);

/* Move the calling thread to the core of a newcomer on this machine, which has nothing else to do
 * yet, while this member's core trains.  Where that core may not be used, or there is none, the
 * thread stays.  At the flip it returns: the newcomer needs its core, and the step waits for the
 * feed. */
void rb_feed_leave_core(struct rb_feed *feed);
void rb_feed_return_home(const struct rb_feed *feed);

/* End the feed: its memory goes; what is left says how the feed went. */
void rb_feed_end(struct rb_feed *feed, int err, struct rb_why *why);

/* ---- What it has: feed.c ----------------------------------------------------------------------*/

void rb_feed_close_parcels(struct rb_feed *feed);
void rb_feed_free_spares(struct rb_feed *feed);

/* ---- Talking: the feed's thread ---------------------------------------------------------------*/

/* How many ms to listen between two looks at what else there is. */
enum { RB_FEED_LOOK_MS = 1000 };

int rb_feed_tell_start(struct rb_feed *feed, struct taker *taker, int64_t level,
                       struct rb_why *why);
/* And wait for the newcomer's answer about the shelf, if it was told of one: all blocks then go the
 * same way. */
int rb_feed_hear_of_shelf(struct rb_feed *feed, struct taker *taker, struct rb_why *why);
int rb_feed_tell_entry(struct rb_feed *feed, struct taker *taker, const struct entry *entry,
                       struct rb_why *why);

/* The next block from `from` on that this source gives `taker` to hold; roster->blocks: none. */
size_t rb_feed_next(const struct rb_feed *feed, const struct taker *taker, size_t from);

/* Send one piece to each newcomer that lacks some which this source has.  *ret_left: there may be
 * more. */
int rb_feed_tell_some(struct rb_feed *feed, bool *ret_left, struct rb_why *why);

/* Hear what `rank` has begun to say; hear all that newcomers have said by now, waiting at most `ms`
 * for a word or for news. */
int rb_feed_hear(struct rb_feed *feed, uint32_t rank, struct rb_why *why);
int rb_feed_listen(struct rb_feed *feed, int ms, struct rb_why *why);

#endif
