/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and optimizers of the CUDA backend: the reference's, to the bit where that is promised. */
#include "tests/kernels/cuda_tests.h"

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

enum { N = 70001 };

struct sums {
    float *g;
    int32_t *sum, *want;
    uint32_t *largest;
    bool *overflow;
};

static void add_case(struct rb_device *device, const struct sums *s, int exponent, bool fresh)
{
    uint32_t want_largest = 0;
    bool want_overflow = false;

    rb_device_discard(device, s->largest, sizeof *s->largest);
    rb_device_discard(device, s->overflow, sizeof *s->overflow);
    for (int i = 0; i < N; i++) {
        s->sum[i] = i * 7 - 1000;
        s->want[i] = fresh ? 0 : s->sum[i];
    }
    rb_device_push(device, s->sum, N * sizeof *s->sum);
    rb_device_push(device, s->g, N * sizeof *s->g);
    (fresh ? rb_fixed_set : rb_fixed_add)(device, s->sum, s->g, N, 0.75f, exponent, 1 << 29,
                                          s->largest, s->overflow);
    rb_device_pull(device, s->sum, N * sizeof *s->sum);
    rb_device_pull(device, s->largest, sizeof *s->largest);
    rb_device_pull(device, s->overflow, sizeof *s->overflow);
    rb_reference_fixed_add(s->want, s->g, N, 0.75f, exponent, 1 << 29, &want_largest,
                           &want_overflow);
    assert_memory_equal(s->sum, s->want, N * sizeof *s->sum);
    assert_int_equal(*s->largest, want_largest);
    assert_int_equal(*s->overflow, want_overflow);
}

/* Equal to the bit: this is what makes sums equal everywhere. */
void fixed_sums_are_the_references(void **state)
{
    static const int exponents[] = {-240, -20, 0, 3, 24, 31, 127, 252};
    struct rb_device *device = *state;
    struct sums s = {
        .g = cuda_get(device, N * sizeof *s.g),
        .sum = cuda_get(device, N * sizeof *s.sum),
        .want = malloc(N * sizeof *s.want),
        .largest = cuda_get(device, sizeof *s.largest),
        .overflow = cuda_get(device, sizeof *s.overflow),
    };
    uint32_t seed = 3;

    for (size_t e = 0; e < RB_COUNT(exponents); e++)
        for (int fresh = 0; fresh < 2; fresh++) {
            for (int i = 0; i < N; i++)
                s.g[i] = ldexpf(setup_draw(&seed), 28 - exponents[e] + (fresh ? i % 4 : 0));
            if (e == 4)
                s.g[N / 2] = NAN;
            if (e == 5)
                s.g[N - 1] = INFINITY;
            add_case(device, &s, exponents[e], fresh);
        }
    rb_device_free(device, s.g);
    rb_device_free(device, s.sum);
    rb_device_free(device, s.largest);
    rb_device_free(device, s.overflow);
    free(s.want);
}

void squares_depend_on_n_alone(void **state)
{
    struct rb_device *device = *state;
    int32_t *sum = cuda_get(device, (N + 16) * sizeof *sum);
    double *squares = cuda_get(device, 2 * sizeof *squares), want = 0;
    uint32_t seed = 5;

    for (int i = 0; i < N; i++) {
        sum[i] = (int32_t)(setup_draw(&seed) * 1e9f);
        want += ldexp((double)sum[i], -20) * 0.25 * ldexp((double)sum[i], -20) * 0.25;
    }
    rb_device_push(device, sum, N * sizeof *sum);
    rb_fixed_squares(device, sum, N, 20, 0.25, &squares[0]);
    memmove(sum + 13, sum, N * sizeof *sum);
    rb_device_push(device, sum, (N + 16) * sizeof *sum);
    rb_fixed_squares(device, sum + 13, N, 20, 0.25, &squares[1]);
    rb_device_pull(device, squares, 2 * sizeof *squares);
    assert_true(fabs(squares[0] - want) < 1e-12 * want);
    assert_true(squares[0] == squares[1]);
    rb_device_free(device, sum);
    rb_device_free(device, squares);
}

enum { STEPS = 20, EXPONENT = 22, WEIGHTS = 1003 };

struct trained {
    float *w, *m, *v;
    int32_t *sum;
    double w2[WEIGHTS], m2[WEIGHTS], v2[WEIGHTS], g2[WEIGHTS];
};

static struct trained *start(struct rb_device *device)
{
    struct trained *t = calloc(1, sizeof *t);

