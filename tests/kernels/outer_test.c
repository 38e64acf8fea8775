/* SPDX-License-Identifier: Apache-2.0 */
/* Products that go into fixed-point sums without being written: the same bits as if they had
 * been. */
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

enum { MOST = 80 * 120, MARGIN = 64 };

struct shape {
    int64_t m, n, k;
};

/* Whole tiles, parts of them in both directions, one sample and many. */
static const struct shape shapes[] = {{14, 32, 1},  {28, 64, 16}, {8, 16, 3},    {15, 33, 16},
                                      {13, 31, 20}, {70, 48, 40}, {29, 100, 128}};
static const struct shape deep = {43, 17, 512}, deep_of_bfloat = {43, 17, 191};

static float a[80 * 512], b[120 * 512], c[MOST];
static uint16_t narrow_a[80 * 512], narrow_b[120 * 512];

static void fill(const struct shape *shape)
{
    uint32_t seed = 17;

    for (int64_t i = 0; i < shape->k * shape->m; i++)
        a[i] = setup_draw(&seed);
    for (int64_t i = 0; i < shape->k * shape->n; i++)
        b[i] = setup_draw(&seed);
}

/* The factors that a kernel of this type takes: all of a and b, or their copies. */
static const void *const *factors_of(enum rb_dtype dtype)
{
    static const void *const wide[] = {a, b}, *const narrow[] = {narrow_a, narrow_b};

    for (size_t i = 0; i < RB_COUNT(a); i++)
        narrow_a[i] = rb_dtype_to_bfloat(a[i]);
    for (size_t i = 0; i < RB_COUNT(b); i++)
        narrow_b[i] = rb_dtype_to_bfloat(b[i]);
    return dtype == RB_BF16 ? narrow : wide;
}

/* The kernel, or NULL where this processor has no kernel that sums. */
static struct rb_kernel *prepare(struct rb_device *device, const struct shape *shape,
                                 enum rb_dtype factors)
{
    static const int64_t one = 1;
    const struct rb_attribute turned = {.key = "transA", .ints = &one, .n_ints = 1};
    const struct rb_tensor_type in[] = {{factors, 2, {shape->k, shape->m}},
                                        {factors, 2, {shape->k, shape->n}}};
    const struct rb_tensor_type out = {RB_F32, 2, {shape->m, shape->n}};
    const struct rb_call call = {.op = RB_OP_MATMUL,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &out,
                                 .attributes = &turned,
                                 .n_attributes = 1};
    struct rb_kernel *kernel = NULL;
    struct rb_why why;

