/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/lap.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "worker/carry.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/join/feed.h"
#include "worker/tag.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- How long -------------------------------------------------------------------------------*/

static int64_t next_multiple(int64_t level, int64_t of)
{
    return (level / of + 1) * of;
}

/* Steps from `level` to the end of its lap. */
static uint32_t lap_length(const Rb__Model *model, int64_t level)
{
    const Rb__Asynchronous *how = model->asynchronous;
    int64_t end = next_multiple(level, how->lap);

    if (end > model->steps)
        end = model->steps;
    for (size_t i = 0; i < how->n_stops; i++)
        if (next_multiple(level, how->stops[i]) < end)
            end = next_multiple(level, how->stops[i]);
    return end > level ? (uint32_t)(end - level) : 0;
}

int64_t rb_lap_next(const struct rb_model *model, const struct rb_configuration *configuration)
{
    int64_t level = model->state.level;

    return level + (rb_configuration_laps(configuration) ? lap_length(model->message, level) : 1);
}

/* ---- Memory ---------------------------------------------------------------------------------*/

static void free_views(struct rb_model *model, struct rb_lap *lap)
{
    rb_flights_free(model); /* they read the views */
    for (uint32_t i = 0; i < lap->n_views; i++)
        if (lap->views[i])
            rb_device_free(model->device, lap->views[i]);
    free(RB_TAKE(lap->views));
    free(RB_TAKE(lap->stashed));
    lap->n_views = 0;
}

void rb_lap_free(struct rb_model *model)
{
    struct rb_lap *lap = RB_TAKE(model->lap);

    if (!lap)
        return;
    free_views(model, lap);
    rb_state_done(&lap->work);
    free(lap->mine);
    free(lap->rows);
    free(lap->done);
    free(lap->exponents);
    free(lap);
}

static int new_lap(struct rb_model *model, struct rb_why *why)
{
    const Rb__Model *message = model->message;
    struct rb_lap *lap = rb_alloc(sizeof *lap);
    int err = rb_state_open(message, model->device, &lap->work, why);

    if (err) {
        free(lap);
        return err;
    }
    lap->mine = rb_alloc(message->n_blocks + 1);
    lap->rows = rb_alloc(message->asynchronous->lap * sizeof *lap->rows);
    lap->done = rb_alloc(message->asynchronous->lap * sizeof *lap->done);
    lap->exponents = rb_alloc((message->n_variables + 1) * sizeof *lap->exponents);
    lap->level = -1;
    model->lap = lap;
    return 0;
}

/* Versions that are in use at once. */
static uint32_t count_views(const Rb__Asynchronous *how, const struct rb_stage *stage)
{
    switch (how->kind) {
    case RB__ASYNCHRONOUS__KIND__STASHING:
        return stage->stages - stage->mine;
    case RB__ASYNCHRONOUS__KIND__TWO_BUFFERS:
        return 2;
    case RB__ASYNCHRONOUS__KIND__SPECTRAIN:
        return 1;
    default:
        return 0;
    }
}

/* Fit the memory to this stage, of so many. */
static int fit(struct rb_model *model, const struct rb_stage *stage, struct rb_why *why)
{
    const Rb__Model *message = model->message;
    struct rb_lap *lap = model->lap;
    size_t bytes = lap->work.elements * sizeof(float);

    if (lap->stages == stage->stages && lap->stage == stage->mine)
        return 0;
    free_views(model, lap);
    lap->stages = 0;
    lap->n_views = count_views(message->asynchronous, stage);
    lap->views = rb_alloc((lap->n_views + 1) * sizeof *lap->views);
    lap->stashed = rb_alloc((lap->n_views + 1) * sizeof *lap->stashed);
    for (uint32_t i = 0; i < lap->n_views; i++) {
        lap->views[i] = rb_device_alloc(model->device, bytes);
        if (!lap->views[i])
            return rb_why_set(why, RB_ENOMEM, "no memory for %zu bytes of older weights", bytes);
    }
    for (size_t b = 0; b < message->n_blocks; b++)
        lap->mine[b] = rb_stage_maker(stage, b) == stage->mine;
    lap->stages = stage->stages;
    lap->stage = stage->mine;
    return 0;
}

