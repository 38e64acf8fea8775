/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/flight_inside.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* ---- Flights ---------------------------------------------------------------------------------*/

static void free_flight(struct rb_model *model, struct rb_flight *flight)
{
    rb_runner_done(&flight->runner);
    rb_marks_free(flight->mark);
    if (flight->arena)
        rb_device_free(model->device, flight->arena);
    rb_freight_free(model, flight);
    free(flight);
}

void rb_flights_free(struct rb_model *model)
{
    for (struct rb_flight *flight; (flight = model->flights);) {
        model->flights = flight->next;
        free_flight(model, flight);
    }
    rb_ways_free(model);
}

void rb_flights_land(struct rb_model *model)
{
    for (struct rb_flight *flight = model->flights; flight; flight = flight->next)
        flight->flies = false;
}

const char *rb_flights_refused(const struct rb_model *model)
{
    const char *why = NULL;

    for (const struct rb_flight *flight = model->flights; flight && !why; flight = flight->next)
        why = rb_program_refused(flight->runner.program);
    return why;
}

static int new_flight(struct rb_model *model, const struct rb_runner *twin, float *weights,
                      struct rb_flight **ret_flight, struct rb_why *why)
{
    struct rb_flight *flight = rb_alloc(sizeof *flight);
    size_t bytes = (size_t)twin->message->arena_bytes;
    int err = 0;

    flight->twin = twin;
    flight->weights = weights;
    flight->runner.message = twin->message;
    flight->arena = rb_device_alloc(model->device, bytes ? bytes : 64);
    if (!flight->arena)
        err = rb_why_set(why, RB_ENOMEM, "no memory for %zu bytes of activations", bytes);
    if (!err)
        err = rb_runner_prepare(model, &flight->runner, weights, flight->arena, model->train, why);
    if (!err)
        rb_program_expect(flight->runner.program, flight->arena, bytes);
    if (!err && rb_device_tapes(model->device))
        err = rb_marks_new(model->device, 1, &flight->mark, why);
    if (err) {
        free_flight(model, flight);
        return err;
    }
    flight->next = model->flights;
    model->flights = flight;
    *ret_flight = flight;
    return 0;
}

/* A flight that is free, or a further one. */
static int take_flight(const struct rb_pilot *pilot, const struct rb_runner *twin,
                       struct rb_flight **ret_flight, struct rb_why *why)
{
    struct rb_flight *flight = pilot->model->flights;

    while (flight && (flight->flies || flight->twin != twin || flight->weights != pilot->weights))
        flight = flight->next;
    if (!flight)
        return new_flight(pilot->model, twin, pilot->weights, ret_flight, why);
    *ret_flight = flight;
    return 0;
}

static struct rb_flight *find_flight(const struct rb_model *model, uint32_t microbatch)
{
    struct rb_flight *flight = model->flights;

    while (flight && !(flight->flies && flight->microbatch == microbatch))
        flight = flight->next;
    return flight;
}

/* ---- Running ---------------------------------------------------------------------------------*/

const struct rb_part *rb_flight_part(const struct rb_pilot *pilot, const struct rb_flight *flight)
{
    return &pilot->configuration->stage->parts[flight->twin - pilot->model->runners];
}

/* The instruction that a contribution is ready behind. */
static uint32_t maker_of(const Rb__Contribution *contribution)
{
    return contribution->after ? contribution->after - 1 : 0;
}

static int64_t step_of(const struct rb_pilot *pilot, uint32_t microbatch)
{
    return pilot->model->state.level + microbatch / pilot->model->microbatches;
}

static struct rb_key key_of(const struct rb_pilot *pilot, const struct rb_flight *flight)
{
    return (struct rb_key){pilot->model->message->seed,
                           (uint64_t)step_of(pilot, flight->microbatch),
                           flight->microbatch % pilot->model->microbatches};
}

int rb_flight_go_on(const struct rb_pilot *pilot, struct rb_why *why)
{
    if (atomic_load_explicit(pilot->stop, memory_order_relaxed))
        return rb_why_set(why, RB_ECANCELED, "stopped");
    return rb_coll_nudge(pilot->configuration->coll, why);
}

/* Backward of a lap may read other weights than forward did: round those. */
static void round_again(const struct rb_pilot *pilot, const struct rb_flight *flight)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    struct rb_key key = key_of(pilot, flight);

    for (uint32_t i = 0; i < part->message->once; i++)
        if (part->runs[i])
            rb_program_step(flight->runner.program, (int)i, &key);
}

/* A pass under way. */
struct passing {
    const struct rb_pilot *pilot;
    struct rb_flight *flight;
    const struct rb_part *part;
    struct rb_why *why;
};

