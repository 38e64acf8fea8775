/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/feed_inside.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Bytes of sums, in the blocks that are held. */
static size_t held_bytes(const struct rb_model *model)
{
    size_t bytes = 0;

    for (size_t b = 0; b < model->message->n_blocks; b++)
        if (rb_held_follows(model->state.held[b]))
            bytes += (size_t)model->message->blocks[b]->count * sizeof(int32_t);
    return bytes;
}

void rb_feed_free_entry(struct rb_feed *feed, struct entry *entry)
{
    if (entry->sums)
        rb_device_free(feed->model->device, entry->sums);
    free(entry->body);
    free(entry);
}

void rb_feed_nudge(struct rb_feed *feed)
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
    rb_feed_nudge(feed);
}

/* Would one more entry be too many? */
static bool is_full(const struct rb_feed *feed)
{
    return feed->queued >= RB_FEED_QUEUE &&
           feed->queued * held_bytes(feed->model) >= (size_t)RB_FEED_BYTES;
}

const char *rb_feed_hopeless(const struct rb_feed *feed)
{
    uint64_t now = rb_clock_ns();

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
    int32_t *fresh = feed->n_spares ? feed->spares[--feed->n_spares] : rb_model_sums(model);

    if (!fresh)
        return false;
    entry->sums = model->reduced;
    model->reduced = fresh;
    feed->queued++;
    if (feed->queued > feed->most)
        feed->most = feed->queued;
    return true;
}

void rb_feed_log(struct rb_window *window, struct rb_model *model,
                 const struct rb_update_terms *terms, const struct rb_vote_decision *decision)
{
    struct rb_feed *feed = window->feed;
    const char *reason;
    struct entry *entry;

    if (!feed)
        return;
    reason = is_full(feed) ? "newcomers do not keep up with the training" : rb_feed_hopeless(feed);
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
    rb_feed_nudge(feed);
}

/* Has nothing moved for a while? */
static bool is_stuck(const struct rb_feed *feed, uint64_t now)
{
    uint64_t moved = atomic_load(&feed->moved);

    return now > moved && now - moved > (uint64_t)RB_FEED_STUCK_MS * 1000000;
}

/* Once training waits, it waits until all newcomers are level, so that the step may be the one that
 * flips. */
static bool must_wait(struct rb_feed *feed, int64_t level)
{
    const uint64_t most = (uint64_t)RB_FEED_EASE_MS * 1000000;
    uint64_t now = rb_clock_ns();

    if (!feed->eases_from) {
        if (!is_full(feed))
            return false;
        feed->eases_from = now;
    }
    if (feed->eased + (now - feed->eases_from) < most && !is_stuck(feed, now) &&
        !rb_feed_level(feed, level))
        return true;
    feed->eased += now - feed->eases_from;
    feed->eases_from = 0;
    return false;
}

void rb_feed_ease(struct rb_window *window, int64_t level, const atomic_bool *stop)
{
    const struct timespec nap = {.tv_nsec = 200000};
    bool waits;

    do {
        pthread_mutex_lock(&window->lock);
        waits = window->feed && must_wait(window->feed, level);
        pthread_mutex_unlock(&window->lock);
        if (waits)
            nanosleep(&nap, NULL);
    } while (waits && !atomic_load(stop));
}

struct entry *rb_feed_take(struct rb_feed *feed)
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

/* The entry's buffer serves the next step. */
void rb_feed_done_with(struct rb_feed *feed, struct entry *entry)
{
    pthread_mutex_lock(&feed->window->lock);
    if (entry->sums && feed->n_spares < SPARES)
        feed->spares[feed->n_spares++] = RB_TAKE(entry->sums);
    pthread_mutex_unlock(&feed->window->lock);
    rb_feed_free_entry(feed, entry);
}
