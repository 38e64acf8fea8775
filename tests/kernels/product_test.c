/* SPDX-License-Identifier: Apache-2.0 */
/* Products of blocks: each element is one chain in the order of k and then the bias, whichever way
 * the factors lie, however many blocks there are, and whatever lies beside it. */
#include "kernels/backend.h"
#include "kernels/device.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    int64_t batch, m, n, k;
};

/* Whole tiles and parts of them, several blocks of rows, of k and of columns. */
static const struct shape shapes[] = {
    {1, 6, 16, 8},    {1, 4, 17, 9},     {1, 13, 47, 31},    {1, 96, 64, 256},
    {1, 97, 33, 257}, {1, 200, 40, 520}, {1, 20, 2100, 300}, {1, 7, 1031, 1100},
    {3, 12, 32, 16},  {2, 25, 18, 300},  {1, 132, 290, 300}, {1, 133, 17, 300},
};

struct product {
    const struct shape *shape;
    bool turn_a, turn_b, bias, one_b; /* one_b: the batch shares b */
    bool below, above;                /* a is 0 below its diagonal, or above it */
    float *a, *b, *c, *biases;
};

static struct rb_kernel *prepare(struct rb_device *device, const struct product *p)
{
    static const int64_t one = 1;
    const struct shape *s = p->shape;
    const struct rb_attribute turned[] = {{.key = "transA", .ints = &one, .n_ints = 1},
                                          {.key = "transB", .ints = &one, .n_ints = 1}};
    struct rb_attribute given[2];
    const struct rb_tensor_type in[] = {
        {RB_F32, 3, {s->batch, p->turn_a ? s->k : s->m, p->turn_a ? s->m : s->k}},
        {RB_F32, 3, {p->one_b ? 1 : s->batch, p->turn_b ? s->n : s->k, p->turn_b ? s->k : s->n}},
        {RB_F32, 1, {s->n}}};
    const struct rb_tensor_type out = {RB_F32, 3, {s->batch, s->m, s->n}};
    struct rb_call call = {.op = RB_OP_MATMUL,
                           .n_in = p->bias ? 3 : 2,
                           .n_out = 1,
                           .in = in,
                           .out = &out,
                           .attributes = given};
    struct rb_kernel *kernel = NULL;
    struct rb_why why;

