/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"

#include "kernels/backend.h"
#include "kernels/call.h"
#include "kernels/module.h"

#include <string.h>

/* Where there is no such kind, `why` says so. */
static int find(const char *kind, const struct rb_device_ops **ret_ops, struct rb_why *why)
{
    if (strcmp(kind, rb_cpu_ops.kind) != 0)
        return rb_module_open(kind, ret_ops, why);
    *ret_ops = &rb_cpu_ops;
    return 0;
}

int rb_device_count(const char *kind, int *ret_count, struct rb_why *why)
{
    const struct rb_device_ops *ops;
    int err = find(kind, &ops, why);

    return err ? err : ops->count(ret_count, why);
}

int rb_device_describe(const char *kind, int index, struct rb_device_about *ret_about,
                       struct rb_why *why)
{
    const struct rb_device_ops *ops;
    int err = find(kind, &ops, why);

    return err ? err : ops->describe(index, ret_about, why);
}

int rb_device_open(const char *kind, int index, struct rb_device **ret_device, struct rb_why *why)
{
    const struct rb_device_ops *ops;
    struct rb_device *device = NULL;
    int err = find(kind, &ops, why);

    if (!err)
        err = ops->open(index, &device, why);
    if (!err && ops != &rb_cpu_ops)
        err = rb_cpu_ops.open(0, &device->checker, why);
    if (err) {
        rb_device_close(device);
        return err;
    }
    *ret_device = device;
    return 0;
}

void rb_device_close(struct rb_device *device)
{
    if (!device)
        return;
    rb_device_close(device->checker);
    device->ops->close(device);
}

const char *rb_device_numeric_class(const char *kind)
{
    return strcmp(kind, rb_cpu_ops.kind) == 0 ? rb_cpu_numeric_class() : "unknown";
}

void *rb_device_alloc(struct rb_device *device, size_t bytes)
{
    return device->ops->alloc(device, bytes);
}

void *rb_device_alloc_shown(struct rb_device *device, size_t bytes)
{
    return device->ops->alloc_shown ? device->ops->alloc_shown(device, bytes)
                                    : rb_device_alloc(device, bytes);
}

int rb_device_shown(struct rb_device *device, const void *memory)
{
    return device->ops->shown ? device->ops->shown(device, memory) : -1;
}

void rb_device_free(struct rb_device *device, void *memory)
{
    if (memory)
        device->ops->release(device, memory);
}

bool rb_device_sparse(const struct rb_device *device)
{
    return !device->ops->pull;
}

void rb_device_discard(struct rb_device *device, void *memory, size_t bytes)
{
    if (bytes)
        device->ops->discard(device, memory, bytes);
}

void rb_device_clear(struct rb_device *device, void *memory, size_t bytes)
{
    if (rb_device_sparse(device))
        memset(memory, 0, bytes);
    else
        rb_device_discard(device, memory, bytes);
}

void rb_device_expect(struct rb_device *device, void *memory, size_t bytes,
                      const struct rb_extent *extents, size_t n)
{
    if (device->ops->expect)
        device->ops->expect(device, memory, bytes, extents, n);
}

void rb_device_pull(struct rb_device *device, void *memory, size_t bytes)
{
    if (device && device->ops->pull && memory && bytes)
        device->ops->pull(device, memory, bytes);
}

void rb_device_push(struct rb_device *device, void *memory, size_t bytes)
{
    if (device && device->ops->push && memory && bytes)
        device->ops->push(device, memory, bytes);
}

