/* SPDX-License-Identifier: Apache-2.0 */
/* What moves in an opening. */
#include "worker/join/opening_inside.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/carry.h"
#include "worker/join/wire.h"
#include "worker/stages/lap.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 20, /* fixed bytes travel in pieces, like blocks */
    AT_ONCE = 16,    /* moves */
};

struct moves {
    struct rb_coll_move *at;
    size_t n, room;
};

static void add(struct moves *moves, int from, uint32_t to, void *bytes, size_t size)
{
    if (moves->n == moves->room) {
        moves->room = moves->room ? 2 * moves->room : 64;
        moves->at = rb_realloc(moves->at, moves->room * sizeof *moves->at);
    }
    moves->at[moves->n++] = (struct rb_coll_move){from, (int)to, bytes, size};
}

/* Run all moves, some at a time. */
static int run(struct opening *opening, enum part part, const struct moves *moves,
               struct rb_why *why)
{
    int self = (int)opening->self, err = 0;

    opening->moved |= moves->n != 0;
    for (size_t i = 0; !err && i < moves->n; i += AT_ONCE) {
        size_t n = moves->n - i < AT_ONCE ? moves->n - i : AT_ONCE;
        bool ours = false;

        /* By the links: after a death there is no circle yet, and not all of these bytes are a
         * device's. */
        err = rb_carry(opening->model->device, opening->configuration->coll, NULL,
                       opening_tag(opening, part) + i, moves->at + i, n, why);
        for (size_t k = i; !err && k < i + n; k++) {
            ours |= moves->at[k].from == self || moves->at[k].to == self;
            if (moves->at[k].to == self)
                opening->bytes += moves->at[k].size;
        }
        if (ours)
            rb_fault("worker.opening.copy");
    }
    return err;
}

/* ---- The entry ------------------------------------------------------------------------------*/

/* How it travels: this, then the entry. */
struct told {
    uint64_t commit, row_bytes;
    uint8_t row[RB_MODEL_ROW];
};

static void pack_told(const struct rb_model *model, struct told *told)
{
    told->commit = model->applied.commit;
    told->row_bytes = model->applied.row_bytes;
    memcpy(told->row, model->applied.row, sizeof told->row);
}

static int apply_told(struct rb_model *model, const struct told *told, const void *entry,
                      struct rb_why *why)
{
    int err = rb_update_apply(model, entry, told->commit != 0, why);

    if (!err && told->row_bytes <= sizeof told->row) {
        model->applied.row_bytes = told->row_bytes;
        memcpy(model->applied.row, told->row, sizeof told->row);
    }
    return err;
}

int rb_opening_tell(struct opening *opening, struct rb_why *why)
{
    const struct rb_recovery *recovery = &opening->recovery;
    struct rb_model *model = opening->model;
    size_t size = rb_wire_entry_bytes(model);
    RB_CLEANUP(rb_freep) uint8_t *entry = rb_alloc(size);
    struct told told = {0};
    struct moves moves = {0};
    int err;

    pack_told(model, &told);
    memcpy(entry, model->applied.entry, size);
    for (uint32_t r = 0; r < recovery->ranks; r++)
        if (recovery->fates[r] == RB_FATE_APPLIES && !opening->testimonies[r].lap) {
            add(&moves, recovery->teller, r, &told, sizeof told);
            add(&moves, recovery->teller, r, entry, size);
        }
    for (uint32_t r = 0; r < recovery->ranks; r++) /* what a lap came to was never compared */
        opening->moved |= recovery->fates[r] == RB_FATE_APPLIES && opening->testimonies[r].lap;
    err = run(opening, PART_ENTRY, &moves, why);
    if (!err && recovery->fates[opening->self] == RB_FATE_APPLIES) {
        if (opening->testimonies[opening->self].lap)
            rb_lap_commit(model);
        else
            err = apply_told(model, &told, entry, why);
    }
    free(moves.at);
    return err;
}

/* ---- Blocks, weights, the rest --------------------------------------------------------------*/

