/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/follow_inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/join/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t index_of(const struct follow *follow, const struct source *source)
{
    return (uint32_t)(source - follow->sources);
}

size_t rb_follow_next(const struct follow *follow, uint32_t source, size_t from)
{
    while ((from = rb_roster_next(follow->roster, source, follow->index, from)) <
               follow->roster->blocks &&
           !rb_placement_holds(follow->placement, follow->rank, from))
        from++;
    return from;
}

/* ---- Answers --------------------------------------------------------------------------------*/

static int answer_one(struct follow *follow, struct source *source, int64_t answer,
                      struct rb_why *why)
{
    return rb_coll_send(follow->coll, rb_wire_answer_tag(source->answers++), (int)source->rank,
                        &answer, sizeof answer, why);
}

static int answer(struct follow *follow, int64_t level, struct rb_why *why)
{
    int err = 0;

    for (uint32_t s = 0; !err && s < follow->roster->n_sources; s++)
        err = answer_one(follow, &follow->sources[s], level, why);
    follow->answered_at = rb_clock_ns();
    return err;
}

int rb_follow_answer_if_due(struct follow *follow, struct rb_why *why)
{
    int64_t level = rb_stream_level(follow->streams, follow->roster->n_sources);

    if (level > follow->answered) {
        follow->answered = level;
        return answer(follow, level, why);
    }
    if (rb_clock_ns() - follow->answered_at < (uint64_t)RB_FOLLOW_ALIVE_MS * 1000000)
        return 0;
    return answer(follow, RB_WIRE_ALIVE, why);
}

/* ---- What comes -----------------------------------------------------------------------------*/

static int nonsense(const struct source *source, const struct rb_wire *header, struct rb_why *why)
{
    return rb_why_set(why, RB_EINTERNAL,
                      "rank %u sent kind %u, index %" PRIu64 ", level %" PRId64 " out of turn",
                      source->rank, header->kind, header->index, header->level);
}

static int receive(struct follow *follow, const struct source *source, uint64_t tag, void *bytes,
                   size_t size, struct rb_why *why)
{
    int err = rb_coll_receive(follow->coll, tag, (int)source->rank, bytes, size, why);

    follow->received += size;
    return err ? err : rb_follow_answer_if_due(follow, why);
}

/* The payload of a header, which must have `size` bytes, into follow->bytes. */
static int receive_payload(struct follow *follow, const struct source *source,
                           const struct rb_wire *header, size_t size, struct rb_why *why)
{
    int err;

    if (header->bytes != size)
        return nonsense(source, header, why);
    if (size > follow->room) {
        free(follow->bytes);
        follow->bytes = rb_alloc(size);
        follow->room = size;
    }
    err = receive(follow, source, rb_wire_payload_tag(header), follow->bytes, size, why);
    if (!err && rb_hash64(follow->bytes, size) != header->hash)
        err =
            rb_why_set(why, RB_EIO, "kind %u, index %" PRIu64 " from rank %u came with other bits",
                       header->kind, header->index, source->rank);
    return err;
}

/* Take the next parcel of a source, which by the source's word has number `n`, to memory of the
 * device. */
static int take_parcel(struct follow *follow, struct source *source, uint64_t n,
                       const struct iovec *pieces, int n_pieces, struct rb_why *why)
{
    int err;

    if (n != source->parcels.n)
        return rb_why_set(why, RB_EINTERNAL, "rank %u spoke of parcel %" PRIu64 " for %" PRIu64,
                          source->rank, n, source->parcels.n);
    rb_parcels_take(&source->parcels, pieces, n_pieces);
    for (int i = 0; i < n_pieces; i++)
        follow->parcelled += pieces[i].iov_len;
    err = rb_device_check(follow->model->device, why);
    if (!err)
        err = answer_one(follow, source, RB_WIRE_TAKEN, why);
    return err ? err : rb_follow_answer_if_due(follow, why);
}

/* Sums or weights, to memory of the device, by the link or as a parcel. */
static int receive_memory(struct follow *follow, struct source *source, uint64_t tag, void *memory,
                          size_t size, struct rb_why *why)
{
    struct iovec piece = {memory, size};
    uint64_t n;
    int err;

    if (!source->parcels.shelf) {
        err = receive(follow, source, tag, memory, size, why);
        if (!err)
            rb_device_push(follow->model->device, memory, size);
        return err;
    }
    err = rb_coll_receive(follow->coll, tag, (int)source->rank, &n, sizeof n, why);
    return err ? err : take_parcel(follow, source, n, &piece, 1, why);
}

/* Can this device take from the other by itself? */
static int take_shelf(struct follow *follow, struct source *source, const struct rb_wire *header,
                      struct rb_why *why)
{
    struct rb_why reason = {0};
    int failed, err;

    if (source->parcels.shelf ||
        source->next != rb_follow_next(follow, index_of(follow, source), 0))
        return nonsense(source, header, why);
    err = receive_payload(follow, source, header, RB_SHELF_ADDRESS, why);
    if (err)
        return err;
    failed = rb_parcels_find(follow->model->device, rb_wire_largest_bytes(follow->model),
                             RB_WIRE_PARCELS, follow->bytes, &source->parcels, &reason);
    if (failed)
        rb_log(RB_LOG_INFO, "the state comes from rank %u through the hosts: %s", source->rank,
               reason.text);
    return answer_one(follow, source, failed ? RB_WIRE_NOT_FOUND : RB_WIRE_FOUND, why);
}

