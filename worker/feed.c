/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/feed.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/tell.h"
#include "worker/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SPARES = 2, LOOK_MS = 1000 };

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
    size_t first, next; /* blocks: those from `first` up to `next` are given (worker/roster.h) */
    size_t fixed;       /* bytes given, of those that are ours to give */
    uint64_t headers, answers;
    _Atomic int64_t level;  /* that it has acknowledged, -1: none */
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
    struct rb_reports *reports;
    pthread_t thread;
    int news; /* an eventfd: the queue is not empty, or look around */
    struct taker *takers;
    bool *from; /* by rank: newcomers that have something to say still */
    uint8_t *staging, *counters;
    int64_t flip; /* level of the last entry, once that is being sent; INT64_MAX before */

    atomic_int phase;
    /* the window's lock guards what is below */
    pthread_cond_t ended;
    struct entry *first, *last;
    unsigned queued; /* entries with sums */
    int32_t *spares[SPARES];
    unsigned n_spares;
    bool halted, closing;
    int err;
    struct rb_why why;
};

/* ---- The log --------------------------------------------------------------------------------*/

static size_t sums_bytes(const struct rb_model *model)
{
    return (size_t)model->message->state_elements * sizeof(int32_t);
}

static void free_entry(struct rb_feed *feed, struct entry *entry)
{
    if (entry->sums)
        rb_device_free(feed->model->device, entry->sums);
    free(entry->body);
    free(entry);
}

static void nudge(struct rb_feed *feed)
{
    uint64_t one = 1;

    (void)!write(feed->news, &one, sizeof one);
}

void rb_feed_halt(struct rb_feed *feed, const char *reason)
{
    feed->window->feed = NULL;
    feed->halted = true;
    rb_why_set(&feed->why, RB_ECANCELED, "%s", reason);
    rb_coll_cancel(feed->coll);
    nudge(feed);
}

/* Would one more entry be too many, or has a newcomer fallen silent? */
static const char *is_hopeless(const struct rb_feed *feed)
{
    uint64_t now = rb_clock_ns();

    if (feed->queued >= RB_FEED_QUEUE &&
        feed->queued * sums_bytes(feed->model) >= (size_t)RB_FEED_BYTES)
        return "newcomers do not keep up with the training";
    for (uint32_t i = 0; i < feed->roster->n_newcomers; i++) {
        uint64_t heard = atomic_load(&feed->takers[i].heard);

        if (now > heard && now - heard > (uint64_t)RB_FEED_SILENCE_MS * 1000000)
            return "a newcomer has said nothing for too long";
    }
    return NULL;
}

/* The sums that were just applied go into the log; the next step gets another buffer for its own.
 */
static bool swap_sums(struct rb_feed *feed, struct rb_model *model, struct entry *entry)
{
    int32_t *fresh = feed->n_spares ? feed->spares[--feed->n_spares]
                                    : rb_device_alloc(model->device, sums_bytes(model));

    if (!fresh)
        return false;
    entry->sums = model->reduced;
    model->reduced = fresh;
    feed->queued++;
    return true;
}

void rb_feed_log(struct rb_window *window, struct rb_model *model,
                 const struct rb_update_terms *terms, const struct rb_vote_decision *decision)
{
    struct rb_feed *feed = window->feed;
    const char *reason = feed ? is_hopeless(feed) : NULL;
    struct entry *entry;

    if (!feed)
        return;
    if (reason) {
        rb_feed_halt(feed, reason);
        return;
    }
    entry = rb_alloc(sizeof *entry);
    entry->level = model->state.level;
    if (terms && !swap_sums(feed, model, entry)) {
        free(entry);
        rb_feed_halt(feed, "no memory for the sums of a step");
        return;
    }
    entry->body = rb_alloc(rb_wire_entry_bytes(model));
    rb_wire_entry_pack(model, terms, entry->body);
    entry->flags = terms ? RB_WIRE_COMMIT : 0;
    if (decision->flip && decision->number == feed->number) {
        entry->flags |= RB_WIRE_FLIP;
        atomic_store(&feed->phase, FLIPPING);
        window->feed = NULL;
    }
    if (feed->last)
        feed->last->next = entry;
    else
        feed->first = entry;
    feed->last = entry;
    nudge(feed);
}

