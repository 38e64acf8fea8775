/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in blocks: forward and backward, one after the other, against the reference, and what
 * cases with random numbers cannot test. */
#include "tests/kernels/attend.h"
#include "tests/kernels/case.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A block is 48 queries and 128 keys: one less, one more, parts of tiles, one of each. */
static const struct attend_shape shapes[] = {
    {1, 1, 1, 1, 1, true, false},         {2, 1, 131, 7, 5, false, true},
    {1, 100, 1, 16, 3, false, false},     {2, 127, 127, 32, 32, true, true},
    {2, 128, 128, 64, 64, true, false},   {1, 129, 129, 33, 17, true, true},
    {2, 48, 128, 128, 128, false, false}, {1, 49, 257, 20, 36, false, true},
    {1, 300, 300, 128, 65, true, true},   {1, 1023, 1023, 24, 40, true, false},
};

static void compare(const char *what, size_t shape, const float *got, const float *want, int64_t n)
{
    const struct rb_tensor_type type = {RB_F32, 1, {n}};
    const double error = rb_case_error(&type, got, want);

    if (!(error <= 3e-6))
        fail_msg("shape %zu: %s is off by %g of the largest", shape, what, error);
}

static void one_behind_the_other(void **state)
{
    struct rb_device *device = *state;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct attend_shape *s = &shapes[i];
        const int64_t q = s->batch * s->queries, k = s->batch * s->keys;
        struct attend_run got = attend_new(s), want = attend_new(s);

        attend_forward(device, s, &got);
        attend_backward(device, s, &got);
        attend_forward(NULL, s, &want);
        attend_backward(NULL, s, &want);
        compare("y", i, got.y, want.y, q * s->width);
        compare("l", i, got.l, want.l, q);
        for (int64_t j = 0; s->keys == 1 && j < q * s->depth; j++) /* nothing to choose */
            got.dq[j] = want.dq[j] = fabsf(got.dq[j]) < 1e-6f ? 0 : NAN;
        for (int64_t j = 0; s->keys == 1 && j < k * s->depth; j++)
            got.dk[j] = want.dk[j] = fabsf(got.dk[j]) < 1e-5f ? 0 : NAN;
        compare("dq", i, got.dq, want.dq, q * s->depth);
        compare("dk", i, got.dk, want.dk, k * s->depth);
        compare("dv", i, got.dv, want.dv, k * s->width);
        attend_done(&got);
        attend_done(&want);
    }
}

/* A matrix alone has the same bits as among others; and its queries have the same bits without the
 * queries and keys behind them. */
static void bits_are_its_own(void **state)
{
    const struct attend_shape three = {3, 200, 200, 20, 24, true, false};
    const struct attend_shape one = {1, 200, 200, 20, 24, true, false};
    const struct attend_shape some = {1, 131, 131, 20, 24, true, false};
    struct rb_device *device = *state;
    struct attend_run all = attend_new(&three), alone = attend_new(&one), less = attend_new(&some);

    attend_forward(device, &three, &all);
    attend_backward(device, &three, &all);
    memcpy(alone.q, all.q + 200 * 20, 200 * 20 * sizeof(float));
    memcpy(alone.k, all.k + 200 * 20, 200 * 20 * sizeof(float));
    memcpy(alone.v, all.v + 200 * 24, 200 * 24 * sizeof(float));
    memcpy(alone.dy, all.dy + 200 * 24, 200 * 24 * sizeof(float));
    attend_forward(device, &one, &alone);
    attend_backward(device, &one, &alone);
    assert_memory_equal(alone.y, all.y + 200 * 24, 200 * 24 * sizeof(float));
    assert_memory_equal(alone.l, all.l + 200, 200 * sizeof(float));
    assert_memory_equal(alone.dq, all.dq + 200 * 20, 200 * 20 * sizeof(float));
    assert_memory_equal(alone.dk, all.dk + 200 * 20, 200 * 20 * sizeof(float));
    assert_memory_equal(alone.dv, all.dv + 200 * 24, 200 * 24 * sizeof(float));
    memcpy(less.q, alone.q, 131 * 20 * sizeof(float));
    memcpy(less.k, alone.k, 131 * 20 * sizeof(float));
    memcpy(less.v, alone.v, 131 * 24 * sizeof(float));
    attend_forward(device, &some, &less);
    assert_memory_equal(less.y, alone.y, 131 * 24 * sizeof(float));
    assert_memory_equal(less.l, alone.l, 131 * sizeof(float));
    attend_done(&all);
    attend_done(&alone);
    attend_done(&less);
}

