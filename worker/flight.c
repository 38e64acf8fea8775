/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/flight.h"

#include "base/arena.h"
#include "worker/stage.h"
#include "worker/step.h"

#include <stdlib.h>
#include <string.h>

/* ---- Flights ---------------------------------------------------------------------------------*/

static void free_freight(struct rb_flight *flight)
{
    for (uint32_t k = 0; k < flight->stages; k++) {
        free(flight->in[k].bytes);
        free(flight->out[k].bytes);
    }
    free(flight->in);
    free(flight->out);
}

static void free_flight(struct rb_model *model, struct rb_flight *flight)
{
    rb_runner_done(&flight->runner);
    if (flight->arena)
        rb_device_free(model->device, flight->arena);
    free_freight(flight);
    free(flight);
}

void rb_flights_free(struct rb_model *model)
{
    for (struct rb_flight *flight; (flight = model->flights);) {
        model->flights = flight->next;
        free_flight(model, flight);
    }
}

void rb_flights_land(struct rb_model *model)
{
    for (struct rb_flight *flight = model->flights; flight; flight = flight->next)
        flight->flies = false;
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
    if (err) {
        free_flight(model, flight);
        return err;
    }
    flight->next = model->flights;
    model->flights = flight;
    *ret_flight = flight;
    return 0;
}

/* One that is free, or a further one. */
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

/* ---- Messages --------------------------------------------------------------------------------*/

static void make_room(struct rb_freight *freight, size_t bytes)
{
    if (freight->room >= bytes)
        return;
    freight->bytes = rb_realloc(freight->bytes, bytes);
    freight->room = bytes;
}

static void set_stages(struct rb_flight *flight, const struct rb_stage *stage)
{
    if (flight->stages == stage->stages)
        return;
    free_freight(flight);
    flight->stages = stage->stages;
    flight->in = rb_alloc(flight->stages * sizeof *flight->in);
    flight->out = rb_alloc(flight->stages * sizeof *flight->out);
}

static uint64_t tag_of(const struct rb_pilot *pilot, uint32_t microbatch, bool back)
{
    return rb_tag(RB_TAG_STAGE, pilot->model->state.level, pilot->attempt,
                  2 * (uint64_t)microbatch + back);
}

/* Of a message from a later stage to an earlier one. */
static size_t count_bytes(const struct rb_pilot *pilot, bool back)
{
    return pilot->laps && back ? sizeof(int64_t) : 0;
}

/* From all stages first .. end - 1 that send something. */
static int receive(const struct rb_pilot *pilot, struct rb_flight *flight,
                   const struct rb_part *part, uint32_t first, uint32_t end, struct rb_why *why)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    int err = 0;

    for (uint32_t k = first; !err && k < end; k++) {
        size_t bytes = part->in_bytes[k] + count_bytes(pilot, k > stage->mine);

        if (!part->in_bytes[k])
            continue;
        make_room(&flight->in[k], bytes);
        err = rb_coll_receive(
            pilot->configuration->coll, tag_of(pilot, flight->microbatch, k > stage->mine),
            (int)rb_stage_owner(stage, k, flight->microbatch), flight->in[k].bytes, bytes, why);
    }
    return err;
}

static int post(const struct rb_pilot *pilot, const struct rb_flight *flight,
                const struct rb_part *part, uint32_t first, uint32_t end, struct rb_why *why)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    int err = rb_device_check(pilot->model->device, why);

    for (uint32_t k = first; !err && k < end; k++)
        if (part->out_bytes[k])
            err = rb_coll_post(
                pilot->configuration->coll, tag_of(pilot, flight->microbatch, k < stage->mine),
                (int)rb_stage_owner(stage, k, flight->microbatch), flight->out[k].bytes,
                part->out_bytes[k] + count_bytes(pilot, k < stage->mine), why);
    return err;
}

/* The last stage knows it, the others are told. */
static void hear_count(const struct rb_pilot *pilot, struct rb_flight *flight,
                       const struct rb_part *part)
{
    const struct rb_stage *stage = pilot->configuration->stage;

    flight->count = 0;
    if (stage->mine + 1 == stage->stages)
        flight->count =
            *(const int64_t *)rb_program_result(flight->runner.program, part->message->count);
    for (uint32_t k = stage->mine + 1; k < stage->stages; k++)
        if (part->in_bytes[k])
            memcpy(&flight->count, flight->in[k].bytes + part->in_bytes[k], sizeof flight->count);
}

static void tell_count(const struct rb_pilot *pilot, const struct rb_flight *flight,
                       const struct rb_part *part)
{
    for (uint32_t k = 0; k < pilot->configuration->stage->mine; k++)
        if (part->out_bytes[k])
            memcpy(flight->out[k].bytes + part->out_bytes[k], &flight->count, sizeof flight->count);
}

