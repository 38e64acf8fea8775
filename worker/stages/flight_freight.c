/* SPDX-License-Identifier: Apache-2.0 */
/* What crosses between stages: a message from or to each, in memory of the device. */
#include "worker/stages/flight_inside.h"

#include "base/arena.h"
#include "worker/tag.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct rb_stage *stage_of(const struct rb_pilot *pilot)
{
    return pilot->configuration->stage;
}

/* ---- Memory ----------------------------------------------------------------------------------*/

void rb_freight_free(struct rb_model *model, struct rb_flight *flight)
{
    for (uint32_t k = 0; k < flight->stages; k++) {
        rb_device_free(model->device, flight->in[k].bytes);
        rb_device_free(model->device, flight->out[k].bytes);
    }
    free(RB_TAKE(flight->in));
    free(RB_TAKE(flight->out));
    flight->stages = 0;
}

/* For a message of so many bytes and, behind them, a count of valid targets. */
static int make_room(const struct rb_pilot *pilot, struct rb_flight *flight,
                     struct rb_freight *freight, size_t message, struct rb_why *why)
{
    struct rb_device *device = pilot->model->device;
    size_t bytes = message + sizeof flight->count;

    if (!message || freight->room >= bytes)
        return 0;
    rb_program_forget(flight->runner.program);
    rb_device_free(device, RB_TAKE(freight->bytes));
    freight->room = 0;
    freight->bytes = rb_device_alloc(device, bytes);
    if (!freight->bytes)
        return rb_why_set(why, RB_ENOMEM, "no memory for %zu bytes between two stages", bytes);
    freight->room = bytes;
    return 0;
}

/* Other configurations have other courses, and with them other copies. */
static void change(const struct rb_pilot *pilot, struct rb_flight *flight)
{
    const struct rb_stage *stage = stage_of(pilot);

    rb_program_forget(flight->runner.program);
    flight->configuration = pilot->configuration->number;
    if (flight->stages == stage->stages)
        return;
    rb_freight_free(pilot->model, flight);
    flight->stages = stage->stages;
    flight->in = rb_alloc(flight->stages * sizeof *flight->in);
    flight->out = rb_alloc(flight->stages * sizeof *flight->out);
}

int rb_freight_fit(const struct rb_pilot *pilot, struct rb_flight *flight, struct rb_why *why)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    int err = 0;

    if (!flight->stages || flight->configuration != pilot->configuration->number)
        change(pilot, flight);
    for (uint32_t k = 0; !err && k < flight->stages; k++) {
        err = make_room(pilot, flight, &flight->in[k], part->in_bytes[k], why);
        if (!err)
            err = make_room(pilot, flight, &flight->out[k], part->out_bytes[k], why);
    }
    return err;
}

/* ---- By links --------------------------------------------------------------------------------*/

static uint64_t tag_of(const struct rb_pilot *pilot, uint32_t microbatch, bool back)
{
    return rb_tag(RB_TAG_STAGE, pilot->model->state.level, pilot->attempt,
                  2 * (uint64_t)microbatch + back);
}

/* Bytes of the count behind a message: one from a later stage to an earlier one, in a lap. */
static size_t count_bytes(const struct rb_pilot *pilot, bool back)
{
    return pilot->laps && back ? sizeof(int64_t) : 0;
}

static int receive_one(const struct rb_pilot *pilot, struct rb_flight *flight, uint32_t k,
                       struct rb_why *why)
{
    const struct rb_stage *stage = stage_of(pilot);
    bool back = k > stage->mine, parcel = false;
    uint64_t tag = tag_of(pilot, flight->microbatch, back);
    size_t bytes = rb_flight_part(pilot, flight)->in_bytes[k];
    int err = rb_way_take(pilot, flight, k, tag, &parcel, why);

    if (err || parcel)
        return err;
    err = rb_coll_receive(pilot->configuration->coll, tag,
                          (int)rb_stage_owner(stage, k, flight->microbatch), flight->in[k].bytes,
                          bytes + count_bytes(pilot, back), why);
    if (!err)
        rb_device_push(pilot->model->device, flight->in[k].bytes, bytes);
    return err;
}

int rb_freight_receive(const struct rb_pilot *pilot, struct rb_flight *flight, uint32_t first,
                       uint32_t end, struct rb_why *why)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    int err = 0;

    for (uint32_t k = first; !err && k < end; k++)
        if (part->in_bytes[k])
            err = receive_one(pilot, flight, k, why);
    return err;
}

