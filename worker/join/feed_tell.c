/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/feed_inside.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "worker/join/taking.h"

/* ---- What newcomers say ---------------------------------------------------------------------*/

static void note_answer(struct taker *taker, int64_t answer)
{
    switch (answer) {
    case RB_WIRE_TAKEN:
        taker->taken++;
        break;
    case RB_WIRE_NOT_FOUND:
        rb_parcels_close(&taker->parcels);
        taker->asked = false;
        break;
    case RB_WIRE_FOUND:
        taker->asked = false;
        break;
    default:
        if (answer >= 0)
            atomic_store(&taker->level, answer);
    }
}

int rb_feed_hear(struct rb_feed *feed, uint32_t rank, struct rb_why *why)
{
    struct taker *taker = &feed->takers[rb_roster_newcomer(feed->roster, rank)];
    int64_t answer;
    uint64_t now;
    int err = rb_coll_receive(feed->coll, rb_wire_answer_tag(taker->answers++), (int)rank, &answer,
                              sizeof answer, why);

    if (err)
        return err;
    if (answer == RB_WIRE_TAKEN && taker->taken == taker->parcels.n)
        return rb_why_set(why, RB_EINTERNAL, "rank %u took more parcels than there were", rank);
    if (answer == RB_WIRE_NOT_FOUND && !taker->asked)
        return rb_why_set(why, RB_EINTERNAL, "rank %u has lost what it had found", rank);
    now = rb_clock_ns();
    atomic_store(&taker->heard, now);
    atomic_store(&feed->moved, now);
    note_answer(taker, answer);
    feed->from[rank] = answer < feed->flip; /* what comes then belongs to the next step */
    return 0;
}

int rb_feed_listen(struct rb_feed *feed, int ms, struct rb_why *why)
{
    int rank = -1, err;

    do {
        err = rb_coll_wait(feed->coll, feed->from, feed->news, ms, &rank, why);
        if (!err && rank >= 0)
            err = rb_feed_hear(feed, (uint32_t)rank, why);
        ms = 0;
    } while (!err && rank >= 0);
    return err;
}

static int send_payload(struct rb_feed *feed, const struct taker *taker, uint64_t tag,
                        const void *bytes, size_t size, struct rb_why *why)
{
    int err = rb_coll_send(feed->coll, tag, (int)taker->rank, bytes, size, why);

    atomic_store(&feed->moved, rb_clock_ns());
    return err ? err : rb_feed_listen(feed, 0, why);
}

/* ---- Parcels --------------------------------------------------------------------------------*/

static bool is_asked(const struct taker *taker)
{
    return taker->asked;
}

static bool is_full(const struct taker *taker)
{
    return rb_parcels_full(&taker->parcels, taker->taken);
}

/* Nothing else is sent meanwhile: nothing could be done without the answer anyway. */
static int wait_while(struct rb_feed *feed, const struct taker *taker,
                      bool (*is_so)(const struct taker *taker), struct rb_why *why)
{
    int rank = -1, err = 0;

    while (!err && is_so(taker)) {
        err = rb_coll_wait(feed->coll, feed->from, -1, RB_FEED_LOOK_MS, &rank, why);
        if (!err && rank >= 0)
            err = rb_feed_hear(feed, (uint32_t)rank, why);
        if (!err)
            err = rb_feed_check_patience(feed, why);
    }
    return err;
}

static int send_parcel(struct rb_feed *feed, struct taker *taker, uint64_t tag, void *memory,
                       size_t size, struct rb_why *why)
{
    struct iovec piece = {memory, size};
    uint64_t n = taker->parcels.n;
    int err = wait_while(feed, taker, is_full, why);

    if (err)
        return err;
    rb_parcels_put(&taker->parcels, &piece, 1);
    err = rb_device_check(feed->model->device, why);
    return err ? err : send_payload(feed, taker, tag, &n, sizeof n, why);
}

/* ---- What they are told ---------------------------------------------------------------------*/

/* Memory that is up to date on the device's side. */
static int send_memory(struct rb_feed *feed, struct taker *taker, uint64_t tag, void *memory,
                       size_t size, struct rb_why *why)
{
    int err;

    if (taker->parcels.shelf)
        return send_parcel(feed, taker, tag, memory, size, why);
    rb_device_pull(feed->model->device, memory, size);
    err = rb_device_check(feed->model->device, why);
    return err ? err : send_payload(feed, taker, tag, memory, size, why);
}

static int tell_header(struct rb_feed *feed, struct taker *taker, const struct rb_wire *header,
                       struct rb_why *why)
{
    int err = rb_coll_send(feed->coll, rb_wire_header_tag(taker->headers++), (int)taker->rank,
                           header, sizeof *header, why);

    rb_fault("worker.feed");
    return err;
}

static int tell(struct rb_feed *feed, struct taker *taker, const struct rb_wire *header,
                const void *bytes, struct rb_why *why)
{
    int err = tell_header(feed, taker, header, why);

    return err ? err
               : send_payload(feed, taker, rb_wire_payload_tag(header), bytes,
                              (size_t)header->bytes, why);
}

static int tell_shelf(struct rb_feed *feed, struct taker *taker, struct rb_why *why)
{
    struct rb_wire header = {
        .kind = RB_WIRE_SHELF,
        .bytes = sizeof taker->address,
        .hash = rb_hash64(taker->address, sizeof taker->address),
    };

    return tell(feed, taker, &header, taker->address, why);
}

int rb_feed_hear_of_shelf(struct rb_feed *feed, struct taker *taker, struct rb_why *why)
{
    return wait_while(feed, taker, is_asked, why);
}

