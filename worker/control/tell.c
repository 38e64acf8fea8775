/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/tell.h"

#include "base/arena.h"
#include "base/clock.h"
#include "worker/stages/lap.h"
#include "worker/step/rate.h"

#include <math.h>

void rb_tell_ready(struct rb_reports *reports, uint32_t number)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Ready ready = RB__READY__INIT;

    ready.number = number;
    message.ready = &ready;
    rb_reports_post(reports, &message);
}

void rb_tell_unready(struct rb_reports *reports, uint32_t number, const char *reason)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Unready unready = RB__UNREADY__INIT;

    unready.number = number;
    unready.reason = (char *)reason;
    message.unready = &unready;
    rb_reports_post(reports, &message);
}

void rb_tell_flipped(struct rb_reports *reports, const struct rb_configuration *configuration,
                     const struct rb_entrance *entrance)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Flipped flipped = RB__FLIPPED__INIT;

    flipped.number = configuration->number;
    flipped.level = entrance->level;
    flipped.time = entrance->time;
    flipped.bytes_moved = entrance->bytes;
    flipped.rank = configuration->rank;
    flipped.has_stands = flipped.stands = entrance->stands;
    message.flipped = &flipped;
    rb_reports_post(reports, &message);
}

void rb_tell_frozen(struct rb_reports *reports, const struct rb_configuration *configuration,
                    int64_t level, const char *reason)
{
    RB_CLEANUP(rb_freep) uint32_t *lost = rb_alloc(configuration->size * sizeof *lost);
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Frozen frozen = RB__FROZEN__INIT;

    for (uint32_t r = 0; r < configuration->size; r++)
        if (r != configuration->rank && rb_coll_lost(configuration->coll, (int)r))
            lost[frozen.n_lost++] = r;
    frozen.number = configuration->number;
    frozen.level = level;
    frozen.reason = (char *)reason;
    frozen.lost = lost;
    message.frozen = &frozen;
    rb_reports_post(reports, &message);
}

static void add_times(Rb__Row *row, const struct rb_model *model, const struct rb_vote_times *times)
{
    row->microbatch_us = rb_pace_us(&model->pace);
    row->has_microbatch_us = row->microbatch_us != 0;
    row->has_compute_ms = row->has_slowest_ms = row->has_variation = times->mean > 0;
    row->compute_ms = times->mean / 1e6;
    row->slowest_ms = times->most / 1e6;
    row->variation = times->variation;
}

static void add_evaluation(Rb__Row *row, const struct rb_evaluation *evaluation)
{
    if (!evaluation)
        return;
    row->has_eval_loss = 1;
    row->eval_loss = evaluation->loss;
    row->has_eval_accuracy = evaluation->counted;
    row->eval_accuracy = evaluation->accuracy;
}

/* The steps of a lap are committed together.  Each row says when this rank was done with its step,
 * the last one with the commit included. */
static void tell_lap(struct rb_reports *reports, uint32_t rank, const struct rb_model *model,
                     const struct rb_evaluation *evaluation)
{
    const Rb__Model *message = model->message;
    const struct rb_lap *lap = model->lap;
    uint64_t now = rb_clock_ns(), unix_ms = rb_clock_unix_ms(), before = lap->started;

    for (uint32_t s = 0; s < lap->steps; s++) {
        const struct rb_lap_row *from = &lap->rows[s];
        uint64_t done = s + 1 < lap->steps ? lap->done[s] : now;
        Rb__Row row = RB__ROW__INIT;

        row.step = lap->from + 1 + s;
        row.time = unix_ms - (now - done) / 1000000;
        row.loss = from->count > 0 ? from->loss / (double)from->count : 0;
        row.grad_norm = from->wild        ? (double)NAN
                        : from->count > 0 ? sqrt(from->squares) / (double)from->count
                                          : 0;
        row.lr = rb_rate_at(message->optimizer, message->steps, row.step);
        row.step_ms = (double)(done - before) / 1e6;
        row.devices = lap->devices;
        row.configuration = lap->configuration;
        row.first_sample = (uint64_t)(row.step - 1) * (uint64_t)message->global_batch;
        row.samples = (uint32_t)message->global_batch;
        row.has_skipped = row.skipped = from->wild || from->count <= 0;
        if (s + 1 == lap->steps)
            add_evaluation(&row, evaluation);
        rb_reports_row(reports, rank, &row);
        before = done;
    }
}

