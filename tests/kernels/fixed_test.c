/* SPDX-License-Identifier: Apache-2.0 */
/* What fixed-point sums promise: order does not matter, and nothing is lost unseen. */
#include "kernels/device.h"
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1003, PARTS = 6 };

static int open_device(void **state)
{
    return rb_device_open("cpu", 0, (struct rb_device **)state, NULL);
}

static int close_device(void **state)
{
    rb_device_close(*state);
    return 0;
}

static float draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int32_t)*seed) * 0x1p-31f;
}

struct sum {
    int32_t value[N];
    uint32_t largest;
    bool overflow;
};

static void add(struct rb_device *device, struct sum *sum, const float *g, size_t n, float weight,
                int exponent, int32_t limit)
{
    rb_fixed_add(device, sum->value, g, n, weight, exponent, limit, &sum->largest, &sum->overflow);
}

/* One number, with exponent 0. */
static int32_t one(struct rb_device *device, float g, int32_t limit, bool *overflow)
{
    struct sum sum = {{0}, 0, false};

    add(device, &sum, &g, 1, 1.0f, 0, limit);
    *overflow = sum.overflow;
    return sum.value[0];
}

static void any_order_gives_the_same_sum(void **state)
{
    static float g[PARTS][N];
    struct sum forward = {{0}, 0, false}, backward = {{0}, 0, false}, left = {{0}, 0, false},
               right = {{0}, 0, false};
    uint32_t seed = 7;

    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < N; i++)
            g[p][i] = draw(&seed);
    for (int p = 0; p < PARTS; p++) {
        add(*state, &forward, g[p], N, 0.5f, 24, INT32_MAX / PARTS);
        add(*state, &backward, g[PARTS - 1 - p], N, 0.5f, 24, INT32_MAX / PARTS);
        add(*state, p < 2 ? &left : &right, g[p], N, 0.5f, 24, INT32_MAX / PARTS);
    }
    for (int i = 0; i < N; i++)
        left.value[i] += right.value[i];
    assert_memory_equal(forward.value, backward.value, sizeof(forward.value));
    assert_memory_equal(forward.value, left.value, sizeof(forward.value));
    assert_int_equal(forward.largest, backward.largest);
    assert_false(forward.overflow);
}

static void agrees_with_the_reference(void **state)
{
    static const int exponents[] = {-240, -130, -20, 0, 3, 24, 31, 40, 126, 127, 200, 252};
    static float g[N];
    uint32_t seed = 3;

    for (size_t e = 0; e < RB_COUNT(exponents); e++) {
        struct sum got = {{0}, 0, false}, want = {{0}, 0, false};

        for (int i = 0; i < N; i++)
            g[i] = ldexpf(draw(&seed), 30 - exponents[e] + i % 3);
        add(*state, &got, g, N, 0.75f, exponents[e], 1 << 30);
        rb_reference_fixed_add(want.value, g, N, 0.75f, exponents[e], 1 << 30, &want.largest,
                               &want.overflow);
        assert_memory_equal(got.value, want.value, sizeof(got.value));
        assert_int_equal(got.largest, want.largest);
        assert_int_equal(got.overflow, want.overflow);
    }
}

static void halves_go_to_even(void **state)
{
    static const float from[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 3.5000002f};
    static const int32_t to[] = {0, 2, 2, 0, -2, -2, 0, 4};
    bool overflow;

    for (size_t i = 0; i < RB_COUNT(from); i++)
        assert_int_equal(one(*state, from[i], 1000, &overflow), to[i]);
}

static void limit_clamps_and_flags(void **state)
{
    bool overflow;

    assert_int_equal(one(*state, 100.0f, 100, &overflow), 100);
    assert_false(overflow);
    assert_int_equal(one(*state, 100.4f, 100, &overflow), 100);
    assert_false(overflow); /* the rounded summand counts */
    assert_int_equal(one(*state, 101.0f, 100, &overflow), 100);
    assert_true(overflow);
    assert_int_equal(one(*state, -101.0f, 100, &overflow), -100);
    assert_true(overflow);
    assert_int_equal(one(*state, 2147483520.0f, INT32_MAX, &overflow), 2147483520);
    assert_false(overflow);
    assert_int_equal(one(*state, 2147483648.0f, INT32_MAX, &overflow), INT32_MAX);
    assert_true(overflow);
    assert_int_equal(one(*state, -2147483648.0f, INT32_MAX, &overflow), -INT32_MAX);
    assert_true(overflow);
    assert_int_equal(one(*state, INFINITY, 5, &overflow), 5);
    assert_true(overflow);
    assert_int_equal(one(*state, -1e38f, 5, &overflow), -5);
    assert_true(overflow);
}

/* A NaN adds nothing and raises no flag, but `largest` tells; also from the middle of a vector. */
static void nan_shows(void **state)
{
    for (int at = 0; at < 70; at += 23) {
        struct sum sum = {{0}, 0, false};
        float g[70];

        for (int i = 0; i < 70; i++)
            g[i] = 1.0f;
        g[at] = at % 2 ? NAN : -NAN;
        add(*state, &sum, g, 70, 1.0f, 4, 1000);
        assert_true(sum.largest > 0x7f800000u);
        assert_false(sum.overflow);
        for (int i = 0; i < 70; i++)
            assert_int_equal(sum.value[i], i == at ? 0 : 16);
    }
}

static void largest_is_raised_only(void **state)
{
    struct sum sum = {{0}, 0x40000000u, false}; /* 2.0 */
    float g[3] = {-1.0f, 0.5f, 0.0f};

    add(*state, &sum, g, 3, 1.0f, 0, 10);
    assert_int_equal(sum.largest, 0x40000000u);
    g[0] = -3.0f;
    add(*state, &sum, g, 3, 1.0f, 0, 10);
    assert_int_equal(sum.largest, 0x40400000u);
    sum = (struct sum){{0}, 0, false};
    add(*state, &sum, g, 0, 1.0f, 0, 10);
    assert_int_equal(sum.largest, 0);
}

static void squares_depend_on_n_alone(void **state)
{
    static int32_t block[N + 16], values[N];
    uint32_t seed = 5;
    double first, want = 0;

    for (int i = 0; i < N; i++) {
        values[i] = (int32_t)(draw(&seed) * 1e9f);
        want += ldexp((double)values[i], -20) * 0.25 * ldexp((double)values[i], -20) * 0.25;
    }
    first = rb_fixed_squares(*state, values, N, 20, 0.25);
    assert_true(fabs(first - want) < 1e-12 * want);
    for (int shift = 0; shift < 16; shift++) {
        memcpy(block + shift, values, sizeof(values));
        assert_true(rb_fixed_squares(*state, block + shift, N, 20, 0.25) == first);
    }
    assert_true(rb_fixed_squares(*state, values, 0, 20, 0.25) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_sum),
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(halves_go_to_even),
        cmocka_unit_test(limit_clamps_and_flags),
        cmocka_unit_test(nan_shows),
        cmocka_unit_test(largest_is_raised_only),
        cmocka_unit_test(squares_depend_on_n_alone),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