int rb_feed_tell_start(struct rb_feed *feed, struct taker *taker, int64_t level, struct rb_why *why)
{
    struct rb_wire header = {
        .kind = RB_WIRE_START,
        .level = level,
        .bytes = rb_state_counters_size(&feed->model->state),
    };
    int err;

    header.hash = rb_hash64(feed->counters, (size_t)header.bytes);
    err = tell(feed, taker, &header, feed->counters, why);
    return err || !taker->asked ? err : tell_shelf(feed, taker, why);
}

size_t rb_feed_next(const struct rb_feed *feed, const struct taker *taker, size_t from)
{
    while ((from = rb_roster_next(feed->roster, feed->source, taker->index, from)) <
               feed->roster->blocks &&
           !rb_placement_holds(feed->placement, taker->rank, from))
        from++;
    return from;
}

static int tell_sums(struct rb_feed *feed, struct taker *taker, const struct entry *entry,
                     struct rb_why *why)
{
    int err = 0;

    for (size_t b = rb_feed_next(feed, taker, 0); !err && b < taker->next;
         b = rb_feed_next(feed, taker, b + 1)) {
        const Rb__Block *block = feed->model->message->blocks[b];

        err =
            send_memory(feed, taker, rb_wire_sums_tag(entry->level, b), entry->sums + block->first,
                        (size_t)block->count * sizeof *entry->sums, why);
    }
    return err;
}

/* The weights of all blocks that the newcomer will not hold.  Nothing changes them before the steps
 * have the links. */
static int tell_weights(struct rb_feed *feed, struct taker *taker, int64_t level,
                        struct rb_why *why)
{
    const struct rb_roster *roster = feed->roster;
    int err = 0;

    for (size_t b = 0; !err && b < roster->blocks; b++) {
        const Rb__Block *block = feed->model->message->blocks[b];

        if (roster->givers[taker->index * roster->blocks + b] == feed->source &&
            !rb_placement_holds(feed->placement, taker->rank, b))
            err = send_memory(feed, taker, rb_wire_weights_tag(level, b),
                              feed->model->state.w + block->first,
                              (size_t)block->count * sizeof *feed->model->state.w, why);
    }
    return err;
}

/* An entry, with the sums of all blocks that were given; the last one with weights. */
int rb_feed_tell_entry(struct rb_feed *feed, struct taker *taker, const struct entry *entry,
                       struct rb_why *why)
{
    struct rb_wire header = {
        .kind = RB_WIRE_ENTRY,
        .flags = entry->flags,
        .level = entry->level,
        .bytes = rb_wire_entry_bytes(feed->model),
    };
    int err;

    header.hash = rb_hash64(entry->body, (size_t)header.bytes);
    err = tell(feed, taker, &header, entry->body, why);
    if (!err && entry->sums)
        err = tell_sums(feed, taker, entry, why);
    if (!err && (entry->flags & RB_WIRE_FLIP))
        err = tell_weights(feed, taker, entry->level, why);
    return err;
}

/* To where the block lies until it is sent, or taken. */
static void copy_to(struct rb_feed *feed, struct taker *taker, const Rb__Block *block)
{
    struct iovec pieces[RB_STATE_PARTS];
    const struct rb_state *state = &feed->model->state;

    if (taker->parcels.shelf)
        rb_parcels_put(&taker->parcels, pieces, rb_wire_block_pieces(state, block, pieces));
    else
        rb_wire_block_pack(state, block, feed->staging);
}

/* Copy a block.  False: an entry is to be sent first, this member does not hold the block for this
 * configuration yet, or the feed is given up. */
static bool copy_block(struct rb_feed *feed, struct taker *taker, int64_t *ret_level)
{
    const struct rb_state *state = &feed->model->state;
    bool clear;

    pthread_mutex_lock(&feed->window->lock);
    clear = !feed->first && !feed->halted &&
            rb_taking_gives(state->held[taker->next], feed->window->taken_for, feed->number);
    if (clear) {
        copy_to(feed, taker, feed->model->message->blocks[taker->next]);
        *ret_level = state->level;
    }
    pthread_mutex_unlock(&feed->window->lock);
    return clear;
}

static int tell_block(struct rb_feed *feed, struct taker *taker, bool *ret_told, struct rb_why *why)
{
    const Rb__Block *block = feed->model->message->blocks[taker->next];
    struct rb_wire header = {
        .kind = RB_WIRE_BLOCK,
        .index = taker->next,
        .bytes = rb_wire_block_bytes(&feed->model->state, block),
        .hash = taker->parcels.n,
    };
    int err = wait_while(feed, taker, is_full, why);

    if (err || !copy_block(feed, taker, &header.level))
        return err;
    err = rb_device_check(feed->model->device, why);
    if (err)
        return err;
    *ret_told = true;
    taker->next = rb_feed_next(feed, taker, taker->next + 1);
    if (taker->parcels.shelf) {
        err = tell_header(feed, taker, &header, why);
        return err ? err : rb_feed_listen(feed, 0, why);
    }
    header.hash = rb_hash64(feed->staging, (size_t)header.bytes);
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

int rb_feed_tell_some(struct rb_feed *feed, bool *ret_left, struct rb_why *why)
{
    int err = 0;

    *ret_left = false;
    for (uint32_t i = 0; !err && i < feed->roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        if (taker->fixed < feed->model->state.fixed_bytes) {
            err = tell_fixed(feed, taker, why);
            *ret_left = true;
        } else if (taker->next < feed->roster->blocks) {
            err = tell_block(feed, taker, ret_left, why);
        }
    }
    return err;
}
