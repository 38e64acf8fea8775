/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of a lap: which weights each reads, and what comes of a step that is back. */
#include "worker/stages/lap.h"

#include "base/clock.h"
#include "base/fault.h"
#include "worker/step/rate.h"
#include "worker/step/update.h"

#include <math.h>
#include <string.h>

/* ---- Weights of a pass ----------------------------------------------------------------------*/

static const Rb__Variable *variable_of(const Rb__Model *message, const Rb__Block *block)
{
    return message->variables[block->variable];
}

static double rate_of(const struct rb_model *model)
{
    return rb_rate_at(model->message->optimizer, model->message->steps,
                      model->state.level + 1 + model->lap->updated);
}

/* In the direction of the last step; before the first there is none. */
static struct rb_predict direction(const struct rb_model *model, bool decays, uint32_t ahead)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    uint64_t t = (uint64_t)(model->state.applied + model->lap->updated);
    double way = ahead * rate_of(model);

    if (optimizer->kind != RB__OPTIMIZER__KIND__ADAMW)
        return (struct rb_predict){1, (float)way, 1, 0};
    return (struct rb_predict){
        .keep = decays ? (float)(1 - way * optimizer->weight_decay) : 1,
        .factor = (float)(way / (1 - rb_exponent_power(optimizer->beta1, t))),
        .root = (float)(1 / sqrt(1 - rb_exponent_power(optimizer->beta2, t))),
        .eps = (float)optimizer->eps,
    };
}

/* `view` becomes the weights of this stage, some steps ahead. */
static void look_ahead(struct rb_model *model, float *view, uint32_t ahead)
{
    const Rb__Model *message = model->message;
    const struct rb_state *work = &model->lap->work;
    bool moves = ahead && model->state.applied + model->lap->updated > 0;

    for (size_t b = 0; b < message->n_blocks; b++) {
        const Rb__Block *block = message->blocks[b];
        const Rb__Variable *variable = variable_of(message, block);
        bool predicts = moves && variable->role == RB__VARIABLE__ROLE__TRAINED;
        struct rb_predict how = {1, 0, 1, 0};

        if (!model->lap->mine[b])
            continue;
        if (predicts)
            how = direction(model, variable->decay, ahead);
        rb_predict(model->device, view + block->first, work->w + block->first,
                   predicts && work->m ? work->m + block->first : NULL,
                   work->v ? work->v + block->first : NULL, (size_t)block->count, &how);
    }
}

/* How many updates other minibatches make behind this pass: fewer than `ahead` at a lap's end. */
static uint32_t clip_ahead(const struct rb_lap *lap, uint32_t ahead)
{
    uint32_t left = lap->steps - 1 - lap->updated;

    return ahead < left ? ahead : left;
}

static float *weights_of(struct rb_model *model, struct rb_lap_pass *pass)
{
    struct rb_lap *lap = model->lap;

    pass->version = lap->updated;
    switch (model->message->asynchronous->kind) {
    case RB__ASYNCHRONOUS__KIND__STASHING:
        if (!pass->back)
            look_ahead(model, lap->views[pass->step % lap->n_views], 0);
        else
            pass->version = lap->stashed[pass->step % lap->n_views];
        lap->stashed[pass->step % lap->n_views] = pass->version;
        return lap->views[pass->step % lap->n_views];
    case RB__ASYNCHRONOUS__KIND__TWO_BUFFERS:
        pass->version = pass->step ? pass->step - 1 : 0;
        for (uint32_t i = 0; !pass->back && !pass->step && !lap->summed && i < 2; i++)
            look_ahead(model, lap->views[i], 0);
        return lap->views[pass->step % 2];
    case RB__ASYNCHRONOUS__KIND__SPECTRAIN:
        pass->ahead = clip_ahead(lap, pass->ahead);
        if (lap->viewed != lap->updated + 1 || lap->viewed_ahead != pass->ahead)
            look_ahead(model, lap->views[0], pass->ahead);
        lap->viewed = lap->updated + 1;
        lap->viewed_ahead = pass->ahead;
        return lap->views[0];
    default:
        return lap->work.w;
    }
}

/* ---- Gradients ------------------------------------------------------------------------------*/

