/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: state in shards, where a death may take what no other
 * member has, and parts are brought together to be saved. */
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

static void in_shards(struct world *world, uint32_t replicas, uint32_t devices, uint32_t min)
{
    world_begin(world, 1);
    world->replicas = replicas;
    world_add_node(world, "a", devices);
    world_add_job(world, JOB, min, 8, devices, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_state(world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(world, JOB)->replicas, replicas);
    assert_non_null(strstr(world_active(world, JOB)->plan, "of each block"));
}

static void a_lone_replica_is_missed(void **unused)
{
    struct world world;

    (void)unused;
    in_shards(&world, 1, 3, 1);
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_agent(&world, 0);
    world_decide(&world);
    assert_true(world_event(&world, "restarted"));
    assert_int_equal(world_state(&world, JOB)->n_restarts, 1);
    assert_string_equal(world_next(&world, JOB)->cause, "start"); /* the others have no use */
    assert_null(world_active(&world, JOB));
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    world_end(&world);
}

static void a_second_replica_is_enough(void **unused)
{
    struct world world;

    (void)unused;
    in_shards(&world, 2, 4, 1);
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_agent(&world, 0);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "crash");
    assert_non_null(strstr(world_next(&world, JOB)->plan, "2 replicas of each block"));
    world_rounds(&world, 5);
    assert_true(world_event(&world, "recovered"));
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* Two deaths at once: of two members that together hold a block, or of two that do not. */
static void two_deaths_may_be_too_many(void **unused)
{
    for (uint32_t second = 2; second <= 3; second++) {
        struct world world;

        (void)unused;
        in_shards(&world, 2, 4, 1);
        world_kill(&world, world_worker(&world, JOB, "a", 1));
        world_kill(&world, world_worker(&world, JOB, "a", second));
        world_agent(&world, 0);
        world_decide(&world);
        assert_int_equal(world_state(&world, JOB)->n_restarts, second == 2);
        world_end(&world);
    }
}

static void parts_are_brought_together_to_pause(void **unused)
{
    (void)unused;
    for (int cancels = 0; cancels < 2; cancels++) {
        struct world world;

        in_shards(&world, 2, 3, 1);
        world_wish(&world, JOB, cancels ? world_cancel_keeping : world_pause, 1);
        world_decide(&world);
        assert_null(world_state(&world, JOB)->saver);
        assert_string_equal(world_next(&world, JOB)->cause, "park");
        assert_int_equal(world_next(&world, JOB)->n_members, 1);
        world_rounds(&world, 20);
        assert_true(world_event(&world, "gathered"));
        assert_int_equal(world_state(&world, JOB)->phase,
                         cancels ? RB__PHASE__Cancelled : RB__PHASE__Paused);
        assert_non_null(world_state(&world, JOB)->parked);
        assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
        world_end(&world);
    }
}

/* Until the state is saved the others keep what they gave to the gatherer. */
static void the_gatherer_dies(void **unused)
{
    struct world world;
    struct worker *saver = NULL;

    (void)unused;
    in_shards(&world, 2, 4, 1);
    world_wish(&world, JOB, world_pause, 1);
    for (int round = 0; round < 20 && !world_state(&world, JOB)->saver; round++) {
        world_agent(&world, 0);
        world_train(&world, JOB);
        world_decide(&world);
    }
    assert_non_null(world_state(&world, JOB)->saver);
    assert_true(world_event(&world, "gathered"));
    for (uint32_t d = 0; d < 4; d++) {
        struct worker *worker = world_worker(&world, JOB, "a", d);

        assert_non_null(worker);
        assert_true(worker->alive);
        if (!strcmp(worker->name, world_state(&world, JOB)->saver))
            saver = worker;
    }
    assert_non_null(saver);
    world_kill(&world, saver);
    world_agent(&world, 0);
    world_rounds(&world, 30);
    assert_true(world_event(&world, "saver-lost"));
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_non_null(world_state(&world, JOB)->parked);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* The survivors are too few to train, and together have all of the state: it is parked all the
 * same. */
static void too_few_parts_park(void **unused)
{
    struct world world;

    (void)unused;
    in_shards(&world, 2, 4, 4);
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_agent(&world, 0);
    world.nodes[0].devices = 3;
    world_node_leaving(&world, 0, false);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "crash");
    world_rounds(&world, 20);
    assert_true(world_event(&world, "parked"));
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_replica_is_missed),
        cmocka_unit_test(a_second_replica_is_enough),
        cmocka_unit_test(two_deaths_may_be_too_many),
        cmocka_unit_test(parts_are_brought_together_to_pause),
        cmocka_unit_test(the_gatherer_dies),
        cmocka_unit_test(too_few_parts_park),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