    if (p->turn_a)
        given[call.n_attributes++] = turned[0];
    if (p->turn_b)
        given[call.n_attributes++] = turned[1];
    if (rb_kernel_prepare(device, &call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    return kernel;
}

static float chain(const struct product *p, int64_t batch, int64_t i, int64_t j)
{
    const struct shape *s = p->shape;
    const float *a = p->a + batch * s->m * s->k;
    const float *b = p->b + (p->one_b ? 0 : batch * s->k * s->n);
    float sum = 0;

    for (int64_t k = 0; k < s->k; k++)
        sum = fmaf(p->turn_a ? a[k * s->m + i] : a[i * s->k + k],
                   p->turn_b ? b[j * s->k + k] : b[k * s->n + j], sum);
    return p->bias ? sum + p->biases[j] : sum;
}

static float *numbers(int64_t n, uint32_t *seed)
{
    float *memory = test_malloc((size_t)n * sizeof *memory);

    for (int64_t i = 0; i < n; i++)
        memory[i] = setup_draw(seed);
    return memory;
}

static float *element(const struct product *p, int64_t batch, int64_t i, int64_t k)
{
    const struct shape *s = p->shape;

    return p->a + batch * s->m * s->k + (p->turn_a ? k * s->m + i : i * s->k + k);
}

static void mask(const struct product *p)
{
    const struct shape *s = p->shape;

    for (int64_t at = 0; at < s->batch * s->m * s->k; at++) {
        int64_t i = at / s->k % s->m, k = at % s->k;

        if ((p->below && k < i) || (p->above && k > i))
            *element(p, at / (s->m * s->k), i, k) = at % 3 ? 0.0f : -0.0f;
    }
}

static void check(struct rb_device *device, struct product *p)
{
    const struct shape *s = p->shape;
    struct rb_kernel *kernel = prepare(device, p);
    const struct rb_key key = {0};
    uint32_t seed = 11;
    float behind = 7;

    p->a = numbers(s->batch * s->m * s->k, &seed);
    mask(p);
    p->b = numbers(s->batch * s->k * s->n, &seed);
    p->biases = numbers(s->n, &seed);
    p->c = numbers(s->batch * s->m * s->n + 1, &seed);
    p->c[s->batch * s->m * s->n] = behind;
    rb_kernel_run(kernel, (const void *const[]){p->a, p->b, p->biases}, (void *const[]){p->c},
                  &key);
    for (int64_t at = 0; at < s->batch * s->m * s->n; at++) {
        float want = chain(p, at / (s->m * s->n), at / s->n % s->m, at % s->n);

        if (memcmp(&want, &p->c[at], sizeof want))
            fail_msg("%lld x [%lld, %lld] over %lld, ways %d %d %d %d: element %lld is %a, not %a",
                     (long long)s->batch, (long long)s->m, (long long)s->n, (long long)s->k,
                     p->turn_a, p->turn_b, p->bias, p->one_b, (long long)at, (double)p->c[at],
                     (double)want);
    }
    assert_true(p->c[s->batch * s->m * s->n] == behind);
    test_free(p->a);
    test_free(p->b);
    test_free(p->biases);
    test_free(p->c);
    rb_kernel_free(kernel);
}

static void elements_are_chains(void **state)
{
    if (!strstr(rb_cpu_numeric_class(), "avx2"))
        skip(); /* other processors have products of their own */
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int ways = 0; ways < 16; ways++) {
            struct product p = {.shape = &shapes[s],
                                .turn_a = ways & 1,
                                .turn_b = ways & 2,
                                .bias = ways & 4,
                                .one_b = ways & 8};

            check(*state, &p);
        }
}

/* In a batch, masked elements are left out, and the bits are those of the whole product. */
static void masked_elements_are_chains(void **state)
{
    static const struct shape masked[] = {
        {2, 128, 64, 128}, {3, 25, 18, 300}, {2, 300, 33, 20}, {2, 130, 16, 270}};

    if (!strstr(rb_cpu_numeric_class(), "avx2"))
        skip();
    for (size_t s = 0; s < sizeof masked / sizeof *masked; s++)
        for (int ways = 0; ways < 16; ways++) {
            struct product p = {.shape = &masked[s],
                                .turn_a = ways & 1,
                                .bias = ways & 2,
                                .below = ways & 4,
                                .above = ways & 8};

            check(*state, &p);
        }
}

/* Masked elements are left out: what they would be multiplied with is not read. */
static void what_is_masked_is_not_multiplied(void **state)
{
    enum { N = 128, COLUMNS = 16, FIRST = 10, NEAR = 10 };
    static const struct shape shape = {2, N, COLUMNS, N};

    if (!strstr(rb_cpu_numeric_class(), "avx2"))
        skip();
    for (int ways = 0; ways < 2; ways++) {
        struct product p = {.shape = &shape, .turn_a = ways == 1, .above = true};
        struct rb_kernel *kernel = prepare(*state, &p);
        const struct rb_key key = {0};
        uint32_t seed = 5;

        p.a = numbers((int64_t)shape.batch * N * N, &seed);
        p.b = numbers((int64_t)shape.batch * N * COLUMNS, &seed);
        p.c = numbers((int64_t)shape.batch * N * COLUMNS, &seed);
        mask(&p);
        for (int i = 0; i < N * COLUMNS; i++)
            p.b[i] = i < (N - FIRST) * COLUMNS ? p.b[i] : NAN;
        rb_kernel_run(kernel, (const void *const[]){p.a, p.b}, (void *const[]){p.c}, &key);
        for (int i = 0; i < N * COLUMNS; i++)
            if (i / COLUMNS < N - FIRST - NEAR || i / COLUMNS >= N - FIRST)
                assert_int_equal(isnan(p.c[i]) != 0, i / COLUMNS >= N - FIRST);
        test_free(p.a);
        test_free(p.b);
        test_free(p.c);
        rb_kernel_free(kernel);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_are_chains),
                                       cmocka_unit_test(masked_elements_are_chains),
                                       cmocka_unit_test(what_is_masked_is_not_multiplied)};

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
