/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs of a product at once: the same bits as one after the other. */
#include "base/sanitized.h"
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

enum { STRIDE = RB_SANITIZED ? RB_KERNEL_EACH - 1 : 1 }; /* of how many at once */

struct shape {
    int64_t m, n, k;
    bool turned; /* turned: the second factor is transposed */
    bool bias;
};

/* Rows, samples, mixtures, whole tiles and parts of them, one row more than a kernel takes, and
 * shapes that oneDNN computes. */
static const struct shape shapes[] = {
    {16, 128, 64, true, true},   {5, 67, 77, true, false},      {1, 70, 130, true, true},
    {8, 1024, 512, false, true}, {17, 1100, 600, false, false}, {64, 530, 1030, false, true},
    {65, 64, 64, false, true},   {3, 20, 20, false, false},     {12, 71, 77, true, false},
    {23, 10, 100, true, true},   {64, 90, 70, true, true},      {65, 90, 70, true, true},
    {130, 9, 65, true, false},   {13, 100, 10, false, true},    {150, 65, 7, false, false},
    {64, 24, 1500, true, false}, {30, 9, 6000, true, true},
};

struct run {
    float *x, *y, *alone;
};

static float *numbers(struct rb_device *device, int64_t n, uint32_t *seed)
{
    float *memory = rb_device_alloc(device, (size_t)n * sizeof *memory);

    assert_non_null(memory);
    for (int64_t i = 0; i < n; i++)
        memory[i] = setup_draw(seed);
    return memory;
}

/* Round to bfloat16, in place. */
static void narrow(float *numbers, int64_t n)
{
    uint16_t *to = (uint16_t *)numbers;

    for (int64_t i = 0; i < n; i++) {
        uint16_t rounded = rb_dtype_to_bfloat(numbers[i]);

        memcpy(&to[i], &rounded, sizeof rounded);
    }
}

static float *factor(struct rb_device *device, enum rb_dtype dtype, int64_t n, uint32_t *seed)
{
    float *memory = numbers(device, n, seed);

    if (dtype == RB_BF16)
        narrow(memory, n);
    return memory;
}

static struct rb_kernel *prepare(struct rb_device *device, const struct rb_call *call)
{
    struct rb_kernel *kernel;
    struct rb_why why;

    if (rb_kernel_prepare(device, call, &kernel, &why) != 0)
        fail_msg("%s", why.text);
    return kernel;
}

static struct rb_kernel *product(struct rb_device *device, const struct shape *s,
                                 enum rb_dtype factors)
{
    static const int64_t one = 1;
    const struct rb_attribute turned = {.key = "transB", .ints = &one, .n_ints = 1};
    const struct rb_tensor_type in[] = {
        {factors, 2, {s->m, s->k}},
        {factors, 2, {s->turned ? s->n : s->k, s->turned ? s->k : s->n}},
        {RB_F32, 1, {s->n}},
    };
    const struct rb_tensor_type out = {RB_F32, 2, {s->m, s->n}};
    const struct rb_call call = {.op = RB_OP_MATMUL,
                                 .n_in = s->bias ? 3 : 2,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &out,
                                 .attributes = &turned,
                                 .n_attributes = s->turned};

    return prepare(device, &call);
}

/* Products with weights that all runs share; or (own) with a second factor and a bias of each run's
 * own, as where those are made from samples. */
static void products_at_once(void **state, enum rb_dtype factors, bool own)
{
    for (size_t i = 0; i < RB_COUNT(shapes); i++) {
        const struct shape *s = &shapes[i];
        struct rb_kernel *kernel = product(*state, s, factors);
        size_t bytes = (size_t)(s->m * s->n) * sizeof(float);
        uint32_t seed = 3;
        float *w[RB_KERNEL_EACH], *bias[RB_KERNEL_EACH];
        const void *in[RB_KERNEL_EACH][3];
        void *out[RB_KERNEL_EACH][1];
        const void *const *ins[RB_KERNEL_EACH];
        void *const *outs[RB_KERNEL_EACH];
        struct rb_key keys[RB_KERNEL_EACH] = {{0}};
        struct run runs[RB_KERNEL_EACH];

        for (int e = 0; e < RB_KERNEL_EACH; e++) {
            void *alone[1];

            w[e] = e && !own ? w[0] : factor(*state, factors, s->n * s->k, &seed);
            bias[e] = e && !own ? bias[0] : numbers(*state, s->n, &seed);
            runs[e].x = factor(*state, factors, s->m * s->k, &seed);
            runs[e].y = numbers(*state, s->m * s->n, &seed);
            runs[e].alone = numbers(*state, s->m * s->n, &seed);
            memcpy(in[e], (const void *[]){runs[e].x, w[e], bias[e]}, sizeof in[e]);
            out[e][0] = runs[e].y;
            alone[0] = runs[e].alone;
            ins[e] = in[e];
            outs[e] = out[e];
            rb_kernel_run(kernel, in[e], alone, &keys[e]);
        }
        for (int n = 1; n <= RB_KERNEL_EACH; n += STRIDE) {
            for (int e = 0; e < RB_KERNEL_EACH; e++)
                memset(runs[e].y, 0x55, bytes);
            rb_kernel_run_each(kernel, n, ins, outs, keys);
            for (int e = 0; e < n; e++)
                assert_memory_equal(runs[e].y, runs[e].alone, bytes);
            for (int e = n; e < RB_KERNEL_EACH; e++)
                assert_int_equal(*(uint32_t *)runs[e].y, 0x55555555);
        }
        for (int e = 0; e < RB_KERNEL_EACH; e++) {
            rb_device_free(*state, runs[e].x);
            rb_device_free(*state, runs[e].y);
            rb_device_free(*state, runs[e].alone);
            if (own || !e) {
                rb_device_free(*state, w[e]);
                rb_device_free(*state, bias[e]);
            }
        }
        rb_kernel_free(kernel);
    }
}

