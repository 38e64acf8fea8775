/* SPDX-License-Identifier: Apache-2.0 */
/* Shares: which job gets which devices, and what a job that gets none is told. */
#include "daemon/decide/allocate.h"
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct rb_arena arena;

static int end(void **unused)
{
    (void)unused;
    rb_arena_done(&arena);
    return 0;
}

static struct rb_share *shares(struct world *world)
{
    return rb_allocate(rb_mirror_facts(world->mirror), world->now, &arena);
}

/* Write the job again with changes. */
static void alter(struct world *world, const char *id, int32_t priority, const char *kind,
                  const char *class)
{
    struct rb_writes writes = {0};
    Rb__Job job = *world_job(world, id)->job.job;
    Rb__Spec spec = *job.spec;
    Rb__DevicesSpec devices = *spec.devices;

    spec.has_priority = 1;
    spec.priority = priority;
    devices.kind = (char *)kind;
    spec.devices = &devices;
    job.spec = &spec;
    job.numeric_class = (char *)class;
    rb_writes_put(&writes, RB_ANY_REVISION, &job.base, "jobs/%s/job", id);
    world_commit(world, &writes);
}

static void the_least_for_all_before_more_for_one(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 4);
    world_add_job(&world, "j1", 1, 8, 8, 10);
    world_add_job(&world, "j2", 2, 8, 8, 10);
    share = shares(&world);
    assert_int_equal(share[0].n, 2); /* its one, and the rest: it is older */
    assert_int_equal(share[1].n, 2);
    world_end(&world);
}

static void priority_before_age(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 2);
    world_add_job(&world, "j1", 2, 8, 2, 10);
    world_add_job(&world, "j2", 2, 8, 2, 10);
    assert_int_equal(shares(&world)[0].n, 2);
    alter(&world, "j2", 5, "any", "plain");
    share = shares(&world);
    assert_int_equal(share[0].n, 0);
    assert_int_equal(share[1].n, 2);
    world_end(&world);
}

/* j1 runs on all four devices of node a. */
static void lower_one_runs(struct world *world, uint32_t min)
{
    world_begin(world, 1);
    world_add_node(world, "a", 4);
    world_add_job(world, "j1", min, 8, 4, 10000);
    world_rounds(world, 10);
    assert_int_equal(world_active(world, "j1")->n_members, 4);
}

static void a_higher_one_takes_what_is_above_the_least(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    lower_one_runs(&world, 1);
    world_add_job(&world, "j2", 2, 8, 8, 10000);
    share = shares(&world);
    assert_int_equal(share[0].n, 4); /* a job of equal priority takes nothing */
    assert_int_equal(share[1].n, 0);
    assert_string_equal(rb_share_reason(&share[1], world_job(&world, "j2"), 2, &arena),
                        "waits for 2 devices: 0 of 4 are free; j1 has a:0, a:1, a:2, a:3");
    alter(&world, "j2", 1, "any", "plain");
    share = shares(&world);
    assert_int_equal(share[0].n, 1);
    assert_int_equal(share[0].given, 3);
    assert_string_equal(share[0].to, "j2");
    assert_int_equal(share[0].places[0].device, 0); /* its first rank stays */
    assert_int_equal(share[1].n, 0);                /* nothing is free yet */
    world_end(&world);
}

static void only_as_much_as_is_wanted_and_only_if_it_is_enough(void **unused)
{
    struct world world;

    (void)unused;
    lower_one_runs(&world, 2);
    world_add_job(&world, "j2", 3, 8, 3, 10000);
    alter(&world, "j2", 1, "any", "plain");
    assert_int_equal(shares(&world)[0].n, 4); /* it could give two */
    world_add_node(&world, "b", 1);
    assert_int_equal(shares(&world)[0].n, 2); /* with the free one that is enough */
    world_add_job(&world, "j3", 1, 8, 1, 10000);
    assert_int_equal(shares(&world)[2].n, 0); /* and no other job gets that one */
    alter(&world, "j2", 1, "cuda", "plain");
    assert_int_equal(shares(&world)[0].n, 4); /* no device here would serve j2 */
    assert_int_equal(shares(&world)[2].n, 1);
    world_end(&world);
}

/* A job that gives does so once: it is not asked again while the device is on its way. */
static void preemption_comes_to_rest_and_is_undone(void **unused)
{
    struct world world;

    (void)unused;
    lower_one_runs(&world, 1);
    world_add_job(&world, "j2", 1, 8, 2, 40);
    alter(&world, "j2", 1, "any", "plain");
    for (int i = 0; i < 100 && !world_active(&world, "j2"); i++) {
        world_rounds(&world, 1);
        assert_true(shares(&world)[0].n >= 2);
    }
    assert_true(world_event(&world, "preempted"));
    assert_int_equal(world_active(&world, "j1")->n_members, 2);
    assert_int_equal(world_state(&world, "j1")->n_restarts, 0);
    world_rounds(&world, 80);
    assert_int_equal(world_state(&world, "j2")->phase, RB__PHASE__Succeeded);
    assert_int_equal(world_active(&world, "j1")->n_members, 4);
    world_end(&world);
}

