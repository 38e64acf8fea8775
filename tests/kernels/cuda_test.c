/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend: here every case of every operator against the reference; the rest by subject in
 * cuda_*.c.
 *
 * It runs on the device of the module named by RUBATO_CUDA_MODULE: a GPU, or the host that stands
 * in for one (kernels/cuda/gpu_host.c).  Without a module it is skipped. */
#include "kernels/device.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/case.h"
#include "tests/kernels/chain.h"
#include "tests/kernels/cuda_tests.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct rb_key key = {42, 7, 3};

static int open_device(void **state)
{
    struct rb_why why = {{0}};

    if (rb_device_open("cuda", 0, (struct rb_device **)state, &why) == 0)
        return 0;
    fprintf(stderr, "%s\n", why.text);
    return -1;
}

static int close_device(void **state)
{
    rb_device_close(*state);
    return 0;
}

void *cuda_get(struct rb_device *device, size_t bytes)
{
    void *memory = rb_device_alloc(device, bytes);

    assert_non_null(memory);
    return memory;
}

/* ---- Operators --------------------------------------------------------------------------------*/

/* Each tensor lies between margins; on both sides outputs are poison before the run. */
enum { MARGIN = 256 };

struct memory {
    size_t bytes[2 * CASE_TENSORS];
    char *block[2 * CASE_TENSORS];
    void *in[CASE_TENSORS], *out[CASE_TENSORS];
};

static void *place(struct rb_device *device, struct memory *memory, int k, size_t bytes,
                   size_t shift)
{
    memory->bytes[k] = bytes + shift + 2 * MARGIN;
    memory->block[k] = rb_device_alloc(device, memory->bytes[k]);
    assert_non_null(memory->block[k]);
    memset(memory->block[k], 0xff, memory->bytes[k]); /* NaN, and -1 */
    return memory->block[k] + MARGIN + shift;
}

static void fill(struct rb_device *device, const struct rb_case *c, uint64_t seed, size_t shift,
                 struct memory *memory)
{
    memset(memory, 0, sizeof *memory);
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype != RB_NONE) {
            memory->in[i] = place(device, memory, i, rb_case_bytes(&c->in[i]), shift);
            rb_case_fill(c, i, seed, memory->in[i]);
        }
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype != RB_NONE)
            memory->out[i] =
                place(device, memory, CASE_TENSORS + i, rb_case_bytes(&c->out[i]), shift);
    for (int k = 0; k < 2 * CASE_TENSORS; k++)
        rb_device_push(device, memory->block[k], memory->bytes[k]);
}

/* The host's side is overwritten first, so that it shows where the numbers come from. */
static void fetch(struct rb_device *device, struct memory *memory)
{
    struct rb_why why = {{0}};

    for (int k = CASE_TENSORS; k < 2 * CASE_TENSORS; k++)
        if (memory->block[k]) {
            memset(memory->block[k], 0x5a, memory->bytes[k]);
            rb_device_pull(device, memory->block[k], memory->bytes[k]);
        }
    if (rb_device_check(device, &why))
        fail_msg("%s", why.text);
}

static void done(struct rb_device *device, struct memory *memory)
{
    for (int k = 0; k < 2 * CASE_TENSORS; k++)
        rb_device_free(device, memory->block[k]);
}

static void check_margin(const char *text, const struct memory *memory, const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_out; i++)
        if (memory->out[i] && !rb_case_margin(&c->out[i], memory->out[i], MARGIN))
            fail_msg("%s: output %d is written beyond its ends", text, i);
}

/* Functions of a GPU are within some units in the last place of the C library's. */
static double tolerance(const struct rb_call *call, const struct rb_tensor_type *type)
{
    enum rb_op_kind kind = rb_op_info(call->op)->kind;

    bool attends = call->op == RB_OP_ATTENTION || call->op == RB_OP_ATTENTION_GRAD;

    /* Rounded from numbers like these; in attention also on the way. */
    if ((type->dtype == RB_BF16 && kind != RB_KIND_MOVE) ||
        (attends && call->in[0].dtype == RB_BF16))
        return 1.0 / 128;
    if (type->dtype != RB_F32 && type->dtype != RB_F64)
        return 0;
    if (kind == RB_KIND_MOVE && call->op != RB_OP_GATHER_GRAD)
        return 0;
    return type->dtype == RB_F64 && kind != RB_KIND_LOSS ? 2e-15 : 4e-6;
}

/* Only CPUs take activations in blocks of channels, and most numbers of 16 bits. */
static bool is_refused(struct rb_device *device, const struct rb_case *c)
{
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};
    int err = rb_kernel_prepare(device, &c->call, &kernel, &why);

    if (!err)
        rb_kernel_free(kernel);
    return err == RB_EUNSUPPORTED && strstr(why.text, "a GPU has no kernel") != NULL;
}

