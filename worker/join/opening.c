/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/opening.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/carry.h"
#include "worker/checkpoint/restore.h"
#include "worker/join/recovery.h"
#include "worker/join/wire.h"
#include "worker/lap.h"
#include "worker/step.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 20, /* fixed bytes travel in pieces, like blocks */
    AT_ONCE = 16,    /* moves */
};

enum part { PART_TESTIMONIES, PART_RESTORED, PART_HASHES, PART_ENTRY, PART_STATE };

struct opening {
    struct rb_model *model;
    const struct rb_configuration *configuration;
    uint32_t self;
    size_t blocks;
    struct rb_testimony *testimonies; /* by rank */
    uint8_t *held;                    /* by rank * blocks + block */
    struct rb_recovery recovery;
    uint64_t bytes; /* received */
    bool moved;     /* somebody lacked something */
};

static uint64_t tag_of(const struct opening *opening, enum part part)
{
    return rb_tag(RB_TAG_OPENING, opening->configuration->number, 0, part);
}

/* ---- Who has what ---------------------------------------------------------------------------*/

static struct rb_testimony testify(const struct rb_model *model)
{
    const struct rb_state *state = &model->state;
    struct rb_testimony mine = {
        .level = state->level, .torn = state->torn, .opened = model->opened};

    if (state->level >= 0 && model->pending.level == state->level) {
        mine.lap = model->pending.lap;
        mine.ran = mine.lap ? model->lap->configuration : 0;
        mine.reduced = mine.lap ? 0 : 1 + model->pending.attempt;
    }
    if (state->level >= 0 && model->applied.level == state->level)
        mine.entry = 1 + model->applied.attempt;
    return mine;
}

static int gather_testimonies(struct opening *opening, enum part part, struct rb_why *why)
{
    const struct rb_configuration *configuration = opening->configuration;
    size_t size = sizeof(struct rb_testimony) + opening->blocks;
    RB_CLEANUP(rb_freep) uint8_t *mine = rb_alloc(size);
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(size * configuration->size);
    struct rb_testimony testimony = testify(opening->model);
    int err;

    memcpy(mine, &testimony, sizeof testimony);
    memcpy(mine + sizeof testimony, opening->model->state.held, opening->blocks);
    err = rb_coll_gather(configuration->coll, tag_of(opening, part), mine, all, size, why);
    for (uint32_t r = 0; !err && r < configuration->size; r++) {
        memcpy(&opening->testimonies[r], all + r * size, sizeof testimony);
        memcpy(opening->held + r * opening->blocks, all + r * size + sizeof testimony,
               opening->blocks);
    }
    if (err)
        return err;
    rb_recovery_done(&opening->recovery);
    rb_recovery_judge(opening->testimonies, opening->held, configuration->size, opening->blocks,
                      &opening->recovery);
    return 0;
}

/* Load what the job starts from.  A failure is told to the others as "no state". */
static int restore(struct opening *opening, struct rb_why *why)
{
    struct rb_model *model = opening->model;
    struct rb_why reason = {0};
    int err = 0, failed = 0;

    opening->moved = true; /* from files, each its own */
    if (opening->configuration->restore)
        failed =
            rb_restore(opening->configuration->restore, model->message, &model->state, &reason);
    err = gather_testimonies(opening, PART_RESTORED, why);
    if (err || opening->recovery.level >= 0)
        return err;
    if (failed)
        return rb_why_set(why, failed == RB_ENOMEM ? failed : RB_EUNREADABLE, "%s", reason.text);
    return rb_why_set(why, RB_EUNREADABLE, "no member has the state or could load it");
}

static int call(struct opening *opening, struct rb_why *why)
{
    int err = gather_testimonies(opening, PART_TESTIMONIES, why);

    if (!err && opening->recovery.level < 0)
        err = restore(opening, why);
    if (!err && opening->recovery.lost >= 0)
        err = rb_why_set(why, RB_ELOST, "no member holds block %lld of level %lld",
                         (long long)opening->recovery.lost, (long long)opening->recovery.level);
    return err;
}

/* ---- Moving ---------------------------------------------------------------------------------*/

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

/* All of them, some at a time. */
static int run(struct opening *opening, enum part part, const struct moves *moves,
               struct rb_why *why)
{
    int self = (int)opening->self, err = 0;