static int post_one(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t k,
                    struct rb_why *why)
{
    const struct rb_stage *stage = stage_of(pilot);
    bool back = k < stage->mine, parcel = false;
    uint64_t tag = tag_of(pilot, flight->microbatch, back);
    size_t bytes = rb_flight_part(pilot, flight)->out_bytes[k];
    int err = rb_way_put(pilot, flight, k, tag, &parcel, why);

    if (err || parcel)
        return err;
    rb_device_pull(pilot->model->device, flight->out[k].bytes, bytes);
    err = rb_device_check(pilot->model->device, why);
    return err ? err
               : rb_coll_post(pilot->configuration->coll, tag,
                              (int)rb_stage_owner(stage, k, flight->microbatch),
                              flight->out[k].bytes, bytes + count_bytes(pilot, back), why);
}

/* Without sleeping at first: most waits are short. */
static void rest(int *turns)
{
    const struct timespec moment = {0, 20000};

    if (++*turns > 200)
        nanosleep(&moment, NULL);
}

/* Wait until the device has made all that it was asked for: what was posted before goes on
 * meanwhile. */
static int wait_made(const struct rb_pilot *pilot, const struct rb_flight *flight,
                     struct rb_why *why)
{
    int turns = 0, err = 0;

    if (!flight->mark)
        return 0;
    rb_marks_set(flight->mark, 0);
    for (; !err && !rb_marks_reached(flight->mark, 0); rest(&turns))
        err = rb_flight_go_on(pilot, why);
    return err;
}

static bool sends_any(const struct rb_part *part, uint32_t first, uint32_t end)
{
    while (first < end && !part->out_bytes[first])
        first++;
    return first < end;
}

int rb_freight_post(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t first,
                    uint32_t end, struct rb_why *why)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    int err = sends_any(part, first, end) ? wait_made(pilot, flight, why) : 0;

    err = err ? err : rb_device_check(pilot->model->device, why);
    for (uint32_t k = first; !err && k < end; k++)
        if (part->out_bytes[k])
            err = post_one(pilot, flight, k, why);
    return err;
}

void rb_freight_hear(const struct rb_pilot *pilot, struct rb_flight *flight)
{
    const struct rb_stage *stage = stage_of(pilot);
    const struct rb_part *part = rb_flight_part(pilot, flight);

    flight->count = 0;
    if (stage->mine + 1 == stage->stages)
        flight->count =
            *(const int64_t *)rb_program_result(flight->runner.program, part->message->count);
    for (uint32_t k = stage->mine + 1; k < stage->stages; k++)
        if (part->in_bytes[k])
            memcpy(&flight->count, flight->in[k].bytes + part->in_bytes[k], sizeof flight->count);
}

void rb_freight_tell(const struct rb_pilot *pilot, const struct rb_flight *flight)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);

    for (uint32_t k = 0; k < stage_of(pilot)->mine; k++)
        if (part->out_bytes[k])
            memcpy(flight->out[k].bytes + part->out_bytes[k], &flight->count, sizeof flight->count);
}

/* ---- On the device ---------------------------------------------------------------------------*/

/* The first cargo that is not in front of instruction `at`. */
static const struct rb_cargo *find(const struct rb_cargo *cargo, size_t n, uint32_t at)
{
    size_t first = 0;

    while (first < n) {
        size_t middle = first + (n - first) / 2;

        if (cargo[middle].at < at)
            first = middle + 1;
        else
            n = middle;
    }
    return &cargo[first];
}

void rb_freight_put(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t at)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    const struct rb_cargo *one = find(part->in, part->n_in, at);

    for (; one < part->in + part->n_in && one->at == at; one++)
        rb_device_copy(pilot->model->device,
                       rb_program_tensor(flight->runner.program, (int)one->tensor),
                       flight->in[one->peer].bytes + one->offset, one->bytes);
}

void rb_freight_take(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t at)
{
    const struct rb_part *part = rb_flight_part(pilot, flight);
    const struct rb_cargo *one = find(part->out, part->n_out, at);

    for (; one < part->out + part->n_out && one->at == at; one++)
        rb_device_copy(pilot->model->device, flight->out[one->peer].bytes + one->offset,
                       rb_program_tensor(flight->runner.program, (int)one->tensor), one->bytes);
}
