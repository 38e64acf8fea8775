/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: shares by speed. */
#include "daemon/facts/publish.h"
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

/* Four devices of "a" train, and report their speeds; on even shares. */
static void four_that_differ(struct world *world, bool even)
{
    static const uint32_t us[] = {10000, 10000, 20000, 40000};

    world_begin(world, 1);
    world->even = even;
    world_add_node(world, "a", 4);
    world_add_job(world, JOB, 1, 8, 4, 1000);
    world_rounds(world, 10);
    assert_string_equal(world_active(world, JOB)->plan,
                        "data parallel x4, 8 microbatches: 2 2 2 2");
    for (uint32_t d = 0; d < 4; d++) {
        struct worker *w = world_worker(world, JOB, "a", d);

        w->microbatch_us = us[d];
        w->dirty = true;
    }
    world_agent(world, 0);
}

static void wait_out(struct world *world)
{
    world_progress(world, JOB, WORLD_BALANCE_STEPS);
    world->now += WORLD_BALANCE_MS;
    world_decide(world);
}

static void same_members_other_shares(void **unused)
{
    struct world world;
    const Rb__Configuration *next;
    uint32_t first;

    (void)unused;
    four_that_differ(&world, false);
    first = world_active(&world, JOB)->number;
    world_progress(&world, JOB, WORLD_BALANCE_STEPS - 1);
    world.now += WORLD_BALANCE_MS;
    world_decide(&world);
    assert_null(world_next(&world, JOB)); /* too early to say */
    wait_out(&world);
    next = world_next(&world, JOB);
    assert_non_null(next);
    assert_string_equal(next->cause, "balance");
    assert_string_equal(next->plan, "data parallel x4, 8 microbatches: 4 3 1 0");
    assert_int_equal(next->members[2]->microbatch_us, 20000);
    for (size_t m = 0; m < 4; m++)
        assert_string_equal(next->members[m]->worker,
                            world_active(&world, JOB)->members[m]->worker);
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->number, first + 4); /* three are kept for deaths */
    assert_true(world_event(&world, "balanced"));
    wait_out(&world);
    assert_null(world_next(&world, JOB)); /* these shares are the best */
    world_end(&world);
}

static void not_before_its_time(void **unused)
{
    struct world world;

    (void)unused;
    four_that_differ(&world, false);
    world.now = world_active(&world, JOB)->went + WORLD_BALANCE_MS - 1;
    world_progress(&world, JOB, WORLD_BALANCE_STEPS);
    world_decide(&world);
    assert_null(world_next(&world, JOB));
    assert_true(world.wake == world.now + 1);
    world.now++;
    world_decide(&world);
    assert_non_null(world_next(&world, JOB));
    world_end(&world);
}

/* Even shares were asked for; the rest of the job is too short to pay for a change; all are alike.
 */
static void none_where_none_is_due(void **unused)
{
    struct world world;

    (void)unused;
    four_that_differ(&world, true);
    wait_out(&world);
    assert_null(world_next(&world, JOB));
    world_end(&world);

    four_that_differ(&world, false);
    world_progress(&world, JOB, 1000 - world_active(&world, JOB)->level - 2); /* 2 of 40 ms */
    world.now += WORLD_BALANCE_MS;
    world_decide(&world);
    assert_null(world_next(&world, JOB));
    world_end(&world);

    four_that_differ(&world, false);
    for (uint32_t d = 0; d < 4; d++) {
        world_worker(&world, JOB, "a", d)->microbatch_us = 10000 + d * 100;
        world_worker(&world, JOB, "a", d)->dirty = true;
    }
    world_agent(&world, 0);
    wait_out(&world);
    assert_null(world_next(&world, JOB));
    world_end(&world);
}

/* A wish comes before a balance, and takes the speeds along; a newcomer counts like others of its
 * kind. */
