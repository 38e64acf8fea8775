/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in blocks has the bits of computing one query at a time, whatever tiles there are; and
 * an output that is not wanted changes nothing. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/math.h"
#include "kernels/random.h"
#include "tests/kernels/attend.h"
#include "tests/kernels/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void assert_same(const char *what, const struct attend_shape *s, const float *got,
                        const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%ld [%ld, %ld] of %ld, %ld, %d %d: %s[%ld] is %a, not %a", (long)s->batch,
                     (long)s->queries, (long)s->keys, (long)s->depth, (long)s->width, s->causal,
                     s->drops, what, (long)i, (double)got[i], (double)want[i]);
}

static int64_t elements(const struct attend_shape *s, int64_t rows, int64_t width)
{
    return s->batch * rows * width;
}

/* ---- A query at a time ------------------------------------------------------------------------*/

/* One matrix of a run; p, g: its probabilities and their gradients. */
struct matrix {
    const struct attend_shape *shape;
    struct attend_run run;
    int64_t number;
    float *p, *g;
};

static struct matrix matrix_of(const struct attend_shape *s, const struct attend_run *run,
                               int64_t number)
{
    const int64_t q = number * s->queries, k = number * s->keys;

    return (struct matrix){s,
                           {run->q + q * s->depth, run->k + k * s->depth, run->v + k * s->width,
                            run->dy + q * s->width, run->y + q * s->width, run->l + q,
                            run->dq + q * s->depth, run->dk + k * s->depth, run->dv + k * s->width},
                           number,
                           malloc((size_t)(s->queries * s->keys + 1) * sizeof(float)),
                           malloc((size_t)(s->queries * s->keys + 1) * sizeof(float))};
}

static void matrix_done(const struct matrix *m)
{
    free(m->p);
    free(m->g);
}

static bool keeps(const struct matrix *m, int64_t i, int64_t j)
{
    const int64_t at = (m->number * m->shape->queries + i) * m->shape->keys + j;
    uint32_t words[4];

    if (!m->shape->drops)
        return true;
    rb_random_words(&attend_key, ATTEND_ID, (uint64_t)(at - at % 4), words, 4);
    return words[at % 4] >= (uint32_t)lrint((double)ATTEND_RATIO * 4294967296.0);
}

static float factor_of(const struct attend_shape *s)
{
    return s->drops ? (float)(1 / (1 - (double)ATTEND_RATIO)) : 1;
}

/* Keys come in blocks, and earlier sums are scaled to the largest score so far. */
static void query_forward(const struct matrix *m, int64_t i)
{
    const struct attend_shape *s = m->shape;
    const float *q = m->run.q + i * s->depth;
    float *y = m->run.y + i * s->width, most = -INFINITY, sum = 0;

    memset(y, 0, (size_t)s->width * sizeof *y);
    for (int64_t j = 0, n; j < attend_seen(s, i); j += n) {
        const int64_t left = attend_seen(s, i) - j;
        const float *k = m->run.k + j * s->depth, *v = m->run.v + j * s->width;
        float x[RB_BLOCK_KEYS], before = most;

        n = left < RB_BLOCK_KEYS ? left : RB_BLOCK_KEYS;
        for (int64_t at = 0; at < n; at++)
            x[at] = ATTEND_SCALE * attend_chain(q, 1, k + at * s->depth, 1, s->depth, 0, s->narrow);
        most = fmaxf(most, rb_most(x, n));
        for (int64_t at = 0; at < n; at++)
            x[at] = rb_exp_belowf(x[at] - most);
        before = j ? rb_exp_belowf(before - most) : 0;
        sum = sum * before + rb_sum(x, n);
        for (int64_t at = 0; at < n; at++)
            x[at] = keeps(m, i, j + at) ? x[at] : 0;
        for (int64_t e = 0; e < s->width; e++)
            y[e] = attend_chain(x, 1, v + e, s->width, n, j ? y[e] * before : 0, s->narrow);
    }
    for (int64_t e = 0; e < s->width; e++)
        y[e] *= factor_of(s) / sum;
    if (s->narrow)
        attend_round(y, s->width);
    m->run.l[i] = most + rb_logf(sum);
}

static void query_backward(const struct matrix *m, int64_t i)
{
    const struct attend_shape *s = m->shape;
    const float *dy = m->run.dy + i * s->width;
    const float inner = rb_dot(dy, m->run.y + i * s->width, s->width);
    float *p = m->p + i * s->keys, *g = m->g + i * s->keys;

    memset(p, 0, (size_t)s->keys * sizeof *p);
    memset(g, 0, (size_t)s->keys * sizeof *g);
    for (int64_t j = 0; j < attend_seen(s, i); j++) {
        const float *k = m->run.k + j * s->depth, *v = m->run.v + j * s->width;
        const float kept = keeps(m, i, j) ? factor_of(s) : 0;

        p[j] =
            attend_chain(m->run.q + i * s->depth, 1, k, 1, s->depth, 0, s->narrow) * ATTEND_SCALE;
        p[j] = rb_exp_belowf(p[j] - m->run.l[i]);
        g[j] = attend_chain(dy, 1, v, 1, s->width, 0, s->narrow);
        g[j] = p[j] * (g[j] * kept - inner) * ATTEND_SCALE;
        p[j] *= kept;
    }
    for (int64_t d = 0; d < s->depth; d++)
        m->run.dq[i * s->depth + d] =
            attend_chain(g, 1, m->run.k + d, s->depth, attend_seen(s, i), 0, s->narrow);
}

