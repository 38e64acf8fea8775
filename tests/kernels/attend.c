/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/attend.h"

#include "kernels/reference/reference.h"
#include "tests/kernels/case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

const struct rb_key attend_key = {42, 7, 3};

static float *numbers(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);

    assert_non_null(x);
    srand48((long)seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2 * drand48() - 1);
    return x;
}

void attend_round(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = rb_dtype_bfloat(rb_dtype_to_bfloat(x[i]));
}

struct attend_run attend_new(const struct attend_shape *s)
{
    const int64_t q = s->batch * s->queries, k = s->batch * s->keys;
    const struct attend_run run = {
        numbers(q * s->depth, 1), numbers(k * s->depth, 2), numbers(k * s->width, 3),
        numbers(q * s->width, 4), numbers(q * s->width, 5), numbers(q, 6),
        numbers(q * s->depth, 7), numbers(k * s->depth, 8), numbers(k * s->width, 9)};

    if (s->narrow) {
        attend_round(run.q, q * s->depth);
        attend_round(run.k, k * s->depth);
        attend_round(run.v, k * s->width);
        attend_round(run.dy, q * s->width);
        attend_round(run.y, q * s->width);
    }
    return run;
}

void attend_done(const struct attend_run *run)
{
    float *const all[] = {run->q, run->k,  run->v,  run->dy, run->y,
                          run->l, run->dq, run->dk, run->dv};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Outputs that are not wanted are absent. */
static void call_of(const struct attend_shape *s, const struct attend_run *run, bool forward,
                    struct rb_case *c)
{
    const int64_t b = s->batch, q = s->queries, k = s->keys, d = s->depth, w = s->width;
    char text[512], how[96];
    int at = 0;

#define SAY(...) at += snprintf(text + at, sizeof text - (size_t)at, __VA_ARGS__)
#define STACK(rows, columns)                                                                       \
    SAY(" %s[%ld,%ld,%ld]", s->narrow ? "bf16" : "f32", (long)b, (long)(rows), (long)(columns))
#define LOGS SAY(" f32[%ld,%ld,1]", (long)b, (long)q)
#define WANTED(x, rows, columns)                                                                   \
    if (x)                                                                                         \
        STACK(rows, columns);                                                                      \
    else                                                                                           \
        SAY(" -");
    snprintf(how, sizeof how, " scale=%.3f causal=%d ratio=%.3f", (double)ATTEND_SCALE, s->causal,
             s->drops ? (double)ATTEND_RATIO : 0.0);
    SAY("%s", forward ? "FusedAttention" : "FusedAttentionGrad");
    if (!forward)
        STACK(q, w);
    STACK(q, d);
    STACK(k, d);
    STACK(k, w);
    if (!forward) {
        STACK(q, w);
        LOGS;
    }
    SAY(" >");
    if (forward) {
        STACK(q, w);
        if (run->l)
            LOGS;
        else
            SAY(" -");
    } else {
        WANTED(run->dq, q, d)
        WANTED(run->dk, k, d)
        WANTED(run->dv, k, w)
    }
    SAY("%s", how);
    if (!forward)
        SAY(" key=%d", ATTEND_ID);
#undef WANTED
#undef STACK
#undef LOGS
#undef SAY
    rb_case_read(text, c);
    c->call.id = ATTEND_ID;
}

static void run_one(struct rb_device *device, struct rb_case *c, const void *const *in,
                    void *const *out)
{
    struct rb_kernel *kernel;
    struct rb_why why;

    if (!device) {
        rb_reference_table[c->call.op](&c->call, in, out, &attend_key);
        return;
    }
    if (rb_kernel_prepare(device, &c->call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    rb_kernel_run(kernel, in, out, &attend_key);
    rb_kernel_free(kernel);
}

/* The same for float32 tensors: those that the case has as bfloat16 are copied on the way. */
static void run_case(struct rb_device *device, struct rb_case *c, float *const *in,
                     float *const *out)
{
    const void *read[CASE_TENSORS] = {NULL};
    void *written[CASE_TENSORS] = {NULL};

    for (int i = 0; i < c->call.n_in; i++) {
        const int64_t n = rb_tensor_elements(&c->in[i]);
        uint16_t *copy;

        read[i] = in[i];
        if (c->in[i].dtype != RB_BF16)
            continue;
        read[i] = copy = malloc((size_t)(n + 1) * sizeof *copy);
        for (int64_t e = 0; e < n; e++)
            copy[e] = rb_dtype_to_bfloat(in[i][e]);
    }
    for (int i = 0; i < c->call.n_out; i++)
        written[i] = c->out[i].dtype == RB_BF16
                         ? malloc((size_t)(rb_tensor_elements(&c->out[i]) + 1) * sizeof(uint16_t))
                         : (void *)out[i];
    run_one(device, c, read, written);
    for (int i = 0; i < c->call.n_in; i++)
        if (read[i] != in[i])
            free((void *)read[i]);
    for (int i = 0; i < c->call.n_out; i++) {
        if (written[i] == out[i])
            continue;
        for (int64_t e = 0; e < rb_tensor_elements(&c->out[i]); e++)
            out[i][e] = rb_dtype_bfloat(((const uint16_t *)written[i])[e]);
        free(written[i]);
    }
}

void attend_forward(struct rb_device *device, const struct attend_shape *s,
                    const struct attend_run *run)
{
    struct rb_case c;

    call_of(s, run, true, &c);
    run_case(device, &c, (float *[]){run->q, run->k, run->v}, (float *[]){run->y, run->l});
}

void attend_backward(struct rb_device *device, const struct attend_shape *s,
                     const struct attend_run *run)
{
    struct rb_case c;

    call_of(s, run, false, &c);
    run_case(device, &c, (float *[]){run->dy, run->q, run->k, run->v, run->y, run->l},
             (float *[]){run->dq, run->dk, run->dv});
}

int64_t attend_seen(const struct attend_shape *s, int64_t i)
{
    return s->causal ? i + 1 : s->keys;
}

static float rounded(float x)
{
    attend_round(&x, 1);
    return x;
}

float attend_chain(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n,
                   float sum, bool narrow)
{
    for (int64_t i = 0; i < n && !narrow; i++)
        sum = fmaf(a[i * a_step], b[i * b_step], sum);
    for (int64_t i = 0; i < n && narrow; i += 2) {
        if (i + 1 < n)
            sum = fmaf(rounded(a[(i + 1) * a_step]), rounded(b[(i + 1) * b_step]), sum);
        sum = fmaf(rounded(a[i * a_step]), rounded(b[i * b_step]), sum);
    }
    return sum;
}
