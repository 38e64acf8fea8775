/* SPDX-License-Identifier: Apache-2.0 */
/* Many optimizer steps against the formulas in double. */
#include "kernels/device.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 77, STEPS = 50, EXPONENT = 22 };

struct both {
    float w[N], m[N], v[N];
    double w2[N], m2[N], v2[N], g2[N];
    int32_t sum[N];
};

static void start(struct both *b)
{
    memset(b, 0, sizeof(*b));
    for (int i = 0; i < N; i++) {
        b->w[i] = (float)(i - 30) * 0.1f;
        b->w2[i] = (double)b->w[i];
    }
}

/* Gradients of step t: sums, and the numbers that they stand for under `scale`. */
static void gradients(struct both *b, int t, float scale)
{
    for (int i = 0; i < N; i++) {
        b->sum[i] = (int32_t)(1e7 * sin(i * 0.7 + t * 1.3));
        b->g2[i] = ldexp((double)b->sum[i], -EXPONENT) * (double)scale;
    }
}

static void check(const struct both *b)
{
    for (int i = 0; i < N; i++)
        if (!(fabs((double)b->w[i] - b->w2[i]) < 3e-6 * (1 + fabs(b->w2[i]))))
            fail_msg("weight %d is %.9g, the formula gives %.9g", i, (double)b->w[i], b->w2[i]);
}

static void adamw_is_pytorchs(void **state)
{
    static struct both b;
    struct rb_adamw how = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};

    start(&b);
    for (int t = 1; t <= STEPS; t++) {
        gradients(&b, t, 0.125f);
        how.correction1 = (float)(1 - pow((double)how.beta1, t));
        how.correction2 = (float)(1 - pow((double)how.beta2, t));
        rb_apply_adamw(*state, b.w, b.m, b.v, rb_sums_of(b.sum), N, EXPONENT, 0.125f, &how, NULL);
        rb_reference_adamw(b.w2, b.m2, b.v2, b.g2, N, (double)how.lr, (double)how.beta1,
                           (double)how.beta2, (double)how.eps, (double)how.weight_decay, t);
    }
    check(&b);
}

static void sgd_case(struct rb_device *device, float momentum, bool nesterov, float decay)
{
    static struct both b;
    struct rb_sgd how = {
        .lr = 0.02f, .momentum = momentum, .weight_decay = decay, .nesterov = nesterov};

    start(&b);
    memset(b.m, 0xff, sizeof(b.m)); /* the first step does not read m */
    for (int t = 1; t <= STEPS; t++) {
        gradients(&b, t, 0.5f);
        how.first = t == 1;
        rb_apply_sgd(device, b.w, momentum != 0.0f ? b.m : NULL, rb_sums_of(b.sum), N, EXPONENT,
                     0.5f, &how, NULL);
        rb_reference_sgd(b.w2, b.m2, b.g2, N, (double)how.lr, (double)momentum, (double)decay,
                         nesterov, how.first);
    }
    check(&b);
}

static void sgd_is_pytorchs(void **state)
{
    sgd_case(*state, 0.0f, false, 0.0f);
    sgd_case(*state, 0.0f, false, 0.01f);
    sgd_case(*state, 0.9f, false, 0.01f);
    sgd_case(*state, 0.9f, true, 0.01f);
}

/* For any factor, also one that is no power of two, or at the ends of a float's range. */
static void gradients_are_rounded_once(void **state)
{
    static const float scales[] = {1.0f, 0.0078125f, 0.01f, 3.0f};
    static const int exponents[] = {-100, -57, -1, 0, 22, 118, 119, 125, 126, 149};
    const struct rb_sgd how = {.lr = 1.0f, .first = true};

    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
            int32_t sum[N] = {0, 1, -1, INT32_MAX, INT32_MIN + 1, (1 << 24) + 1, (1 << 25) + 2};
            float w[N] = {0.0f};

            for (int i = 7; i < N; i++)
                sum[i] = (int32_t)(2654435761u * (uint32_t)(i + 1)) >> (i % 9);
            rb_apply_sgd(*state, w, NULL, rb_sums_of(sum), N, exponents[e], scales[s], &how, NULL);
            for (int i = 0; i < N; i++) {
                float g = (float)(sum[i] * ldexp((double)scales[s], -exponents[e]));

                if (w[i] != 0.0f - g)
                    fail_msg("%d at 2^%d, scale %g, is %.9g instead of %.9g", sum[i], -exponents[e],
                             (double)scales[s], (double)-w[i], (double)g);
            }
        }
}

