/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene. */
#include "world.h"

#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define JOB "j1"

static void running(struct world *world, uint32_t devices, uint32_t min, uint32_t want)
{
    world_begin(world, 1);
    world_add_node(world, "a", devices);
    world_add_job(world, JOB, min, 8, want, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_state(world, JOB)->phase, RB__PHASE__Running);
}

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
    running(&world, 2, 1, 2);
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
    running(&world, 4, 1, 1);
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

static void newer_wish_supersedes_and_keeps_processes(void **unused)
{
    struct world world;
    struct worker *fresh;
    char name[32];
    uint32_t old;

    (void)unused;
    running(&world, 4, 1, 1);
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

static void compare_runs(const Rb__Member *member, const char *expected)
{
    struct rb_buffer text = {0};

    rb_buffer_text(&text, "");
    for (size_t i = 0; i < member->n_runs; i++)
        rb_buffer_format(&text, " %u+%u", member->runs[i]->first, member->runs[i]->count);
    assert_string_equal(text.data, expected);
    rb_buffer_done(&text);
}

static void survivors_go_on(void **unused)
{
    struct world world;
    int64_t level;

    (void)unused;
    running(&world, 3, 1, 3);
    level = world_worker(&world, JOB, "a", 1)->level;
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_agent(&world, 0);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "crash");
    assert_int_equal(world_next(&world, JOB)->n_members, 2);
    assert_string_equal(world_next(&world, JOB)->blamed[0], "a:0");
    /* 0 1 2 were the dead one's: they are handed out, and the others keep 3 4 5 and 6 7 */
    compare_runs(world_next(&world, JOB)->members[0], " 1+1 3+3");
    compare_runs(world_next(&world, JOB)->members[1], " 0+1 2+1 6+2");
    assert_string_equal(world_next(&world, JOB)->plan, "data parallel x2, 8 microbatches: 4 4");
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_true(world_worker(&world, JOB, "a", 1)->level >= level);
    assert_true(world_event(&world, "worker-died") && world_event(&world, "recovered"));
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_rounds(&world, 50); /* the device is tried again a little later */
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    compare_runs(world_active(&world, JOB)->members[0], ""); /* even shares again */
    world_end(&world);
}

static void a_recovery_that_loses_another(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 3, 1, 3);
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_agent(&world, 0);
    world_decide(&world);
    world_kill(&world, world_worker(&world, JOB, "a", 2));
    world_rounds(&world, 12);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_int_equal(world_active(&world, JOB)->members[0]->device, 1);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* The coordinator was away: two died, one after the other, and the third has gone on by itself. */
static void what_agents_did_is_recorded(void **unused)
{
    struct world world;
    struct worker *last;
    uint32_t number, newest;

    (void)unused;
    running(&world, 3, 1, 3);
    number = world_active(&world, JOB)->number;
    newest = world_state(&world, JOB)->newest;
    assert_int_equal(newest, number + 2);
    last = world_worker(&world, JOB, "a", 1);
    for (uint32_t lost = 1; lost < 3; lost++) {
        world_kill(&world, world_worker(&world, JOB, "a", lost == 1 ? 0 : 2));
        for (int i = 0; i < 3; i++) {
            world_agent(&world, 0);
            world_train(&world, JOB);
        }
        assert_int_equal(last->active, number + lost);
    }
    world_agent(&world, 0);
    world_decide(&world);
    assert_int_equal(world_active(&world, JOB)->number, number + 2);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_int_equal(world_active(&world, JOB)->left_of, number);
    assert_int_equal(world_active(&world, JOB)->n_blamed, 2);
    assert_true(world_event(&world, "worker-died") && world_event(&world, "recovered"));
    world_rounds(&world, 50);
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    assert_true(world_active(&world, JOB)->number > newest); /* none of those that were kept */
    world_end(&world);
}

