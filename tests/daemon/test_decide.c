/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: jobs that start, change and end. */
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

static void starts_and_succeeds(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 4);
    world_add_job(&world, JOB, 1, 8, 2, 30);
    world_decide(&world);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Preparing);
    assert_string_equal(world_next(&world, JOB)->cause, "start");
    assert_true(world_next(&world, JOB)->members[1]->restores);
    world_rounds(&world, 60);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Succeeded);
    assert_int_equal(world_state(&world, JOB)->parked->step, 30);
    assert_true(world_event(&world, "started") && world_event(&world, "succeeded"));
    assert_int_equal(world.n_workers, 0);
    world_end(&world);
}

static void names_members_at_go(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 2);
    assert_non_null(world_active(&world, JOB)->members[0]->worker);
    assert_non_null(world_active(&world, JOB)->members[1]->worker);
    world_end(&world);
}

static void waits_for_devices(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 3);
    world_add_job(&world, JOB, 2, 8, 2, 1000);
    world_rounds(&world, 10);
    world_add_job(&world, "j2", 2, 8, 2, 1000);
    world_rounds(&world, 3);
    assert_int_equal(world_state(&world, "j2")->phase, RB__PHASE__Pending);
    assert_string_equal(world_state(&world, "j2")->reason,
                        "waits for 2 devices: 1 of 3 is free; j1 has a:0, a:1");
    world_wish(&world, JOB, world_cancel, 1);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
    assert_int_equal(world_state(&world, "j2")->phase, RB__PHASE__Running);
    world_end(&world);
}

static void grows_and_shrinks_in_place(void **unused)
{
    struct world world;
    char first[32];

    (void)unused;
    world_running(&world, 4, 1, 1);
    snprintf(first, sizeof(first), "%s", world_active(&world, JOB)->members[0]->worker);
    world_wish(&world, JOB, world_want, 3);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "grow");
    assert_int_equal(world_next(&world, JOB)->asked, world_job(&world, JOB)->wish.wish->asked);
    assert_string_equal(world_next(&world, JOB)->plan, "data parallel x3, 8 microbatches: 3 3 2");
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    assert_string_equal(world_active(&world, JOB)->members[0]->worker, first);
    assert_true(world_active(&world, JOB)->has_level);
    world_wish(&world, JOB, world_want, 2);
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_string_equal(world_active(&world, JOB)->members[0]->worker, first);
    assert_true(world_event(&world, "grown") && world_event(&world, "shrunk"));
    world_end(&world);
}

/* The plan that the context holds. */
static bool plan_anew(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                      const Rb__Configuration *configuration, const Rb__Configuration *running,
                      struct rb_arena *arena, struct rb_decide_plan *ret)
{
    (void)facts;
    (void)job;
    (void)configuration;
    (void)running;
    (void)arena;
    *ret = *(struct rb_decide_plan *)context;
    return true;
}

/* The active configuration, once no other follows it any more. */
static const Rb__Configuration *settle(struct world *world)
{
    uint32_t number;

    world_rounds(world, 100);
    number = world_active(world, JOB)->number;
    world_rounds(world, 100);
    assert_int_equal(world_active(world, JOB)->number, number);
    return world_active(world, JOB);
}

static void same_members_in_another_way(void **unused)
{
    struct rb_decide_plan plan = {.seconds = 0.5, .why = "so it is"};
    const Rb__Configuration *active;
    struct world world;
    uint32_t number;

    (void)unused;
    world_begin(&world, 1);
    world.planner = (struct rb_decide_planner){plan_anew, &plan};
    world_add_node(&world, "a", 3);
    world_add_job(&world, JOB, 1, 8, 3, 100000);
    world_rounds(&world, 10);
    number = world_active(&world, JOB)->number;
    assert_int_equal(settle(&world)->number, number); /* nothing has changed */
    plan.stages = 3;
    active = settle(&world);
    assert_true(world_event(&world, "replanned"));
    assert_int_equal(active->pipeline, 3);
    assert_int_equal(active->n_members, 3);
    assert_string_equal(active->cause, "replan");
    plan.replicas = 2; /* less of the state each */
    active = settle(&world);
    assert_int_equal(active->pipeline, 3);
    assert_int_equal(active->replicas, 2);
    assert_string_equal(active->cause, "replan");
    assert_non_null(strstr(active->plan, "2 replicas of each block"));
    number = active->number;
    world_wish(&world, JOB, world_want, 2);
    world_rounds(&world, 10);
    number = world_active(&world, JOB)->number;
    plan = (struct rb_decide_plan){.stages = 2, .seconds = 0.5, .why = "so it is"};
    active = settle(&world); /* two of two have all of the state: it is the same */
    assert_int_equal(active->number, number);
    assert_int_equal(active->replicas, 2);
    world_end(&world);
}

/* Pipelines of two stages on two and on four devices, with two replicas; for three devices this
 * planner has no answer. */
