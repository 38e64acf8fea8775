/* SPDX-License-Identifier: Apache-2.0 */
/* Products that go into fixed-point sums from registers, of any shapes and numbers: the same bits
 * as writing each and adding it.  And several at once: the same bits as one after the other. */
#include "kernels/backend.h"
#include "kernels/device.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TRIALS = 1200, EACH = RB_KERNEL_EACH, LEFT = 50000, RIGHT = 30000, OUT = 8000, SLACK = 64 };

struct trial {
    uint32_t number, seed;
    int64_t batch, m, n, k; /* batch 0: no such axis */
    bool turn_a, turn_b, bfloat;
    int offset; /* of everything that is read and written, in elements */
    int runs, kind;
    bool fresh, shared; /* shared: all runs report to one place what was largest, and overflow */
    bool weight_of_all; /* all runs have the second factor of the first */
    float weight[EACH];
    int exponent;
    int32_t limit;
};

/* One for each run. */
static _Alignas(64) float left[EACH][LEFT + SLACK], right[EACH][RIGHT + SLACK];
static _Alignas(64) uint16_t narrow_left[EACH][LEFT + SLACK], narrow_right[EACH][RIGHT + SLACK];
static _Alignas(64) float alone[EACH][OUT + SLACK], at_once[EACH][OUT + SLACK];

/* ---- What there is to draw --------------------------------------------------------------------*/

enum { ORDINARY, HALVES, TINY, HUGE, ANY_BITS, GUESTS, KINDS };

static int64_t below(struct trial *t, int64_t n)
{
    setup_draw(&t->seed);
    return (int64_t)((uint64_t)t->seed * (uint64_t)n >> 32);
}

static float number(struct trial *t)
{
    static const float guests[] = {NAN, INFINITY, -INFINITY, 3e38f, -1e30f, 0x1p-149f, -0.0f};
    float x = setup_draw(&t->seed);

    switch (t->kind) {
    case HALVES: /* so that sums lie between two integers */
        return floorf(x * 4) * 0.5f;
    case TINY:
        return ldexpf(x, -74 + (int)below(t, 10));
    case HUGE:
        return ldexpf(x, 58 + (int)below(t, 7));
    case ANY_BITS:
        memcpy(&x, &t->seed, sizeof x);
        return x;
    case GUESTS:
        return below(t, 300) ? x : guests[below(t, RB_COUNT(guests))];
    default:
        return x;
    }
}

static void fill(struct trial *t, float *to, uint16_t *narrow, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i + t->offset] = number(t);
        narrow[i + t->offset] = rb_dtype_to_bfloat(to[i + t->offset]);
    }
}

/* The edges of tiles mostly; now and then more rows, columns or steps than a block has. */
static void draw_shape(struct trial *t)
{
    const int64_t copies = (t->batch = below(t, 12) ? 0 : 1 + below(t, 3)) ? t->batch : 1;

    t->m = 1 + below(t, below(t, 12) ? 20 : 150);
    t->n = 1 + below(t, below(t, 12) ? 52 : 300);
    t->k = 1 + below(t, below(t, 3) ? 24 : 600);
    t->k = copies * t->m * t->k > LEFT ? LEFT / copies / t->m : t->k;
    t->n = copies * t->k * t->n > RIGHT ? RIGHT / copies / t->k : t->n;
    t->m = copies * t->m * t->n > OUT ? OUT / copies / t->n : t->m;
    t->turn_a = below(t, 2);
    t->turn_b = below(t, 2);
    t->bfloat = below(t, 8) == 0;
}

static struct trial draw(uint32_t number_)
{
    static const float weights[] = {1, 1, 1, 0.5f, 2, -1, 0.75f, 3, 1e-3f, 0x1p-120f, 1e30f, 0};
    static const int32_t limits[] = {1, 5, 100, 1 << 24, INT32_MAX / 7, INT32_MAX / 8, INT32_MAX};
    struct trial t = {.number = number_, .seed = 977 * number_ + 5};
    const bool alike = below(&t, 2);

