/* SPDX-License-Identifier: Apache-2.0 */
/* What fixed-point sums promise: order does not matter, and nothing is lost unnoticed. */
#include "kernels/device.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1003, PARTS = 6 };

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

/* Setting is adding to zeros, also where summands are clamped or are NaN. */
static void setting_forgets_what_was_there(void **state)
{
    static const int exponents[] = {10, 31, -3};
    uint32_t seed = 11;
    float g[N];

    for (size_t i = 0; i < RB_COUNT(exponents); i++) {
        struct sum added = {{0}, 0, false}, set = {{0}, 0, false};

        for (int k = 0; k < N; k++) {
            g[k] = k % 97 == 5 ? NAN : setup_draw(&seed);
            set.value[k] = 77 * k;
        }
        add(*state, &added, g, N, 0.75f, exponents[i], 1 << 20);
        rb_fixed_set(*state, set.value, g, N, 0.75f, exponents[i], 1 << 20, &set.largest,
                     &set.overflow);
        assert_memory_equal(&added, &set, sizeof(set.value));
        assert_int_equal(added.largest, set.largest);
        assert_int_equal(added.overflow, set.overflow);
    }
}

static void any_order_gives_the_same_sum(void **state)
{
    static float g[PARTS][N];
    struct sum forward = {{0}, 0, false}, backward = {{0}, 0, false}, left = {{0}, 0, false},
               right = {{0}, 0, false};
    uint32_t seed = 7;

    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < N; i++)
            g[p][i] = setup_draw(&seed);
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
            g[i] = ldexpf(setup_draw(&seed), 30 - exponents[e] + i % 3);
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

/* A NaN adds nothing and raises no flag, but `largest` shows it; also in the middle of a vector. */
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

/* Numbers on every edge: ties, the limit and its neighbours, what int32 cannot hold, denormals,
 * infinities, NaNs; the rest are arbitrary bits, or ordinary numbers. */
static float edge(uint32_t *seed, int exponent, int32_t limit)
{
    const float one = ldexpf(1.0f, -exponent), sign = setup_draw(seed) < 0 ? -1.0f : 1.0f;
    float any;

    setup_draw(seed);
    switch (*seed >> 28) {
    case 0:
        return sign * (floorf(setup_draw(seed) * 1000.0f) + 0.5f) * one;
    case 1:
        return sign * (float)limit * one;
    case 2:
        return sign * nextafterf((float)limit * one, setup_draw(seed) < 0 ? 0.0f : INFINITY);
    case 3:
        return sign * ((float)limit + (setup_draw(seed) < 0 ? 0.5f : -0.5f)) * one;
    case 4:
        return sign * 2147483648.0f * one;
    case 5:
        return sign * (setup_draw(seed) < 0.9f ? 0x1p-149f : INFINITY);
    case 6:
        setup_draw(seed);
        memcpy(&any, seed, sizeof(any));
        return any;
    default:
        return setup_draw(seed) * (float)limit * 0.9f * one;
    }
}

/* The whole against the reference, and against one number at a time: then each number is tested
 * alone for whether it needs a clamp.  `tame`: edges only here and there, so that stretches that
 * need no clamp lie beside others that do. */
static void check_paths(struct rb_device *device, uint32_t *seed, float weight, int exponent,
                        int32_t limit, bool tame)
{
    enum { LONG = 3 * 2048 + 77 };
    static float g[LONG];
    static int32_t start[LONG], whole[LONG], single[LONG], want[LONG];
    uint32_t largest[3] = {0};
    bool overflow[3] = {false, false, false};

    for (int i = 0; i < LONG; i++) {
        bool calm = tame && i % 4096 != 4000;

        g[i] = calm ? ldexpf(setup_draw(seed) * (float)limit * 0.9f, -exponent) / weight
                    : edge(seed, exponent, limit) / weight;
        setup_draw(seed);
        start[i] = (int32_t)(*seed) >> 2;
    }
    memcpy(whole, start, sizeof(start));
    memcpy(single, start, sizeof(start));
    memset(want, 0, sizeof(want));
    rb_fixed_add(device, whole, g, LONG, weight, exponent, limit, &largest[0], &overflow[0]);
    for (int i = 0; i < LONG; i++)
        rb_fixed_add(device, single + i, g + i, 1, weight, exponent, limit, &largest[1],
                     &overflow[1]);
    rb_reference_fixed_add(want, g, LONG, weight, exponent, limit, &largest[2], &overflow[2]);
    for (int i = 0; i < LONG; i++) {
        want[i] = (int32_t)((uint32_t)start[i] + (uint32_t)want[i]);
        if (whole[i] != want[i] || single[i] != want[i])
            fail_msg("%a * %a at 2^%d, limit %d: %d whole, %d alone instead of %d", (double)g[i],
                     (double)weight, exponent, limit, whole[i] - start[i], single[i] - start[i],
                     want[i] - start[i]);
    }
    assert_int_equal(largest[0], largest[2]);
    assert_int_equal(largest[1], largest[2]);
    assert_int_equal(overflow[0], overflow[2]);
    assert_int_equal(overflow[1], overflow[2]);
}