/* ---- The thread -----------------------------------------------------------------------------*/

static int hear(struct rb_feed *feed, uint32_t rank, struct rb_why *why)
{
    struct taker *taker = &feed->takers[rb_roster_newcomer(feed->roster, rank)];
    int64_t level;
    int err = rb_coll_receive(feed->coll, rb_wire_answer_tag(taker->answers++), (int)rank, &level,
                              sizeof level, why);

    if (err)
        return err;
    atomic_store(&taker->heard, rb_clock_ns());
    if (level >= 0)
        atomic_store(&taker->level, level);
    feed->from[rank] = level < feed->flip; /* what comes then belongs to the next step */
    return 0;
}

/* All that newcomers have said by now; waits for a word, or for news, at most `ms`. */
static int listen_to(struct rb_feed *feed, int ms, struct rb_why *why)
{
    int rank = -1, err;

    do {
        err = rb_coll_wait(feed->coll, feed->from, feed->news, ms, &rank, why);
        if (!err && rank >= 0)
            err = hear(feed, (uint32_t)rank, why);
        ms = 0;
    } while (!err && rank >= 0);
    return err;
}

static int send_payload(struct rb_feed *feed, const struct taker *taker, uint64_t tag,
                        const void *bytes, size_t size, struct rb_why *why)
{
    int err = rb_coll_send(feed->coll, tag, (int)taker->rank, bytes, size, why);

    return err ? err : listen_to(feed, 0, why);
}

static int tell(struct rb_feed *feed, struct taker *taker, const struct rb_wire *header,
                const void *bytes, struct rb_why *why)
{
    int err = rb_coll_send(feed->coll, rb_wire_header_tag(taker->headers++), (int)taker->rank,
                           header, sizeof *header, why);

    rb_fault("worker.feed");
    return err ? err
               : send_payload(feed, taker, rb_wire_payload_tag(header), bytes,
                              (size_t)header->bytes, why);
}

static int tell_start(struct rb_feed *feed, struct taker *taker, int64_t level, struct rb_why *why)
{
    struct rb_wire header = {
        .kind = RB_WIRE_START,
        .level = level,
        .bytes = rb_state_counters_size(&feed->model->state),
    };

    header.hash = rb_hash64(feed->counters, (size_t)header.bytes);
    return tell(feed, taker, &header, feed->counters, why);
}

/* An entry, with the sums of all blocks that were given. */
static int tell_entry(struct rb_feed *feed, struct taker *taker, const struct entry *entry,
                      struct rb_why *why)
{
    const Rb__Model *message = feed->model->message;
    struct rb_wire header = {
        .kind = RB_WIRE_ENTRY,
        .flags = entry->flags,
        .level = entry->level,
        .bytes = rb_wire_entry_bytes(feed->model),
    };
    int err;

    header.hash = rb_hash64(entry->body, (size_t)header.bytes);
    err = tell(feed, taker, &header, entry->body, why);
    if (!entry->sums)
        return err;
    for (size_t b = taker->first; !err && b < taker->next; b += feed->roster->n_sources)
        err = send_payload(feed, taker, rb_wire_sums_tag(entry->level, b),
                           entry->sums + message->blocks[b]->first,
                           (size_t)message->blocks[b]->count * sizeof *entry->sums, why);
    return err;
}

/* Copy a block.  False: an entry is to be sent first, or the feed is given up. */
static bool copy_block(struct rb_feed *feed, size_t block, int64_t *ret_level)
{
    const struct rb_state *state = &feed->model->state;
    bool clear;

    pthread_mutex_lock(&feed->window->lock);
    clear = !feed->first && !feed->halted;
    if (clear) {
        rb_wire_block_pack(state, feed->model->message->blocks[block], feed->staging);
        *ret_level = state->level;
    }
    pthread_mutex_unlock(&feed->window->lock);
    return clear;
}