static Rb__Row row_of(const struct rb_configuration *configuration, const struct rb_model *model,
                      const struct rb_step_result *result, double step_ms)
{
    const struct rb_vote_decision *decision = &result->decision;
    uint64_t batch = (uint64_t)model->message->global_batch;
    Rb__Row row = RB__ROW__INIT;

    row.step = model->state.level;
    row.time = rb_clock_unix_ms();
    row.loss = decision->count > 0 ? decision->loss / (double)decision->count : 0;
    row.grad_norm = result->grad_norm;
    row.lr = result->lr;
    row.step_ms = step_ms;
    row.devices = configuration->size;
    row.configuration = configuration->number;
    row.first_sample = (uint64_t)(row.step - 1) * batch;
    row.samples = (uint32_t)batch;
    row.has_skipped = row.skipped = decision->verdict == RB_VOTE_SKIP;
    row.has_redone = result->redone != 0;
    row.redone = result->redone;
    row.has_kept = result->kept != 0;
    row.kept = result->kept;
    add_times(&row, model, &decision->times);
    row.has_stolen = decision->moved != 0;
    row.stolen = decision->moved;
    return row;
}

/* Keep the row for ranks that this one must tell of the step. */
static bool keep_row(struct rb_model *model, const Rb__Row *row)
{
    if (rb__row__get_packed_size(row) > sizeof model->applied.row)
        return false;
    model->applied.row_bytes = rb__row__pack(row, model->applied.row);
    return true;
}

static Rb__Row *kept_row(const struct rb_model *model)
{
    return rb__row__unpack(NULL, (size_t)model->applied.row_bytes, model->applied.row);
}

void rb_tell_row(struct rb_reports *reports, const struct rb_configuration *configuration,
                 struct rb_model *model, const struct rb_step_result *result,
                 const struct rb_evaluation *evaluation, bool interrupted, double step_ms)
{
    Rb__Row row;

    if (result->lap) {
        tell_lap(reports, configuration->rank, model, evaluation);
        return;
    }
    rb_tell_owed(reports, configuration->rank, model, NULL);
    row = row_of(configuration, model, result, step_ms);
    add_evaluation(&row, evaluation);
    model->applied.owed = keep_row(model, &row) && interrupted;
    if (!model->applied.owed)
        rb_reports_row(reports, configuration->rank, &row);
}

void rb_tell_owed(struct rb_reports *reports, uint32_t rank, struct rb_model *model,
                  const struct rb_evaluation *evaluation)
{
    Rb__Row *row = model && model->applied.owed ? kept_row(model) : NULL;

    if (!row)
        return;
    model->applied.owed = false;
    add_evaluation(row, evaluation);
    rb_reports_row(reports, rank, row);
    keep_row(model, row);
    rb__row__free_unpacked(row, NULL);
}

void rb_tell_told(struct rb_reports *reports, const struct rb_configuration *configuration,
                  struct rb_model *model, int64_t before, bool evaluates)
{
    Rb__Row *row = NULL;

    if (model->lap && model->lap->from == before && model->lap->level == model->state.level)
        tell_lap(reports, configuration->rank, model, NULL);
    else if (model->applied.level == before + 1 && model->state.level == before + 1 &&
             model->applied.row_bytes)
        row = kept_row(model);
    if (!row)
        return;
    row->has_microbatch_us = 0; /* that was another rank's */
    model->applied.owed = evaluates && !row->has_eval_loss && keep_row(model, row);
    if (!model->applied.owed)
        rb_reports_row(reports, configuration->rank, row);
    rb__row__free_unpacked(row, NULL);
}

void rb_tell_done(struct rb_reports *reports, int64_t level, const struct rb_saved *final)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Done done = RB__DONE__INIT;
    Rb__Saved saved;

    done.level = level;
    if (final) {
        rb_saved_message(final, &saved);
        done.final = &saved;
    }
    message.done = &done;
    rb_reports_post(reports, &message);
}

void rb_tell_failed(struct rb_reports *reports, int err, const char *reason)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Failed failed = RB__FAILED__INIT;

    failed.reason = (char *)reason;
    failed.has_lost = failed.lost = err == RB_ELOST || err == RB_ENOMEM;
    failed.has_unreadable = failed.unreadable = err == RB_EUNREADABLE;
    message.failed = &failed;
    rb_reports_post(reports, &message);
}
