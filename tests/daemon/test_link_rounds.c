/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/link_rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const struct rb_link_rounds *rounds, double bandwidth, double latency)
{
    struct rb_link_round best = rb_link_rounds_best(rounds);

    assert_true(best.bandwidth == bandwidth && best.latency == latency);
}

static void nothing_is_known_at_first(void **state)
{
    struct rb_link_rounds rounds = {0};

    (void)state;
    expect(&rounds, 0, 0);
    rb_link_rounds_note(&rounds, 0, 2e-4);
    expect(&rounds, 0, 2e-4);
}

/* A link that is busy now and then is not slow. */
static void the_best_of_several_counts(void **state)
{
    struct rb_link_rounds rounds = {0};

    (void)state;
    rb_link_rounds_note(&rounds, 1e9, 5e-5);
    rb_link_rounds_note(&rounds, 9e8, 4e-5);
    for (int i = 1; i < RB_LINK_ROUNDS; i++) {
        rb_link_rounds_next(&rounds);
        rb_link_rounds_note(&rounds, 1e8, 9e-5);
        expect(&rounds, 1e9, 4e-5);
    }
}

/* A link that no round finds any more is gone; one that a round finds is there. */
static void what_changes_for_good_is_noticed(void **state)
{
    struct rb_link_rounds rounds = {0};

    (void)state;
    rb_link_rounds_note(&rounds, 1e9, 5e-5);
    for (int i = 0; i < RB_LINK_ROUNDS; i++) {
        rb_link_rounds_next(&rounds);
        rb_link_rounds_note(&rounds, 1e8 + i, 9e-5);
    }
    expect(&rounds, 1e8 + RB_LINK_ROUNDS - 1, 9e-5);
    rb_link_rounds_next(&rounds);
    rb_link_rounds_note(&rounds, 2e9, 1e-5);
    expect(&rounds, 2e9, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(the_best_of_several_counts),
        cmocka_unit_test(what_changes_for_good_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