static void a_newcomer_that_dies_costs_nothing(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    running(&world, 2, 1, 1);
    active = world_active(&world, JOB)->number;
    world_wish(&world, JOB, world_want, 2);
    world_decide(&world);
    world_agent(&world, 0);
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_agent(&world, 0);
    world_decide(&world);
    assert_int_equal(world_active(&world, JOB)->number, active);
    assert_null(world_next(&world, JOB));
    assert_true(world_event(&world, "abandoned"));
    world_rounds(&world, 50);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world_end(&world);
}

static void restarts_from_the_newest_checkpoint(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    world_checkpoint(&world, JOB, 3, "a");
    world_checkpoint(&world, JOB, 7, "a");
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_agent(&world, 0);
    world_decide(&world);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 1);
    assert_true(world_event(&world, "restarted"));
    world_rounds(&world, 40);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_true(world_worker(&world, JOB, "a", 0)->level >= 7);
    world_end(&world);
}

static void too_many_restarts_fail(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 1, 1, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
        world_kill(&world, world_worker(&world, JOB, "a", 0));
        world_rounds(&world, 60);
    }
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Failed);
    assert_non_null(strstr(world_state(&world, JOB)->reason, "failure.maxRestarts"));
    world_end(&world);
}

static void own_failure_fails_the_job(void **unused)
{
    struct world world;
    struct worker *worker;

    (void)unused;
    running(&world, 1, 1, 1);
    worker = world_worker(&world, JOB, "a", 0);
    world_kill(&world, worker);
    worker->state = RB__WORKER_REPORT__STATE__FAILED;
    world_rounds(&world, 2);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Failed);
    world_end(&world);
}

static void pauses_and_goes_on(void **unused)
{
    struct world world;
    int64_t step;

    (void)unused;
    running(&world, 2, 1, 2);
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

/* Growing has failed often; what trained may be paused and go on all the same. */
static void failed_growth_is_no_failed_start(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 4, 1, 1);
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

static void another_saver_when_the_first_dies(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    assert_string_equal(world_state(&world, JOB)->saver, world_worker(&world, JOB, "a", 0)->name);
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_non_null(world_state(&world, JOB)->parked);
    assert_true(world_event(&world, "saver-lost"));
    world_end(&world);
}

static void too_few_survivors_park(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 2, 2);
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_rounds(&world, 8);
    assert_non_null(world_state(&world, JOB)->parked);
    world_rounds(&world, 60);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* ---- State in shards -------------------------------------------------------------------------*/

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

/* Two at once: those that hold a block together, or two that do not. */
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
    struct world world;

    (void)unused;
    in_shards(&world, 2, 3, 1);
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    assert_null(world_state(&world, JOB)->saver);
    assert_string_equal(world_next(&world, JOB)->cause, "park");
    assert_int_equal(world_next(&world, JOB)->n_members, 1);
    world_rounds(&world, 20);
    assert_true(world_event(&world, "gathered"));
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_non_null(world_state(&world, JOB)->parked);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* Until it is saved the others keep what they gave to the one that gathered it. */
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

/* Who survives is too few to train, and together has all of it: it is parked all the same. */
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

static void drain_moves_through_both(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 1, 1, 1);
    world_add_node(&world, "b", 1);
    world_cordon(&world, "a", true, true);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "drain");
    assert_int_equal(world_next(&world, JOB)->n_members, 2); /* someone has to bring the state */
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_string_equal(world_active(&world, JOB)->members[0]->node, "b");
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* Runs on a:0 and b:0; c:0 is there, but its agent does nothing. */
static void drained_with_a_lame_newcomer(struct world *world, uint32_t min)
{
    world_begin(world, 1);
    world_add_node(world, "a", 1);
    world_add_node(world, "b", 1);
    world_add_job(world, JOB, min, 8, 2, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_active(world, JOB)->n_members, 2);
    world_add_node(world, "c", 1);
    world_drain(world, "b", 8000);
    world_decide(world);
    assert_string_equal(world_next(world, JOB)->cause, "drain");
    assert_int_equal(world_next(world, JOB)->n_members, 2);
    assert_non_null(strstr(world_state(world, JOB)->reason, "leaves node b by 00:16:"));
    world->now += 5999;
    world_decide(world);
    assert_int_equal(world_next(world, JOB)->n_members, 2);
    assert_true(world->wake == world->now + 1); /* a quarter of the time is left */
    world->now++;
    world_decide(world);
}