/* What is read from instruction `at` on. */
static void put_in_place(const struct rb_pilot *pilot, struct rb_flight *flight,
                         const struct rb_part *part, uint32_t at)
{
    for (; flight->next_in < part->n_in && part->in[flight->next_in].at <= at; flight->next_in++) {
        const struct rb_cargo *cargo = &part->in[flight->next_in];
        void *place = rb_program_tensor(flight->runner.program, (int)cargo->tensor);

        memcpy(place, flight->in[cargo->peer].bytes + cargo->offset, cargo->bytes);
        rb_device_push(pilot->model->device, place, cargo->bytes);
    }
}

/* What instruction `at` has made. */
static void take_away(struct rb_flight *flight, const struct rb_part *part, uint32_t at)
{
    for (; flight->next_out < part->n_out && part->out[flight->next_out].at <= at;
         flight->next_out++) {
        const struct rb_cargo *cargo = &part->out[flight->next_out];
        struct rb_freight *freight = &flight->out[cargo->peer];

        make_room(freight, part->out_bytes[cargo->peer] + sizeof flight->count);
        memcpy(freight->bytes + cargo->offset,
               rb_program_result(flight->runner.program, (int)cargo->tensor), cargo->bytes);
    }
}

/* ---- Running ---------------------------------------------------------------------------------*/

static void add_contributions(const struct rb_pilot *pilot, struct rb_flight *flight,
                              const struct rb_part *part, uint32_t at)
{
    for (; flight->next_contribution < part->message->n_contributions;
         flight->next_contribution++) {
        const Rb__Contribution *one = flight->runner.contributions[flight->next_contribution];
        uint32_t made = one->after ? one->after - 1 : 0;

        if (made > at)
            return;
        if (made == at && part->adds[at])
            pilot->add(flight, one, pilot->owner);
    }
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

/* Backward of a lap may read other weights than forward did: round those. */
static void round_again(const struct rb_pilot *pilot, const struct rb_flight *flight,
                        const struct rb_part *part)
{
    struct rb_key key = key_of(pilot, flight);

    for (uint32_t i = 0; i < part->message->once; i++)
        if (part->runs[i])
            rb_program_step(flight->runner.program, (int)i, &key);
}

static int run(const struct rb_pilot *pilot, struct rb_flight *flight, const struct rb_part *part,
               uint32_t first, uint32_t end, struct rb_why *why)
{
    struct rb_key key = key_of(pilot, flight);
    int err = 0;

    for (uint32_t i = first; !err && i < end; i++) {
        if (!part->runs[i])
            continue;
        if (atomic_load_explicit(pilot->stop, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "stopped");
        put_in_place(pilot, flight, part, i);
        rb_program_step(flight->runner.program, (int)i, &key);
        take_away(flight, part, i);
        add_contributions(pilot, flight, part, i);
        err = rb_coll_nudge(pilot->configuration->coll, why);
    }
    return err;
}

static const struct rb_part *part_of(const struct rb_pilot *pilot, const struct rb_runner *twin)
{
    return &pilot->configuration->stage->parts[twin - pilot->model->runners];
}

int rb_flight_forward(const struct rb_pilot *pilot, uint32_t microbatch, struct rb_why *why)
{
    struct rb_model *model = pilot->model;
    const struct rb_stage *stage = pilot->configuration->stage;
    const struct rb_runner *twin = rb_model_runner(model, microbatch % model->microbatches);
    const struct rb_part *part = part_of(pilot, twin);
    struct rb_batch batch =
        rb_batch_of(model->message->global_batch, model->message->micro_batch,
                    step_of(pilot, microbatch), microbatch % model->microbatches);
    struct rb_flight *flight = NULL;
    int err = take_flight(pilot, twin, &flight, why);

    if (err)
        return err;
    set_stages(flight, stage);
    flight->flies = true;
    flight->microbatch = microbatch;
    flight->next_in = flight->next_out = flight->next_contribution = 0;
    rb_batch_fill(&flight->runner.slots, model->train, model->message->seed, &batch);
    err = receive(pilot, flight, part, 0, stage->mine, why);
    if (err)
        return err;
    rb_program_start(flight->runner.program);
    err = run(pilot, flight, part, 0, part->forward, why);
    return err ? err : post(pilot, flight, part, stage->mine + 1, stage->stages, why);
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
    part = part_of(pilot, flight->twin);
    end = (uint32_t)part->message->n_instructions;
    err = receive(pilot, flight, part, stage->mine + 1, stage->stages, why);
    if (!err && pilot->laps) {
        hear_count(pilot, flight, part);
        round_again(pilot, flight, part);
    }
    if (!err)
        err = run(pilot, flight, part, part->forward, end, why);
    if (err)
        return err;
    put_in_place(pilot, flight, part, end);
    if (pilot->laps)
        tell_count(pilot, flight, part);
    err = post(pilot, flight, part, 0, stage->mine, why);
    flight->flies = false;
    *ret_flight = flight;
    return err;
}
