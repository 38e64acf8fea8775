/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's side of a feed: opening it, what newcomers have by now, waiting, closing. */
#include "worker/join/feed_inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { CATCH_UP_MS = 20, MOST_DOUBLINGS = 5 };

void rb_feed_close_parcels(struct rb_feed *feed)
{
    for (uint32_t i = 0; i < feed->roster->n_newcomers; i++)
        rb_parcels_close(&feed->takers[i].parcels);
}

void rb_feed_free_spares(struct rb_feed *feed)
{
    while (feed->n_spares)
        rb_device_free(feed->model->device, feed->spares[--feed->n_spares]);
}

static void free_feed(struct rb_feed *feed)
{
    rb_feed_close_parcels(feed);
    rb_feed_free_spares(feed);
    if (feed->news >= 0)
        close(feed->news);
    pthread_cond_destroy(&feed->ended);
    free(feed->staging);
    free(feed->counters);
    free(feed->takers);
    free(feed->from);
    free(feed);
}

/* For newcomers of this host; a newcomer that cannot be given parcels is fed by the link. */
static void open_parcels(struct rb_feed *feed, struct taker *taker)
{
    struct rb_why why = {0};

    if (!rb_device_shelves(feed->model->device) ||
        strcmp(rb_coll_link(feed->coll, (int)taker->rank), "tcp") == 0)
        return;
    taker->asked = !rb_parcels_open(feed->model->device, rb_wire_largest_bytes(feed->model),
                                    RB_WIRE_PARCELS, taker->address, &taker->parcels, &why);
    if (!taker->asked)
        rb_log(RB_LOG_INFO, "configuration %u: the state goes to rank %u through the hosts: %s",
               feed->number, taker->rank, why.text);
}

static void get_takers(struct rb_feed *feed, uint32_t rank)
{
    const struct rb_roster *roster = feed->roster;

    feed->source = (uint32_t)rb_roster_source(roster, rank);
    feed->takers = rb_alloc(roster->n_newcomers * sizeof *feed->takers);
    feed->from = rb_alloc((size_t)rb_coll_size(feed->coll) * sizeof *feed->from);
    for (uint32_t i = 0; i < roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        taker->rank = roster->newcomers[i];
        taker->index = i;
        taker->waited_at = -1;
        taker->next = rb_feed_next(feed, taker, 0);
        if (rb_roster_other(roster, i) != feed->source)
            taker->fixed = feed->model->state.fixed_bytes;
        open_parcels(feed, taker);
        atomic_init(&taker->level, -1);
        atomic_init(&taker->heard, rb_clock_ns());
        feed->from[taker->rank] = true;
    }
}

static bool is_term(struct rb_window *window, uint32_t term)
{
    bool is;

    pthread_mutex_lock(&window->lock);
    is = window->term == term;
    pthread_mutex_unlock(&window->lock);
    return is;
}

/* Memory for the sums of steps, in the blocks that are held here: else the steps would wait for its
 * pages, which for 85 MB can take as long as the step itself.  Two buffers, as one step's sums are
 * sent while the next step is taken; made before the first step is told of.  A recovery waits for
 * this thread, so this ends when training is not in `term` any more, as enter_window will say. */
static void reserve(struct rb_feed *feed, uint32_t term)
{
    const struct rb_model *model = feed->model;
    RB_CLEANUP(rb_freep) uint8_t *held = rb_alloc(model->state.blocks + 1);

    pthread_mutex_lock(&feed->window->lock);
    memcpy(held, model->state.held, model->state.blocks);
    pthread_mutex_unlock(&feed->window->lock);
    while (feed->n_spares < SPARES && is_term(feed->window, term)) {
        int32_t *spare = rb_model_sums(model);

        for (size_t b = 0; spare && b < model->state.blocks && is_term(feed->window, term); b++)
            if (rb_held_follows(held[b]))
                memset(spare + model->message->blocks[b]->first, 0,
                       (size_t)model->message->blocks[b]->count * sizeof *spare);
        if (!spare)
            return; /* the step that lacks it ends the feed, and says why */
        feed->spares[feed->n_spares++] = spare;
    }
}

/* From this moment on the feed is told of every update. */
static int enter_window(struct rb_feed *feed, uint32_t term, struct rb_why *why)
{
    struct rb_window *window = feed->window;
    int err = 0;

    pthread_mutex_lock(&window->lock);
    if (window->term != term || window->feed) {
        err = rb_why_set(why, RB_EAGAIN, "training has changed its configuration meanwhile");
    } else {
        rb_state_counters_pack(&feed->model->state, feed->counters);
        window->feed = feed;
    }
    pthread_mutex_unlock(&window->lock);
    return err;
}