/* What all queries add to the gradients of key j, in their order. */
static void key_backward(const struct matrix *m, int64_t j)
{
    const struct attend_shape *s = m->shape;

    for (int64_t d = 0; d < s->depth; d++)
        m->run.dk[j * s->depth + d] =
            attend_chain(m->g + j, s->keys, m->run.q + d, s->depth, s->queries, 0, s->narrow);
    for (int64_t e = 0; e < s->width; e++)
        m->run.dv[j * s->width + e] =
            attend_chain(m->p + j, s->keys, m->run.dy + e, s->width, s->queries, 0, s->narrow);
}

static void go_through(const struct attend_shape *s, const struct attend_run *run)
{
    for (int64_t number = 0; number < s->batch; number++) {
        const struct matrix m = matrix_of(s, run, number);

        for (int64_t i = 0; i < s->queries; i++) {
            query_forward(&m, i);
            query_backward(&m, i);
        }
        for (int64_t j = 0; j < s->keys; j++)
            key_backward(&m, j);
        matrix_done(&m);
    }
    if (s->narrow) {
        attend_round(run->dq, elements(s, s->queries, s->depth));
        attend_round(run->dk, elements(s, s->keys, s->depth));
        attend_round(run->dv, elements(s, s->keys, s->width));
    }
}

/* ---- Bits -------------------------------------------------------------------------------------*/

/* Parts of tiles of 6 and of 12 rows and of 16 columns, and of blocks, of each kind of row. */
static const struct attend_shape shapes[] = {
    {1, 1, 1, 1, 1, true, false},       {1, 5, 3, 2, 17, false, false},
    {2, 13, 13, 16, 15, true, true},    {1, 12, 129, 33, 16, false, true},
    {2, 49, 49, 7, 31, true, false},    {1, 60, 127, 128, 9, false, false},
    {1, 133, 133, 12, 128, true, true}, {1, 263, 263, 24, 40, true, false},
    {1, 97, 300, 20, 36, false, true},
};

static void assert_same_run(const struct attend_shape *s, const struct attend_run *got,
                            const struct attend_run *want)
{
    assert_same("y", s, got->y, want->y, elements(s, s->queries, s->width));
    if (got->l)
        assert_same("l", s, got->l, want->l, elements(s, s->queries, 1));
    if (got->dq)
        assert_same("dq", s, got->dq, want->dq, elements(s, s->queries, s->depth));
    if (got->dk)
        assert_same("dk", s, got->dk, want->dk, elements(s, s->keys, s->depth));
    if (got->dv)
        assert_same("dv", s, got->dv, want->dv, elements(s, s->keys, s->width));
}

/* Everything that a device has kept from one call to the next becomes NaN. */
static void spoil(struct rb_device *device)
{
    const struct attend_shape s = {1, 200, 200, 128, 128, false, false};
    const struct attend_run run = attend_new(&s);

    for (int64_t i = 0; i < 200 * 128; i++)
        run.q[i] = run.k[i] = run.v[i] = run.dy[i] = NAN;
    attend_forward(device, &s, &run);
    attend_backward(device, &s, &run);
    attend_done(&run);
}

static void check_bits(struct rb_device *device, const struct attend_shape *s)
{
    const struct attend_run got = attend_new(s), want = attend_new(s);

    spoil(device);
    attend_forward(device, s, &got);
    attend_backward(device, s, &got);
    go_through(s, &want);
    assert_same_run(s, &got, &want);
    attend_done(&got);
    attend_done(&want);
}

static void bits_of_a_query_at_a_time(void **state)
{
    if (!rb_attention_tiles(false))
        skip(); /* plain loops compute just that, with the C library's powers */
    for (size_t i = 0; i < RB_COUNT(shapes); i++)
        check_bits(*state, &shapes[i]);
}

static void bits_of_pairs(void **state)
{
    if (!strstr(rb_device_numeric_class("cpu"), " avx512_core_bf16 onednn"))
        skip(); /* there it is float32 on copies */
    for (size_t i = 0; i < RB_COUNT(shapes); i++) {
        struct attend_shape s = shapes[i];

        s.narrow = true;
        s.depth += s.depth % 2;
        s.width += s.width % 2;
        check_bits(*state, &s);
    }
}

static void drop_output(float **x, bool wanted)
{
    if (!wanted) {
        free(*x);
        *x = NULL;
    }
}

/* Each of the gradients, any two of them, and no logarithms. */
static void what_is_not_wanted(void **state)
{
    static const struct attend_shape some[] = {{2, 133, 133, 12, 20, true, true},
                                               {1, 50, 140, 33, 7, false, false},
                                               {1, 20, 30, 130, 140, false, true},
                                               {2, 133, 133, 12, 20, true, true, true}};

    for (size_t i = 0; i < RB_COUNT(some); i++) {
        const struct attend_run all = attend_new(&some[i]);

        attend_forward(*state, &some[i], &all);
        attend_backward(*state, &some[i], &all);
        for (int wanted = 1; wanted < 8; wanted++) {
            struct attend_run part = attend_new(&some[i]);
            float *l = part.l;

            memcpy(l, all.l, (size_t)elements(&some[i], some[i].queries, 1) * sizeof *l);
            part.l = NULL;
            attend_forward(*state, &some[i], &part);
            part.l = l;
            drop_output(&part.dq, wanted & 1);
            drop_output(&part.dk, wanted & 2);
            drop_output(&part.dv, wanted & 4);
            attend_backward(*state, &some[i], &part);
            assert_same_run(&some[i], &part, &all);
            attend_done(&part);
        }
        attend_done(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_a_query_at_a_time),
        cmocka_unit_test(bits_of_pairs),
        cmocka_unit_test(what_is_not_wanted),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