    opening->moved |= moves->n != 0;
    for (size_t i = 0; !err && i < moves->n; i += AT_ONCE) {
        size_t n = moves->n - i < AT_ONCE ? moves->n - i : AT_ONCE;
        bool ours = false;

        /* By the links: behind a death there is no circle yet, and not all of this is a device's.
         */
        err = rb_carry(opening->model->device, opening->configuration->coll, NULL,
                       tag_of(opening, part) + i, moves->at + i, n, why);
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

static int tell_entry(struct opening *opening, struct rb_why *why)
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

/* What it shall hold is there now, and what it held before. */
static void take_in(struct opening *opening, struct rb_state *state, bool fresh)
{
    const struct rb_placement *placement = &opening->configuration->placement;

    for (size_t b = 0; b < opening->blocks; b++)
        state->held[b] =
            (!fresh && state->held[b]) || rb_placement_holds(placement, opening->self, b)
                ? RB_HELD
                : RB_HELD_NOT;
    state->torn = false;
}

/* Into memory of its own, where it has an older state that is worth something until then. */
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

static int align(struct opening *opening, struct rb_why *why)
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

/* ---- The whole ------------------------------------------------------------------------------*/

/* Everyone holds the same bits: cheap beside the copy, and the promise of the whole. */
static int compare(struct opening *opening, struct rb_why *why)
{
    const struct rb_configuration *configuration = opening->configuration;
    size_t n = 1 + opening->blocks;
    RB_CLEANUP(rb_freep) uint64_t *mine = rb_alloc(n * sizeof *mine);
    RB_CLEANUP(rb_freep) uint64_t *all = rb_alloc(configuration->size * n * sizeof *all);
    int err;

    rb_state_hashes(&opening->model->state, opening->model->message, mine);
    err = rb_device_check(opening->model->device, why);
    if (err)
        return err;
    err = rb_coll_gather(configuration->coll, tag_of(opening, PART_HASHES), mine, all,
                         n * sizeof *mine, why);
    for (size_t i = 0; !err && i < n; i++) {
        uint32_t first = i ? configuration->placement.primary[i - 1] : 0;

        for (uint32_t r = 0; r < configuration->size; r++)
            if (all[r * n + i] != all[first * n + i] &&
                (!i || rb_placement_holds(&configuration->placement, r, i - 1)))
                return rb_why_set(why, RB_EINTERNAL,
                                  "ranks %u and %u hold different bits of level %lld", first, r,
                                  (long long)opening->model->state.level);
    }
    return err;
}

static void let_go(struct opening *opening)
{
    rb_model_hold(opening->model,
                  opening->configuration->placement.holds + opening->self * opening->blocks);
}

static int open_all(struct opening *opening, struct rb_why *why)
{
    int err = call(opening, why);

    if (!err)
        err = tell_entry(opening, why);
    if (!err)
        err = align(opening, why);
    if (!err && opening->model->state.level != opening->recovery.level)
        err =
            rb_why_set(why, RB_EINTERNAL, "state of level %lld came as level %lld",
                       (long long)opening->recovery.level, (long long)opening->model->state.level);
    if (!err && opening->moved) /* else all have what the last vote left, as in any step */
        err = compare(opening, why);
    return err;
}

int rb_opening_run(struct rb_model *model, const struct rb_configuration *configuration,
                   uint64_t *ret_bytes, struct rb_why *why)
{
    size_t blocks = model->message->n_blocks;
    struct opening opening = {
        .model = model,
        .configuration = configuration,
        .self = configuration->rank,
        .blocks = blocks,
        .testimonies = rb_alloc(configuration->size * sizeof *opening.testimonies),
        .held = rb_alloc(configuration->size * blocks + 1),
        .recovery = {.level = -1, .lost = -1},
    };
    int err;

    rb_fault("worker.opening");
    err = open_all(&opening, why);
    rb_fault("worker.opening.hashed");
    if (!err) {
        let_go(&opening);
        model->opened = configuration->number;
    }
    *ret_bytes = opening.bytes;
    rb_recovery_done(&opening.recovery);
    free(opening.testimonies);
    free(opening.held);
    return err ? rb_why_add(why, err, "opening configuration %u", configuration->number) : 0;
}
