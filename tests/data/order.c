/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/arena.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_bijection(uint64_t seed, uint64_t epoch, uint64_t n)
{
    uint8_t *seen = rb_alloc(n);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t sample = rb_order_permute(seed, epoch, n, i);

        assert_true(sample < n);
        assert_int_equal(seen[sample], 0);
        seen[sample] = 1;
    }
    free(seen);
}

static void each_sample_once(void **state)
{
    uint64_t x = 88172645463325252;

    (void)state;
    for (uint64_t n = 1; n <= 70; n++)
        for (uint64_t epoch = 0; epoch < 20; epoch++)
            check_bijection(n * 3, epoch, n);
    for (int bit = 6; bit <= 17; bit++)
        for (int64_t off = -1; off <= 1; off++)
            check_bijection(1, (uint64_t)bit, (UINT64_C(1) << bit) + (uint64_t)off);
    for (int i = 0; i < 40; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        check_bijection(x, x >> 32, 1 + x % 100000);
    }
}

/* No table is that large: distinct places must still go to distinct samples below n. */
static void huge_sets(void **state)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1,
                                     UINT64_C(1000000000000), (UINT64_C(1) << 63) + 1, UINT64_MAX};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t sample[200];

        for (uint64_t i = 0; i < 200; i++) {
            uint64_t place = i < 100 ? i : sizes[s] - 200 + i;

            sample[i] = rb_order_permute(9, 2, sizes[s], place);
            assert_true(sample[i] < sizes[s]);
            for (uint64_t j = 0; j < i; j++)
                assert_true(sample[j] != sample[i]);
        }
    }
}

static void numbers_go_on_over_epochs(void **state)
{
    const uint64_t n = 1237;

    (void)state;
    for (uint64_t number = 0; number < 3 * n; number++)
        assert_int_equal(rb_order_sample(5, n, number),
                         rb_order_permute(5, number / n, n, number % n));
}

static uint64_t count_same(uint64_t n, uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b,
                           uint64_t epoch_b)
{
    uint64_t same = 0;

    for (uint64_t i = 0; i < n; i++)
        same += rb_order_permute(seed_a, epoch_a, n, i) == rb_order_permute(seed_b, epoch_b, n, i);
    return same;
}

/* Two unrelated permutations agree in one place on average. */
static void epochs_and_seeds_differ(void **state)
{
    const uint64_t n = 10007;

    (void)state;
    for (uint64_t k = 0; k < 10; k++) {
        assert_true(count_same(n, 1, k, 1, k + 1) < 10);
        assert_true(count_same(n, k, 0, k + 1, 0) < 10);
        assert_true(count_same(n, k, k + 1, k + 1, k) < 10);
    }
    assert_int_equal(count_same(n, 3, 4, 3, 4), n);
}

/* Where does place 0 go, over many epochs?  Chi-squared over 50 samples has mean 49 and standard
 * deviation 9.9; the measured value is near 50. */
static void places_are_uniform(void **state)
{
    enum { N = 50, EPOCHS = 20000 };

    (void)state;
    for (uint64_t place = 0; place < N; place += 7) {
        double expected = (double)EPOCHS / N, chi = 0;
        int count[N] = {0};

        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            count[rb_order_permute(42, epoch, N, place)]++;
        for (int i = 0; i < N; i++)
            chi += (count[i] - expected) * (count[i] - expected) / expected;
        assert_true(chi < 110);
    }
}

/* The mean distance of neighbours is n/3 in a random order; the measured value is within 2 %. */
static void neighbours_part(void **state)
{
    const uint64_t n = 30000;
    double sum = 0;

    (void)state;
    for (uint64_t i = 0; i + 1 < n; i++)
        sum +=
            fabs((double)rb_order_permute(7, 0, n, i) - (double)rb_order_permute(7, 0, n, i + 1));
    assert_true(fabs(sum / (double)n / ((double)n / 3) - 1) < 0.03);
}

/* Two samples come in both orders, about equally often. */
static void two_samples(void **state)
{
    int swapped = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < 1000; epoch++)
        swapped += rb_order_permute(1, epoch, 2, 0) == 1;
    assert_in_range(swapped, 400, 600);
}

/* Orders are part of a job's bits: they may never change between versions. */
static void known_values(void **state)
{
    (void)state;
    assert_int_equal(rb_order_permute(1, 0, 60000, 0), 17017);
    assert_int_equal(rb_order_permute(1, 0, 60000, 59999), 58721);
    assert_int_equal(rb_order_permute(1, 1, 60000, 0), 9926);
    assert_int_equal(rb_order_permute(UINT64_MAX, 7, UINT64_C(1) << 40, 123456789),
                     UINT64_C(587072314289));
    assert_int_equal(rb_order_sample(3, 7, 20), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_once),
        cmocka_unit_test(huge_sets),
        cmocka_unit_test(numbers_go_on_over_epochs),
        cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(places_are_uniform),
        cmocka_unit_test(neighbours_part),
        cmocka_unit_test(two_samples),
        cmocka_unit_test(known_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