static bool lacks_weights(const struct opening *opening, uint32_t rank)
{
    return opening->recovery.fates[rank] != RB_FATE_LEVEL || opening->testimonies[rank].torn;
}

static void add_block(struct opening *opening, struct moves *moves, struct rb_state *into,
                      size_t block, uint32_t rank)
{
    const Rb__Block *range = opening->model->message->blocks[block];
    int from = opening->recovery.givers[block];
    bool shall_hold = rb_placement_holds(&opening->configuration->placement, rank, block);

    if (rb_recovery_has(&opening->recovery, opening->held, rank, block))
        return;
    for (int part = 0; part < RB_STATE_PARTS; part++) {
        float *flat = rb_state_part(rank == opening->self ? into : &opening->model->state, part);

        if (flat && (part == RB_STATE_W ? lacks_weights(opening, rank) : shall_hold))
            add(moves, from, rank, flat + range->first, (size_t)range->count * sizeof *flat);
    }
}

static void add_rest(struct opening *opening, struct moves *moves, struct rb_state *into,
                     uint8_t *counters, uint32_t rank)
{
    struct rb_state *state = rank == opening->self ? into : &opening->model->state;
    int from = opening->recovery.source;

    for (size_t at = 0; at < state->fixed_bytes; at += PIECE)
        add(moves, from, rank, state->fixed + at,
            state->fixed_bytes - at < PIECE ? state->fixed_bytes - at : PIECE);
    add(moves, from, rank, counters,
        rb_state_counters_size(state)); /* last: they carry the level */
}

static int copy(struct opening *opening, struct rb_state *into, struct rb_why *why)
{
    struct rb_model *model = opening->model;
    bool fresh = opening->recovery.fates[opening->self] == RB_FATE_VOID;
    RB_CLEANUP(rb_freep) uint8_t *counters = rb_alloc(rb_state_counters_size(&model->state));
    struct moves moves = {0};
    int err;

    rb_state_counters_pack(&model->state, counters);
    for (size_t b = 0; b < opening->blocks; b++)
        for (uint32_t r = 0; r < opening->configuration->size; r++)
            add_block(opening, &moves, into, b, r);
    for (uint32_t r = 0; r < opening->configuration->size; r++)
        if (opening->recovery.fates[r] == RB_FATE_VOID)
            add_rest(opening, &moves, into, counters, r);
    err = run(opening, PART_STATE, &moves, why);
    free(moves.at);
    if (!err && fresh)
        rb_state_counters_unpack(into, counters);
    return err;
}

/* This rank has what it shall hold now, and still what it held before. */
static void take_in(struct opening *opening, struct rb_state *state, bool fresh)
{
    const struct rb_placement *placement = &opening->configuration->placement;
    bool undecided = !fresh && opening->model->pending.level == state->level;

    for (size_t b = 0; b < opening->blocks; b++)
        state->held[b] =
            rb_recovery_held(fresh ? RB_HELD_NOT : state->held[b],
                             rb_placement_holds(placement, opening->self, b), undecided);
    state->torn = false;
}

/* Into separate memory, where this rank has an older state that is worth something until then. */
static int copy_aside(struct opening *opening, struct rb_why *why)
{
    struct rb_model *model = opening->model;
    struct rb_state aside = {.level = -1};
    int err = rb_state_open(model->message, NULL, &aside, why);

    if (!err)
        err = copy(opening, &aside, why);
    if (!err) {
        take_in(opening, &aside, true);
        rb_model_hold(model, aside.held);
        rb_state_copy(&model->state, &aside, model->message);
    }
    rb_state_done(&aside);
    return err;
}

int rb_opening_align(struct opening *opening, struct rb_why *why)
{
    struct rb_model *model = opening->model;
    bool fresh = opening->recovery.fates[opening->self] == RB_FATE_VOID;
    int err;

    if (fresh)
        model->applied.level = model->pending.level = -1;
    if (fresh && model->state.level >= 0)
        return copy_aside(opening, why);
    err = copy(opening, &model->state, why);
    if (!err)
        take_in(opening, &model->state, fresh);
    else if (fresh)
        model->state.level = -1;
    return err;
}