static int tell_block(struct rb_feed *feed, struct taker *taker, struct rb_why *why)
{
    const Rb__Block *block = feed->model->message->blocks[taker->next];
    struct rb_wire header = {
        .kind = RB_WIRE_BLOCK,
        .index = taker->next,
        .bytes = rb_wire_block_bytes(&feed->model->state, block),
    };

    if (!copy_block(feed, taker->next, &header.level))
        return 0;
    header.hash = rb_hash64(feed->staging, (size_t)header.bytes);
    taker->next += feed->roster->n_sources;
    return tell(feed, taker, &header, feed->staging, why);
}

static int tell_fixed(struct rb_feed *feed, struct taker *taker, struct rb_why *why)
{
    const struct rb_state *state = &feed->model->state;
    size_t left = state->fixed_bytes - taker->fixed;
    struct rb_wire header = {
        .kind = RB_WIRE_FIXED,
        .index = taker->fixed,
        .bytes = left < RB_WIRE_PIECE ? left : RB_WIRE_PIECE,
    };

    header.hash = rb_hash64(state->fixed + taker->fixed, (size_t)header.bytes);
    taker->fixed += header.bytes;
    return tell(feed, taker, &header, state->fixed + header.index, why);
}

/* One piece to each newcomer that lacks some.  *ret_left: there may be more. */
static int tell_some(struct rb_feed *feed, bool *ret_left, struct rb_why *why)
{
    int err = 0;

    *ret_left = false;
    for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        if (taker->fixed < feed->model->state.fixed_bytes)
            err = tell_fixed(feed, taker, why);
        else if (taker->next < feed->model->message->n_blocks)
            err = tell_block(feed, taker, why);
        else
            continue;
        *ret_left = true;
    }
    return err;
}

static struct entry *take_entry(struct rb_feed *feed)
{
    uint64_t count;
    struct entry *entry;

    (void)!read(feed->news, &count, sizeof count);
    pthread_mutex_lock(&feed->window->lock);
    entry = feed->halted ? NULL : feed->first;
    if (entry) {
        feed->first = entry->next;
        if (!feed->first)
            feed->last = NULL;
        feed->queued -= entry->sums != NULL;
    }
    pthread_mutex_unlock(&feed->window->lock);
    return entry;
}

/* Its buffer serves the next step. */
static void done_with(struct rb_feed *feed, struct entry *entry)
{
    pthread_mutex_lock(&feed->window->lock);
    if (entry->sums && feed->n_spares < SPARES)
        feed->spares[feed->n_spares++] = RB_TAKE(entry->sums);
    pthread_mutex_unlock(&feed->window->lock);
    free_entry(feed, entry);
}

static int check_patience(struct rb_feed *feed, struct rb_why *why)
{
    const char *reason = NULL;
    int err = 0;

    pthread_mutex_lock(&feed->window->lock);
    if (!feed->halted && atomic_load(&feed->phase) == FEEDING)
        reason = is_hopeless(feed);
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

/* After the last entry.  Then the links are the steps'. */
static int wait_for_answers(struct rb_feed *feed, struct rb_why *why)
{
    int rank = -1, err = 0;

    while (!err && !all_answered(feed)) {
        err = rb_coll_wait(feed->coll, feed->from, -1, LOOK_MS, &rank, why);
        if (!err && rank >= 0)
            err = hear(feed, (uint32_t)rank, why);
    }
    return err;
}

/* Until the entry of the flip is out and acknowledged. */
static int feed_all(struct rb_feed *feed, int64_t level, struct rb_why *why)
{
    bool left = true;
    int err = 0;

    for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++)
        err = tell_start(feed, &feed->takers[i], level, why);
    while (!err && feed->flip == INT64_MAX) {
        struct entry *entry = take_entry(feed);

        if (entry) {
            if (entry->flags & RB_WIRE_FLIP)
                feed->flip = entry->level;
            for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++)
                err = tell_entry(feed, &feed->takers[i], entry, why);
            done_with(feed, entry);
        } else {
            err = left ? tell_some(feed, &left, why) : listen_to(feed, LOOK_MS, why);
            if (!err)
                err = check_patience(feed, why);
        }
    }
    return err ? err : wait_for_answers(feed, why);
}

