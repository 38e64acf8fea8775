/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: which members go on when workers die, and what is
 * lost. */
#include "tests/daemon/world_inside.h"

#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

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
    world_running(&world, 3, 1, 3);
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
    assert_non_null(strstr(world_state(&world, JOB)->reason,
                           "1 of 3 is free; a:0 failed it and is tried again at "));
    world_rounds(&world, 50); /* the device is tried again a little later */
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
    compare_runs(world_active(&world, JOB)->members[0], ""); /* even shares again */
    world_end(&world);
}

static void a_recovery_that_loses_another(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 3, 1, 3);
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

/* The coordinator was away: two members died, one after the other, and the third has gone on by
 * itself. */
static void what_agents_did_is_recorded(void **unused)
{
    struct world world;
    struct worker *last;
    uint32_t number, newest;

    (void)unused;
    world_running(&world, 3, 1, 3);
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
    assert_true(world_active(&world, JOB)->number > newest); /* not a number that was kept */
    world_end(&world);
}

/* The newcomer flipped to the configuration that brings it, and froze there before it reported
 * so. */
static void freeze_behind_flip(struct worker *newcomer, int64_t level, uint32_t number)
{
    newcomer->level = level;
    newcomer->unready = number;
    world_freeze(newcomer);
}

static void newcomers_are_left_alone_behind_a_flip(void **unused)
{
    struct world world;
    const Rb__Configuration *next;
    uint32_t number;
    int64_t level;

    (void)unused;
    world_running(&world, 4, 1, 2);
    world_wish(&world, JOB, world_want, 4);
    do {
        world_agent(&world, 0);
        world_decide(&world);
    } while (world_next(&world, JOB)->state != RB__CONFIGURATION__STATE__GO);
    number = world_next(&world, JOB)->number;
    level = world_worker(&world, JOB, "a", 1)->level;
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_freeze(world_worker(&world, JOB, "a", 1));
    freeze_behind_flip(world_worker(&world, JOB, "a", 2), level, number);
    freeze_behind_flip(world_worker(&world, JOB, "a", 3), level, number);
    world_agent(&world, 0);
    world_decide(&world);
    assert_int_equal(world_next(&world, JOB)->n_members, 3);
    world_kill(&world, world_worker(&world, JOB, "a", 1)); /* the last that was in the job before */
    world_agent(&world, 0);
    world_decide(&world);
    next = world_next(&world, JOB);
    assert_string_equal(next->cause, "crash");
    assert_int_equal(next->n_members, 2);
    assert_string_equal(next->members[0]->worker, world_worker(&world, JOB, "a", 2)->name);
    assert_string_equal(next->members[1]->worker, world_worker(&world, JOB, "a", 3)->name);
    number = next->number;
    world_rounds(&world, 5);
    assert_int_equal(world_active(&world, JOB)->number, number);
    assert_true(world_worker(&world, JOB, "a", 2)->level >= level);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

static void a_newcomer_that_dies_costs_nothing(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    world_running(&world, 2, 1, 1);
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
    world_running(&world, 2, 1, 2);
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

/* Starts that load `step` fail, and report it, until the job runs or has failed. */
static void fail_to_load(struct world *world, int64_t step)
{
    world_kill(world, world_worker(world, JOB, "a", 0));
    world_rounds(world, 1);
    for (int i = 0; i < 1000 && world_state(world, JOB)->phase != RB__PHASE__Failed &&
                    world_state(world, JOB)->phase != RB__PHASE__Running;
         i++) {
        const Rb__Configuration *next = world_next(world, JOB);
        struct worker *worker = world_worker(world, JOB, "a", 0);

        if (next && next->restore && next->restore->step == step && worker) {
            world_kill(world, worker);
            worker->state = RB__WORKER_REPORT__STATE__FAILED;
            worker->unreadable = true;
        }
        world_rounds(world, 1);
    }
}

static void an_unreadable_checkpoint_gives_way_to_an_older_one(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
    world_checkpoint(&world, JOB, 3, "a");
    world_checkpoint(&world, JOB, 7, "a");
    fail_to_load(&world, 7);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(&world, JOB)->restore->step, 3);
    assert_true(world_event(&world, "checkpoint-unreadable"));
    /* Nor is the unreadable one taken the next time, or exported, before the job has come as far
     * again. */
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_rounds(&world, 60);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(&world, JOB)->restore->step, 3);
    world_end(&world);
}