int rb_lap_begin(struct rb_model *model, const struct rb_configuration *configuration,
                 struct rb_why *why)
{
    const Rb__Model *message = model->message;
    int err = model->lap ? 0 : new_lap(model, why);
    struct rb_lap *lap = model->lap;

    if (!err)
        err = fit(model, configuration->stage, why);
    if (err)
        return err;
    lap->steps = lap_length(message, model->state.level);
    lap->updated = lap->viewed = 0;
    lap->wild = false;
    lap->count = lap->summed = 0;
    lap->started = rb_clock_ns();
    lap->configuration = configuration->number;
    lap->devices = configuration->size;
    memset(lap->rows, 0, lap->steps * sizeof *lap->rows);
    for (size_t b = 0; b < message->n_blocks; b++)
        if (lap->mine[b])
            rb_state_copy_block(&lap->work, &model->state, message->blocks[b], true);
    return 0;
}

/* ---- The end of it --------------------------------------------------------------------------*/

static bool holds(const struct rb_placement *placement, uint32_t rank, size_t block)
{
    for (size_t i = 0; i < placement->n_taken; i++)
        if (placement->taken[i].rank == rank && block >= placement->taken[i].first_block &&
            block < placement->taken[i].first_block + placement->taken[i].n_blocks)
            return true;
    return rb_placement_holds(placement, rank, block);
}

/* Moves under construction. */
struct moves {
    struct rb_coll_move *at;
    size_t n, room;
};

static void add_move(struct moves *moves, int from, uint32_t to, float *first, size_t count)
{
    if (moves->n == moves->room) {
        moves->room = 2 * moves->room + 16;
        moves->at = rb_realloc(moves->at, moves->room * sizeof *moves->at);
    }
    moves->at[moves->n++] = (struct rb_coll_move){from, (int)to, first, count * sizeof(float)};
}

/* Blocks first .. end - 1 have the same maker and go to the same rank. */
static void add_run(const struct rb_model *model, struct moves *moves, int from, uint32_t to,
                    size_t first, size_t end)
{
    const Rb__Block *one = model->message->blocks[first], *last = model->message->blocks[end - 1];

    for (int part = 0; part < RB_STATE_PARTS; part++)
        if (rb_state_part(&model->lap->work, part))
            add_move(moves, from, to, rb_state_part(&model->lap->work, part) + one->first,
                     (size_t)(last->first + last->count - one->first));
}

static uint32_t maker_of(const struct rb_configuration *configuration, size_t block)
{
    uint32_t stage = rb_stage_maker(configuration->stage, block);

    return rb_stage_owner(configuration->stage, stage, 0);
}

int rb_lap_share(struct rb_model *model, const struct rb_configuration *configuration,
                 uint32_t bucket, struct rb_why *why)
{
    const Rb__Model *message = model->message;
    const Rb__Bucket *range = message->buckets[bucket];
    struct moves moves = {0};
    int err;

    for (uint32_t r = 0; r < configuration->size; r++)
        for (size_t b = 0, end; b < message->n_blocks; b = end) {
            uint32_t maker = maker_of(configuration, b);
            bool in = message->blocks[b]->first >= range->first &&
                      message->blocks[b]->first < range->first + range->count;

            end = b + 1;
            if (!in || maker == r || !holds(&configuration->placement, r, b))
                continue;
            while (end < message->n_blocks &&
                   message->blocks[end]->first < range->first + range->count &&
                   maker_of(configuration, end) == maker &&
                   holds(&configuration->placement, r, end))
                end++;
            add_run(model, &moves, (int)maker, r, b, end);
        }
    rb_fault("worker.reduce");
    err = rb_carry(model->device, configuration->coll, NULL,
                   rb_tag(RB_TAG_GATHER, model->state.level, 4, bucket), moves.at, moves.n, why);
    free(moves.at);
    rb_fault("worker.reduced");
    return err;
}

/* How an exponent travels. */
struct travelling {
    double history;
    int32_t exponent;
    uint32_t known;
};