static void put(int instruction, void *context)
{
    const struct passing *passing = context;

    rb_freight_put(passing->pilot, passing->flight, (uint32_t)instruction);
}

static void take(int instruction, void *context)
{
    const struct passing *passing = context;

    rb_freight_take(passing->pilot, passing->flight, (uint32_t)instruction);
}

static void add_contributions(int instruction, void *context)
{
    const struct passing *passing = context;
    const struct rb_pilot *pilot = passing->pilot;
    struct rb_flight *flight = passing->flight;
    uint32_t at = (uint32_t)instruction;

    for (; flight->next_contribution < passing->part->message->n_contributions;
         flight->next_contribution++) {
        const Rb__Contribution *one = flight->runner.contributions[flight->next_contribution];

        if (maker_of(one) > at)
            return;
        if (maker_of(one) == at && passing->part->adds[at])
            pilot->add(flight, one, pilot->owner);
    }
}

static int go_on(void *context)
{
    const struct passing *passing = context;

    return rb_flight_go_on(passing->pilot, passing->why);
}

static bool adds_any(const struct rb_part *part, uint32_t first, uint32_t end)
{
    for (size_t k = 0; k < part->message->n_contributions; k++) {
        uint32_t maker = maker_of(part->message->contributions[k]);

        if (maker >= first && maker < end && part->runs[maker] && part->adds[maker])
            return true;
    }
    return false;
}

/* Instructions first .. end - 1, as far as they are this stage's.  A lap looks at each sum as soon
 * as it is made, which no tape can wait for. */
static int run(const struct rb_pilot *pilot, struct rb_flight *flight, bool back, uint32_t first,
               uint32_t end, struct rb_why *why)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    struct passing passing = {pilot, flight, part, why};
    struct rb_key key = key_of(pilot, flight);
    struct rb_program_pass pass = {
        .tape = back,
        .unplayed = pilot->laps && adds_any(part, first, end),
        .first = (int)first,
        .end = (int)end,
        .runs = part->runs,
        .go_on = go_on,
        .copy_in = put,
        .copy_out = take,
        .after = add_contributions,
        .context = &passing,
    };

    return rb_program_pass(flight->runner.program, &pass, &key);
}

int rb_flight_forward(const struct rb_pilot *pilot, uint32_t microbatch, struct rb_why *why)
{
    struct rb_model *model = pilot->model;
    const struct rb_stage *stage = pilot->configuration->stage;
    const struct rb_runner *twin = rb_model_runner(model, microbatch % model->microbatches);
    struct rb_batch batch =
        rb_batch_of(model->message->global_batch, model->message->micro_batch,
                    step_of(pilot, microbatch), microbatch % model->microbatches);
    struct rb_flight *flight = NULL;
    int err = take_flight(pilot, twin, &flight, why);

    if (!err)
        err = rb_freight_fit(pilot, flight, why);
    if (err)
        return err;
    flight->flies = true;
    flight->microbatch = microbatch;
    flight->next_contribution = 0;
    rb_batch_fill(&flight->runner.slots, model->train, model->message->seed, &batch);
    err = rb_freight_receive(pilot, flight, 0, stage->mine, why);
    if (err)
        return err;
    rb_program_start(flight->runner.program);
    err = run(pilot, flight, false, 0, rb_flight_part(pilot, flight)->forward, why);
    return err ? err : rb_freight_post(pilot, flight, stage->mine + 1, stage->stages, why);
}

int rb_flight_backward(const struct rb_pilot *pilot, uint32_t microbatch,
                       const struct rb_flight **ret_flight, struct rb_why *why)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    struct rb_flight *flight = find_flight(pilot->model, microbatch);
    const struct rb_part *part;
    uint32_t end;
    int err;

    if (!flight)
        return rb_why_set(why, RB_EINTERNAL, "microbatch %u comes back before it went", microbatch);
    part = rb_flight_part(pilot, flight);
    end = (uint32_t)part->message->n_instructions;
    err = rb_freight_receive(pilot, flight, stage->mine + 1, stage->stages, why);
    if (!err && pilot->laps) {
        rb_freight_hear(pilot, flight);
        round_again(pilot, flight);
    }
    if (!err)
        err = run(pilot, flight, true, part->forward, end, why);
    if (err)
        return err;
    rb_freight_put(pilot, flight, end); /* results that are another stage's */
    if (pilot->laps)
        rb_freight_tell(pilot, flight);
    err = rb_freight_post(pilot, flight, 0, stage->mine, why);
    flight->flies = false;
    *ret_flight = flight;
    return err;
}