void rb_device_copy(struct rb_device *device, void *to, const void *from, size_t bytes)
{
    if (device->ops->copy)
        device->ops->copy(device, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

int rb_device_check(struct rb_device *device, struct rb_why *why)
{
    return device && device->ops->check ? device->ops->check(device, why) : 0;
}

/* What a call may look like is said in one place: what the CPU refuses is refused in its words. */
static int check_shapes(struct rb_device *checker, const struct rb_call *call, struct rb_why *why)
{
    struct rb_kernel *kernel;
    int err = checker->ops->prepare(checker, call, &kernel, why);

    if (!err)
        rb_kernel_free(kernel);
    return err;
}

int rb_kernel_prepare(struct rb_device *device, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    int err = rb_call_check(call, why);

    if (!err && device->checker)
        err = check_shapes(device->checker, call, why);
    return err ? err : device->ops->prepare(device, call, ret_kernel, why);
}

void rb_kernel_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                   const struct rb_key *key)
{
    kernel->run(kernel, in, out, key);
}

bool rb_kernel_sums(const struct rb_kernel *kernel)
{
    return kernel->sum != NULL;
}

void rb_kernel_sum(struct rb_kernel *kernel, const void *const *in, const struct rb_fixed *into)
{
    kernel->sum(kernel, in, into);
}

bool rb_kernel_gathers(const struct rb_kernel *kernel)
{
    return kernel->each || kernel->sum_each;
}

/* Weights are the same memory for all runs; what is made from samples is not. */
static bool is_shared(const struct rb_kernel *kernel, int n, const void *const *const *in)
{
    for (int e = 1; e < n; e++)
        for (int i = 1; i <= kernel->shared; i++)
            if (in[e][i] != in[0][i])
                return false;
    return true;
}

void rb_kernel_run_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        void *const *const *out, const struct rb_key *keys)
{
    if (kernel->each && n > 1 && is_shared(kernel, n, in)) {
        kernel->each(kernel, n, in, out, keys);
        return;
    }
    for (int i = 0; i < n; i++)
        kernel->run(kernel, in[i], out[i], &keys[i]);
}

void rb_kernel_sum_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        const struct rb_fixed *into)
{
    if (kernel->sum_each && n > 1) {
        kernel->sum_each(kernel, n, in, into);
        return;
    }
    for (int i = 0; i < n; i++)
        kernel->sum(kernel, in[i], &into[i]);
}

void rb_kernel_free(struct rb_kernel *kernel)
{
    if (kernel)
        kernel->free(kernel);
}

bool rb_device_tapes(const struct rb_device *device)
{
    return device->ops->tape_start != NULL;
}

int rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                  struct rb_why *why)
{
    if (!rb_device_tapes(device))
        return rb_why_set(why, RB_EUNSUPPORTED, "a %s keeps no tapes", device->ops->kind);
    return device->ops->tape_start(device, sums, ret_tape, why);
}

int rb_tape_end(struct rb_tape *tape, struct rb_why *why)
{
    return tape->ops->tape_end(tape, why);
}

bool rb_tape_play(struct rb_tape *tape, const struct rb_key *key, const struct rb_fixed *sums,
                  size_t n_sums)
{
    return tape->ops->tape_play(tape, key, sums, n_sums);
}

void rb_tape_free(struct rb_tape *tape)
{
    if (tape)
        tape->ops->tape_free(tape);
}

bool rb_device_circles(const struct rb_device *device)
{
    return device->ops->circle_ticket != NULL;
}

int rb_circle_ticket(struct rb_device *device, void *ret_ticket, struct rb_why *why)
{
    if (!rb_device_circles(device))
        return rb_why_set(why, RB_EUNSUPPORTED, "a %s has no way to others", device->ops->kind);
    return device->ops->circle_ticket(device, ret_ticket, why);
}

int rb_circle_enter(struct rb_device *device, const void *ticket, int rank, int size,
                    struct rb_circle **ret_circle, struct rb_why *why)
{
    return device->ops->circle_enter(device, ticket, rank, size, ret_circle, why);
}

int rb_circle_ready(struct rb_circle *circle, bool *ret_ready, struct rb_why *why)
{
    return circle->ops->circle_ready(circle, ret_ready, why);
}

int rb_circle_sum(struct rb_circle *circle, const int32_t *in, int32_t *out,
                  const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                  void *context, struct rb_why *why)
{
    return circle->ops->circle_sum(circle, in, out, ranges, n, over, context, why);
}

