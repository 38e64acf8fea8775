/* SPDX-License-Identifier: Apache-2.0 */
/* The approximations against the C library in double, in units of the last place, over floats of
 * all sizes; and their ends. */
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/math.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

/* The smallest float whose exponential is a normal number; below it rb_expf is 0. */
static const float EXP_LEAST = -0x1.5d589ep+6f;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Distance in units of the last place of the true value. */
static double ulps(float got, double want)
{
    double unit =
        fabs(want) < (double)FLT_MIN ? (double)FLT_TRUE_MIN : ldexp(1.0, ilogb(want) - 23);

    if (fabs(want) > (double)FLT_MAX * (1 + 0x1p-25))
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    return fabs((double)got - want) / unit;
}

/* The worst over about a million floats in [low, high] of both signs. */
#define WORST(mine, theirs, low, high)                                                             \
    ({                                                                                             \
        double worst = 0;                                                                          \
        for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) {                               \
            float x = rb_bits_float((uint32_t)bits);                                               \
            if (!(x >= (low) && x <= (high)))                                                      \
                continue;                                                                          \
            worst = fmax(worst, ulps(mine(x), theirs((double)x)));                                 \
        }                                                                                          \
        worst;                                                                                     \
    })

static void within(const char *name, double worst, double limit)
{
    if (!(worst <= limit))
        fail_msg("%s is off by %.2f units, %.2f are allowed", name, worst, limit);
}

static void errors_are_small(void **state)
{
    (void)state;
    within("exp", WORST(rb_expf, exp, EXP_LEAST, 90.0f), 1.5);
    within("expm1", WORST(rb_expm1f, expm1, -100.0f, 90.0f), 1.5);
    within("log", WORST(rb_logf, log, 0.0f, FLT_MAX), 2.0);
    within("tanh", WORST(rb_tanhf, tanh, -20.0f, 20.0f), 2.5);
    within("erf", WORST(rb_erff, erf, -8.0f, 8.0f), 2.5);
    within("sigmoid", WORST(rb_sigmoidf, sigmoid, -80.0f, 80.0f), 3.0);
}

/* Denormal exponentials are 0 and normal ones are not, exactly; no result lies in between, and what
 * is lost is smaller than the smallest normal number. */
static void small_exponentials_vanish(void **state)
{
    const float below = nextafterf(EXP_LEAST, -INFINITY);

    (void)state;
    assert_true(exp((double)EXP_LEAST) >= (double)FLT_MIN && exp((double)below) < (double)FLT_MIN);
    assert_true(rb_expf(EXP_LEAST) >= FLT_MIN && rb_expf(below) == 0.0f);
    for (float x = -87.0f; x > -110.0f; x = nextafterf(x, -INFINITY)) {
        float got = rb_expf(x);

        if (x >= EXP_LEAST ? !(got >= FLT_MIN) : rb_float_bits(got) != 0)
            fail_msg("exp(%a) is %a", (double)x, (double)got);
    }
    assert_true(rb_float_bits(rb_expf(-1e9f)) == 0 && rb_float_bits(rb_expf(-FLT_MAX)) == 0);
    assert_true(rb_float_bits(rb_expf(-INFINITY)) == 0 && isnan(rb_expf(-NAN)));
}

/* The same to the bit, down to where both are 0. */
static void what_is_below_0_has_the_same_exponentials(void **state)
{
    (void)state;
    for (uint64_t bits = 0x80000000u; bits <= 0xff800000u; bits += 127) {
        float x = rb_bits_float((uint32_t)bits);

        if (rb_float_bits(rb_exp_belowf(x)) != rb_float_bits(rb_expf(x)))
            fail_msg("exp(%a) is %a and %a", (double)x, (double)rb_exp_belowf(x),
                     (double)rb_expf(x));
    }
    assert_true(rb_exp_belowf(0.0f) == 1.0f && rb_float_bits(rb_exp_belowf(-INFINITY)) == 0);
    assert_true(rb_exp_belowf(EXP_LEAST) == rb_expf(EXP_LEAST) && isnan(rb_exp_belowf(NAN)));
    assert_true(rb_exp_belowf(nextafterf(EXP_LEAST, -INFINITY)) == 0.0f);
}