static bool plan_pairs(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                       const Rb__Configuration *configuration, const Rb__Configuration *running,
                       struct rb_arena *arena, struct rb_decide_plan *ret)
{
    int64_t *ran = context; /* what trains, as the planner was told; -1: nothing */

    (void)facts;
    (void)job;
    (void)arena;
    *ran = running ? (int64_t)running->pipeline : -1;
    *ret = (struct rb_decide_plan){.seconds = 0.5, .why = "so it is"};
    if (configuration->n_members % 2 == 0)
        ret->stages = ret->replicas = 2;
    return configuration->n_members != 3;
}

static bool hear(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                 const Rb__Configuration *configuration, const Rb__Configuration *running,
                 struct rb_arena *arena, struct rb_decide_plan *ret)
{
    uint32_t *us = context;

    (void)facts;
    (void)job;
    (void)running;
    (void)arena;
    for (size_t m = 0; m < configuration->n_members; m++)
        us[m] = configuration->members[m]->microbatch_us;
    *ret = (struct rb_decide_plan){.seconds = 0.5, .why = "so it is"};
    return true;
}

/* The planner is asked about what trains with the speeds of now, and about a newcomer with the
 * speeds of the others. */
static void planner_hears_paces(void **unused)
{
    struct world world;
    uint32_t us[8] = {0};

    (void)unused;
    world_begin(&world, 1);
    world.planner = (struct rb_decide_planner){hear, us};
    world_add_node(&world, "a", 4);
    world_add_job(&world, JOB, 1, 8, 3, 100000);
    world_rounds(&world, 10);
    for (uint32_t d = 0; d < 3; d++) {
        world_worker(&world, JOB, "a", d)->microbatch_us = 10000 + d * 100;
        world_worker(&world, JOB, "a", d)->dirty = true;
    }
    world_agent(&world, 0);
    settle(&world);
    for (uint32_t d = 0; d < 3; d++)
        assert_int_equal(us[d], 10000 + d * 100);
    world_wish(&world, JOB, world_want, 4);
    world_decide(&world);
    assert_int_equal(us[2], 10200);
    assert_int_equal(us[3], 10100);
    world_end(&world);
}

static void runs_as_the_planner_says(void **unused)
{
    struct world world;
    int64_t ran = -2;

    (void)unused;
    world_begin(&world, 1);
    world.planner = (struct rb_decide_planner){plan_pairs, &ran};
    world_add_node(&world, "a", 5);
    world_add_job(&world, JOB, 1, 8, 2, 1000);
    world_rounds(&world, 10);
    assert_int_equal(ran, -1);
    assert_int_equal(world_active(&world, JOB)->pipeline, 2);
    assert_string_equal(world_active(&world, JOB)->chosen, "so it is");
    assert_true(world_active(&world, JOB)->expected_ms == 500);
    world_wish(&world, JOB, world_want, 3); /* as before, then */
    world_rounds(&world, 10);
    assert_int_equal(ran, 2);
    assert_int_equal(world_active(&world, JOB)->pipeline, 2);
    assert_int_equal(world_active(&world, JOB)->replicas, 2);
    assert_null(world_active(&world, JOB)->chosen);
    world_wish(&world, JOB, world_want, 5);
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->pipeline, 0);
    assert_int_equal(world_active(&world, JOB)->replicas, 0);
    world_wish(&world, JOB, world_want, 4);
    world_rounds(&world, 10);
    assert_int_equal(ran, 0);
    assert_string_equal(world_active(&world, JOB)->plan,
                        "pipeline of 2 stages x4: 2 2, 1F1B, 8 microbatches, 2 replicas of each "
                        "block");
    world_kill(&world, world_worker(&world, JOB, "a", 1)); /* the planner is not asked */
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 4); /* and a fresh one in its place */
    assert_int_equal(world_active(&world, JOB)->pipeline, 2);
    world_end(&world);
}

static void newer_wish_supersedes_and_keeps_processes(void **unused)
{
    struct world world;
    struct worker *fresh;
    char name[32];
    uint32_t old;

    (void)unused;
    world_running(&world, 4, 1, 1);
    world_wish(&world, JOB, world_want, 2);
    world_decide(&world);
    old = world_next(&world, JOB)->number;
    world_agent(&world, 0);
    fresh = world_worker(&world, JOB, "a", 1);
    assert_non_null(fresh);
    snprintf(name, sizeof(name), "%s", fresh->name);
    world_wish(&world, JOB, world_want, 3);
    world_decide(&world);
    assert_true(world_next(&world, JOB)->number > old);
    assert_string_equal(world_next(&world, JOB)->members[1]->worker, name);
    assert_null(world_next(&world, JOB)->members[2]->worker);
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    world_end(&world);
}