/* Bring sums that were made at an exponent that is too large to one that is smaller by `shift`. */
static void shrink(struct rb_model *model, const Rb__Variable *variable, int shift)
{
    int32_t *sums = model->local + variable->offset;
    size_t n = (size_t)variable->elements;

    if (shift <= 0)
        return;
    rb_device_pull(model->device, sums, n * sizeof *sums);
    for (size_t i = 0; i < n; i++)
        sums[i] =
            shift > 31 ? 0 : (int32_t)(((int64_t)sums[i] + (INT64_C(1) << (shift - 1))) >> shift);
    rb_device_push(model->device, sums, n * sizeof *sums);
}

/* Does what was just added fit at the exponent? */
static bool fits(struct rb_model *model, uint32_t v)
{
    rb_device_pull(model->device, &model->largest[v], sizeof *model->largest);
    rb_device_pull(model->device, &model->overflow[v], sizeof *model->overflow);
    return model->largest[v] >= RB_EXPONENT_INFINITE ||
           rb_exponent_beyond(model->largest[v], model->limits[v]) ||
           !rb_exponent_flagged(&model->exponents[v], model->largest[v], model->overflow[v]);
}

static void add(const struct rb_flight *flight, const Rb__Contribution *contribution, void *owner)
{
    struct rb_model *model = ((struct rb_lap_run *)owner)->model;
    uint32_t v = contribution->variable;
    const Rb__Variable *variable = model->message->variables[v];
    struct rb_program *program = flight->runner.program;
    struct rb_fixed into =
        rb_model_summand(model, contribution, flight->microbatch % model->microbatches);

    rb_program_add(program, (int)contribution->tensor, &into);
    if (!fits(model, v)) {
        into.weight = -into.weight; /* what was added is taken back, to the bit */
        if (!into.fresh)
            rb_program_add(program, (int)contribution->tensor, &into);
        into.weight = -into.weight;
        model->overflow[v] = false;
        rb_device_push(model->device, &model->overflow[v], sizeof *model->overflow);
        rb_exponent_redo(&model->exponents[v], model->largest[v], model->limits[v]);
        if (!into.fresh)
            shrink(model, variable, into.exponent - model->exponents[v].exponent);
        into.exponent = model->exponents[v].exponent;
        rb_program_add(program, (int)contribution->tensor, &into);
        rb_device_pull(model->device, &model->largest[v], sizeof *model->largest);
    }
    model->fresh[v] = false;
    model->lap->wild |= model->largest[v] >= RB_EXPONENT_INFINITE ||
                        rb_exponent_beyond(model->largest[v], model->limits[v]);
}

/* ---- Updates --------------------------------------------------------------------------------*/

/* The squares of this stage's blocks, added in their order. */
static double add_squares(struct rb_model *model)
{
    const Rb__Model *message = model->message;
    double squares = 0;

    for (size_t b = 0; b < message->n_blocks; b++) {
        const Rb__Block *block = message->blocks[b];

        if (!model->lap->mine[b] ||
            variable_of(message, block)->role != RB__VARIABLE__ROLE__TRAINED)
            continue;
        rb_fixed_squares(model->device, model->local + block->first, (size_t)block->count,
                         model->exponents[block->variable].exponent, 1, &model->squares[b]);
        rb_device_pull(model->device, &model->squares[b], sizeof *model->squares);
        squares += model->squares[b];
    }
    return squares;
}

/* Clear the sums to which no microbatch has added anything. */
static void clear_fresh(struct rb_model *model)
{
    const Rb__Model *message = model->message;

    for (size_t b = 0; b < message->n_blocks; b++)
        if (model->lap->mine[b] && model->fresh[message->blocks[b]->variable])
            rb_device_discard(model->device, model->local + message->blocks[b]->first,
                              (size_t)message->blocks[b]->count * sizeof *model->local);
}

