/* SPDX-License-Identifier: Apache-2.0 */
/* Products that go into fixed-point sums without being written: the same bits as if they had been.
 */
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
static const struct shape shapes[] = {{14, 32, 1},  {28, 64, 16}, {8, 16, 3},     {15, 33, 16},
                                      {13, 31, 20}, {70, 48, 40}, {29, 100, 128}, {43, 17, 512}};

static float a[80 * 512], b[120 * 512], c[MOST];

static void fill(const struct shape *shape)
{
    uint32_t seed = 17;

    for (int64_t i = 0; i < shape->k * shape->m; i++)
        a[i] = setup_draw(&seed);
    for (int64_t i = 0; i < shape->k * shape->n; i++)
        b[i] = setup_draw(&seed);
}

/* The kernel, or NULL where this processor has none that sums. */
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

/* Exponents at which nothing, all and some overflow; factors that are no numbers. */
static void both_ways_give_the_same_bits(void **state)
{
    static const float guests[] = {0.5f, NAN, INFINITY, 1e30f, -1e-42f};

    for (size_t s = 0; s < RB_COUNT(shapes); s++) {
        struct rb_kernel *kernel = prepare(*state, &shapes[s], RB_F32);
        const void *const in[] = {a, b};

        if (!kernel)
            skip();
        for (size_t g = 0; g < RB_COUNT(guests); g++) {
            fill(&shapes[s]);
            a[shapes[s].m / 2] = guests[g];
            b[shapes[s].n - 1] = g % 2 ? b[0] : guests[g];
            for (int exponent = 20; exponent < 40; exponent += 4) {
                size_t n = (size_t)(shapes[s].m * shapes[s].n);

                check(*state, kernel, in, n, exponent, false);
                check(*state, kernel, in, n, exponent, true);
            }
        }
        rb_kernel_free(kernel);
    }
}

static void the_same_of_bfloat(void **state)
{
    const struct shape shape = {100, 90, 40};
    static uint16_t narrow_a[100 * 40], narrow_b[90 * 40];
    struct rb_kernel *kernel = prepare(*state, &shape, RB_BF16);
    const void *const in[] = {narrow_a, narrow_b};

    if (!kernel)
        skip();
    fill(&shape);
    for (size_t i = 0; i < RB_COUNT(narrow_a); i++)
        narrow_a[i] = rb_dtype_to_bfloat(a[i]);
    for (size_t i = 0; i < RB_COUNT(narrow_b); i++)
        narrow_b[i] = rb_dtype_to_bfloat(b[i]);
    check(*state, kernel, in, 100 * 90, 24, false);
    rb_kernel_free(kernel);
}

/* Each element is its own chain, whatever stands beside it. */
static void elements_are_chains(void **state)
{
    for (size_t s = 0; s < RB_COUNT(shapes); s++) {
        const struct shape *shape = &shapes[s];
        struct rb_kernel *kernel = prepare(*state, shape, RB_F32);
        const struct rb_key key = {0};

        if (!kernel)
            skip();
        fill(shape);
        rb_kernel_run(kernel, (const void *const[]){a, b}, (void *const[]){c}, &key);
        for (int64_t i = 0; i < shape->m; i++)
            for (int64_t j = 0; j < shape->n; j++) {
                float want = 0;

                for (int64_t k = 0; k < shape->k; k++)
                    want = fmaf(a[k * shape->m + i], b[k * shape->n + j], want);
                assert_true(c[i * shape->n + j] == want);
            }
        rb_kernel_free(kernel);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_give_the_same_bits),
        cmocka_unit_test(the_same_of_bfloat),
        cmocka_unit_test(elements_are_chains),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