    draw_shape(&t);
    t.offset = (int)below(&t, 2) * (int)below(&t, 16);
    t.runs = 1 + (int)below(&t, EACH);
    t.kind = (int)below(&t, KINDS);
    t.fresh = below(&t, 2);
    t.shared = below(&t, 2);
    t.weight_of_all = below(&t, 2);
    for (int e = 0; e < EACH; e++)
        t.weight[e] = e && alike ? t.weight[0] : weights[below(&t, RB_COUNT(weights))];
    t.exponent = (int)below(&t, 521) - 260;
    t.limit = limits[below(&t, RB_COUNT(limits))];
    for (int e = 0; e < t.runs; e++) {
        fill(&t, left[e], narrow_left[e], (t.batch ? t.batch : 1) * t.m * t.k);
        fill(&t, right[e], narrow_right[e], (t.batch ? t.batch : 1) * t.k * t.n);
    }
    return t;
}

static void broken(const struct trial *t, const char *what)
{
    fail_msg("trial %u, %d runs of %ld x [%ld, %ld] over %ld, turned %d %d, bfloat %d, kind %d, "
             "weight %g, 2^%d, limit %d: %s",
             t->number, t->runs, (long)t->batch, (long)t->m, (long)t->n, (long)t->k, t->turn_a,
             t->turn_b, t->bfloat, t->kind, (double)t->weight[0], t->exponent, t->limit, what);
}

static struct rb_kernel *prepare(struct rb_device *device, const struct trial *t)
{
    static const int64_t one = 1;
    const enum rb_dtype dtype = t->bfloat ? RB_BF16 : RB_F32;
    const struct rb_attribute turned[] = {{.key = "transA", .ints = &one, .n_ints = 1},
                                          {.key = "transB", .ints = &one, .n_ints = 1}};
    const int64_t a[] = {t->batch, t->turn_a ? t->k : t->m, t->turn_a ? t->m : t->k};
    const int64_t b[] = {t->batch, t->turn_b ? t->n : t->k, t->turn_b ? t->k : t->n};
    const int64_t c[] = {t->batch, t->m, t->n};
    const size_t skip = t->batch ? 0 : 1, bytes = (3 - skip) * sizeof(int64_t);
    struct rb_tensor_type in[] = {{dtype, 3 - (int)skip, {0}}, {dtype, 3 - (int)skip, {0}}};
    struct rb_tensor_type type = {RB_F32, 3 - (int)skip, {0}};
    const struct rb_call call = {.op = RB_OP_MATMUL,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &type,
                                 .attributes = turned + (t->turn_a ? 0 : 1),
                                 .n_attributes = t->turn_a + t->turn_b,
                                 .slices = t->offset > 0};
    struct rb_kernel *kernel = NULL;
    struct rb_why why;

    memcpy(in[0].dim, a + skip, bytes);
    memcpy(in[1].dim, b + skip, bytes);
    memcpy(type.dim, c + skip, bytes);
    if (rb_kernel_prepare(device, &call, &kernel, &why) != 0)
        broken(t, why.text);
    return kernel;
}

/* ---- Both ways --------------------------------------------------------------------------------*/

struct operands {
    const void *in[EACH][2];
    const void *const *ins[EACH];
    void *out[EACH][1];
    void *const *outs[EACH];
};

static void operands_of(const struct trial *t, float to[EACH][OUT + SLACK], struct operands *of)
{
    for (int e = 0; e < EACH; e++) {
        const int b = t->weight_of_all ? 0 : e;

        of->in[e][0] = t->bfloat ? (const void *)(narrow_left[e] + t->offset) : left[e] + t->offset;
        of->in[e][1] =
            t->bfloat ? (const void *)(narrow_right[b] + t->offset) : right[b] + t->offset;
        of->ins[e] = of->in[e];
        of->out[e][0] = to[e] + t->offset;
        of->outs[e] = of->out[e];
    }
}

static int64_t elements(const struct trial *t)
{
    return (t->batch ? t->batch : 1) * t->m * t->n;
}

