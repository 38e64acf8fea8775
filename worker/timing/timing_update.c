/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the microbatches of a step, timed with memory as cold as they leave it, as many
 * together as pay: a copy of the sums, which stands for reducing them out of place, and the
 * optimizer's update by what was copied.  Of a large state only a part is timed. */
#include "worker/timing/timing_inside.h"

#include "base/clock.h"

enum { ROUNDS = 5 };

static const uint64_t most_elements = UINT64_C(16) << 20;

/* The memory that is timed. */
struct after {
    struct rb_timing_lanes *lanes;
    size_t elements;
    float *m, *v; /* v: AdamW's only */
    int32_t *reduced;
    double *squares;
};

/* With a learning rate of 0: weights stay as they are. */
static void update(const struct after *after)
{
    static const struct rb_adamw adamw = {
        .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .correction1 = 0.1f, .correction2 = 0.001f};
    const struct rb_timing_place *place = after->lanes->place;
    const struct rb_sgd sgd = {.momentum = (float)after->lanes->model->optimizer->momentum};
    double *on_the_way = after->squares;
    size_t n = after->elements;

    if (after->lanes->model->optimizer->clip_norm > 0) { /* clipping asks for them before */
        rb_fixed_squares(place->device, after->reduced, n, 30, 1, after->squares);
        on_the_way = NULL;
    }
    if (after->v)
        rb_apply_adamw(place->device, place->memory.state, after->m, after->v,
                       rb_sums_of(after->reduced), n, 30, 1, &adamw, on_the_way);
    else
        rb_apply_sgd(place->device, place->memory.state, sgd.momentum != 0 ? after->m : NULL,
                     rb_sums_of(after->reduced), n, 30, 1, &sgd, on_the_way);
}

/* Reducing is out of place. */
static void copy(const struct after *after)
{
    rb_device_copy(after->lanes->place->device, after->reduced, after->lanes->place->sums,
                   after->elements * sizeof *after->reduced);
}

static bool make_room(struct after *after)
{
    struct rb_device *device = after->lanes->place->device;
    size_t bytes = after->elements * sizeof(float) + 64;
    bool two = after->lanes->model->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW;

    after->m = rb_device_alloc(device, bytes);
    after->v = two ? rb_device_alloc(device, bytes) : NULL;
    after->reduced = rb_device_alloc(device, bytes);
    after->squares = rb_device_alloc(device, sizeof *after->squares);
    if (!after->m || (two && !after->v) || !after->reduced || !after->squares)
        return false;
    /* weights, so that moments are numbers as good as any */
    rb_device_copy(device, after->m, after->lanes->place->memory.state, bytes - 64);
    if (two)
        rb_device_discard(device, after->v, bytes);
    return true;
}

static bool open_after(struct rb_timing_lanes *lanes, struct after *after)
{
    uint64_t all = lanes->model->state_elements;

    *after = (struct after){.lanes = lanes,
                            .elements = all < most_elements ? (size_t)all : most_elements};
    if (!after->elements || !lanes->model->programs[0]->n_instructions || !make_room(after))
        return false;
    copy(after); /* so that no memory is touched for the first time later */
    update(after);
    return true;
}

static void close_after(struct after *after)
{
    void *const memory[] = {after->m, after->v, after->reduced, after->squares};

    for (size_t i = 0; i < RB_COUNT(memory); i++)
        rb_device_free(after->lanes->place->device, memory[i]);
}

/* ns of the copy and of the update, after microbatches. */
static void time_round(const struct after *after, double *ret_copy, double *ret_update)
{
    struct rb_marks *marks = after->lanes->place->marks;

    rb_timing_lanes_run(after->lanes);
    rb_marks_set(marks, 0);
    copy(after);
    rb_marks_set(marks, 1);
    *ret_copy = rb_marks_between(marks, 0, 1);
    rb_marks_set(marks, 0);
    update(after);
    rb_marks_set(marks, 1);
    *ret_update = rb_marks_between(marks, 0, 1);
}

void rb_timing_update(struct rb_timing_lanes *lanes, uint64_t most_ns,
                      struct rb_timing_step *ret_step)
{
    double copies[ROUNDS], updates[ROUNDS], ns;
    uint64_t end = rb_clock_ns() + most_ns;
    struct after after;
    size_t rounds = 0;

    if (open_after(lanes, &after))
        for (; rounds < ROUNDS && (!rounds || rb_clock_ns() < end); rounds++)
            time_round(&after, &copies[rounds], &updates[rounds]);
    close_after(&after);
    if (!rounds)
        return; /* nothing to update, or no memory for it */
    ret_step->update = rb_profile_median(updates, rounds) / 1e9 / (double)after.elements;
    ns = rb_profile_median(copies, rounds);
    ret_step->copied = ns > 0 ? 1e9 * 2 * (double)after.elements * sizeof(float) / ns : 0;
}