static void ends_are_right(void **state)
{
    (void)state;
    assert_true(rb_expf(-INFINITY) == 0.0f && isinf(rb_expf(INFINITY)) && rb_expf(0.0f) == 1.0f);
    assert_true(isinf(rb_expf(89.0f)) && rb_expf(-104.0f) == 0.0f);
    assert_true(rb_expm1f(-INFINITY) == -1.0f && isinf(rb_expm1f(INFINITY)));
    assert_true(rb_expm1f(0.0f) == 0.0f && rb_expm1f(-1e-20f) == -1e-20f && isnan(rb_expm1f(NAN)));
    assert_true(rb_logf(0.0f) == -INFINITY && rb_logf(INFINITY) == INFINITY);
    assert_true(rb_logf(1.0f) == 0.0f && isnan(rb_logf(-1.0f)));
    assert_true(rb_tanhf(INFINITY) == 1.0f && rb_tanhf(-INFINITY) == -1.0f);
    assert_true(rb_erff(INFINITY) == 1.0f && rb_erff(-5.0f) == -1.0f);
    assert_true(rb_sigmoidf(-INFINITY) == 0.0f && rb_sigmoidf(INFINITY) == 1.0f);
    assert_true(isnan(rb_expf(NAN)) && isnan(rb_logf(NAN)) && isnan(rb_tanhf(NAN)));
    assert_true(isnan(rb_erff(NAN)) && isnan(rb_sigmoidf(NAN)) && isnan(rb_geluf(NAN)));
}

static double distribution(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double slope(double x)
{
    return distribution(x) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1));
}

/* GELU's row at one x, among others and beside the end. */
static float row_at(rb_point_row *row, float x)
{
    float one[] = {1}, in[33], out[33];
    const int64_t steps[] = {1, 1}, turned[] = {0, 1};
    bool grad = row == rb_gelu_grad_row();

    for (int i = 0; i < 33; i++)
        in[i] = i % 3 ? (float)i : x;
    row(grad ? (const void *[]){one, in} : (const void *[]){in}, grad ? turned : steps, out, 31);
    assert_true(rb_float_bits(out[0]) == rb_float_bits(out[30]));
    row(grad ? (const void *[]){one, &x} : (const void *[]){&x}, (const int64_t[]){0, 0}, out, 33);
    assert_true(rb_float_bits(out[0]) == rb_float_bits(out[32]));
    return out[7];
}

/* Results for x above 0 are off by a unit of their last place, or of x's; results below by a small
 * part of themselves. */
static void check_gelu(const char *name, rb_point_row *row, double (*want)(double), bool times_x)
{
    for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 40099) {
        float x = rb_bits_float((uint32_t)bits);
        double right = want((double)x) * (times_x ? (double)x : 1), error;

        if (!(fabsf(x) < 20) || (fabsf(x) > 0 && fabsf(x) < FLT_MIN))
            continue;
        error = fabs((double)row_at(row, x) - right);
        if (error > 9e-8 * (times_x ? fabs((double)x) : 1) ||
            (x < -1.5f && x > -5.8f && error > 3e-5 * fabs(right)))
            fail_msg("%s(%a) is off by %g", name, (double)x, error);
    }
    assert_true(isnan(row_at(row, NAN)));
}

static void gelu_by_tables(void **state)
{
    rb_point_row *gelu = rb_gelu_row(), *grad = rb_gelu_grad_row();

    (void)state;
    if (!gelu)
        skip();
    check_gelu("gelu", gelu, distribution, true);
    check_gelu("its slope", grad, slope, false);
    assert_true(row_at(gelu, INFINITY) == INFINITY && row_at(gelu, -7.0f) == 0);
    assert_true(row_at(grad, INFINITY) == 1 && row_at(grad, -INFINITY) == 0);
    assert_true(rb_float_bits(row_at(gelu, -0.0f)) == 0x80000000u && row_at(grad, 0) == 0.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_by_tables),
        cmocka_unit_test(errors_are_small),
        cmocka_unit_test(small_exponentials_vanish),
        cmocka_unit_test(what_is_below_0_has_the_same_exponentials),
        cmocka_unit_test(ends_are_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