static void no_newcomer_is_waited_for_in_a_hurry(void **unused)
{
    struct world world;

    (void)unused;
    drained_with_a_lame_newcomer(&world, 1);
    assert_int_equal(world_next(&world, JOB)->n_members, 1);
    assert_string_equal(world_next(&world, JOB)->members[0]->node, "a");
    world.nodes[2].up = false; /* still lame */
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_string_equal(world_active(&world, JOB)->members[0]->node, "a");
    assert_null(world_worker(&world, JOB, "b", 0));
    world_end(&world);
}

static void too_few_in_a_hurry_park(void **unused)
{
    struct world world;

    (void)unused;
    drained_with_a_lame_newcomer(&world, 2);
    assert_string_equal(world_state(&world, JOB)->saver, world_worker(&world, JOB, "a", 0)->name);
    assert_non_null(strstr(world_state(&world, JOB)->reason, "leaves node b by"));
    world.nodes[2].up = false;
    world_rounds(&world, 5);
    assert_true(world_event(&world, "parked"));
    assert_string_equal(world_state(&world, JOB)->parked->node, "a");
    assert_null(world_worker(&world, JOB, "b", 0));
    world_end(&world);
}

/* Whoever is there still when the time is over is killed; that is a crash and costs no step. */
static void killed_when_the_time_is_over(void **unused)
{
    struct world world;
    int64_t level;

    (void)unused;
    drained_with_a_lame_newcomer(&world, 1);
    level = world_worker(&world, JOB, "a", 0)->level;
    world.now += 2000; /* nobody heard of the new configuration */
    world_agent(&world, 1);
    assert_null(world_worker(&world, JOB, "b", 0));
    world.nodes[2].up = false;
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_true(world_event(&world, "recovered"));
    assert_true(world_worker(&world, JOB, "a", 0)->level > level);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

static void uncordon_takes_the_time_back(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    world_add_node(&world, "b", 2);
    world_drain(&world, "a", 60000);
    world_cordon(&world, "a", false, false);
    world_rounds(&world, 700);
    assert_int_equal(world_active(&world, JOB)->number, 1);
    world_end(&world);
}

static void pin_to_second(Rb__Wish *wish, uint64_t to)
{
    static char *pins[] = {(char *)"a:1"};

    wish->devices = pins;
    wish->n_devices = 1;
    wish->has_asked = 1;
    wish->asked = to;
}

static void a_pinned_move_is_answered_by_its_last_configuration(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 1);
    world_wish(&world, JOB, pin_to_second, ++world.now);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "move");
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_int_equal(world_active(&world, JOB)->members[0]->device, 1);
    assert_int_equal(world_active(&world, JOB)->asked, world_job(&world, JOB)->wish.wish->asked);
    world_end(&world);
}

static void last_node_leaves(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    world_node_leaving(&world, 0, true);
    world_rounds(&world, 8);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Pending);
    assert_non_null(world_state(&world, JOB)->parked);
    assert_int_equal(world.n_workers, 0);
    world_node_up(&world, 0, false);
    world_rounds(&world, 3);
    assert_non_null(strstr(world_state(&world, JOB)->reason, "node a, which holds its state"));
    world_node_up(&world, 0, true);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