/* All memory goes; what is left says how it went. */
static void end(struct rb_feed *feed, int err, struct rb_why *why)
{
    struct entry *entry;
    bool flipped = atomic_load(&feed->phase) == FLIPPING, closing;

    pthread_mutex_lock(&feed->window->lock);
    if (feed->window->feed == feed)
        feed->window->feed = NULL;
    while ((entry = feed->first) != NULL) {
        feed->first = entry->next;
        free_entry(feed, entry);
    }
    while (feed->n_spares)
        rb_device_free(feed->model->device, feed->spares[--feed->n_spares]);
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
}

static void *run(void *context)
{
    struct rb_feed *feed = context;
    int32_t *spare = rb_device_alloc(feed->model->device, sums_bytes(feed->model));
    struct rb_why why = {0};
    int64_t level;
    int err;

    memcpy(&level, feed->counters, sizeof level); /* the first of the counters */
    pthread_mutex_lock(&feed->window->lock);
    if (spare)
        feed->spares[feed->n_spares++] = spare;
    pthread_mutex_unlock(&feed->window->lock);
    err = feed_all(feed, level, &why);
    end(feed, err, &why);
    return NULL;
}

/* ---- Ends -----------------------------------------------------------------------------------*/

static void free_feed(struct rb_feed *feed)
{
    if (feed->news >= 0)
        close(feed->news);
    pthread_cond_destroy(&feed->ended);
    free(feed->staging);
    free(feed->counters);
    free(feed->takers);
    free(feed->from);
    free(feed);
}

static size_t largest_block(const struct rb_model *model)
{
    size_t largest = 1;

    for (size_t b = 0; b < model->message->n_blocks; b++) {
        size_t bytes = rb_wire_block_bytes(&model->state, model->message->blocks[b]);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static void get_takers(struct rb_feed *feed, uint32_t rank)
{
    const struct rb_roster *roster = feed->roster;
    uint32_t source = (uint32_t)rb_roster_source(roster, rank);

    feed->takers = rb_alloc(roster->n_newcomers * sizeof *feed->takers);
    feed->from = rb_alloc((size_t)rb_coll_size(feed->coll) * sizeof *feed->from);
    for (uint32_t i = 0; i < roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        taker->rank = roster->newcomers[i];
        taker->first = taker->next = rb_roster_first(roster, source, i);
        if (rb_roster_giver(roster, 0, i) != source)
            taker->fixed = feed->model->state.fixed_bytes;
        atomic_init(&taker->level, -1);
        atomic_init(&taker->heard, rb_clock_ns());
        feed->from[taker->rank] = true;
    }
}

/* From this moment on every update is told. */
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

int rb_feed_open(struct rb_model *model, struct rb_coll *coll, uint32_t number, uint32_t rank,
                 const struct rb_roster *roster, uint32_t term, struct rb_reports *reports,
                 struct rb_feed **ret_feed, struct rb_why *why)
{
    struct rb_feed *feed = rb_alloc(sizeof *feed);
    int err = 0, failed;

    *feed = (struct rb_feed){
        .model = model,
        .window = model->state.window,
        .coll = coll,
        .number = number,
        .roster = roster,
        .reports = reports,
        .flip = INT64_MAX,
        .news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .staging = rb_alloc(largest_block(model)),
        .counters = rb_alloc(rb_state_counters_size(&model->state)),
    };
    pthread_cond_init(&feed->ended, NULL);
    get_takers(feed, rank);
    if (feed->news < 0)
        err = rb_why_set(why, RB_EIO, "cannot make an eventfd: %s", strerror(errno));
    if (!err)
        err = enter_window(feed, term, why);
    if (err) {
        free_feed(feed);
        return err;
    }
    failed = pthread_create(&feed->thread, NULL, run, feed);
    if (failed) {
        feed->closing = true; /* the caller says why */
        end(feed, RB_EINTERNAL, why);
        free_feed(feed);
        return rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(failed));
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
        nudge(feed);
    }
    pthread_mutex_unlock(&feed->window->lock);
    pthread_join(feed->thread, NULL);
    free_feed(feed);
}