static void say(const struct rb_model *model, struct rb_lap_row *rows, struct travelling *exponents)
{
    memcpy(rows, model->lap->rows, model->lap->steps * sizeof *rows);
    for (size_t v = 0; v < model->message->n_variables; v++)
        exponents[v] = (struct travelling){model->exponents[v].history,
                                           model->exponents[v].exponent, model->exponents[v].known};
}

/* Stage by stage, so that all ranks add in the same order. */
static void hear(struct rb_model *model, const struct rb_configuration *configuration,
                 const uint8_t *all, size_t bytes)
{
    const struct rb_stage *stage = configuration->stage;
    struct rb_lap *lap = model->lap;
    size_t rows = lap->steps * sizeof(struct rb_lap_row);

    memset(lap->rows, 0, rows);
    for (uint32_t k = 0; k < stage->stages; k++) {
        const uint8_t *record = all + rb_stage_owner(stage, k, 0) * bytes;

        for (uint32_t s = 0; s < lap->steps; s++) {
            struct rb_lap_row row;

            memcpy(&row, record + s * sizeof row, sizeof row);
            row.squares += lap->rows[s].squares;
            row.wild |= lap->rows[s].wild;
            lap->rows[s] = row; /* the last stage has the results */
        }
    }
    for (size_t b = 0; b < model->message->n_blocks; b++) { /* a variable's blocks say the same */
        uint32_t v = model->message->blocks[b]->variable;
        uint32_t maker = rb_stage_owner(stage, rb_stage_maker(stage, b), 0);
        struct travelling one;

        memcpy(&one, all + maker * bytes + rows + v * sizeof one, sizeof one);
        lap->exponents[v] = (struct rb_exponent){one.history, one.exponent, one.known != 0};
    }
}

int rb_lap_report(struct rb_model *model, const struct rb_configuration *configuration,
                  struct rb_why *why)
{
    struct rb_lap *lap = model->lap;
    size_t rows = lap->steps * sizeof(struct rb_lap_row);
    size_t bytes = rows + model->message->n_variables * sizeof(struct travelling);
    RB_CLEANUP(rb_freep) uint8_t *mine = rb_alloc(bytes);
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(bytes * configuration->size);
    int err;

    say(model, (struct rb_lap_row *)mine, (struct travelling *)(mine + rows));
    err = rb_coll_gather(configuration->coll, rb_tag(RB_TAG_VOTE, model->state.level, 0, 1), mine,
                         all, bytes, why);
    if (!err)
        hear(model, configuration, all, bytes);
    return err;
}

/* Steps in a row that were left out because something was no number; a limit that was reached on
 * the way counts, though later steps were sound. */
static int64_t count_wild(const struct rb_model *model)
{
    int64_t n = model->state.not_finite;
    int64_t limit = model->message->stop_on_non_finite ? 1 : model->message->non_finite_limit;

    for (uint32_t s = 0; s < model->lap->steps && n < limit; s++)
        n = model->lap->rows[s].wild ? n + 1 : 0;
    return n;
}

void rb_lap_commit(struct rb_model *model)
{
    struct rb_state *state = &model->state;
    struct rb_lap *lap = model->lap;

    pthread_mutex_lock(&state->window->lock);
    rb_model_settle(model);
    for (size_t b = 0; b < state->blocks; b++) {
        if (state->window->snapshot)
            rb_snapshot_keep(state->window->snapshot, b);
        if (rb_held_follows(state->held[b]))
            rb_state_copy_block(state, &lap->work, model->message->blocks[b], true);
        else
            state->torn = true;
        rb_fault("worker.update");
    }
    memcpy(state->exponents, lap->exponents, state->variables * sizeof *state->exponents);
    state->not_finite = count_wild(model);
    lap->from = state->level;
    lap->level = state->level += lap->steps;
    state->applied += lap->steps;
    model->pending.level = model->applied.level = -1;
    if (state->window->feed)
        rb_feed_halt(state->window->feed, "newcomers cannot follow laps");
    pthread_mutex_unlock(&state->window->lock);
}
