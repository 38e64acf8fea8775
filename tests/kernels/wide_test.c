/* SPDX-License-Identifier: Apache-2.0 */
/* Rubato's own products on processors with AVX-512: each element is one chain of multiply-adds in
 * the order of k, whichever kernel makes it, in however many tiles, panels and blocks. */
#include "kernels/backend.h"
#include "kernels/device.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    int64_t m, n, k;
    bool turned_a, turned_b, bias;
};

/* Few samples, mixtures, samples of a large weight, outer products, and many rows: of the last,
 * whole groups and some rows more, columns that are no vector, panels of one to three, several
 * blocks. */
static const struct shape shapes[] = {
    {12, 33, 78, false, true, true},      {64, 130, 130, false, true, false},
    {200, 10, 70, false, true, true},     {500, 70, 10, false, false, true},
    {17, 1100, 600, false, false, false}, {48, 1030, 514, false, false, true},
    {130, 1031, 520, false, false, true}, {192, 1040, 512, false, true, true},
    {30, 300, 2000, false, false, false}, {43, 40, 180, true, false, false},
    {20, 880, 600, false, false, false},  {11, 870, 610, false, false, true},
    {383, 1024, 516, false, false, true}, {384, 32, 64, false, false, false},
    {391, 50, 70, false, false, true},    {389, 419, 1030, false, true, true},
    {400, 100, 2100, false, false, true}, {384, 384, 520, true, false, false},
    {397, 49, 1021, true, false, false},  {450, 35, 1400, true, true, true},
};

/* Further shapes for bfloat16 alone. */
static const struct shape shapes_of_pairs[] = {
    {65, 50, 64, false, false, true},
    {131, 600, 1030, false, false, false},
    {400, 97, 2200, true, false, true},
};

static bool has(const char *instructions)
{
    return strstr(rb_cpu_numeric_class(), instructions) != NULL;
}

static struct rb_kernel *prepare(struct rb_device *device, const struct shape *s,
                                 enum rb_dtype factors)
{
    static const int64_t one = 1;
    struct rb_attribute turned[2];
    const struct rb_tensor_type in[] = {
        {factors, 2, {s->turned_a ? s->k : s->m, s->turned_a ? s->m : s->k}},
        {factors, 2, {s->turned_b ? s->n : s->k, s->turned_b ? s->k : s->n}},
        {RB_F32, 1, {s->n}},
    };
    const struct rb_tensor_type out = {RB_F32, 2, {s->m, s->n}};
    struct rb_call call = {.op = RB_OP_MATMUL,
                           .n_in = s->bias ? 3 : 2,
                           .n_out = 1,
                           .in = in,
                           .out = &out,
                           .attributes = turned};
    struct rb_kernel *kernel;
    struct rb_why why;

    if (s->turned_a)
        turned[call.n_attributes++] =
            (struct rb_attribute){.key = "transA", .ints = &one, .n_ints = 1};
    if (s->turned_b)
        turned[call.n_attributes++] =
            (struct rb_attribute){.key = "transB", .ints = &one, .n_ints = 1};
    if (rb_kernel_prepare(device, &call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    return kernel;
}

/* n numbers as they are stored, and as floats. */
static void *draw(struct rb_device *device, enum rb_dtype dtype, int64_t n, uint32_t *seed,
                  float *ret)
{
    void *memory = rb_device_alloc(device, (size_t)n * rb_dtype_size(dtype));

    assert_non_null(memory);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t rounded = rb_dtype_to_bfloat(ret[i] = setup_draw(seed));

        if (dtype == RB_BF16) {
            ((uint16_t *)memory)[i] = rounded;
            ret[i] = rb_dtype_bfloat(rounded);
        } else {
            ((float *)memory)[i] = ret[i];
        }
    }
    return memory;
}

/* The second of a pair comes first; an odd k has a zero after its last. */
static float chain(const struct shape *s, enum rb_dtype factors, const float *a, const float *b,
                   int64_t i, int64_t j)
{
    float sum = 0;

    for (int64_t at = 0; at < s->k + s->k % 2; at++) {
        const int64_t k = factors == RB_BF16 ? at ^ 1 : at;

        if (k < s->k)
            sum = fmaf(a[s->turned_a ? k * s->m + i : i * s->k + k],
                       b[s->turned_b ? j * s->k + k : k * s->n + j], sum);
    }
    return sum;
}

static void check(struct rb_device *device, const struct shape *s, enum rb_dtype factors)
{
    struct rb_kernel *kernel = prepare(device, s, factors);
    float *a = test_malloc((size_t)(s->m * s->k) * sizeof *a);
    float *b = test_malloc((size_t)(s->n * s->k) * sizeof *b);
    float *bias = test_malloc((size_t)s->n * sizeof *bias);
    float *c = rb_device_alloc(device, (size_t)(s->m * s->n) * sizeof *c);
    uint32_t seed = 9;
    void *const in[] = {draw(device, factors, s->m * s->k, &seed, a),
                        draw(device, factors, s->n * s->k, &seed, b),
                        draw(device, RB_F32, s->n, &seed, bias)};
    void *const out[] = {c};
    const struct rb_key key = {0};

    assert_non_null(c);
    memset(c, 0x55, (size_t)(s->m * s->n) * sizeof *c);
    rb_kernel_run(kernel, (const void *const *)in, out, &key);
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = i % 7; j < s->n; j += j < s->n - 8 ? 7 : 1) {
            const float sum = chain(s, factors, a, b, i, j), got = c[i * s->n + j];
            const float expected = s->bias ? sum + bias[j] : sum;

            if (memcmp(&got, &expected, sizeof got) != 0)
                fail_msg("%d x %d x %d, row %d column %d: %a, not %a", (int)s->m, (int)s->n,
                         (int)s->k, (int)i, (int)j, (double)got, (double)expected);
        }
    for (int i = 0; i < 3; i++)
        rb_device_free(device, in[i]);
    rb_device_free(device, c);
    rb_kernel_free(kernel);
    test_free(bias);
    test_free(b);
    test_free(a);
}

static void elements_are_chains(void **state)
{
    if (!has("avx512"))
        skip(); /* other processors have products of their own */
    for (size_t i = 0; i < RB_COUNT(shapes); i++)
        check(*state, &shapes[i], RB_F32);
}

/* Where the instruction for pairs is the fastest way. */
static void elements_of_bfloat_are_chains(void **state)
{
    if (!has("avx512_core_bf16") || has("bf16-as-fp32"))
        skip();
    for (size_t i = 0; i < RB_COUNT(shapes); i++)
        check(*state, &shapes[i], RB_BF16);
    for (size_t i = 0; i < RB_COUNT(shapes_of_pairs); i++)
        check(*state, &shapes_of_pairs[i], RB_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_chains),
        cmocka_unit_test(elements_of_bfloat_are_chains),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