static void cordon_keeps_who_is_there(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    running(&world, 3, 1, 2);
    active = world_active(&world, JOB)->number;
    world_cordon(&world, "a", true, false);
    world_wish(&world, JOB, world_want, 3);
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->number, active);
    assert_string_equal(world_state(&world, JOB)->reason,
                        "has 2 and waits for 3 devices: 0 of 3 are free; node a is cordoned");
    world_cordon(&world, "a", false, false);
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    world_end(&world);
}

static void lost_lease_is_no_death(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    running(&world, 1, 1, 1);
    world_add_node(&world, "b", 1);
    world_wish(&world, JOB, world_want, 2);
    world_rounds(&world, 10);
    active = world_active(&world, JOB)->number;
    world_node_up(&world, 1, false);
    world_rounds(&world, 300); /* trains on for half a minute */
    assert_int_equal(world_active(&world, JOB)->number, active);
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->number, active); /* frozen, and patient */
    world_rounds(&world, 120);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_string_equal(world_active(&world, JOB)->cause, "crash");
    assert_true(world_event(&world, "node-lost"));
    world_end(&world);
}

static void a_broken_link_is_mended(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    for (uint32_t d = 0; d < 2; d++) {
        struct worker *worker = world_worker(&world, JOB, "a", d);

        worker->state = RB__WORKER_REPORT__STATE__FROZEN;
        worker->dirty = true;
    }
    world_rounds(&world, 10);
    assert_null(world_next(&world, JOB)); /* a report of a death may come */
    world_rounds(&world, 40);
    assert_string_equal(world_active(&world, JOB)->cause, "crash");
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_int_equal(world_worker(&world, JOB, "a", 1)->state, RB__WORKER_REPORT__STATE__TRAINING);
    world_end(&world);
}

static void deleted_when_all_are_gone(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 1, 2);
    world_wish(&world, JOB, world_delete, 1);
    world_decide(&world);
    assert_non_null(world_job(&world, JOB));
    world_rounds(&world, 5);
    assert_null(world_job(&world, JOB));
    assert_int_equal(world.n_workers, 0);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_and_succeeds),
        cmocka_unit_test(names_members_at_go),
        cmocka_unit_test(waits_for_devices),
        cmocka_unit_test(grows_and_shrinks_in_place),
        cmocka_unit_test(newer_wish_supersedes_and_keeps_processes),
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(a_recovery_that_loses_another),
        cmocka_unit_test(what_agents_did_is_recorded),
        cmocka_unit_test(a_newcomer_that_dies_costs_nothing),
        cmocka_unit_test(restarts_from_the_newest_checkpoint),
        cmocka_unit_test(too_many_restarts_fail),
        cmocka_unit_test(own_failure_fails_the_job),
        cmocka_unit_test(pauses_and_goes_on),
        cmocka_unit_test(failed_growth_is_no_failed_start),
        cmocka_unit_test(another_saver_when_the_first_dies),
        cmocka_unit_test(too_few_survivors_park),
        cmocka_unit_test(drain_moves_through_both),
        cmocka_unit_test(no_newcomer_is_waited_for_in_a_hurry),
        cmocka_unit_test(too_few_in_a_hurry_park),
        cmocka_unit_test(killed_when_the_time_is_over),
        cmocka_unit_test(uncordon_takes_the_time_back),
        cmocka_unit_test(a_pinned_move_is_answered_by_its_last_configuration),
        cmocka_unit_test(last_node_leaves),
        cmocka_unit_test(a_lone_replica_is_missed),
        cmocka_unit_test(a_second_replica_is_enough),
        cmocka_unit_test(two_deaths_may_be_too_many),
        cmocka_unit_test(parts_are_brought_together_to_pause),
        cmocka_unit_test(the_gatherer_dies),
        cmocka_unit_test(too_few_parts_park),
        cmocka_unit_test(cordon_keeps_who_is_there),
        cmocka_unit_test(lost_lease_is_no_death),
        cmocka_unit_test(a_broken_link_is_mended),
        cmocka_unit_test(deleted_when_all_are_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
