/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts: known rows, numbers worked out by hand. */
#include "daemon/decide/receipt.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 32 };

static struct rb_receipt_row rows[512];
static size_t n;

static void clear(void)
{
    n = 0;
}

/* `count` steps from `step` on, a commit each `gap` ms from `time` on. */
static void add(int64_t step, size_t count, uint32_t configuration, uint64_t time, uint64_t gap)
{
    for (size_t i = 0; i < count; i++)
        rows[n++] = (struct rb_receipt_row){
            .step = step + (int64_t)i,
            .time = time + gap * i,
            .step_ms = (double)gap,
            .configuration = configuration,
            .first_sample = (uint64_t)(step - 1 + (int64_t)i) * BATCH,
            .samples = BATCH,
        };
}

static int compute(uint64_t asked, bool ended, Rb__Receipt *receipt)
{
    struct rb_receipt_input input = {
        .rows = rows,
        .n = n,
        .asked = asked,
        .configuration = 2,
        .from = 1,
        .to = 3,
        .bytes_moved = 4096,
        .ended = ended,
    };

    return rb_receipt_compute(&input, receipt);
}

/* A death that was survived while etcd was away is reported when all is long over. */
static void told_late(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100);
    add(21, 30, 2, 3350, 40);
    assert_int_equal(compute(9000, false, &receipt), 0);
    assert_int_equal(receipt.step, 21);
    assert_int_equal(receipt.samples_skipped, 0);
    assert_true(receipt.stall_ms == 0 && receipt.ready_ms == 0);
}

static void a_growth(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100); /* the last at 2900 */
    add(21, 12, 2, 3350, 40); /* a gap of 450 before the first */
    assert_int_equal(compute(2450, false, &receipt), 0);
    assert_int_equal(receipt.from, 1);
    assert_int_equal(receipt.to, 3);
    assert_int_equal(receipt.configuration, 2);
    assert_int_equal(receipt.step, 21);
    assert_true(receipt.stall_ms == 450 - 40);
    assert_true(receipt.ready_ms == 3350 - 2450);
    assert_int_equal(receipt.bytes_moved, 4096);
    assert_int_equal(receipt.steps_lost, 0);
    assert_int_equal(receipt.samples_repeated, 0);
    assert_int_equal(receipt.samples_skipped, 0);
}

static void the_longest_gap_may_end_in_the_old_set(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 10, 1, 1000, 100);  /* the last at 1900 */
    add(11, 10, 1, 2400, 100); /* 500 after it, the last at 3300 */
    rows[10].step_ms = 500;
    add(21, 10, 2, 3400, 50);
    assert_int_equal(compute(2000, false, &receipt), 0);
    assert_true(receipt.stall_ms == 500 - 100);
}

static void gaps_before_the_request_do_not_count(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 5, 1, 1000, 100);
    add(6, 15, 1, 9000, 100); /* the last at 10400 */
    add(21, 10, 2, 10450, 50);
    assert_int_equal(compute(10000, false, &receipt), 0);
    assert_true(receipt.stall_ms == 0); /* 100 ms, as long as a step there */
}

static void no_receipt_before_ten_steps(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100);
    assert_int_equal(compute(2450, true, &receipt), RB_EAGAIN); /* no step of it, ever */
    add(21, 9, 2, 3000, 50);
    assert_int_equal(compute(2450, false, &receipt), RB_EAGAIN);
    assert_int_equal(compute(2450, true, &receipt), 0);
    add(30, 1, 2, 3450, 50);
    assert_int_equal(compute(2450, false, &receipt), 0);
}

static void back_to_a_checkpoint(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100);
    add(16, 12, 2, 5000, 100); /* steps 16 to 20 again */
    assert_int_equal(compute(2950, false, &receipt), 0);
    assert_int_equal(receipt.steps_lost, 5);
    assert_int_equal(receipt.samples_repeated, 5 * BATCH);
    assert_int_equal(receipt.samples_skipped, 0);
}

static void medians_look_back_so_far(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 300, 1, 1000, 10);  /* slow ones, long ago: the last at 3990 */
    add(301, 150, 1, 4000, 2); /* the last at 4298 */
    add(451, 10, 2, 4398, 4);  /* a gap of 100 that ends in the new set */
    rows[449].time = 4397;     /* now the gap ends in the old one */
    assert_int_equal(compute(4299, false, &receipt), 0);
    assert_true(receipt.stall_ms == 101 - 2); /* 149 of 2 ms outweigh 51 of 10; all 300 would not */
    clear();
    add(1, 5, 2, 1000, 10); /* the request is behind what it asked for: clocks differ */
    assert_int_equal(compute(5000, true, &receipt), 0);
    assert_int_equal(receipt.samples_skipped, 0);
}

static void skipped_samples_show(void **unused)
{
    Rb__Receipt receipt;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100);
    add(23, 12, 2, 3000, 100);
    assert_int_equal(compute(2450, false, &receipt), 0);
    assert_int_equal(receipt.samples_skipped, 2 * BATCH);
}

static void the_same_row_from_two_nodes_counts_once(void **unused)
{
    Rb__Receipt one, two;

    (void)unused;
    clear();
    add(1, 20, 1, 1000, 100);
    add(21, 10, 2, 3350, 40);
    assert_int_equal(compute(2450, false, &one), 0);
    add(21, 10, 2, 3351, 40); /* reported a little later, in another order */
    add(15, 6, 1, 2402, 100);
    assert_int_equal(compute(2450, false, &two), 0);
    assert_memory_equal(&one.step, &two.step, sizeof(one) - offsetof(Rb__Receipt, step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_growth),
        cmocka_unit_test(told_late),
        cmocka_unit_test(the_longest_gap_may_end_in_the_old_set),
        cmocka_unit_test(gaps_before_the_request_do_not_count),
        cmocka_unit_test(no_receipt_before_ten_steps),
        cmocka_unit_test(back_to_a_checkpoint),
        cmocka_unit_test(medians_look_back_so_far),
        cmocka_unit_test(skipped_samples_show),
        cmocka_unit_test(the_same_row_from_two_nodes_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
