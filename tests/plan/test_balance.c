/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of microbatches and of bytes: spreads, and the figures of docs/theses.md. */
#include "plan/partition/balance.h"

#include "base/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 64 };

static void assert_near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.6g, not %.6g", found, expected);
}

static uint32_t sum(const uint32_t *shares, uint32_t n)
{
    uint32_t all = 0;

    for (uint32_t i = 0; i < n; i++)
        all += shares[i];
    return all;
}

static void test_equal(void **state)
{
    double speeds[MOST];
    uint32_t shares[MOST];

    (void)state;
    for (uint32_t n = 1; n <= MOST; n++)
        for (uint32_t total = 0; total < 200; total += 7) {
            for (uint32_t i = 0; i < n; i++)
                speeds[i] = 1.3;
            rb_balance_shares(total, speeds, n, shares);
            assert_int_equal(sum(shares, n), total);
            for (uint32_t i = 0; i < n; i++)
                assert_in_range(shares[i], total / n, (total + n - 1) / n);
        }
}

/* No shares can do better: every other way to hand out the same total ends no earlier. */
static void test_best(void **state)
{
    static const double speeds[3] = {1, 0.7, 0.31};
    uint32_t shares[3];

    (void)state;
    for (uint32_t total = 1; total < 40; total++) {
        double found;

        rb_balance_shares(total, speeds, 3, shares);
        assert_int_equal(sum(shares, 3), total);
        found = rb_balance_excess(shares, speeds, 3);
        for (uint32_t a = 0; a <= total; a++)
            for (uint32_t b = 0; a + b <= total; b++) {
                const uint32_t other[3] = {a, b, total - a - b};

                assert_true(found <= rb_balance_excess(other, speeds, 3) + 1e-12);
            }
    }
}

/* Speeds 1, 1, 0.5, 0.25: even shares take 2.75 times the ideal whatever the batch. */
static void test_uneven(void **state)
{
    static const double speeds[4] = {1, 1, 0.5, 0.25};
    static const uint32_t even[4] = {11, 11, 11, 11}, expected[4] = {16, 16, 8, 4};
    uint32_t shares[4];

    (void)state;
    rb_balance_shares(44, speeds, 4, shares);
    assert_memory_equal(shares, expected, sizeof expected);
    assert_near(rb_balance_excess(shares, speeds, 4), 1, 1e-12);
    assert_near(rb_balance_variation(shares, speeds, 4), 0, 1e-12);
    assert_near(rb_balance_excess(even, speeds, 4), 2.75, 1e-12);
    assert_true(rb_balance_variation(even, speeds, 4) > 0.6);
    for (uint32_t total = 80; total < 1000; total++) {
        rb_balance_shares(total, speeds, 4, shares);
        if (rb_balance_excess(shares, speeds, 4) > 1.05)
            fail_msg("%u: %g", total, rb_balance_excess(shares, speeds, 4));
    }
}

static void test_owners(void **state)
{
    static const uint32_t shares[3] = {2, 0, 1};
    static const int32_t expected[3] = {0, 0, 2};
    int32_t owners[3];

    (void)state;
    rb_balance_owners(shares, 3, owners);
    assert_memory_equal(owners, expected, sizeof expected);
}

/* ---- Bytes ----------------------------------------------------------------------------------*/

/* VGG-16: weight, bias, weight, bias ... of 13 convolutions and 3 dense layers. */
static size_t vgg16(double *ret_sizes)
{
    static const int channels[14] = {3,   64,  64,  128, 128, 256, 256,
                                     256, 512, 512, 512, 512, 512, 512};
    static const int dense[4] = {512 * 7 * 7, 4096, 4096, 1000};
    size_t n = 0;

    for (int i = 0; i < 13; i++) {
        ret_sizes[n++] = 9.0 * channels[i] * channels[i + 1];
        ret_sizes[n++] = channels[i + 1];
    }
    for (int i = 0; i < 3; i++) {
        ret_sizes[n++] = (double)dense[i] * dense[i + 1];
        ret_sizes[n++] = dense[i + 1];
    }
    return n;
}

static void test_variables(void **state)
{
    static const uint32_t devices[4] = {2, 3, 4, 8};
    static const double expected[3][4] = {
        [RB_BALANCE_LARGEST_FIRST] = {1.485, 2.228, 2.971, 5.94},
        [RB_BALANCE_DECLARED] = {1.58, 2.31, 3.06, 5.98},
        [RB_BALANCE_ROUND_ROBIN] = {2.00, 2.31, 3.28, 6.11},
    };
    double sizes[MOST], total = 0;
    size_t n = vgg16(sizes);

    (void)state;
    for (size_t i = 0; i < n; i++)
        total += sizes[i];
    assert_near(total, 138357544, 0);
    for (int order = 0; order < 3; order++)
        for (int i = 0; i < 4; i++)
            assert_near(rb_balance_whole(sizes, n, devices[i], (enum rb_balance_order)order),
                        expected[order][i], order || i == 3 ? 0.006 : 0.0006);
    for (int i = 0; i < 4; i++)
        assert_near(rb_balance_ranges(138357544, 16, devices[i]), 1, 1e-5);
}

/* Half of everything moves to a newcomer behind the others, whatever their number; a part of
 * 1/(n+1) suffices where an owner may have several ranges. */
static void test_moved(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < MOST; n++) {
        assert_near(rb_balance_moved(1e6, n, n + 1), 5e5, 1e-3);
        assert_near(rb_balance_moved(1e6, n + 1, n), 5e5, 1e-3);
        assert_near(rb_balance_moved_least(1e6, n, n + 1), 1e6 / (n + 1), 1e-3);
        assert_near(rb_balance_moved(1e6, n, n), 0, 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),     cmocka_unit_test(test_best),
        cmocka_unit_test(test_uneven),    cmocka_unit_test(test_owners),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