    t->w = cuda_get(device, WEIGHTS * sizeof(float));
    t->m = cuda_get(device, WEIGHTS * sizeof(float));
    t->v = cuda_get(device, WEIGHTS * sizeof(float));
    t->sum = cuda_get(device, WEIGHTS * sizeof(int32_t));
    for (int i = 0; i < WEIGHTS; i++) {
        t->w[i] = (float)(i - 300) * 0.01f;
        t->w2[i] = (double)t->w[i];
    }
    rb_device_push(device, t->w, WEIGHTS * sizeof(float));
    return t;
}

static void gradients(struct rb_device *device, struct trained *t, int step, double scale)
{
    for (int i = 0; i < WEIGHTS; i++) {
        t->sum[i] = (int32_t)(1e7 * sin(i * 0.7 + step * 1.3));
        t->g2[i] = ldexp((double)t->sum[i], -EXPONENT) * scale;
    }
    rb_device_push(device, t->sum, WEIGHTS * sizeof(int32_t));
}

static void finish(struct rb_device *device, struct trained *t)
{
    rb_device_pull(device, t->w, WEIGHTS * sizeof(float));
    for (int i = 0; i < WEIGHTS; i++)
        if (!(fabs((double)t->w[i] - t->w2[i]) < 3e-6 * (1 + fabs(t->w2[i]))))
            fail_msg("weight %d is %.9g, the formula gives %.9g", i, (double)t->w[i], t->w2[i]);
    rb_device_free(device, t->w);
    rb_device_free(device, t->m);
    rb_device_free(device, t->v);
    rb_device_free(device, t->sum);
    free(t);
}

/* squares[0]: the squares of the last update.  Frees `squares`. */
static void check_squares(struct rb_device *device, const struct trained *t, double *squares)
{
    rb_fixed_squares(device, t->sum, WEIGHTS, EXPONENT, 1, &squares[1]);
    rb_device_pull(device, squares, 2 * sizeof *squares);
    assert_true(squares[0] > 0 && squares[0] == squares[1]);
    rb_device_free(device, squares);
}

void adamw_is_pytorchs(void **state)
{
    struct trained *t = start(*state);
    struct rb_adamw how = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
    double *squares = cuda_get(*state, 2 * sizeof *squares);

    for (int step = 1; step <= STEPS; step++) {
        gradients(*state, t, step, 0.125);
        how.correction1 = (float)(1 - pow((double)how.beta1, step));
        how.correction2 = (float)(1 - pow((double)how.beta2, step));
        rb_apply_adamw(*state, t->w, t->m, t->v, rb_sums_of(t->sum), WEIGHTS, EXPONENT, 0.125f,
                       &how, &squares[0]);
        rb_reference_adamw(t->w2, t->m2, t->v2, t->g2, WEIGHTS, (double)how.lr, (double)how.beta1,
                           (double)how.beta2, (double)how.eps, (double)how.weight_decay, step);
    }
    check_squares(*state, t, squares);
    finish(*state, t);
}

void sgd_is_pytorchs(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct trained *t = start(*state);
        struct rb_sgd how = {
            .lr = 0.02f, .momentum = kind ? 0.9f : 0, .weight_decay = 0.01f, .nesterov = kind == 2};

        double *squares = cuda_get(*state, 2 * sizeof *squares);

        for (int step = 1; step <= STEPS; step++) {
            gradients(*state, t, step, 0.5);
            how.first = step == 1;
            rb_apply_sgd(*state, t->w, kind ? t->m : NULL, rb_sums_of(t->sum), WEIGHTS, EXPONENT,
                         0.5f, &how, &squares[0]);
            rb_reference_sgd(t->w2, t->m2, t->g2, WEIGHTS, (double)how.lr, (double)how.momentum,
                             (double)how.weight_decay, how.nesterov, how.first);
        }
        check_squares(*state, t, squares);
        finish(*state, t);
    }
}

void statistics_decay(void **state)
{
    struct rb_device *device = *state;
    float *w = cuda_get(device, 3 * sizeof *w);
    int32_t *sum = cuda_get(device, 3 * sizeof *sum);

    memcpy(w, (const float[]){1.0f, -2.0f, 0.0f}, 3 * sizeof *w);
    memcpy(sum, (const int32_t[]){1 << 19, 1 << 20, -(1 << 20)}, 3 * sizeof *sum);
    rb_device_push(device, w, 3 * sizeof *w);
    rb_device_push(device, sum, 3 * sizeof *sum);
    rb_apply_statistic(device, w, rb_sums_of(sum), 3, 20, 0.75f);
    rb_device_pull(device, w, 3 * sizeof *w);
    assert_true(w[0] == 1.25f && w[1] == -0.5f && w[2] == -1.0f);
    rb_device_free(device, w);
    rb_device_free(device, sum);
}