static int take_start(struct follow *follow, struct source *source, struct rb_stream *stream,
                      const struct rb_wire *header, struct rb_why *why)
{
    size_t size = rb_state_counters_size(&follow->model->state);
    int err;

    if (stream->level >= 0 || header->level < 0)
        return nonsense(source, header, why);
    err = receive_payload(follow, source, header, size, why);
    if (err)
        return err;
    memcpy(source->counters, follow->bytes, size);
    stream->level = header->level;
    return 0;
}

static int take_block(struct follow *follow, struct source *source, struct rb_stream *stream,
                      const struct rb_wire *header, struct rb_why *why)
{
    struct rb_model *model = follow->model;
    struct iovec pieces[RB_STATE_PARTS];
    const Rb__Block *block;
    int err;

    if (stream->level < 0 || header->level != stream->level || header->index != source->next ||
        source->next >= model->message->n_blocks)
        return nonsense(source, header, why);
    block = model->message->blocks[header->index];
    if (source->parcels.shelf) {
        int n = rb_wire_block_pieces(&model->state, block, pieces);

        err = take_parcel(follow, source, header->hash, pieces, n, why);
    } else {
        err =
            receive_payload(follow, source, header, rb_wire_block_bytes(&model->state, block), why);
        if (!err)
            rb_wire_block_unpack(&model->state, block, follow->bytes);
    }
    if (err)
        return err;
    source->next = rb_follow_next(follow, index_of(follow, source), source->next + 1);
    stream->missing--;
    return 0;
}

static int take_fixed(struct follow *follow, struct source *source, struct rb_stream *stream,
                      const struct rb_wire *header, struct rb_why *why)
{
    struct rb_state *state = &follow->model->state;
    size_t left = state->fixed_bytes - source->fixed;
    int err;

    if (!left || header->index != source->fixed)
        return nonsense(source, header, why);
    err = receive_payload(follow, source, header, left < RB_WIRE_PIECE ? left : RB_WIRE_PIECE, why);
    if (err)
        return err;
    memcpy(state->fixed + source->fixed, follow->bytes, (size_t)header->bytes);
    rb_device_push(state->device, state->fixed + source->fixed, (size_t)header->bytes);
    source->fixed += (size_t)header->bytes;
    stream->missing--;
    return 0;
}

/* Receive the sums of each block that has come, and update the block by them. */
static int apply(struct follow *follow, struct source *source, const struct rb_wire *header,
                 const struct rb_update_terms *terms, struct rb_why *why)
{
    struct rb_model *model = follow->model;
    uint32_t s = index_of(follow, source);
    int err = 0;

    for (size_t b = rb_follow_next(follow, s, 0); !err && b < source->next;
         b = rb_follow_next(follow, s, b + 1)) {
        const Rb__Block *block = model->message->blocks[b];

        err = receive_memory(follow, source, rb_wire_sums_tag(header->level, b),
                             model->reduced + block->first,
                             (size_t)block->count * sizeof *model->reduced, why);
        if (!err)
            rb_update_block(model, &model->state, model->reduced + block->first, terms, block);
    }
    return err;
}

/* The weights of all blocks that are not held here. */
static int take_weights(struct follow *follow, struct source *source, int64_t level,
                        struct rb_why *why)
{
    const struct rb_roster *roster = follow->roster;
    struct rb_model *model = follow->model;
    int err = 0;

    for (size_t b = 0; !err && b < roster->blocks; b++) {
        const Rb__Block *block = model->message->blocks[b];

        if (roster->givers[follow->index * roster->blocks + b] == index_of(follow, source) &&
            !rb_placement_holds(follow->placement, follow->rank, b))
            err = receive_memory(follow, source, rb_wire_weights_tag(level, b),
                                 model->state.w + block->first,
                                 (size_t)block->count * sizeof *model->state.w, why);
    }
    return err;
}

static int take_entry(struct follow *follow, struct source *source, struct rb_stream *stream,
                      const struct rb_wire *header, struct rb_why *why)
{
    struct rb_update_terms terms;
    int err;

    if (stream->level < 0 || header->level != stream->level + 1)
        return nonsense(source, header, why);
    err = receive_payload(follow, source, header, rb_wire_entry_bytes(follow->model), why);
    if (err)
        return err;
    rb_wire_entry_unpack(follow->model, follow->bytes, &terms, source->counters);
    if (header->flags & RB_WIRE_COMMIT)
        err = apply(follow, source, header, &terms, why);
    if (!err && (header->flags & RB_WIRE_FLIP))
        err = take_weights(follow, source, header->level, why);
    if (err)
        return err;
    stream->level++;
    if (header->flags & RB_WIRE_FLIP) {
        source->flipped = true;
        follow->from[source->rank] = false;
    }
    return 0;
}

int rb_follow_take(struct follow *follow, uint32_t rank, struct rb_why *why)
{
    uint32_t s = (uint32_t)rb_roster_source(follow->roster, rank);
    struct source *source = &follow->sources[s];
    struct rb_stream *stream = &follow->streams[s];
    struct rb_wire header;
    int err = rb_coll_receive(follow->coll, rb_wire_header_tag(source->headers++), (int)rank,
                              &header, sizeof header, why);

    if (err)
        return err;
    rb_fault("worker.follow");
    switch (header.kind) {
    case RB_WIRE_START:
        return take_start(follow, source, stream, &header, why);
    case RB_WIRE_BLOCK:
        return take_block(follow, source, stream, &header, why);
    case RB_WIRE_FIXED:
        return take_fixed(follow, source, stream, &header, why);
    case RB_WIRE_ENTRY:
        return take_entry(follow, source, stream, &header, why);
    case RB_WIRE_SHELF:
        return take_shelf(follow, source, &header, why);
    default:
        return nonsense(source, &header, why);
    }
}