/* Scores of minus infinity count for nothing, even a whole block of them.  A row that has nothing
 * else, or that has one NaN or plus infinity, is NaN. */
static void infinite_scores(void **state)
{
    const struct attend_shape s = {1, 3, 140, 1, 16, false, false};
    struct rb_device *device = *state;
    struct attend_run run = attend_new(&s);

    run.q[0] = 1;  /* minus infinity, then numbers */
    run.q[1] = -1; /* infinity */
    run.q[2] = NAN;
    for (int j = 0; j < 140; j++)
        run.k[j] = j < 130 ? -INFINITY : 1;
    for (int j = 0; j < 140 * 16; j++)
        run.v[j] = (float)(j / 16);
    attend_forward(device, &s, &run);
    for (int e = 0; e < 16; e++) {
        assert_true(fabsf(run.y[e] - 134.5f) < 1e-4f);
        assert_true(isnan(run.y[16 + e]) && isnan(run.y[32 + e]));
    }
    assert_true(fabs((double)run.l[0] - 0.7 - log(10)) < 1e-6);
    for (int j = 130; j < 140; j++)
        run.k[j] = -INFINITY;
    attend_forward(device, &s, &run);
    for (int e = 0; e < 48; e++)
        assert_true(isnan(run.y[e]));
    attend_done(&run);
}

/* ---- What is no number ------------------------------------------------------------------------*/

enum { KEYS_MOST = 300, BLOCK_KEYS = 128 };

/* As separate operators do it: softmax, products with everything, and the gradient from what
 * softmax made; or (seen_alone) without what a query does not see. */
static void by_parts(const struct attend_shape *s, const struct attend_run *run, bool seen_alone)
{
    memset(run->dk, 0, (size_t)(s->keys * s->depth) * sizeof(float));
    memset(run->dv, 0, (size_t)(s->keys * s->width) * sizeof(float));
    for (int64_t i = 0; i < s->queries; i++) {
        const int64_t n = attend_seen(s, i), all = seen_alone ? n : s->keys;
        float p[KEYS_MOST], g[KEYS_MOST], most = -INFINITY, sum = 0, inner = 0;

        for (int64_t j = 0; j < all; j++) {
            p[j] = ATTEND_SCALE * attend_chain(run->q + i * s->depth, 1, run->k + j * s->depth, 1,
                                               s->depth, 0, false);
            p[j] = j < n ? p[j] : -INFINITY;
            most = p[j] > most ? p[j] : most;
        }
        for (int64_t j = 0; j < all; j++)
            sum += p[j] = expf(p[j] - most);
        for (int64_t j = 0; j < all; j++) {
            p[j] /= sum;
            g[j] = attend_chain(run->dy + i * s->width, 1, run->v + j * s->width, 1, s->width, 0,
                                false);
            inner += p[j] * g[j];
        }
        for (int64_t j = 0; j < all; j++)
            g[j] = p[j] * (g[j] - inner) * ATTEND_SCALE;
        for (int64_t e = 0; e < s->width; e++)
            run->y[i * s->width + e] = attend_chain(p, 1, run->v + e, s->width, all, 0, false);
        for (int64_t d = 0; d < s->depth; d++)
            run->dq[i * s->depth + d] = attend_chain(g, 1, run->k + d, s->depth, all, 0, false);
        for (int64_t at = 0; at < all * s->depth; at++)
            run->dk[at] += g[at / s->depth] * run->q[i * s->depth + at % s->depth];
        for (int64_t at = 0; at < all * s->width; at++)
            run->dv[at] += p[at / s->width] * run->dy[i * s->width + at % s->width];
    }
}

/* least: NaN where not even what is seen gives a number; most: NaN where the separate operators
 * give none.  Of a gradient's first number, where what is struck counts, only whether it is a
 * number is compared. */