static void every_path_gives_the_same_bits(void **state)
{
    static const int exponents[] = {-100, -20, 0, 16, 24, 31, 60, 100};
    static const int32_t limits[] = {1, 5, 100, 1 << 24, INT32_MAX / 8, INT32_MAX};
    static const float weights[] = {1.0f, -0.5f, 0.75f, 3.0f};
    uint32_t seed = 11;

    for (size_t e = 0; e < RB_COUNT(exponents); e++)
        for (size_t l = 0; l < RB_COUNT(limits); l++)
            for (size_t w = 0; w < RB_COUNT(weights); w++) {
                check_paths(*state, &seed, weights[w], exponents[e], limits[l], false);
                check_paths(*state, &seed, weights[w], exponents[e], limits[l], true);
            }
}

/* Neighbours that need the clamp do not change those that do not need it. */
static void company_does_not_matter(void **state)
{
    static const float guests[] = {NAN, INFINITY, -INFINITY, 1e30f, 101.0f};
    enum { LONG = 5000 };
    static float g[LONG];
    static int32_t alone[LONG], beside[LONG];
    uint32_t seed = 13;

    for (size_t k = 0; k < RB_COUNT(guests); k++) {
        uint32_t largest = 0;
        bool overflow = false;

        for (int i = 0; i < LONG; i++)
            g[i] =
                floorf(setup_draw(&seed) * 200.0f) * 0.5f; /* ties and the limit, 100, among them */
        memset(alone, 0, sizeof(alone));
        memset(beside, 0, sizeof(beside));
        rb_fixed_add(*state, alone, g, LONG, 1.0f, 0, 100, &largest, &overflow);
        assert_false(overflow);
        for (int i = 99; i < LONG; i += 1000)
            g[i] = guests[k];
        rb_fixed_add(*state, beside, g, LONG, 1.0f, 0, 100, &largest, &overflow);
        assert_int_equal(overflow, k != 0);
        for (int i = 0; i < LONG; i++)
            if (i % 1000 != 99 && alone[i] != beside[i])
                fail_msg("%a beside %a: %d instead of %d", (double)g[i], (double)guests[k],
                         beside[i], alone[i]);
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
    double first, again, want = 0;

    for (int i = 0; i < N; i++) {
        values[i] = (int32_t)(setup_draw(&seed) * 1e9f);
        want += ldexp((double)values[i], -20) * 0.25 * ldexp((double)values[i], -20) * 0.25;
    }
    rb_fixed_squares(*state, values, N, 20, 0.25, &first);
    assert_true(fabs(first - want) < 1e-12 * want);
    for (int shift = 0; shift < 16; shift++) {
        memcpy(block + shift, values, sizeof(values));
        rb_fixed_squares(*state, block + shift, N, 20, 0.25, &again);
        assert_true(again == first);
    }
    rb_fixed_squares(*state, values, 0, 20, 0.25, &again);
    assert_true(again == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_forgets_what_was_there),
        cmocka_unit_test(any_order_gives_the_same_sum),
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(halves_go_to_even),
        cmocka_unit_test(limit_clamps_and_flags),
        cmocka_unit_test(nan_shows),
        cmocka_unit_test(every_path_gives_the_same_bits),
        cmocka_unit_test(company_does_not_matter),
        cmocka_unit_test(largest_is_raised_only),
        cmocka_unit_test(squares_depend_on_n_alone),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