static void products_of_weights(void **state)
{
    products_at_once(state, RB_F32, false);
    products_at_once(state, RB_BF16, false);
}

static void products_of_samples(void **state)
{
    products_at_once(state, RB_F32, true);
    products_at_once(state, RB_BF16, true);
}

/* ---- Into sums --------------------------------------------------------------------------------*/

enum { ROWS = 43, COLUMNS = 100, DEPTH = 16, DEEP = 200 };

struct sums {
    int32_t value[ROWS * COLUMNS];
    uint32_t largest[RB_KERNEL_EACH];
    bool overflow[RB_KERNEL_EACH];
};

static struct rb_kernel *outer(struct rb_device *device, enum rb_dtype factors, int64_t depth,
                               bool turn)
{
    static const int64_t one = 1;
    const struct rb_attribute turned = {.key = "transA", .ints = &one, .n_ints = 1};
    const struct rb_tensor_type in[] = {{factors, 2, {turn ? depth : ROWS, turn ? ROWS : depth}},
                                        {factors, 2, {depth, COLUMNS}}};
    const struct rb_tensor_type out = {RB_F32, 2, {ROWS, COLUMNS}};
    const struct rb_call call = {.op = RB_OP_MATMUL,
                                 .n_in = 2,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &out,
                                 .attributes = &turned,
                                 .n_attributes = turn};

    return prepare(device, &call);
}

static void into_of(struct sums *sums, int exponent, bool fresh,
                    struct rb_fixed ret_into[RB_KERNEL_EACH])
{
    static const float weights[RB_KERNEL_EACH] = {1, 1, 0.5f, 1, 1, 0.5f, 1, 2};

    memset(sums, 0x11, sizeof *sums);
    for (int e = 0; e < RB_KERNEL_EACH; e++) {
        sums->overflow[e] = false;
        ret_into[e] = (struct rb_fixed){.sum = sums->value,
                                        .fresh = fresh && e == 0,
                                        .weight = exponent % 2 ? weights[e] : 1,
                                        .exponent = exponent,
                                        .limit = INT32_MAX / 8,
                                        .largest = &sums->largest[e],
                                        .overflow = &sums->overflow[e]};
    }
}

/* Sums at all exponents, with a guest in one of the runs. */
static void check_sums(struct rb_device *device, enum rb_dtype factor, int64_t depth, bool turn,
                       float guest)
{
    static struct sums once, twice;
    static const int exponents[] = {-130, -127, -100, 20, 25, 31, 126, 127};
    struct rb_kernel *kernel = outer(device, factor, depth, turn);
    uint32_t seed = 5;
    const void *in[RB_KERNEL_EACH][2];
    const void *const *ins[RB_KERNEL_EACH];
    float *factors[RB_KERNEL_EACH][2];

    for (int e = 0; e < RB_KERNEL_EACH; e++) {
        factors[e][0] = numbers(device, depth * ROWS, &seed);
        factors[e][1] = numbers(device, depth * COLUMNS, &seed);
        memcpy(in[e], factors[e], sizeof in[e]);
        ins[e] = in[e];
    }
    factors[2][0][ROWS - 1] = factors[2][1][3] = guest;
    for (int e = 0; e < RB_KERNEL_EACH && factor == RB_BF16; e++) {
        narrow(factors[e][0], depth * ROWS);
        narrow(factors[e][1], depth * COLUMNS);
    }
    for (size_t i = 0; i < 2 * RB_COUNT(exponents) && rb_kernel_sums(kernel); i++)
        for (int n = 1; n <= RB_KERNEL_EACH; n += STRIDE) {
            struct rb_fixed into[RB_KERNEL_EACH];

            into_of(&once, exponents[i / 2], i % 2, into);
            rb_kernel_sum_each(kernel, n, ins, into);
            into_of(&twice, exponents[i / 2], i % 2, into);
            for (int e = 0; e < n; e++)
                rb_kernel_sum(kernel, in[e], &into[e]);
            assert_memory_equal(&once, &twice, sizeof once);
        }
    for (int e = 0; e < RB_KERNEL_EACH; e++) {
        rb_device_free(device, factors[e][0]);
        rb_device_free(device, factors[e][1]);
    }
    rb_kernel_free(kernel);
}

static void sums_at_once(void **state)
{
    static const float guests[] = {0.5f, NAN, INFINITY, 1e30f, -1e-42f};

    for (size_t g = 0; g < RB_COUNT(guests); g++) {
        check_sums(*state, RB_F32, DEPTH, true, guests[g]);
        check_sums(*state, RB_F32, DEPTH, false, guests[g]);
        check_sums(*state, RB_F32, DEEP, true, guests[g]); /* so deep: one after the other */
        check_sums(*state, RB_BF16, DEPTH, true, guests[g]);
        check_sums(*state, RB_BF16, DEPTH + 1, true, guests[g]);
        check_sums(*state, RB_BF16, DEEP - 9, true, guests[g]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_weights),
        cmocka_unit_test(products_of_samples),
        cmocka_unit_test(sums_at_once),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