static bool is_short(const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype == RB_BF16)
            return true;
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype == RB_BF16)
            return true;
    return false;
}

static bool is_blocked(const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].rank >= 4 && c->in[i].dim[c->in[i].rank - 1] == 16)
            return true;
    return c->out[0].rank >= 4 && c->out[0].dim[c->out[0].rank - 1] == 16;
}

struct rb_kernel *cuda_prepare(struct rb_device *device, const char *text)
{
    struct rb_case c;
    struct rb_kernel *kernel = NULL;
    struct rb_why why = {{0}};

    rb_case_read(text, &c);
    if (rb_kernel_prepare(device, &c.call, &kernel, &why) != 0)
        fail_msg("%s: %s", text, why.text);
    return kernel;
}

void cuda_check(struct rb_device *device, struct rb_kernel *kernel, const char *text, uint64_t seed)
{
    struct rb_case c;
    struct memory got, again, want;

    rb_case_read(text, &c);
    fill(device, &c, seed, 0, &got);
    fill(device, &c, seed, 64 * (1 + seed % 5), &again);
    fill(device, &c, seed, 0, &want);
    rb_kernel_run(kernel, (const void *const *)got.in, got.out, &key);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    fetch(device, &got);
    fetch(device, &again);
    rb_reference_table[c.call.op](&c.call, (const void *const *)want.in, want.out, &key);
    for (int i = 0; i < c.call.n_out; i++) {
        double error;

        if (c.out[i].dtype == RB_NONE)
            continue;
        error = rb_case_error(&c.out[i], got.out[i], want.out[i]);
        if (error > tolerance(&c.call, &c.out[i]))
            fail_msg("%s: output %d is off by %g of the largest", text, i, error);
        if (memcmp(got.out[i], again.out[i], rb_case_bytes(&c.out[i])) != 0)
            fail_msg("%s: output %d has other bits at another address", text, i);
    }
    check_margin(text, &got, &c);
    check_margin(text, &again, &c);
    done(device, &got);
    done(device, &again);
    done(device, &want);
}

static void run_case(struct rb_device *device, const char *text, uint64_t seed)
{
    struct rb_case c;
    struct rb_kernel *kernel;

    rb_case_read(text, &c);
    if ((is_blocked(&c) || is_short(&c)) && is_refused(device, &c))
        return;
    kernel = cuda_prepare(device, text);
    cuda_check(device, kernel, text, seed);
    rb_kernel_free(kernel);
}

static void every_case_agrees(void **state)
{
    for (size_t i = 0; i < rb_cases_count; i++)
        run_case(*state, rb_cases[i], i + 1);
}

static void fused_is_one_by_one(void **state)
{
    rb_chain_check_each(*state);
    rb_chain_check_many(*state, 400);
    rb_chain_check_refusals(*state);
}

static void what_the_cpu_refuses_is_refused(void **state)
{
    struct rb_case c;
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};

    rb_case_read("MatMul f32[2,3] f32[4,5] > f32[2,5]", &c);
    assert_int_equal(rb_kernel_prepare(*state, &c.call, &kernel, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "inner sizes 3 and 4 differ"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_has_two_sides),
        cmocka_unit_test(what_the_cpu_refuses_is_refused),
        cmocka_unit_test(fixed_sums_are_the_references),
        cmocka_unit_test(squares_depend_on_n_alone),
        cmocka_unit_test(adamw_is_pytorchs),
        cmocka_unit_test(sgd_is_pytorchs),
        cmocka_unit_test(statistics_decay),
        cmocka_unit_test(a_tape_does_what_asking_does),
        cmocka_unit_test(a_copy_is_not_kept),
        cmocka_unit_test(tapes_can_be_unwanted),
        cmocka_unit_test(marks_have_times),
        cmocka_unit_test(large_copies_are_whole),
        cmocka_unit_test(pushes_keep_their_place),
        cmocka_unit_test(copies_keep_their_place),
        cmocka_unit_test(large_pushes_keep_their_place),
        cmocka_unit_test(circles_sum_and_end),
        cmocka_unit_test(circles_sum_for_some),
        cmocka_unit_test(circles_move),
        cmocka_unit_test(circles_shrink),
        cmocka_unit_test(every_case_agrees),
        cmocka_unit_test(convolutions_come_in_tiles),
        cmocka_unit_test(products_round_behind_a_bias),
        cmocka_unit_test(a_relu_may_be_late),
        cmocka_unit_test(a_relu_behind_a_nan_is_told),
        cmocka_unit_test(a_scatter_keeps_a_nan),
        cmocka_unit_test(what_is_not_there_shows),
        cmocka_unit_test(a_stray_class_shows),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(scratch_is_kept),
        cmocka_unit_test(fused_is_one_by_one),
        cmocka_unit_test(what_goes_wrong_is_kept),
    };
    struct rb_why why = {{0}};
    int count;

    if (rb_device_count("cuda", &count, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, open_device, close_device);
}