/* Equal, or both NaN: which of several NaNs comes through is not defined. */
static bool agree(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void check_runs(struct rb_kernel *kernel, const struct trial *t)
{
    const struct rb_key keys[EACH] = {{0}};
    struct operands one, all;

    memset(alone, 0x55, sizeof alone);
    memset(at_once, 0x55, sizeof at_once);
    operands_of(t, alone, &one);
    operands_of(t, at_once, &all);
    for (int e = 0; e < t->runs; e++)
        rb_kernel_run(kernel, one.ins[e], one.outs[e], &keys[e]);
    rb_kernel_run_each(kernel, t->runs, all.ins, all.outs, keys);
    for (int e = 0; e < EACH; e++)
        for (int64_t i = 0; i < elements(t) + SLACK; i++)
            if (!agree(alone[e][i], at_once[e][i]))
                broken(t, "runs at once are others");
}

/* Each element is a chain: one rounding a step, in the order of k. */
static void check_chains(const struct trial *t)
{
    for (int e = 0; e < t->runs && !t->batch && !t->bfloat; e++)
        for (int64_t at = 0; at < t->m * t->n; at++) {
            const float *a = left[e] + t->offset, *b = right[t->weight_of_all ? 0 : e] + t->offset;
            float sum = 0;

            for (int64_t k = 0; k < t->k; k++)
                sum = fmaf(a[t->turn_a ? k * t->m + at / t->n : at / t->n * t->k + k],
                           b[t->turn_b ? at % t->n * t->k + k : k * t->n + at % t->n], sum);
            if (!agree(alone[e][t->offset + at], sum))
                broken(t, "an element is another chain");
        }
}

struct sums {
    int32_t value[OUT + 2 * SLACK];
    uint32_t largest[EACH];
    bool overflow[EACH];
};

static struct rb_fixed into(const struct trial *t, struct sums *sums, int e)
{
    return (struct rb_fixed){.sum = sums->value + SLACK + t->offset,
                             .fresh = t->fresh && e == 0,
                             .weight = t->weight[e],
                             .exponent = t->exponent,
                             .limit = t->limit,
                             .largest = &sums->largest[t->shared ? 0 : e],
                             .overflow = &sums->overflow[t->shared ? 0 : e]};
}

static void start(const struct trial *t, struct sums *sums)
{
    uint32_t seed = t->number;

    *sums = (struct sums){0};
    for (size_t i = 0; i < RB_COUNT(sums->value); i++) {
        setup_draw(&seed);
        sums->value[i] = (int32_t)seed;
    }
}

static void assert_alike(const struct trial *t, const struct sums *got, const struct sums *want)
{
    for (int e = 0; e < EACH; e++) {
        float a, b;

        memcpy(&a, &got->largest[e], sizeof a);
        memcpy(&b, &want->largest[e], sizeof b);
        if (!agree(a, b))
            broken(t, "the largest is another");
        if (got->overflow[e] != want->overflow[e])
            broken(t, "something is beyond the limit or not");
    }
    if (memcmp(got->value, want->value, sizeof got->value) != 0)
        broken(t, "a sum is another");
}

/* Call after check_runs, which wrote `alone`. */
static void check_sums(struct rb_device *device, struct rb_kernel *kernel, const struct trial *t)
{
    static struct sums written, each, all;
    struct rb_fixed to_all[EACH];
    struct operands of;

    operands_of(t, alone, &of);
    start(t, &written);
    start(t, &each);
    start(t, &all);
    for (int e = 0; e < t->runs; e++) {
        const struct rb_fixed one = into(t, &written, e), other = into(t, &each, e);

        (one.fresh ? rb_fixed_set : rb_fixed_add)(device, one.sum, alone[e] + t->offset,
                                                  (size_t)elements(t), one.weight, one.exponent,
                                                  one.limit, one.largest, one.overflow);
        rb_kernel_sum(kernel, of.ins[e], &other);
        to_all[e] = into(t, &all, e);
    }
    rb_kernel_sum_each(kernel, t->runs, of.ins, to_all);
    assert_alike(t, &each, &written);
    assert_alike(t, &all, &written);
}

/* In most trials, choose an exponent at which some sums are beyond the limit, and some not. */
static void find_limit(struct trial *t)
{
    float largest = 0;

    for (int64_t i = 0; i < elements(t); i++) {
        const float size = fabsf(alone[0][t->offset + i] * t->weight[0]);

        largest = size > largest && size < INFINITY ? size : largest;
    }
    if (largest > 0 && below(t, 4))
        t->exponent = ilogbf((float)t->limit) - ilogbf(largest) + (int)below(t, 6) - 3;
}

static void whatever_is_multiplied(void **state)
{
    const bool tiles = strstr(rb_cpu_numeric_class(), "avx2") != NULL;
    int summed = 0;

    for (uint32_t i = 0; i < TRIALS; i++) {
        struct trial t = draw(i);
        struct rb_kernel *kernel = prepare(*state, &t);

        check_runs(kernel, &t);
        if (rb_kernel_sums(kernel)) {
            check_chains(&t);
            find_limit(&t);
            check_sums(*state, kernel, &t);
            summed++;
        }
        rb_kernel_free(kernel);
    }
    if (tiles && summed < TRIALS / 8)
        fail_msg("%d of %d products went into sums", summed, TRIALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_is_multiplied)};

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
