/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in blocks: forward and backward as they follow each other, against the reference, and
 * what cases with random numbers cannot ask. */
#include "kernels/reference/reference.h"
#include "tests/kernels/case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 1200 * 128, TENSORS = 6 };

static const struct rb_key key = {42, 7, 3};

struct shape {
    int64_t batch, queries, keys, depth, width;
    bool causal, drops;
};

/* A block is 48 queries and 128 keys: one less, one more, parts of tiles, one of each. */
static const struct shape shapes[] = {
    {1, 1, 1, 1, 1, true, false},         {2, 1, 131, 7, 5, false, true},
    {1, 100, 1, 16, 3, false, false},     {2, 127, 127, 32, 32, true, true},
    {2, 128, 128, 64, 64, true, false},   {1, 129, 129, 33, 17, true, true},
    {2, 48, 128, 128, 128, false, false}, {1, 49, 257, 20, 36, false, true},
    {1, 300, 300, 128, 65, true, true},   {1, 1023, 1023, 24, 40, true, false},
};

/* What both kernels read and make. */
struct run {
    float *q, *k, *v, *dy, *y, *l, *dq, *dk, *dv;
};

static float *numbers(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);

    assert_non_null(x);
    srand48((long)seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2 * drand48() - 1);
    return x;
}

static struct run run_new(const struct shape *s)
{
    const int64_t q = s->batch * s->queries, k = s->batch * s->keys;

    return (struct run){
        numbers(q * s->depth, 1), numbers(k * s->depth, 2), numbers(k * s->width, 3),
        numbers(q * s->width, 4), numbers(q * s->width, 5), numbers(q, 6),
        numbers(q * s->depth, 7), numbers(k * s->depth, 8), numbers(k * s->width, 9)};
}

