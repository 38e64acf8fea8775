/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the microbatches of a step, with memory as cold as they leave it: the optimizer's
 * update, and a copy as large as the sums.  Of a large state a part. */
#include "worker/timing_inside.h"

#include "base/clock.h"

enum { ROUNDS = 5 };

static const uint64_t most_elements = UINT64_C(16) << 20;

/* Where it is done. */
struct after {
    const struct rb_timing_place *place;
    const Rb__Model *model;
    size_t elements;
    float *m, *v; /* v: AdamW's alone */
    double *squares;
};

static bool open_after(struct after *after)
{
    struct rb_device *device = after->place->device;
    size_t bytes = after->elements * sizeof(float) + 64;
    bool two = after->model->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW;

    after->m = rb_device_alloc(device, bytes);
    after->v = two ? rb_device_alloc(device, bytes) : NULL;
    after->squares = rb_device_alloc(device, sizeof *after->squares);
    if (!after->m || (two && !after->v) || !after->squares)
        return false;
    if (two)
        rb_device_discard(device, after->v, bytes);
    return true;
}

static void close_after(struct after *after)
{
    rb_device_free(after->place->device, after->m);
    rb_device_free(after->place->device, after->v);
    rb_device_free(after->place->device, after->squares);
}

/* At a learning rate of nothing: weights stay as they are. */
static void update(const struct after *after)
{
    static const struct rb_adamw adamw = {
        .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .correction1 = 0.1f, .correction2 = 0.001f};
    const struct rb_timing_place *place = after->place;
    const struct rb_sgd sgd = {.momentum = (float)after->model->optimizer->momentum};
    size_t n = after->elements;

    rb_fixed_squares(place->device, place->sums, n, 30, 1, after->squares);
    if (after->v)
        rb_apply_adamw(place->device, place->memory.state, after->m, after->v, place->sums, n, 30,
                       1, &adamw);
    else
        rb_apply_sgd(place->device, place->memory.state, sgd.momentum != 0 ? after->m : NULL,
                     place->sums, n, 30, 1, &sgd);
}

/* Weights, so that moments are numbers as good as any. */
static void copy(const struct after *after)
{
    rb_device_copy(after->place->device, after->m, after->place->memory.state,
                   after->elements * sizeof(float));
}

/* ns of it behind a microbatch. */
static double time_behind(const struct after *after, void (*what)(const struct after *after))
{
    struct rb_marks *marks = after->place->marks;

    rb_timing_run(after->place, after->model, true, false);
    rb_marks_set(marks, 0);
    what(after);
    rb_marks_set(marks, 1);
    return rb_marks_between(marks, 0, 1);
}

void rb_timing_update(const struct rb_timing_place *place, const Rb__Model *model, uint64_t most_ns,
                      struct rb_timing_step *ret_step)
{
    struct after after = {.place = place, .model = model};
    double updates[ROUNDS], copies[ROUNDS], ns;
    uint64_t end = rb_clock_ns() + most_ns;
    size_t rounds = 0;

    after.elements =
        model->state_elements < most_elements ? (size_t)model->state_elements : most_elements;
    if (after.elements && model->programs[0]->n_instructions && open_after(&after)) {
        copy(&after);
        update(&after); /* memory is new once */
        for (; rounds < ROUNDS && (!rounds || rb_clock_ns() < end); rounds++) {
            copies[rounds] = time_behind(&after, copy);
            updates[rounds] = time_behind(&after, update);
        }
    }
    close_after(&after);
    if (!rounds)
        return; /* nothing to update, or no memory for it */
    ret_step->update = rb_profile_median(updates, rounds) / 1e9 / (double)after.elements;
    ns = rb_profile_median(copies, rounds);
    ret_step->copied = ns > 0 ? 1e9 * 2 * (double)after.elements * sizeof(float) / ns : 0;
}