static void apply(struct rb_model *model, uint32_t step)
{
    const Rb__Model *message = model->message;
    struct rb_lap *lap = model->lap;
    double mean = 1 / (double)lap->count;
    struct rb_update_terms terms = {
        .lr = rate_of(model),
        .applied = model->state.applied + lap->updated,
    };

    clear_fresh(model);
    lap->rows[step].squares = add_squares(model);
    terms.scale =
        (float)(mean * rb_update_clip(message->optimizer, sqrt(lap->rows[step].squares) * mean));
    for (size_t b = 0; b < message->n_blocks; b++)
        if (lap->mine[b])
            rb_update_block(model, &lap->work, model->local + message->blocks[b]->first, &terms,
                            message->blocks[b]);
    for (size_t v = 0; v < message->n_variables; v++)
        if (!model->fresh[v])
            rb_exponent_commit(&model->exponents[v], model->largest[v], model->limits[v]);
}

/* A step is back: its sums are whole.  They are empty afterwards. */
static void update(struct rb_model *model, uint32_t step)
{
    const Rb__Model *message = model->message;
    struct rb_lap *lap = model->lap;

    if (!lap->wild && lap->count > 0)
        apply(model, step);
    lap->rows[step].wild = lap->wild;
    lap->done[step] = rb_clock_ns();
    lap->updated++;
    if (message->asynchronous->kind == RB__ASYNCHRONOUS__KIND__TWO_BUFFERS)
        look_ahead(model, lap->views[step % 2], 0); /* for the next step but one */
    lap->wild = false;
    lap->count = lap->summed = 0;
    memset(model->fresh, true, message->n_variables * sizeof *model->fresh);
    rb_device_discard(model->device, model->largest, message->n_variables * sizeof *model->largest);
    rb_device_discard(model->device, model->overflow,
                      message->n_variables * sizeof *model->overflow);
}

/* The last stage's results, added up in the order of the microbatches. */
static void note_results(struct rb_model *model, const struct rb_flight *flight, uint32_t step)
{
    const Rb__Program *message = flight->runner.message;
    struct rb_program *program = flight->runner.program;
    struct rb_lap_row *row = &model->lap->rows[step];

    row->loss += *(const double *)rb_program_result(program, message->loss);
    row->count += *(const int64_t *)rb_program_result(program, message->count);
    if (message->correct >= 0)
        row->correct += *(const int64_t *)rb_program_result(program, message->correct);
    model->lap->wild |= !isfinite(row->loss);
}

/* ---- Orders ---------------------------------------------------------------------------------*/

static struct rb_pilot pilot_of(struct rb_lap_run *run, const Rb__Order *order, bool back)
{
    struct rb_lap_pass pass = {
        .model = run->model,
        .back = back,
        .step = order->argument / run->model->microbatches,
        .ahead = order->ahead,
    };
    struct rb_pilot pilot = {
        .model = run->model,
        .configuration = run->configuration,
        .weights = weights_of(run->model, &pass),
        .laps = true,
        .stop = run->stop,
        .add = add,
        .owner = run,
    };

    pass.weights = pilot.weights;
    if (run->watch)
        run->watch(&pass, run->owner);
    return pilot;
}

static bool is_in(struct rb_lap_run *run, const Rb__Order *order)
{
    return order->argument / run->model->microbatches < run->model->lap->steps;
}

int rb_lap_forward(struct rb_lap_run *run, const Rb__Order *order, struct rb_why *why)
{
    int err = rb_configuration_settle(run->configuration, why);
    struct rb_pilot pilot;

    if (err || !is_in(run, order))
        return err;
    pilot = pilot_of(run, order, false);
    return rb_flight_forward(&pilot, order->argument, why);
}

int rb_lap_backward(struct rb_lap_run *run, const Rb__Order *order, struct rb_why *why)
{
    struct rb_model *model = run->model;
    const struct rb_stage *stage = run->configuration->stage;
    uint32_t step = order->argument / model->microbatches;
    const struct rb_flight *flight;
    struct rb_pilot pilot;
    int err;

    if (!is_in(run, order))
        return 0;
    pilot = pilot_of(run, order, true);
    err = rb_flight_backward(&pilot, order->argument, &flight, why);
    if (err)
        return err;
    if (stage->mine + 1 == stage->stages)
        note_results(model, flight, step);
    model->lap->count += flight->count;
    if (++model->lap->summed == model->microbatches)
        update(model, step);
    rb_fault("worker.computed");
    return rb_device_check(model->device, why);
}