/* Squares have the bits that they have alone, wherever a run of sums ends. */
static void squares_come_on_the_way(void **state)
{
    enum { MOST = 2100 };
    static float w[MOST], m[MOST], v[MOST];
    static const int lengths[] = {0, 1, 31, 32, 33, 255, 256, 257, 1024, MOST};
    const struct rb_adamw adamw = {.lr = 0.1f, .eps = 1e-8f, .correction1 = 1, .correction2 = 1};
    static int32_t sum[MOST];

    for (int i = 0; i < MOST; i++)
        sum[i] = (int32_t)(2654435761u * (uint32_t)(i + 1));
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int momentum = 0; momentum < 2; momentum++) {
            const struct rb_sgd sgd = {.lr = 0.1f, .momentum = momentum ? 0.5f : 0, .first = true};
            const size_t n = (size_t)lengths[l];
            double alone, by_sgd = -1, by_adamw = -1;

            rb_fixed_squares(*state, sum, n, EXPONENT, 1, &alone);
            rb_apply_sgd(*state, w, m, rb_sums_of(sum), n, EXPONENT, 0.01f, &sgd, &by_sgd);
            rb_apply_adamw(*state, w, m, v, rb_sums_of(sum), n, EXPONENT, 0.01f, &adamw, &by_adamw);
            assert_true(n == 0 ? alone == 0 : alone > 0);
            assert_true(by_sgd == alone && by_adamw == alone);
        }
}

/* One number, cut up so that parts overflow where their sum does not. */
static void cut(int32_t whole, uint32_t i, int32_t *parts[RB_VIEWS_RANKS])
{
    uint32_t left = (uint32_t)whole;

    for (int p = 1; p < RB_VIEWS_RANKS; p++) {
        uint32_t part = 2654435761u * (i + (uint32_t)p);

        parts[p][i] = (int32_t)part;
        left -= part;
    }
    parts[0][i] = (int32_t)left;
}

enum { PARTED = 700, PARTED_WAYS = 4 };

/* Returns the squares that come on the way; 0 where there are none. */
static double apply(struct rb_device *device, int way, float (*to)[PARTED], struct rb_sums sums,
                    size_t n)
{
    const struct rb_adamw adamw = {.lr = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.99f,
                                   .eps = 1e-8f,
                                   .correction1 = 1,
                                   .correction2 = 1};
    const struct rb_sgd sgd = {.lr = 0.1f, .momentum = way == 1 ? 0.5f : 0};
    double squares = 0;

    if (way == 3)
        rb_apply_statistic(device, to[0], sums, n, EXPONENT, 0.5f);
    else if (way == 2)
        rb_apply_adamw(device, to[0], to[1], to[2], sums, n, EXPONENT, 1, &adamw, &squares);
    else
        rb_apply_sgd(device, to[0], to[1], sums, n, EXPONENT, 1, &sgd, &squares);
    return squares;
}

/* Sums in several parts give the same bits as the same sums in one. */
static void parts_are_added_up(void **state)
{
    static const size_t lengths[] = {1, 127, 128, 129, PARTED};
    int32_t sum[PARTED], part[RB_VIEWS_RANKS][PARTED];
    int32_t *parts[RB_VIEWS_RANKS] = {part[0], part[1], part[2]};

    for (uint32_t i = 0; i < PARTED; i++) {
        sum[i] = (int32_t)(2654435761u * (i + 1)) >> 3;
        cut(sum[i], i, parts);
    }
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int way = 0; way < PARTED_WAYS; way++) {
            const struct rb_sums several = {{part[0], part[1], part[2]}, RB_VIEWS_RANKS};
            float a[3][PARTED] = {{0}}, b[3][PARTED] = {{0}};
            double whole = apply(*state, way, a, rb_sums_of(sum), lengths[l]);

            assert_true(apply(*state, way, b, several, lengths[l]) == whole);
            assert_true(a[0][lengths[l] - 1] != 0 && memcmp(a, b, sizeof a) == 0);
        }
}

static void statistics_decay(void **state)
{
    float w[3] = {1.0f, -2.0f, 0.0f};
    const int32_t sum[3] = {1 << 19, 1 << 20, -(1 << 20)};

    rb_apply_statistic(*state, w, rb_sums_of(sum), 3, 20, 0.75f);
    assert_true(w[0] == 1.25f && w[1] == -0.5f && w[2] == -1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_added_up),      cmocka_unit_test(adamw_is_pytorchs),
        cmocka_unit_test(sgd_is_pytorchs),         cmocka_unit_test(gradients_are_rounded_once),
        cmocka_unit_test(squares_come_on_the_way), cmocka_unit_test(statistics_decay),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