int rb_circle_move(struct rb_circle *circle, const struct rb_circle_move *moves, size_t n,
                   bool (*over)(void *context), void *context, struct rb_why *why)
{
    return circle->ops->circle_move(circle, moves, n, over, context, why);
}

void rb_circle_leave(struct rb_circle *circle)
{
    if (circle)
        circle->ops->circle_leave(circle);
}

void rb_circle_stop(struct rb_circle *circle)
{
    circle->ops->circle_stop(circle);
}

int rb_circle_shrink(struct rb_circle *circle, const int *gone, int n,
                     struct rb_circle **ret_circle, struct rb_why *why)
{
    return circle->ops->circle_shrink(circle, gone, n, ret_circle, why);
}

bool rb_device_shelves(const struct rb_device *device)
{
    return device->ops->shelf_open != NULL;
}

static int refuse_shelf(const struct rb_device *device, struct rb_why *why)
{
    return rb_why_set(why, RB_EUNSUPPORTED, "a %s takes nothing from others", device->ops->kind);
}

int rb_shelf_open(struct rb_device *device, size_t bytes, void *ret_address,
                  struct rb_shelf **ret_shelf, struct rb_why *why)
{
    if (!rb_device_shelves(device))
        return refuse_shelf(device, why);
    return device->ops->shelf_open(device, bytes, ret_address, ret_shelf, why);
}

int rb_shelf_find(struct rb_device *device, const void *address, size_t bytes,
                  struct rb_shelf **ret_shelf, struct rb_why *why)
{
    if (!rb_device_shelves(device))
        return refuse_shelf(device, why);
    return device->ops->shelf_find(device, address, bytes, ret_shelf, why);
}

void rb_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n)
{
    shelf->ops->shelf_put(shelf, at, from, n);
}

void rb_shelf_take(struct rb_shelf *shelf, size_t at, const struct iovec *to, int n)
{
    shelf->ops->shelf_take(shelf, at, to, n);
}

void rb_shelf_close(struct rb_shelf *shelf)
{
    if (shelf)
        shelf->ops->shelf_close(shelf);
}

int rb_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                 struct rb_why *why)
{
    return device->ops->marks_new(device, n, ret_marks, why);
}

void rb_marks_set(struct rb_marks *marks, size_t i)
{
    marks->ops->marks_set(marks, i);
}

double rb_marks_between(struct rb_marks *marks, size_t from, size_t to)
{
    return marks->ops->marks_between(marks, from, to);
}

bool rb_marks_reached(struct rb_marks *marks, size_t i)
{
    return !marks->ops->marks_reached || marks->ops->marks_reached(marks, i);
}

void rb_marks_free(struct rb_marks *marks)
{
    if (marks)
        marks->ops->marks_free(marks);
}

void rb_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    device->ops->fixed_add(device, sum, g, n, false, weight, exponent, limit, largest, overflow);
}

void rb_fixed_set(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    device->ops->fixed_add(device, sum, g, n, true, weight, exponent, limit, largest, overflow);
}

void rb_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                      double scale, double *ret_squares)
{
    device->ops->fixed_squares(device, sum, n, exponent, scale, ret_squares);
}

void rb_apply_adamw(struct rb_device *device, float *w, float *m, float *v, struct rb_sums sums,
                    size_t n, int exponent, float scale, const struct rb_adamw *how,
                    double *ret_squares)
{
    device->ops->apply_adamw(device, w, m, v, sums, n, exponent, scale, how, ret_squares);
}

void rb_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                  int exponent, float scale, const struct rb_sgd *how, double *ret_squares)
{
    device->ops->apply_sgd(device, w, m, sums, n, exponent, scale, how, ret_squares);
}

void rb_predict(struct rb_device *device, float *out, const float *w, const float *m,
                const float *v, size_t n, const struct rb_predict *how)
{
    device->ops->predict(device, out, w, m, v, n, how);
}

void rb_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                        int exponent, float keep)
{
    device->ops->apply_statistic(device, w, sums, n, exponent, keep);
}