static void the_lowest_and_youngest_gives_first(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 6);
    world_add_job(&world, "j1", 1, 8, 3, 10000);
    world_add_job(&world, "j2", 1, 8, 3, 10000);
    world_rounds(&world, 10);
    world_add_job(&world, "j3", 1, 8, 3, 10000);
    alter(&world, "j3", 2, "any", "plain");
    share = shares(&world);
    assert_int_equal(share[0].n, 2);
    assert_int_equal(share[1].n, 1);
    alter(&world, "j2", 1, "any", "plain");
    share = shares(&world);
    assert_int_equal(share[0].n, 1);
    assert_int_equal(share[1].n, 2);
    world_end(&world);
}

static void who_cannot_have_enough_holds_nothing(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 3);
    world_add_job(&world, "j1", 4, 8, 4, 10);
    world_add_job(&world, "j2", 1, 8, 3, 10);
    share = shares(&world);
    assert_int_equal(share[0].n, 0);
    assert_int_equal(share[1].n, 3);
    assert_string_equal(rb_share_reason(&share[0], world_job(&world, "j1"), 4, &arena),
                        "waits for 4 devices: 3 of 3 are free");
    world_end(&world);
}

static void kind_and_numeric_class_must_fit(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 2);
    world_add_job(&world, "j1", 1, 8, 1, 10);
    alter(&world, "j1", 0, "cuda", "plain");
    share = shares(&world);
    assert_int_equal(share[0].n, 0);
    assert_string_equal(rb_share_reason(&share[0], world_job(&world, "j1"), 1, &arena),
                        "waits for 1 device: none is there");
    alter(&world, "j1", 0, "cpu", "other");
    share = shares(&world);
    assert_int_equal(share[0].n, 0);
    assert_non_null(strstr(rb_share_reason(&share[0], world_job(&world, "j1"), 1, &arena),
                           "numeric class other"));
    alter(&world, "j1", 0, "cpu", "plain");
    assert_int_equal(shares(&world)[0].n, 1);
    world_end(&world);
}

static void newcomers_come_from_nodes_in_use(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 1);
    world_add_node(&world, "b", 3);
    world_add_job(&world, "j1", 1, 8, 1, 10000);
    world_cordon(&world, "a", true, false);
    world_rounds(&world, 10);
    world_cordon(&world, "a", false, false);
    world_wish(&world, "j1", world_want, 3);
    share = shares(&world);
    assert_int_equal(share[0].n, 3);
    assert_int_equal(share[0].kept, 1);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(share[0].places[i].node, "b");
    world_end(&world);
}

static void a_failed_device_is_left_alone_for_a_while(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 2);
    world_add_job(&world, "j1", 1, 8, 2, 10000);
    world_rounds(&world, 10);
    world_kill(&world, world_worker(&world, "j1", "a", 1));
    world_rounds(&world, 5);
    share = shares(&world);
    assert_int_equal(share[0].n, 1);
    assert_true(share[0].wake_ms > world.now && share[0].wake_ms <= world.now + 2000);
    world.now = share[0].wake_ms;
    assert_int_equal(shares(&world)[0].n, 2);
    world_end(&world);
}

static void a_parked_state_is_gone_to(void **unused)
{
    struct world world;
    struct rb_share *share;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 1);
    world_add_node(&world, "b", 1);
    world_add_job(&world, "j1", 1, 8, 1, 10000);
    world_cordon(&world, "a", true, false);
    world_rounds(&world, 10);
    world_wish(&world, "j1", world_pause, 1);
    world_rounds(&world, 10);
    world_cordon(&world, "a", false, false);
    world_wish(&world, "j1", world_pause, 0);
    assert_string_equal(shares(&world)[0].places[0].node, "b");
    world_cordon(&world, "b", true, false);
    assert_int_equal(shares(&world)[0].n, 0);
    assert_string_equal(shares(&world)[0].needs, "b");
    world_cordon(&world, "b", false, false);
    alter(&world, "j1", 0, "any", "older"); /* as after an upgrade of all nodes */
    share = shares(&world);
    assert_int_equal(share[0].n, 0);
    assert_string_equal(rb_share_reason(&share[0], world_job(&world, "j1"), 1, &arena),
                        "waits for a device of numeric class older on node b, which holds its "
                        "state: what is there would give other bits");
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_least_for_all_before_more_for_one, end),
        cmocka_unit_test_teardown(priority_before_age, end),
        cmocka_unit_test_teardown(a_higher_one_takes_what_is_above_the_least, end),
        cmocka_unit_test_teardown(only_as_much_as_is_wanted_and_only_if_it_is_enough, end),
        cmocka_unit_test_teardown(preemption_comes_to_rest_and_is_undone, end),
        cmocka_unit_test_teardown(the_lowest_and_youngest_gives_first, end),
        cmocka_unit_test_teardown(who_cannot_have_enough_holds_nothing, end),
        cmocka_unit_test_teardown(kind_and_numeric_class_must_fit, end),
        cmocka_unit_test_teardown(newcomers_come_from_nodes_in_use, end),
        cmocka_unit_test_teardown(a_failed_device_is_left_alone_for_a_while, end),
        cmocka_unit_test_teardown(a_parked_state_is_gone_to, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