static void with_nothing_to_load_a_job_fails(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
    world_checkpoint(&world, JOB, 7, "a");
    fail_to_load(&world, 7);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Failed);
    assert_false(world_event(&world, "checkpoint-unreadable"));
    world_end(&world);
}

static void too_many_restarts_fail(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
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
    world_running(&world, 1, 1, 1);
    worker = world_worker(&world, JOB, "a", 0);
    world_kill(&world, worker);
    worker->state = RB__WORKER_REPORT__STATE__FAILED;
    world_rounds(&world, 2);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Failed);
    world_end(&world);
}

static void another_saver_when_the_first_dies(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 2);
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

/* Another member saves while there is one; without any the job is over without its state, and is
 * not started again. */
static void savers_of_a_cancelled_job_die(void **unused)
{
    (void)unused;
    for (int all = 0; all < 2; all++) {
        struct world world;

        world_running(&world, 2, 1, 2);
        world_wish(&world, JOB, world_cancel_keeping, 1);
        world_decide(&world);
        world_kill(&world, world_worker(&world, JOB, "a", 0));
        if (all)
            world_kill(&world, world_worker(&world, JOB, "a", 1));
        world_rounds(&world, 30);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
        assert_int_equal(world_state(&world, JOB)->parked != NULL, !all);
        assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
        world_end(&world);
    }
}

static void too_few_survivors_park(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 2, 2);
    world_kill(&world, world_worker(&world, JOB, "a", 0));
    world_rounds(&world, 8);
    assert_non_null(world_state(&world, JOB)->parked);
    world_rounds(&world, 60);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* A rank that died in a vote may have spoken to some and not to others: a rank that heard all is a
 * step ahead. */
static void who_is_ahead_saves(void **unused)
{
    struct world world;
    struct worker *behind, *ahead;

    (void)unused;
    world_running(&world, 3, 3, 3);
    behind = world_worker(&world, JOB, "a", 0);
    ahead = world_worker(&world, JOB, "a", 2);
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    world_decide(&world);
    assert_null(world_state(&world, JOB)->saver); /* they train on, as far as is known */
    ahead->level = behind->level + 1;
    ahead->state = behind->state = RB__WORKER_REPORT__STATE__FROZEN;
    ahead->dirty = behind->dirty = true;
    for (int i = 0; i < 10 && !world_state(&world, JOB)->saver; i++)
        world_rounds(&world, 1);
    assert_string_equal(world_state(&world, JOB)->saver, ahead->name);
    world_end(&world);
}

static void a_broken_link_is_mended(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 2);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(a_recovery_that_loses_another),
        cmocka_unit_test(what_agents_did_is_recorded),
        cmocka_unit_test(newcomers_are_left_alone_behind_a_flip),
        cmocka_unit_test(a_newcomer_that_dies_costs_nothing),
        cmocka_unit_test(restarts_from_the_newest_checkpoint),
        cmocka_unit_test(an_unreadable_checkpoint_gives_way_to_an_older_one),
        cmocka_unit_test(with_nothing_to_load_a_job_fails),
        cmocka_unit_test(too_many_restarts_fail),
        cmocka_unit_test(own_failure_fails_the_job),
        cmocka_unit_test(another_saver_when_the_first_dies),
        cmocka_unit_test(savers_of_a_cancelled_job_die),
        cmocka_unit_test(too_few_survivors_park),
        cmocka_unit_test(who_is_ahead_saves),
        cmocka_unit_test(a_broken_link_is_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
