/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/opening.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/restore.h"
#include "worker/step.h"

#include <stdlib.h>
#include <string.h>

/* Fixed bytes travel in pieces, like blocks. */
enum { PIECE = 1 << 20 };

enum part { PART_LEVELS, PART_RESTORED, PART_HASHES, PART_COUNTERS, PART_FIXED, PART_BLOCKS };

int rb_opening_source(const int64_t *levels, uint32_t ranks)
{
    int source = 0;

    for (uint32_t r = 1; r < ranks; r++)
        if (levels[r] > levels[source])
            source = (int)r;
    return levels[source] < 0 ? -1 : source;
}

static int gather_levels(const struct rb_model *model, const struct rb_configuration *configuration,
                         enum part part, int64_t *levels, struct rb_why *why)
{
    return rb_coll_gather(configuration->coll,
                          rb_tag(RB_TAG_OPENING, configuration->number, 0, part),
                          &model->state.level, levels, sizeof *levels, why);
}

/* ---- Copying --------------------------------------------------------------------------------*/

struct copy {
    const struct rb_model *model;
    struct rb_coll *coll;
    struct rb_state *state; /* read from, or written to */
    int64_t level;
    int peer;
    bool sends;
    uint64_t bytes;
};

/* One piece, under a tag of its level and place: a reader takes nothing else for it. */
static int move(struct copy *copy, enum part part, uint64_t index, void *bytes, size_t size,
                struct rb_why *why)
{
    uint64_t tag = rb_tag(RB_TAG_COPY, copy->level, (uint32_t)part, index);

    copy->bytes += size;
    rb_fault("worker.opening.copy");
    return copy->sends ? rb_coll_send(copy->coll, tag, copy->peer, bytes, size, why)
                       : rb_coll_receive(copy->coll, tag, copy->peer, bytes, size, why);
}

static int move_counters(struct copy *copy, struct rb_why *why)
{
    size_t size = rb_state_counters_size(copy->state);
    RB_CLEANUP(rb_freep) void *bytes = rb_alloc(size);
    int err;

    if (copy->sends)
        rb_state_counters_pack(copy->state, bytes);
    err = move(copy, PART_COUNTERS, 0, bytes, size, why);
    if (!err && !copy->sends)
        rb_state_counters_unpack(copy->state, bytes);
    return err;
}

static int move_blocks(struct copy *copy, struct rb_why *why)
{
    const Rb__Model *message = copy->model->message;
    int err = 0;

    for (size_t i = 0; i < message->n_blocks; i++)
        for (int part = 0; !err && part < RB_STATE_PARTS; part++) {
            float *flat = rb_state_part(copy->state, part);
            const Rb__Block *block = message->blocks[i];

            if (flat)
                err = move(copy, PART_BLOCKS, i * RB_STATE_PARTS + (size_t)part,
                           flat + block->first, (size_t)block->count * sizeof *flat, why);
        }
    return err;
}

static int move_state(struct copy *copy, struct rb_why *why)
{
    size_t fixed = copy->state->fixed_bytes;
    int err = move_blocks(copy, why);

    for (size_t at = 0; !err && at < fixed; at += PIECE)
        err = move(copy, PART_FIXED, at, copy->state->fixed + at,
                   fixed - at < PIECE ? fixed - at : PIECE, why);
    return err ? err : move_counters(copy, why); /* last: they carry the level */
}

static int give_state(struct rb_model *model, struct copy *copy, const int64_t *levels,
                      uint32_t ranks, struct rb_why *why)
{
    int err = 0;

    copy->sends = true;
    copy->state = &model->state;
    for (uint32_t r = 0; !err && r < ranks; r++) {
        copy->peer = (int)r;
        if (levels[r] < copy->level)
            err = move_state(copy, why);
    }
    return err;
}

static int take_state(struct rb_model *model, struct copy *copy, struct rb_why *why)
{
    struct rb_state fresh = {.level = -1};
    int err;

    if (model->state.level < 0) {
        copy->state = &model->state;
        err = move_state(copy, why);
        if (err)
            model->state.level = -1;
        return err;
    }
    err = rb_state_open(model->message, NULL, &fresh, why);
    copy->state = &fresh;
    if (!err)
        err = move_state(copy, why);
    if (!err)
        rb_state_copy(&model->state, &fresh);
    rb_state_done(&fresh);
    return err;
}

static int align(struct rb_model *model, const struct rb_configuration *configuration,
                 const int64_t *levels, int source, uint64_t *ret_bytes, struct rb_why *why)
{
    struct copy copy = {
        .model = model,
        .coll = configuration->coll,
        .level = levels[source],
        .peer = source,
    };
    int err;

    if (configuration->rank == (uint32_t)source)
        return give_state(model, &copy, levels, configuration->size, why);
    if (levels[configuration->rank] == copy.level)
        return 0;
    err = take_state(model, &copy, why);
    if (!err && model->state.level != copy.level)
        err = rb_why_set(why, RB_EINTERNAL, "state of level %lld came as level %lld",
                         (long long)copy.level, (long long)model->state.level);
    *ret_bytes = copy.bytes;
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------*/

/* Everyone holds the same bits: cheap beside the copy, and the promise of the whole. */
static int compare(const struct rb_model *model, const struct rb_configuration *configuration,
                   struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint64_t *hashes = rb_alloc(configuration->size * sizeof *hashes);
    uint64_t mine = rb_state_hash(&model->state);
    int err = rb_coll_gather(configuration->coll,
                             rb_tag(RB_TAG_OPENING, configuration->number, 0, PART_HASHES), &mine,
                             hashes, sizeof mine, why);

    for (uint32_t r = 1; !err && r < configuration->size; r++)
        if (hashes[r] != hashes[0])
            return rb_why_set(why, RB_EINTERNAL, "ranks 0 and %u hold different bits of level %lld",
                              r, (long long)model->state.level);
    return err;
}

/* Load what the job starts from.  A failure is told to the others as "no state". */
static int restore(struct rb_model *model, const struct rb_configuration *configuration,
                   int64_t *levels, struct rb_why *why)
{
    struct rb_why reason = {0};
    int err = 0, failed = 0;

    if (configuration->restore)
        failed = rb_restore(configuration->restore, model->message, &model->state, &reason);
    err = gather_levels(model, configuration, PART_RESTORED, levels, why);
    if (err)
        return err;
    if (rb_opening_source(levels, configuration->size) >= 0)
        return 0;
    if (failed)
        return rb_why_set(why, failed, "%s", reason.text);
    return rb_why_set(why, RB_ENOTFOUND, "no member has the state or could load it");
}

/* Who was at this level already has what the last vote left, as in any step. */
static bool all_are_level(const int64_t *levels, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++)
        if (levels[r] < 0 || levels[r] != levels[0])
            return false;
    return true;
}

int rb_opening_run(struct rb_model *model, const struct rb_configuration *configuration,
                   uint64_t *ret_bytes, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) int64_t *levels = rb_alloc(configuration->size * sizeof *levels);
    bool level;
    int err;

    rb_fault("worker.opening");
    err = gather_levels(model, configuration, PART_LEVELS, levels, why);
    level = !err && all_are_level(levels, configuration->size);
    *ret_bytes = 0;
    if (!err && rb_opening_source(levels, configuration->size) < 0)
        err = restore(model, configuration, levels, why);
    if (!err)
        err = align(model, configuration, levels, rb_opening_source(levels, configuration->size),
                    ret_bytes, why);
    if (!err && !level)
        err = compare(model, configuration, why);
    rb_fault("worker.opening.hashed");
    return err ? rb_why_add(why, err, "opening configuration %u", configuration->number) : 0;
}