    if (rb_kernel_prepare(device, &call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    if (rb_kernel_sums(kernel))
        return kernel;
    rb_kernel_free(kernel);
    return NULL;
}

struct sums {
    int32_t value[MOST + 2 * MARGIN];
    uint32_t largest;
    bool overflow;
};

static void start(struct sums *sums)
{
    uint32_t seed = 5;

    for (int i = 0; i < MOST + 2 * MARGIN; i++) {
        setup_draw(&seed);
        sums->value[i] = (int32_t)seed >> 2;
    }
    sums->largest = 1;
    sums->overflow = false;
}

static void check(struct rb_device *device, struct rb_kernel *kernel, const void *const *in,
                  size_t n, int exponent, bool fresh)
{
    static struct sums once, twice;
    const struct rb_key key = {0};
    void *const out[] = {c};
    struct rb_fixed into = {.sum = once.value + MARGIN,
                            .fresh = fresh,
                            .weight = 1,
                            .exponent = exponent,
                            .limit = INT32_MAX / 8,
                            .largest = &once.largest,
                            .overflow = &once.overflow};

    start(&once);
    start(&twice);
    rb_kernel_sum(kernel, in, &into);
    rb_kernel_run(kernel, in, out, &key);
    (fresh ? rb_fixed_set : rb_fixed_add)(device, twice.value + MARGIN, c, n, into.weight, exponent,
                                          into.limit, &twice.largest, &twice.overflow);
    assert_memory_equal(once.value, twice.value, sizeof once.value);
    assert_int_equal(once.largest, twice.largest);
    assert_int_equal(once.overflow, twice.overflow);
}

/* Exponents at which nothing, all and some overflow; factors that are NaN. */
static void check_both_ways(struct rb_device *device, const struct shape *shape,
                            enum rb_dtype factors)
{
    static const float guests[] = {0.5f, NAN, INFINITY, 1e30f, -1e-42f};
    struct rb_kernel *kernel = prepare(device, shape, factors);

    if (!kernel)
        skip();
    for (size_t g = 0; g < RB_COUNT(guests); g++) {
        const void *const *in;

        fill(shape);
        a[shape->m / 2] = guests[g];
        b[shape->n - 1] = g % 2 ? b[0] : guests[g];
        in = factors_of(factors);
        for (int exponent = 20; exponent < 40; exponent += 4) {
            size_t n = (size_t)(shape->m * shape->n);

            check(device, kernel, in, n, exponent, false);
            check(device, kernel, in, n, exponent, true);
        }
    }
    rb_kernel_free(kernel);
}

static void both_ways_give_the_same_bits(void **state)
{
    for (size_t s = 0; s < RB_COUNT(shapes); s++)
        check_both_ways(*state, &shapes[s], RB_F32);
    check_both_ways(*state, &deep, RB_F32);
}

static void the_same_of_bfloat(void **state)
{
    for (size_t s = 0; s < RB_COUNT(shapes); s++)
        check_both_ways(*state, &shapes[s], RB_BF16);
    check_both_ways(*state, &deep_of_bfloat, RB_BF16);
}

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* An element as a chain; with bfloat16 in pairs, as processors do it, the second of a pair
 * first. */
static float chain_of(const struct shape *shape, enum rb_dtype factors, int64_t i, int64_t j)
{
    const int64_t end = factors == RB_BF16 ? (shape->k + 1) / 2 * 2 : shape->k;
    float chain = 0;

    for (int64_t at = 0; at < end; at++) {
        const int64_t k = factors == RB_BF16 ? at ^ 1 : at;
        const int64_t p = k * shape->m + i, q = k * shape->n + j;

        if (factors == RB_F32)
            chain = fmaf(a[p], b[q], chain);
        else if (k == shape->k)
            chain = fmaf(0, 0, chain);
        else
            chain = flushed(fmaf(flushed(rb_dtype_bfloat(narrow_a[p])),
                                 flushed(rb_dtype_bfloat(narrow_b[q])), chain));
    }
    return chain;
}

/* Each element is its own chain, whatever lies beside it. */
static void check_chains(struct rb_device *device, const struct shape *shape, enum rb_dtype factors,
                         float guest, float scale)
{
    struct rb_kernel *kernel = prepare(device, shape, factors);
    const struct rb_key key = {0};

    if (!kernel)
        skip();
    fill(shape);
    for (int64_t i = 0; i < shape->k * shape->m; i++)
        a[i] *= scale;
    b[shape->n / 3] = guest;
    rb_kernel_run(kernel, factors_of(factors), (void *const[]){c}, &key);
    for (int64_t i = 0; i < shape->m; i++)
        for (int64_t j = 0; j < shape->n; j++) {
            float want = chain_of(shape, factors, i, j), got = c[i * shape->n + j];

            assert_true(want != want ? got != got : memcmp(&got, &want, sizeof got) == 0);
        }
    rb_kernel_free(kernel);
}

static void elements_are_chains(void **state)
{
    for (size_t s = 0; s < RB_COUNT(shapes); s++)
        check_chains(*state, &shapes[s], RB_F32, 1, 1);
    check_chains(*state, &deep, RB_F32, 1, 1);
}

/* Where this processor is known to have it: others copy. */
static void elements_of_bfloat_are_chains(void **state)
{
    if (!strstr(rb_cpu_numeric_class(), "avx512_core_bf16") ||
        strstr(rb_cpu_numeric_class(), "bf16-as-fp32"))
        skip();
    check_chains(*state, &deep_of_bfloat, RB_BF16, 1, 1);
    for (size_t s = 0; s < RB_COUNT(shapes); s++) {
        check_chains(*state, &shapes[s], RB_BF16, 1, 1);
        check_chains(*state, &shapes[s], RB_BF16, NAN, 1);
        check_chains(*state, &shapes[s], RB_BF16, -INFINITY, 1);
        check_chains(*state, &shapes[s], RB_BF16, 1e-39f, 1);
        check_chains(*state, &shapes[s], RB_BF16, 1, 0x1p-122f); /* many results are flushed */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_give_the_same_bits),
        cmocka_unit_test(the_same_of_bfloat),
        cmocka_unit_test(elements_are_chains),
        cmocka_unit_test(elements_of_bfloat_are_chains),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