/* What the feed needs beside its arguments: memory, a way to wake it, and what it gives to whom. */
static int equip(struct rb_feed *feed, uint32_t rank, struct rb_why *why)
{
    feed->window = feed->model->state.window;
    feed->flip = INT64_MAX;
    feed->staging = rb_alloc(rb_wire_largest_bytes(feed->model));
    feed->counters = rb_alloc(rb_state_counters_size(&feed->model->state));
    pthread_cond_init(&feed->ended, NULL);
    atomic_init(&feed->moved, rb_clock_ns());
    get_takers(feed, rank);
    feed->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return feed->news < 0 ? rb_why_set(why, RB_EIO, "cannot make an eventfd: %s", strerror(errno))
                          : 0;
}

/* The new thread begins on the core of the calling thread. */
static int start(struct rb_feed *feed, struct rb_why *why)
{
    int failed = pthread_create(&feed->thread, NULL, rb_feed_run, feed);

    if (!failed)
        return 0;
    feed->closing = true; /* the caller says why */
    rb_feed_end(feed, RB_EINTERNAL, why);
    return rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(failed));
}

int rb_feed_open(struct rb_model *model, struct rb_coll *coll, uint32_t number, uint32_t rank,
                 const struct rb_roster *roster, const struct rb_placement *placement,
                 uint32_t term, struct rb_reports *reports, struct rb_feed **ret_feed,
                 struct rb_why *why)
{
    struct rb_feed *feed = rb_alloc(sizeof *feed);
    int err;

    *feed = (struct rb_feed){
        .model = model,
        .coll = coll,
        .number = number,
        .roster = roster,
        .placement = placement,
        .reports = reports,
    };
    err = equip(feed, rank, why);
    rb_feed_leave_core(feed);
    if (!err) {
        reserve(feed, term);
        err = enter_window(feed, term, why);
    }
    err = err ? err : start(feed, why);
    rb_feed_return_home(feed);
    if (err) {
        free_feed(feed);
        return err;
    }
    *ret_feed = feed;
    return 0;
}

bool rb_feed_level(struct rb_feed *feed, int64_t level)
{
    if (atomic_load(&feed->phase) != FEEDING)
        return false;
    for (uint32_t i = 0; i < feed->roster->n_newcomers; i++)
        if (atomic_load(&feed->takers[i].level) != level)
            return false;
    return true;
}

bool rb_feed_wait_level(struct rb_feed *feed, int64_t level, const atomic_bool *stop)
{
    const struct timespec nap = {.tv_nsec = 50000};
    unsigned doublings = feed->pauses < MOST_DOUBLINGS ? feed->pauses : MOST_DOUBLINGS;
    uint64_t until = rb_clock_ns() + ((uint64_t)CATCH_UP_MS * 1000000 << doublings);

    for (uint32_t i = 0; i < feed->roster->n_newcomers; i++) {
        int64_t has = atomic_load(&feed->takers[i].level);

        if (has < 0 || has == feed->takers[i].waited_at)
            return false; /* it lacks blocks still, or nothing has come of the last pause */
    }
    while (!rb_feed_level(feed, level)) {
        if (atomic_load(&feed->phase) != FEEDING || atomic_load(stop))
            return false;
        if (rb_clock_ns() >= until) {
            feed->pauses++;
            for (uint32_t i = 0; i < feed->roster->n_newcomers; i++)
                feed->takers[i].waited_at = atomic_load(&feed->takers[i].level);
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

int rb_feed_settle(struct rb_feed *feed, struct rb_why *why)
{
    int err;

    if (atomic_load(&feed->phase) == DONE)
        return 0;
    pthread_mutex_lock(&feed->window->lock);
    while (atomic_load(&feed->phase) != DONE && atomic_load(&feed->phase) != FAILED)
        pthread_cond_wait(&feed->ended, &feed->window->lock);
    err = feed->err ? rb_why_set(why, feed->err, "%s", feed->why.text) : 0;
    pthread_mutex_unlock(&feed->window->lock);
    return err;
}

void rb_feed_close(struct rb_feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->window->lock);
    feed->closing = true;
    if (atomic_load(&feed->phase) != DONE && atomic_load(&feed->phase) != FAILED) {
        if (feed->window->feed == feed)
            feed->window->feed = NULL;
        feed->halted = true;
        rb_coll_cancel(feed->coll);
        rb_feed_nudge(feed);
    }
    pthread_mutex_unlock(&feed->window->lock);
    pthread_join(feed->thread, NULL);
    free_feed(feed);
}
