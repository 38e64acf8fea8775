/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a feed: what is told, in which order, until the flip is acknowledged or the feed
 * ends. */
#include "worker/join/feed_inside.h"

#include "base/log.h"
#include "worker/control/tell.h"

#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MUCH = 1 << 20 };

int rb_feed_check_patience(struct rb_feed *feed, struct rb_why *why)
{
    const char *reason = NULL;
    int err = 0;

    pthread_mutex_lock(&feed->window->lock);
    if (!feed->halted && atomic_load(&feed->phase) == FEEDING)
        reason = rb_feed_hopeless(feed);
    if (reason)
        rb_feed_halt(feed, reason);
    if (feed->halted)
        err = rb_why_set(why, RB_ECANCELED, "%s", feed->why.text);
    pthread_mutex_unlock(&feed->window->lock);
    return err;
}

static bool all_answered(const struct rb_feed *feed)
{
    for (uint32_t i = 0; i < feed->roster->n_newcomers; i++)
        if (atomic_load(&feed->takers[i].level) < feed->flip)
            return false;
    return true;
}

/* After the last entry.  When all have answered, the steps have the links. */
static int wait_for_answers(struct rb_feed *feed, struct rb_why *why)
{
    int rank = -1, err = 0;

    while (!err && !all_answered(feed)) {
        err = rb_coll_wait(feed->coll, feed->from, -1, RB_FEED_LOOK_MS, &rank, why);
        if (!err && rank >= 0)
            err = rb_feed_hear(feed, (uint32_t)rank, why);
    }
    return err;
}

void rb_feed_leave_core(struct rb_feed *feed)
{
    const struct rb_roster *roster = feed->roster;

    if (sched_getaffinity(0, sizeof feed->home, &feed->home))
        return; /* the thread would not find back */
    for (uint32_t i = 0; i < roster->n_newcomers; i++) {
        uint32_t at = (feed->source + i) % roster->n_newcomers;
        cpu_set_t set;

        if (!roster->cores[at] || roster->cores[at] > CPU_SETSIZE ||
            strcmp(rb_coll_link(feed->coll, (int)roster->newcomers[at]), "tcp") == 0)
            continue;
        CPU_ZERO(&set);
        CPU_SET(roster->cores[at] - 1, &set);
        if (sched_setaffinity(0, sizeof set, &set) == 0)
            return;
    }
}

void rb_feed_return_home(const struct rb_feed *feed)
{
    sched_setaffinity(0, sizeof feed->home, &feed->home);
}

/* Until the entry of the flip is out and acknowledged. */
static int feed_all(struct rb_feed *feed, int64_t level, struct rb_why *why)
{
    bool left = true;
    int err = 0;

    for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++)
        err = rb_feed_tell_start(feed, &feed->takers[i], level, why);
    for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++)
        err = rb_feed_hear_of_shelf(feed, &feed->takers[i], why);
    while (!err && feed->flip == INT64_MAX) {
        struct entry *entry = rb_feed_take(feed);

        if (entry) {
            if (entry->flags & RB_WIRE_FLIP) {
                feed->flip = entry->level;
                rb_feed_return_home(feed);
            }
            for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++)
                err = rb_feed_tell_entry(feed, &feed->takers[i], entry, why);
            rb_feed_done_with(feed, entry);
            left = true; /* a block that this member lacked may be here now */
        } else {
            err = left ? rb_feed_tell_some(feed, &left, why)
                       : rb_feed_listen(feed, RB_FEED_LOOK_MS, why);
            if (!err)
                err = rb_feed_check_patience(feed, why);
        }
    }
    return err ? err : wait_for_answers(feed, why);
}

void rb_feed_end(struct rb_feed *feed, int err, struct rb_why *why)
{
    struct entry *entry;
    bool flipped = atomic_load(&feed->phase) == FLIPPING, closing;

    pthread_mutex_lock(&feed->window->lock);
    if (feed->window->feed == feed)
        feed->window->feed = NULL;
    while ((entry = feed->first) != NULL) {
        feed->first = entry->next;
        rb_feed_free_entry(feed, entry);
    }
    rb_feed_free_spares(feed);
    if (!feed->halted)
        feed->why = *why;
    *why = feed->why;
    feed->err = err;
    closing = feed->closing;
    free(RB_TAKE(feed->staging));
    atomic_store(&feed->phase, err ? FAILED : DONE);
    pthread_cond_broadcast(&feed->ended);
    pthread_mutex_unlock(&feed->window->lock);
    if (err && !closing && !flipped) {
        rb_log(RB_LOG_WARN, "configuration %u: newcomers are not fed any more: %s", feed->number,
               why->text);
        rb_tell_unready(feed->reports, feed->number, why->text);
    }
    /* Only a caller that closes the feed at once waits for these. */
    rb_feed_close_parcels(feed);
    if (feed->most * rb_model_sums_bytes(feed->model) >= MUCH)
        malloc_trim(0); /* the heap would keep what many steps took */
}

void *rb_feed_run(void *context)
{
    struct rb_feed *feed = context;
    struct rb_why why = {0};
    int64_t level;
    int err;

    memcpy(&level, feed->counters, sizeof level); /* the first of the counters */
    err = feed_all(feed, level, &why);
    rb_feed_end(feed, err, &why);
    return NULL;
}
