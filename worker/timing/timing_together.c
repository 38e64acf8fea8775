/* SPDX-License-Identifier: Apache-2.0 */
/* What microbatches gain by being computed together. */
#include "worker/timing/timing_inside.h"

#include "base/clock.h"
#include "worker/lanes.h"

enum { ROUNDS = 5 };

/* ---- Lanes -----------------------------------------------------------------------------------*/

static int open_lane(struct rb_timing_lanes *lanes, int i, struct rb_why *why)
{
    const struct rb_timing_place *place = lanes->place;
    const Rb__Program *program = lanes->model->programs[0];
    struct rb_program_memory memory = place->memory;
    int err;

    memory.arena = lanes->arenas[i] =
        rb_device_alloc(place->device, (size_t)program->arena_bytes + 64);
    memory.twin = place->ready;
    if (!memory.arena)
        return rb_why_set(why, RB_ENOMEM, "no memory for a further microbatch");
    err =
        rb_program_prepare(place->device, lanes->model, program, &memory, &lanes->programs[i], why);
    if (err)
        return err;
    rb_timing_fill(program, lanes->programs[i]);
    rb_program_defer(lanes->programs[i], true);
    return 0;
}

static void close_lane(struct rb_timing_lanes *lanes, int i)
{
    rb_program_free(lanes->programs[i]);
    rb_device_free(lanes->place->device, lanes->arenas[i]);
}

/* As many lanes as pay and as there is memory for. */
int rb_timing_lanes_open(const struct rb_timing_place *place, const Rb__Model *model,
                         struct rb_timing_lanes *lanes, struct rb_why *why)
{
    uint32_t pay = rb_lanes_pay(model, model->programs[0], place->ready);
    int err = 0;

    *lanes = (struct rb_timing_lanes){
        .place = place, .model = model, .n = 1, .programs = {place->ready}};
    if (!model->programs[0]->n_instructions)
        return 0;
    while (!err && lanes->n < (int)pay) {
        err = open_lane(lanes, lanes->n, why);
        if (err)
            close_lane(lanes, lanes->n);
        else
            lanes->n++;
    }
    return err == RB_ENOMEM ? 0 : err;
}

void rb_timing_lanes_close(struct rb_timing_lanes *lanes)
{
    for (int i = 1; i < lanes->n; i++)
        close_lane(lanes, i);
}

static void after_instruction(int instruction, void *context)
{
    struct rb_timing_lanes *lanes = context;
    const Rb__Program *program = lanes->model->programs[0];
    struct rb_fixed into[RB_KERNEL_EACH];

    for (; lanes->next < program->n_contributions &&
           program->contributions[lanes->next]->after <= (uint32_t)instruction + 1;
         lanes->next++) {
        const Rb__Contribution *one = program->contributions[lanes->next];

        for (int e = 0; e < lanes->n; e++)
            into[e] = rb_timing_summand(lanes->place, lanes->model, one);
        rb_program_add_each(lanes->programs, lanes->n, (int)one->tensor, into);
    }
}

void rb_timing_lanes_run(struct rb_timing_lanes *lanes)
{
    static const struct rb_key keys[RB_KERNEL_EACH];

    if (lanes->n < 2) {
        rb_timing_run(lanes->place, lanes->model, true, false);
        return;
    }
    lanes->next = 0;
    rb_program_run_each(lanes->programs, lanes->n, keys, NULL, after_instruction, lanes);
}

/* ---- Rounds ----------------------------------------------------------------------------------*/

/* ns of a microbatch alone, and of one in `lanes`. */
static void time_round(struct rb_timing_lanes *lanes, double *ret_alone, double *ret_among)
{
    struct rb_marks *marks = lanes->place->marks;

    rb_marks_set(marks, 0);
    rb_timing_run(lanes->place, lanes->model, true, false);
    rb_marks_set(marks, 1);
    *ret_alone = rb_marks_between(marks, 0, 1);
    rb_marks_set(marks, 0);
    rb_timing_lanes_run(lanes);
    rb_marks_set(marks, 1);
    *ret_among = rb_marks_between(marks, 0, 1) / lanes->n;
}

/* Noise must not make microbatches slower together, nor faster than if all of their work were
 * shared. */
static double part_of(double *alone, double *among, size_t rounds, double lanes)
{
    double one = rb_profile_median(alone, rounds), part;

    part = one > 0 ? rb_profile_median(among, rounds) / one : 1;
    return part > 1 ? 1 : part < 1 / lanes ? 1 / lanes : part;
}

void rb_timing_together(struct rb_timing_lanes *lanes, uint64_t most_ns,
                        struct rb_timing_step *ret_step)
{
    uint64_t end = rb_clock_ns() + most_ns;
    double alone[ROUNDS], among[ROUNDS];
    size_t rounds = 0;

    ret_step->lanes = (uint32_t)lanes->n;
    ret_step->together = 1;
    if (lanes->n < 2)
        return;
    for (; rounds < ROUNDS && (!rounds || rb_clock_ns() < end); rounds++)
        time_round(lanes, &alone[rounds], &among[rounds]);
    ret_step->together = part_of(alone, among, rounds, lanes->n);
}
