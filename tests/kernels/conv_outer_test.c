/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of convolutions' weights as outer products: what the definition says, and into
 * fixed-point sums the same bits as if the gradients had been written. */
#include "kernels/backend.h"
#include "kernels/device.h"
#include "proto/blocked.h"
#include "tests/kernels/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_IN = 1 << 16, MOST_OUT = 1 << 18 };

/* Planes are square. */
struct shape {
    int64_t n, c, m, in, kernel, stride, dilation, pad;
};

/* A deep ResNet's, its step down and the 1 x 1 beside that; channels that are no multiple of those
 * computed at a time; padding that whole windows lie in; a kernel as large as the plane. */
static const struct shape shapes[] = {
    {8, 64, 128, 4, 3, 1, 1, 1}, {8, 64, 128, 8, 3, 2, 1, 1}, {3, 256, 272, 5, 1, 2, 1, 0},
    {2, 80, 112, 6, 3, 1, 1, 1}, {1, 48, 160, 9, 3, 1, 2, 2}, {5, 32, 96, 3, 5, 1, 1, 4},
    {7, 96, 32, 5, 5, 1, 1, 0},
};

static float dy[MOST_IN], x[MOST_IN], dw[MOST_OUT], want[MOST_OUT];
static uint16_t narrow_dy[MOST_IN], narrow_x[MOST_IN];

static int64_t out_of(const struct shape *s)
{
    return (s->in + 2 * s->pad - s->dilation * (s->kernel - 1) - 1) / s->stride + 1;
}

static int64_t weights_of(const struct shape *s)
{
    return s->m * s->c * s->kernel * s->kernel;
}

/* The index of an element in blocks of channels. */
static int64_t at(int64_t channels, int64_t side, int64_t n, int64_t c, int64_t i, int64_t j)
{
    return (((n * channels + c / RB_BLOCK * RB_BLOCK) * side + i * RB_BLOCK) * side) +
           j * RB_BLOCK + c % RB_BLOCK;
}

/* Small whole numbers: every sum of them is exact, in any order. */
static void fill(float *to, uint16_t *narrow, int64_t n, uint32_t seed)
{
    assert_true(n <= MOST_IN);
    for (int64_t i = 0; i < n; i++) {
        to[i] = (float)(int)(4 * setup_draw(&seed));
        narrow[i] = rb_dtype_to_bfloat(to[i]);
    }
}

static float gradient(const struct shape *s, int64_t m, int64_t c, int64_t k, int64_t l)
{
    const int64_t out = out_of(s);
    float sum = 0;

    for (int64_t n = 0; n < s->n; n++)
        for (int64_t i = 0; i < out; i++)
            for (int64_t j = 0; j < out; j++) {
                const int64_t row = i * s->stride - s->pad + k * s->dilation;
                const int64_t column = j * s->stride - s->pad + l * s->dilation;

                if (row >= 0 && row < s->in && column >= 0 && column < s->in)
                    sum += dy[at(s->m, out, n, m, i, j)] * x[at(s->c, s->in, n, c, row, column)];
            }
    return sum;
}

static void find_wanted(const struct shape *s)
{
    float *to = want;

    assert_true(weights_of(s) <= MOST_OUT);
    fill(dy, narrow_dy, s->n * s->m * out_of(s) * out_of(s), 3);
    fill(x, narrow_x, s->n * s->c * s->in * s->in, 4);
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t c = 0; c < s->c; c++)
            for (int64_t k = 0; k < s->kernel; k++)
                for (int64_t l = 0; l < s->kernel; l++)
                    *to++ = gradient(s, m, c, k, l);
}

static struct rb_kernel *prepare(struct rb_device *device, const struct shape *s,
                                 enum rb_dtype factors)
{
    const int64_t strides[] = {s->stride, s->stride}, dilations[] = {s->dilation, s->dilation};
    const int64_t pads[] = {s->pad, s->pad, s->pad, s->pad}, out_side = out_of(s);
    const struct rb_attribute attributes[] = {
        {.key = "strides", .ints = strides, .n_ints = 2},
        {.key = "dilations", .ints = dilations, .n_ints = 2},
        {.key = "pads", .ints = pads, .n_ints = 4},
    };
    const struct rb_tensor_type in[] = {
        {factors, 5, {s->n, s->m / RB_BLOCK, out_side, out_side, RB_BLOCK}},
        {factors, 5, {s->n, s->c / RB_BLOCK, s->in, s->in, RB_BLOCK}}};
    const struct rb_tensor_type out = {RB_F32, 4, {s->m, s->c, s->kernel, s->kernel}};
    const struct rb_call call = {.op = RB_OP_CONV_GRAD_W,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &out,
                                 .attributes = attributes,
                                 .n_attributes = 3};
    struct rb_kernel *kernel = NULL;
    struct rb_why why;

    if (rb_kernel_prepare(device, &call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    return kernel;
}

/* Exponents at which nothing, some and all overflow. */
static void check_sums(struct rb_device *device, struct rb_kernel *kernel, const void *const *in,
                       size_t n, bool fresh)
{
    int32_t *sums = malloc(n * sizeof *sums), *apart = malloc(n * sizeof *apart);

    assert_true(sums && apart);
    for (int exponent = 8; exponent < 32; exponent += 4) {
        uint32_t largest[2] = {1, 1};
        bool overflow[2] = {false, false};
        const struct rb_fixed into = {.sum = sums,
                                      .fresh = fresh,
                                      .weight = 0.75f,
                                      .exponent = exponent,
                                      .limit = INT32_MAX / 8,
                                      .largest = &largest[0],
                                      .overflow = &overflow[0]};

        for (size_t i = 0; i < n; i++)
            sums[i] = apart[i] = (int32_t)(i * 977);
        rb_kernel_sum(kernel, in, &into);
        (fresh ? rb_fixed_set : rb_fixed_add)(device, apart, want, n, into.weight, exponent,
                                              into.limit, &largest[1], &overflow[1]);
        assert_memory_equal(sums, apart, n * sizeof *sums);
        assert_int_equal(largest[0], largest[1]);
        assert_int_equal(overflow[0], overflow[1]);
    }
    free(sums);
    free(apart);
}

static void check(struct rb_device *device, const struct shape *s, enum rb_dtype factors)
{
    const void *const wide[] = {dy, x}, *const narrow[] = {narrow_dy, narrow_x};
    const void *const *in = factors == RB_BF16 ? narrow : wide;
    struct rb_kernel *kernel = prepare(device, s, factors);
    const size_t n = (size_t)weights_of(s);
    const struct rb_key key = {0};

    find_wanted(s);
    memset(dw, 0xff, sizeof dw);
    rb_kernel_run(kernel, in, (void *const[]){dw}, &key);
    assert_memory_equal(dw, want, n * sizeof *dw);
    if (rb_kernel_sums(kernel)) {
        check_sums(device, kernel, in, n, true);
        check_sums(device, kernel, in, n, false);
    } else if (strstr(rb_cpu_numeric_class(), "avx512") && factors == RB_F32) {
        fail_msg("a gradient of %zu weights is written", n);
    }
    rb_kernel_free(kernel);
}

static void gradients_are_what_they_should_be(void **state)
{
    for (size_t i = 0; i < RB_COUNT(shapes); i++) {
        check(*state, &shapes[i], RB_F32);
        check(*state, &shapes[i], RB_BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_what_they_should_be)};

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
