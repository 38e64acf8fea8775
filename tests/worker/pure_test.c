/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents, rates, sample numbers, and paces. */
#include "base/arena.h"
#include "data/order.h"
#include "kernels/device.h"
#include "worker/batch.h"
#include "worker/state/exponent.h"
#include "worker/step/pace.h"
#include "worker/step/rate.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* ---- Exponents ------------------------------------------------------------------------------*/

/* The largest value fits with the headroom left, and no more than a bit of room is given away. */
static void test_exponent_fits(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint64_t summands = 1 + draw(&seed) % (round % 2 ? 9000 : 20);
        int32_t limit = rb_exponent_limit(summands), exponent;
        double h = ldexp(1 + draw(&seed) / 2147483648.0, (int)(draw(&seed) % 120) - 70), scaled;

        assert_true((uint64_t)limit * summands <= INT32_MAX);
        exponent = rb_exponent_for(h, limit);
        scaled = ldexp(h, exponent + RB_EXPONENT_HEADROOM);
        if (exponent > RB_EXPONENT_LOWEST)
            assert_true(scaled <= (double)limit + 1);
        if (exponent < RB_EXPONENT_HIGHEST)
            assert_true(scaled > ((double)limit + 1) / 4);
    }
    assert_int_equal(rb_exponent_for(1e-44, rb_exponent_limit(1)), RB_EXPONENT_HIGHEST);
    assert_true(rb_exponent_beyond(bits_of(FLT_MAX), rb_exponent_limit(8)));
    assert_false(rb_exponent_beyond(bits_of(1e20f), rb_exponent_limit(8)));
    assert_false(rb_exponent_beyond(0, rb_exponent_limit(8)));
}

/* Against the kernel: the exponent that a redo asked for is never flagged by the same gradients. */
static void test_redo_settles(void **state)
{
    struct rb_device *device;
    struct rb_exponent exponent = {0};
    int32_t limit = rb_exponent_limit(6), sum[64] = {0};
    uint64_t seed = 3;

    (void)state;
    assert_int_equal(rb_device_open("cpu", 0, &device, NULL), 0);
    for (int round = 0; round < 3000; round++) {
        float g[64], scale = ldexpf(1, (int)(draw(&seed) % 80) - 40);
        uint32_t largest = 0;
        bool overflow = false;

        for (int i = 0; i < 64; i++)
            g[i] = ((float)(draw(&seed) % 2001) - 1000) * scale;
        rb_fixed_add(device, sum, g, 64, 1, exponent.exponent, limit, &largest, &overflow);
        if (rb_exponent_flagged(&exponent, largest, overflow)) {
            rb_exponent_redo(&exponent, largest, limit);
            largest = 0;
            overflow = false;
            rb_fixed_add(device, sum, g, 64, 1, exponent.exponent, limit, &largest, &overflow);
            assert_false(rb_exponent_flagged(&exponent, largest, overflow));
        }
        rb_exponent_commit(&exponent, largest, limit);
        assert_true(exponent.known);
    }
    rb_device_close(device);
}

static void test_history(void **state)
{
    struct rb_exponent exponent = {0}, before;
    int32_t limit = rb_exponent_limit(8);

    (void)state;
    rb_exponent_commit(&exponent, 0, limit);
    assert_false(exponent.known); /* all zero is no history */
    rb_exponent_commit(&exponent, bits_of(16), limit);
    assert_true(exponent.known && exponent.history == 16);
    before = exponent;
    rb_exponent_commit(&exponent, 0, limit);
    assert_memory_equal(&exponent, &before, sizeof before);
    for (int i = 0; i < 4; i++)
        rb_exponent_commit(&exponent, bits_of(0.25f), limit);
    assert_float_equal(exponent.history, 8, 1e-9); /* 2^-0.25 a step */
    assert_int_equal(exponent.exponent, before.exponent + 1 + (exponent.history < 8));
    rb_exponent_commit(&exponent, bits_of(1024), limit);
    assert_true(exponent.history == 1024);
    before = exponent;
    rb_exponent_redo(&exponent, bits_of(2), limit);
    assert_memory_equal(&exponent, &before, sizeof before); /* a redo never lowers the history */
}

static void test_statistics(void **state)
{
    const float samples[5] = {3, -1, 4, 1, -5}, momentum = 0.9f;
    double running = 2, sum = 0;

    (void)state;
    for (int i = 0; i < 5; i++) {
        running = (double)momentum * running + (1 - (double)momentum) * (double)samples[i];
        sum += (double)(rb_exponent_statistic(momentum, 5, (uint32_t)i) * samples[i]);
    }
    assert_float_equal((double)rb_exponent_keep(momentum, 5) * 2 + sum, running, 1e-6);
    assert_true(rb_exponent_power(0.9, 0) == 1);
    assert_float_equal(rb_exponent_power(0.999, 1000), pow(0.999, 1000), 1e-12);
}