static void assert_between(const char *what, int kind, const float *got, const float *least,
                           const float *most, int64_t n, int64_t struck)
{
    for (int64_t i = 0; i < n; i++) {
        const bool number = !isnan(got[i]);
        const bool near = (struck && i % struck == 0) || fabsf(got[i] - least[i]) < 1e-4f;

        if (isnan(least[i]) ? number : number ? !near : !isnan(most[i]))
            fail_msg("kind %d: %s[%ld] is %g; seen: %g, parts: %g", kind, what, (long)i,
                     (double)got[i], (double)least[i], (double)most[i]);
    }
}

/* The first number of a query or a key is 0, or a number whose products make scores infinite; so
 * each row is as it was, or becomes infinite. */
enum {
    HIDDEN_IN_FRONT, /* a block of keys, by minus infinity */
    HIDDEN_BEHIND,
    HIDDEN_HERE_AND_THERE,
    HIDDEN_ALL,
    ENDLESS, /* infinity */
    NO_NUMBER,
    NO_NUMBER_IN_A_KEY,
    NO_NUMBER_IN_A_VALUE,
    NO_NUMBER_IN_A_GRADIENT,
    KINDS
};

static bool is_struck(int kind, int64_t j)
{
    switch (kind) {
    case HIDDEN_IN_FRONT:
        return j < BLOCK_KEYS;
    case HIDDEN_BEHIND:
        return j >= BLOCK_KEYS;
    case HIDDEN_HERE_AND_THERE:
        return j % 7 == 3;
    case HIDDEN_ALL:
        return true;
    default:
        return j % 100 == 31;
    }
}

static void strike(const struct attend_shape *s, int kind, const struct attend_run *run)
{
    static const int64_t rows[] = {0, 17, 50, 139};
    const float large = 3e19f; /* its square is more than a float holds */

    for (int64_t i = 0; i < s->queries; i++)
        run->q[i * s->depth] = 0;
    for (int64_t j = 0; j < s->keys; j++)
        run->k[j * s->depth] = is_struck(kind, j) ? large : 0;
    for (size_t at = 0; at < sizeof rows / sizeof *rows && rows[at] < s->queries; at++)
        run->q[rows[at] * s->depth] = kind == ENDLESS     ? large
                                      : kind < ENDLESS    ? -large
                                      : kind == NO_NUMBER ? NAN
                                                          : 0;
    if (kind == NO_NUMBER_IN_A_KEY)
        run->k[131 * s->depth + s->depth - 1] = NAN;
    if (kind == NO_NUMBER_IN_A_VALUE)
        run->v[131 * s->width + s->width / 2] = NAN;
    if (kind == NO_NUMBER_IN_A_GRADIENT)
        run->dy[17 * s->width + s->width / 2] = NAN;
}

static void what_is_no_number_spreads_to_whom_it_reaches(void **state)
{
    static const struct attend_shape some[] = {{1, 150, 150, 3, 5, true, false},
                                               {1, 60, 300, 3, 17, false, false},
                                               {1, 51, 140, 3, 130, false, false}};

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const struct attend_shape *s = &some[i];
            const struct attend_run got = attend_new(s), least = attend_new(s),
                                    most = attend_new(s);

            strike(s, kind, &got);
            strike(s, kind, &least);
            strike(s, kind, &most);
            attend_forward(*state, s, &got);
            attend_backward(*state, s, &got);
            by_parts(s, &least, true);
            by_parts(s, &most, false);
            assert_between("y", kind, got.y, least.y, most.y, s->queries * s->width, 0);
            assert_between("dq", kind, got.dq, least.dq, most.dq, s->queries * s->depth, s->depth);
            assert_between("dk", kind, got.dk, least.dk, most.dk, s->keys * s->depth, s->depth);
            assert_between("dv", kind, got.dv, least.dv, most.dv, s->keys * s->width, 0);
            attend_done(&got);
            attend_done(&least);
            attend_done(&most);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_behind_the_other),
        cmocka_unit_test(bits_are_its_own),
        cmocka_unit_test(infinite_scores),
        cmocka_unit_test(what_is_no_number_spreads_to_whom_it_reaches),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