static void run_done(const struct run *run)
{
    float *const all[] = {run->q, run->k,  run->v,  run->dy, run->y,
                          run->l, run->dq, run->dk, run->dv};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void call_of(const struct shape *s, bool forward, struct rb_case *c)
{
    const int64_t b = s->batch, q = s->queries, k = s->keys, d = s->depth, w = s->width;
    char text[512], how[96];
    int at = 0;

#define SAY(...)             at += snprintf(text + at, sizeof text - (size_t)at, __VA_ARGS__)
#define STACK(rows, columns) SAY(" f32[%ld,%ld,%ld]", (long)b, (long)(rows), (long)(columns))
    snprintf(how, sizeof how, " scale=0.7 causal=%d ratio=%s%s", s->causal,
             s->drops ? "0.25" : "0.0", forward ? "" : " key=0");
    SAY("%s", forward ? "FusedAttention" : "FusedAttentionGrad");
    if (!forward)
        STACK(q, w);
    STACK(q, d);
    STACK(k, d);
    STACK(k, w);
    if (!forward) {
        STACK(q, w);
        STACK(q, 1);
    }
    SAY(" >");
    STACK(q, forward ? w : d);
    STACK(forward ? q : k, forward ? 1 : d);
    if (!forward)
        STACK(k, w);
    SAY("%s", how);
#undef STACK
#undef SAY
    rb_case_read(text, c);
}

/* By the device, or (NULL) by the reference. */
static void run_one(struct rb_device *device, struct rb_case *c, const void *const *in,
                    void *const *out)
{
    struct rb_kernel *kernel;
    struct rb_why why;

    if (!device) {
        rb_reference_table[c->call.op](&c->call, in, out, &key);
        return;
    }
    if (rb_kernel_prepare(device, &c->call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    rb_kernel_run(kernel, in, out, &key);
    rb_kernel_free(kernel);
}

static void forward(struct rb_device *device, const struct shape *s, const struct run *run)
{
    struct rb_case c;

    call_of(s, true, &c);
    run_one(device, &c, (const void *[]){run->q, run->k, run->v}, (void *[]){run->y, run->l});
}

static void backward(struct rb_device *device, const struct shape *s, const struct run *run)
{
    struct rb_case c;

    call_of(s, false, &c);
    run_one(device, &c, (const void *[]){run->dy, run->q, run->k, run->v, run->y, run->l},
            (void *[]){run->dq, run->dk, run->dv});
}

static struct rb_device *device_open(void)
{
    struct rb_device *device;
    struct rb_why why;

    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    return device;
}

static void compare(const char *what, size_t shape, const float *got, const float *want, int64_t n)
{
    const struct rb_tensor_type type = {RB_F32, 1, {n}};
    const double error = rb_case_error(&type, got, want);

    if (!(error <= 3e-6))
        fail_msg("shape %zu: %s is off by %g of the largest", shape, what, error);
}

static void one_behind_the_other(void **state)
{
    struct rb_device *device = device_open();

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        const int64_t q = s->batch * s->queries, k = s->batch * s->keys;
        struct run got = run_new(s), want = run_new(s);

        forward(device, s, &got);
        backward(device, s, &got);
        forward(NULL, s, &want);
        backward(NULL, s, &want);
        compare("y", i, got.y, want.y, q * s->width);
        compare("l", i, got.l, want.l, q);
        for (int64_t j = 0; s->keys == 1 && j < q * s->depth; j++) /* nothing to choose */
            got.dq[j] = want.dq[j] = fabsf(got.dq[j]) < 1e-6f ? 0 : NAN;
        for (int64_t j = 0; s->keys == 1 && j < k * s->depth; j++)
            got.dk[j] = want.dk[j] = fabsf(got.dk[j]) < 1e-5f ? 0 : NAN;
        compare("dq", i, got.dq, want.dq, q * s->depth);
        compare("dk", i, got.dk, want.dk, k * s->depth);
        compare("dv", i, got.dv, want.dv, k * s->width);
        run_done(&got);
        run_done(&want);
    }
    rb_device_close(device);
}

/* A matrix alone has the bits that it has among others; and its queries those that they have where
 * nobody comes behind them. */
static void bits_are_its_own(void **state)
{
    const struct shape three = {3, 200, 200, 20, 24, true, false};
    const struct shape one = {1, 200, 200, 20, 24, true, false};
    const struct shape some = {1, 131, 131, 20, 24, true, false};
    struct rb_device *device = device_open();
    struct run all = run_new(&three), alone = run_new(&one), less = run_new(&some);

    (void)state;
    forward(device, &three, &all);
    backward(device, &three, &all);
    memcpy(alone.q, all.q + 200 * 20, 200 * 20 * sizeof(float));
    memcpy(alone.k, all.k + 200 * 20, 200 * 20 * sizeof(float));
    memcpy(alone.v, all.v + 200 * 24, 200 * 24 * sizeof(float));
    memcpy(alone.dy, all.dy + 200 * 24, 200 * 24 * sizeof(float));
    forward(device, &one, &alone);
    backward(device, &one, &alone);
    assert_memory_equal(alone.y, all.y + 200 * 24, 200 * 24 * sizeof(float));
    assert_memory_equal(alone.l, all.l + 200, 200 * sizeof(float));
    assert_memory_equal(alone.dq, all.dq + 200 * 20, 200 * 20 * sizeof(float));
    assert_memory_equal(alone.dk, all.dk + 200 * 20, 200 * 20 * sizeof(float));
    assert_memory_equal(alone.dv, all.dv + 200 * 24, 200 * 24 * sizeof(float));
    memcpy(less.q, alone.q, 131 * 20 * sizeof(float));
    memcpy(less.k, alone.k, 131 * 20 * sizeof(float));
    memcpy(less.v, alone.v, 131 * 24 * sizeof(float));
    forward(device, &some, &less);
    assert_memory_equal(less.y, alone.y, 131 * 24 * sizeof(float));
    assert_memory_equal(less.l, alone.l, 131 * sizeof(float));
    run_done(&all);
    run_done(&alone);
    run_done(&less);
    rb_device_close(device);
}

/* Scores of minus infinity count for nothing, be it a whole block of them; where there is nothing
 * else, and where one is no number, the row is none either. */
static void infinite_scores(void **state)
{
    const struct shape s = {1, 3, 140, 1, 16, false, false};
    struct rb_device *device = device_open();
    struct run run = run_new(&s);

    (void)state;
    run.q[0] = 1;  /* minus infinity, then numbers */
    run.q[1] = -1; /* infinity */
    run.q[2] = NAN;
    for (int j = 0; j < 140; j++)
        run.k[j] = j < 130 ? -INFINITY : 1;
    for (int j = 0; j < 140 * 16; j++)
        run.v[j] = (float)(j / 16);
    forward(device, &s, &run);
    for (int e = 0; e < 16; e++) {
        assert_true(fabsf(run.y[e] - 134.5f) < 1e-4f);
        assert_true(isnan(run.y[16 + e]) && isnan(run.y[32 + e]));
    }
    assert_true(fabs((double)run.l[0] - 0.7 - log(10)) < 1e-6);
    for (int j = 130; j < 140; j++)
        run.k[j] = -INFINITY;
    forward(device, &s, &run);
    for (int e = 0; e < 48; e++)
        assert_true(isnan(run.y[e]));
    run_done(&run);
    rb_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_behind_the_other),
        cmocka_unit_test(bits_are_its_own),
        cmocka_unit_test(infinite_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
