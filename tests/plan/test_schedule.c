/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank computes which microbatch, and which rank computes which again when a rank is lost. */
#include "base/arena.h"
#include "base/error.h"
#include "plan/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 40 };

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static uint32_t spread(uint32_t total, const int32_t *owners, uint32_t ranks)
{
    uint32_t counts[MOST] = {0}, least = UINT32_MAX, most = 0;

    for (uint32_t m = 0; m < total; m++) {
        assert_in_range(owners[m], 0, ranks - 1);
        counts[owners[m]]++;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        least = counts[r] < least ? counts[r] : least;
        most = counts[r] > most ? counts[r] : most;
    }
    return most - least;
}

static void test_one_lost(void **state)
{
    static const int32_t became[] = {0, RB_SCHEDULE_LOST, 1}, after[] = {0, 0, 0, 1, 0, 1, 1, 1};
    int32_t owners[8];
    char *text;

    (void)state;
    rb_schedule_even(8, 3, owners); /* 0 0 0 1 1 1 2 2 */
    rb_schedule_after(8, owners, became, 2, owners);
    assert_memory_equal(owners, after, sizeof after);
    text = rb_schedule_summary(8, owners, 2);
    assert_string_equal(text, "data parallel x2, 8 microbatches: 4 4");
    free(text);
}

static void test_newcomer(void **state)
{
    static const int32_t became[] = {RB_SCHEDULE_LOST, 0}, after[] = {1, 1, 0, 0, 0};
    int32_t owners[5];

    (void)state;
    rb_schedule_even(5, 2, owners);
    rb_schedule_after(5, owners, became, 2, owners); /* rank 1 is fresh */
    assert_memory_equal(owners, after, sizeof after);
}

/* Loss after loss: a rank that stays keeps all that it had, and shares differ by at most one. */
static void test_any_losses(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        uint32_t ranks = 1 + next_random(&seed) % 9, total = 1 + next_random(&seed) % MOST;
        int32_t owners[MOST], before[MOST], became[MOST];

        rb_schedule_even(total, ranks, owners);
        for (int loss = 0; loss < 4; loss++) {
            uint32_t left = 0;

            for (uint32_t r = 0; r < ranks; r++)
                became[r] = next_random(&seed) % 3 ? (int32_t)left++ : RB_SCHEDULE_LOST;
            ranks = left + (left ? next_random(&seed) % 2 : 1);
            memcpy(before, owners, sizeof before);
            rb_schedule_after(total, owners, became, ranks, owners);
            for (uint32_t m = 0; m < total; m++)
                if (became[before[m]] != RB_SCHEDULE_LOST)
                    assert_int_equal(owners[m], became[before[m]]);
            assert_true(spread(total, owners, ranks) <= 1 || ranks > left);
            if (ranks > left)
                break;
        }
    }
}

static void test_plan(void **state)
{
    Rb__Model model = RB__MODEL__INIT;
    static const int32_t owners[] = {1, 0, 1};
    Rb__Plan *plan = NULL;

    (void)state;
    model.global_batch = 5;
    model.micro_batch = 2;
    assert_int_equal(rb_schedule_microbatches(&model), 3);
    assert_int_equal(rb_schedule_plan(&model, 2, owners, &plan, NULL), 0);
    assert_int_equal(plan->ranks[0]->n_orders, 3);
    assert_int_equal(plan->ranks[0]->orders[0]->argument, 1);
    assert_int_equal(plan->ranks[1]->n_orders, 4);
    assert_int_equal(plan->ranks[1]->orders[1]->argument, 2);
    rb__plan__free_unpacked(plan, NULL);
    model.micro_batch = 0;
    assert_int_equal(rb_schedule_microbatches(&model), 0);
    assert_int_equal(rb_schedule_plan(&model, 2, NULL, &plan, NULL), RB_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_lost),
        cmocka_unit_test(test_newcomer),
        cmocka_unit_test(test_any_losses),
        cmocka_unit_test(test_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