static void pauses_and_goes_on(void **unused)
{
    struct world world;
    int64_t step;

    (void)unused;
    world_running(&world, 2, 1, 2);
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_int_equal(world.n_workers, 0);
    step = world_state(&world, JOB)->parked->step;
    assert_true(step > 0);
    world_wish(&world, JOB, world_pause, 0);
    world_decide(&world);
    assert_int_equal(world_next(&world, JOB)->restore->step, step);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_true(world_worker(&world, JOB, "a", 0)->first == step);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* The job's state is kept like that of a paused job; told once more the job does not wait for
 * that. */
static void cancels_and_keeps(void **unused)
{
    (void)unused;
    for (int impatient = 0; impatient < 2; impatient++) {
        struct world world;

        world_running(&world, 2, 1, 2);
        world_wish(&world, JOB, world_cancel_keeping, 1);
        world_decide(&world);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
        assert_non_null(world_state(&world, JOB)->saver);
        if (impatient)
            world_wish(&world, JOB, world_cancel_at_once, 1);
        world_decide(&world);
        assert_int_equal(world_state(&world, JOB)->phase == RB__PHASE__Cancelled, impatient);
        world_rounds(&world, 10);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
        assert_int_equal(world.n_workers, 0);
        assert_int_equal(world_state(&world, JOB)->parked != NULL, !impatient);
        if (!impatient)
            assert_true(world_state(&world, JOB)->parked->step > 0);
        assert_true(world_event(&world, "cancelled"));
        world_end(&world);
    }
}

/* The job trains after its GO before the coordinator hears of it; or one member ends before it gets
 * there. */
static void cancelled_behind_its_first_go(void **unused)
{
    (void)unused;
    for (int dies = 0; dies < 2; dies++) {
        struct world world;

        world_begin(&world, 1);
        world_add_node(&world, "a", 2);
        world_add_job(&world, JOB, 2, 2, 2, 100000);
        while (!world_next(&world, JOB) ||
               world_next(&world, JOB)->state != RB__CONFIGURATION__STATE__GO) {
            world_agent(&world, 0);
            world_decide(&world);
        }
        world_agent(&world, 0);
        for (int i = 0; i < 5 && !dies; i++)
            world_train(&world, JOB);
        if (dies)
            world_kill(&world, world_worker(&world, JOB, "a", 1));
        world_wish(&world, JOB, world_cancel_keeping, 1);
        world_decide(&world);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Preparing);
        world_rounds(&world, 20);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
        assert_int_equal(world_state(&world, JOB)->parked != NULL, !dies);
        assert_int_equal(world.n_workers, 0);
        world_end(&world);
    }
}

/* Growing has failed often; the job that trained may be paused and go on all the same. */
static void failed_growth_is_no_failed_start(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 4, 1, 1);
    world.unready_one_in = 1;
    world_wish(&world, JOB, world_want, 2);
    world_rounds(&world, 200);
    assert_true(world_state(&world, JOB)->newest > 4);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    world.unready_one_in = 0;
    world_wish(&world, JOB, world_pause, 0);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world_end(&world);
}

static void deleted_when_all_are_gone(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 2);
    world_wish(&world, JOB, world_delete, 1);
    world_decide(&world);
    assert_non_null(world_job(&world, JOB));
    world_rounds(&world, 5);
    assert_null(world_job(&world, JOB));
    assert_int_equal(world.n_workers, 0);
    assert_int_equal(rb_mirror_facts(world.mirror)->deletions.n, 1);
    assert_string_equal(rb_mirror_facts(world.mirror)->deletions.at[0].deletion->job, JOB);
    world_end(&world);
}

static void old_deletions_are_forgotten(void **unused)
{
    Rb__Deletion deletion = RB__DELETION__INIT;
    const struct rb_fact_list *kept;
    struct rb_writes writes = {0};
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
    deletion.job = (char *)"old";
    for (int i = 0; i < 1100; i++)
        rb_writes_put(&writes, RB_ABSENT, &deletion.base, "deletions/%013d-old", i);
    world_commit(&world, &writes);
    world_rounds(&world, 10);
    kept = &rb_mirror_facts(world.mirror)->deletions;
    assert_in_range(kept->n, 1000, 1050);
    assert_string_equal(kept->at[kept->n - 1].key, "deletions/0000000001099-old");
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_and_succeeds),
        cmocka_unit_test(names_members_at_go),
        cmocka_unit_test(waits_for_devices),
        cmocka_unit_test(grows_and_shrinks_in_place),
        cmocka_unit_test(runs_as_the_planner_says),
        cmocka_unit_test(planner_hears_paces),
        cmocka_unit_test(same_members_in_another_way),
        cmocka_unit_test(newer_wish_supersedes_and_keeps_processes),
        cmocka_unit_test(pauses_and_goes_on),
        cmocka_unit_test(cancels_and_keeps),
        cmocka_unit_test(cancelled_behind_its_first_go),
        cmocka_unit_test(failed_growth_is_no_failed_start),
        cmocka_unit_test(deleted_when_all_are_gone),
        cmocka_unit_test(old_deletions_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