/* ---- Rates ----------------------------------------------------------------------------------*/

static void test_rates(void **state)
{
    Rb__Optimizer how = RB__OPTIMIZER__INIT;

    (void)state;
    how.lr = 2;
    how.min_ratio = 0.1;
    how.schedule = RB__OPTIMIZER__SCHEDULE__CONSTANT;
    for (int64_t s = 1; s <= 10; s++)
        assert_true(rb_rate_at(&how, 10, s) == 2);
    how.warmup = 4;
    assert_true(rb_rate_at(&how, 10, 1) == 0.5);
    assert_true(rb_rate_at(&how, 10, 4) == 2);
    assert_true(rb_rate_at(&how, 10, 9) == 2);
    how.schedule = RB__OPTIMIZER__SCHEDULE__LINEAR;
    assert_true(rb_rate_at(&how, 10, 2) == 1);
    assert_true(rb_rate_at(&how, 10, 4) == 2);
    assert_float_equal(rb_rate_at(&how, 10, 7), 1.1, 1e-12);
    assert_float_equal(rb_rate_at(&how, 10, 10), 0.2, 1e-12);
    how.schedule = RB__OPTIMIZER__SCHEDULE__COSINE;
    assert_true(rb_rate_at(&how, 10, 4) == 2);
    assert_float_equal(rb_rate_at(&how, 10, 7), 1.1, 1e-12);
    assert_float_equal(rb_rate_at(&how, 10, 10), 0.2, 1e-12);
    how.warmup = 0;
    assert_true(rb_rate_at(&how, 10, 1) == 2); /* without warm-up it starts at the top */
    assert_float_equal(rb_rate_at(&how, 10, 10), 0.2, 1e-12);
    assert_true(rb_rate_at(&how, 1, 1) == 2); /* one step alone is at the top */
    how.warmup = 20;
    assert_true(rb_rate_at(&how, 10, 10) == 1); /* a run that ends while it warms up */
}

/* ---- Sample numbers -------------------------------------------------------------------------*/

/* Every sample once an epoch, whatever the batch, the microbatch and the data set; also where
 * batches straddle epochs. */
static void test_every_sample_once(void **state)
{
    uint64_t seed = 11;

    (void)state;
    for (int round = 0; round < 60; round++) {
        int64_t n = 1 + draw(&seed) % 200, b = 1 + draw(&seed) % 70, m = 1 + draw(&seed) % b;
        int64_t epochs = 3, steps = (epochs * n + b - 1) / b;
        uint32_t count = rb_batch_count(b, m);
        RB_CLEANUP(rb_freep) int *seen = rb_alloc((size_t)(n * (epochs + 71)) * sizeof *seen);
        uint64_t next = 0;

        for (int64_t s = 0; s < steps; s++)
            for (uint32_t i = 0; i < count; i++) {
                struct rb_batch batch = rb_batch_of(b, m, s, i);

                assert_int_equal(batch.first, next); /* no gap, no overlap */
                assert_int_equal(batch.samples, i + 1 < count ? m : b - (count - 1) * m);
                for (uint32_t j = 0; j < batch.samples; j++, next++)
                    seen[next / (uint64_t)n * (uint64_t)n +
                         rb_order_sample(7, (uint64_t)n, next)]++;
            }
        assert_int_equal(next, steps * b);
        for (int64_t i = 0; i < n * epochs; i++)
            assert_int_equal(seen[i], 1);
    }
}

/* The median of the last steps: one step that was held up does not count. */
static void test_pace(void **state)
{
    struct rb_pace pace = {0};

    (void)state;
    for (int i = 0; i < RB_PACE_LEAST - 1; i++)
        rb_pace_note(&pace, 4000000, 4);
    rb_pace_note(&pace, 7, 0); /* the step computed nothing */
    assert_int_equal(rb_pace_us(&pace), 0);
    rb_pace_note(&pace, 900000000, 4);
    assert_int_equal(rb_pace_us(&pace), 1000);
    for (int i = 0; i < RB_PACE_STEPS / 2; i++)
        rb_pace_note(&pace, 12000000, 4);
    assert_int_equal(rb_pace_us(&pace), 3000);
    for (int i = 0; i < RB_PACE_STEPS; i++)
        rb_pace_note(&pace, 12, 4);
    assert_int_equal(rb_pace_us(&pace), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exponent_fits), cmocka_unit_test(test_redo_settles),
        cmocka_unit_test(test_history),       cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_rates),         cmocka_unit_test(test_every_sample_once),
        cmocka_unit_test(test_pace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