static void wishes_go_first(void **unused)
{
    struct world world;

    (void)unused;
    four_that_differ(&world, false);
    wait_out(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "balance");
    world_wish(&world, JOB, world_want, 3);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "shrink");
    assert_int_equal(world_next(&world, JOB)->asked, world_job(&world, JOB)->wish.wish->asked);
    assert_string_equal(world_next(&world, JOB)->plan, "data parallel x3, 8 microbatches: 3 3 2");
    assert_int_equal(world_next(&world, JOB)->members[2]->microbatch_us,
                     20000); /* and even will do */
    world_rounds(&world, 5);
    world_wish(&world, JOB, world_want, 4);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "grow");
    assert_int_equal(world_next(&world, JOB)->members[3]->microbatch_us, 10000);
    assert_string_equal(world_next(&world, JOB)->plan, "data parallel x4, 8 microbatches: 3 2 1 2");
    world_end(&world);
}

/* A wish for devices that were not there is still what a later growth answers. */
static void answers_no_wish(void **unused)
{
    struct world world;
    uint64_t asked;

    (void)unused;
    four_that_differ(&world, false);
    world_wish(&world, JOB, world_want, 5);
    asked = world_job(&world, JOB)->wish.wish->asked;
    world_decide(&world);
    assert_null(world_next(&world, JOB));
    wait_out(&world);
    world_rounds(&world, 5);
    assert_string_equal(world_active(&world, JOB)->cause, "balance");
    world_add_node(&world, "b", 1);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "grow");
    assert_int_equal(world_next(&world, JOB)->asked, asked);
    world_end(&world);
}

/* Whatever kept a device from getting microbatches is not held against it for ever. */
static void the_idle_get_another_chance(void **unused)
{
    struct world world;

    (void)unused;
    four_that_differ(&world, false);
    wait_out(&world);
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->members[3]->n_runs, 0);
    world_progress(&world, JOB, 16 * WORLD_BALANCE_STEPS - 1);
    world.now += WORLD_BALANCE_MS;
    world_decide(&world);
    assert_null(world_next(&world, JOB));
    world_progress(&world, JOB, 16 * WORLD_BALANCE_STEPS);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->plan, "data parallel x4, 8 microbatches: 3 2 1 2");
    world_end(&world);
}

static void pin_to_a_missing_one(Rb__Wish *wish, uint64_t to)
{
    static char *pins[] = {(char *)"z:0"};

    wish->want = (uint32_t)to;
    wish->devices = pins;
    wish->n_devices = 1;
}

/* The job trains on where it is, with the shares that are best there, which are made once. */
static void of_devices_that_cannot_be_had(void **unused)
{
    struct world world;
    uint32_t number;

    (void)unused;
    four_that_differ(&world, false);
    world_wish(&world, JOB, pin_to_a_missing_one, 1);
    wait_out(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "balance");
    number = world_next(&world, JOB)->number;
    for (int i = 0; i < 3; i++)
        world_decide(&world);
    assert_non_null(world_next(&world, JOB));
    assert_int_equal(world_next(&world, JOB)->number, number);
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->number, number);
    assert_true(world_event(&world, "balanced"));
    world_end(&world);
}

/* Small changes of speed are not published. */
static void what_is_published(void **unused)
{
    Rb__WorkerReport known = RB__WORKER_REPORT__INIT;

    (void)unused;
    assert_int_equal(rb_publish_pace(NULL, 0), 0);
    assert_int_equal(rb_publish_pace(NULL, 3200), 3200);
    assert_int_equal(rb_publish_pace(&known, 3200), 3200);
    known.microbatch_us = 3200;
    assert_int_equal(rb_publish_pace(&known, 0), 3200); /* a new rubatod has not heard yet */
    assert_int_equal(rb_publish_pace(&known, 3300), 3200);
    assert_int_equal(rb_publish_pace(&known, 3100), 3200);
    assert_int_equal(rb_publish_pace(&known, 3301), 3301);
    assert_int_equal(rb_publish_pace(&known, 3099), 3099);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_members_other_shares),
        cmocka_unit_test(not_before_its_time),
        cmocka_unit_test(none_where_none_is_due),
        cmocka_unit_test(wishes_go_first),
        cmocka_unit_test(answers_no_wish),
        cmocka_unit_test(the_idle_get_another_chance),
        cmocka_unit_test(of_devices_that_cannot_be_had),
        cmocka_unit_test(what_is_published),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
