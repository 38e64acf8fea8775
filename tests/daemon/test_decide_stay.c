/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: a pause that cannot be done, or is taken back. */
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

/* A node with so many devices, on all of which the job trains; replicas 0: each has all of the
 * state. */
static void running(struct world *world, uint32_t replicas, uint32_t devices)
{
    world_begin(world, 1);
    world->replicas = replicas;
    world_add_node(world, "a", devices);
    world_add_job(world, JOB, 1, 8, devices, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_active(world, JOB)->n_members, devices);
}

static void until_gathered(struct world *world)
{
    for (int round = 0; round < 20; round++) {
        const Rb__Configuration *next = world_next(world, JOB);

        world_agent(world, 0);
        for (size_t i = 0; next && !strcmp(next->cause, "park") && i < world->n_workers; i++)
            if (world->workers[i].active == next->number)
                return;
        world_train(world, JOB);
        if (!next || next->state == RB__CONFIGURATION__STATE__PREPARING)
            world_decide(world);
    }
    fail_msg("nobody gathers the state");
}

/* Resumed before the state was saved: all members go on where they are, with what they had. */
static void goes_on(struct world *world, uint32_t devices, int64_t level)
{
    world_rounds(world, 60);
    assert_int_equal(world_state(world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(world, JOB)->n_members, devices);
    assert_true(world_worker(world, JOB, "a", 0)->level > level);
    assert_true(world_event(world, "resumed"));
    assert_false(world_event(world, "paused") || world_event(world, "restarted"));
    assert_false(world_event(world, "worker-died"));
    assert_null(world_state(world, JOB)->parked);
    assert_int_equal(world_state(world, JOB)->n_restarts, 0);
    assert_null(world_state(world, JOB)->reason);
}

static void pauses(struct world *world)
{
    world_wish(world, JOB, world_pause, 1);
    world_rounds(world, 60);
    assert_int_equal(world_state(world, JOB)->phase, RB__PHASE__Paused);
    assert_non_null(world_state(world, JOB)->parked);
}

/* The process that has gathered the state trains no step, even where orders to it are slow. */
static void the_gatherer_stands(void **unused)
{
    struct world world;
    struct worker *gatherer = NULL;
    int64_t level;

    (void)unused;
    running(&world, 2, 4);
    world_wish(&world, JOB, world_pause, 1);
    until_gathered(&world);
    for (size_t i = 0; i < world.n_workers; i++)
        if (world.workers[i].active == world_next(&world, JOB)->number)
            gatherer = &world.workers[i];
    assert_non_null(gatherer);
    assert_int_equal(gatherer->state, RB__WORKER_REPORT__STATE__FROZEN);
    level = gatherer->level;
    for (int i = 0; i < 5; i++)
        world_train(&world, JOB);
    assert_int_equal(gatherer->level, level);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->parked->step, level);
    world_end(&world);
}

static void resumed_behind_the_flip(void **unused)
{
    struct world world;
    int64_t level;

    (void)unused;
    running(&world, 2, 4);
    world_wish(&world, JOB, world_pause, 1);
    until_gathered(&world);
    level = world_worker(&world, JOB, "a", 0)->level;
    world_wish(&world, JOB, world_pause, 0);
    goes_on(&world, 4, level);
    pauses(&world);
    world_end(&world);
}

/* Paused again, while the members that gave what they had and the one that has it come together. */
static void paused_again_meanwhile(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 4);
    world_wish(&world, JOB, world_pause, 1);
    until_gathered(&world);
    world_wish(&world, JOB, world_pause, 0);
    world_rounds(&world, 2);
    assert_null(world_state(&world, JOB)->saver);
    pauses(&world);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* By a process that has all of the state, or by one to which the others gave parts that they still
 * have. */
static void a_save_that_fails_is_taken_back(void **unused)
{
    for (uint32_t replicas = 0; replicas <= 2; replicas++)
        for (uint32_t devices = 1; devices <= 4; devices += 3) {
            struct world world;
            int64_t level;

            (void)unused;
            running(&world, replicas, devices);
            world.full = true;
            world_wish(&world, JOB, world_pause, 1);
            world_rounds(&world, 60);
            assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
            assert_string_equal(world_state(&world, JOB)->reason, "paused: no room");
            assert_non_null(world_state(&world, JOB)->saver);
            level = world_worker(&world, JOB, "a", 0)->level;
            world_wish(&world, JOB, world_pause, 0);
            goes_on(&world, devices, level);
            world.full = false;
            pauses(&world);
            world_end(&world);
        }
}

/* A process that can save may do so. */
static void a_save_that_goes_well_is_not(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 0, 2);
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    assert_non_null(world_state(&world, JOB)->saver);
    world_wish(&world, JOB, world_pause, 0);
    world_decide(&world);
    assert_non_null(world_state(&world, JOB)->saver);
    world_rounds(&world, 60);
    assert_true(world_event(&world, "parked"));
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* There is room just when the pause is taken back: what the only process with the state saved
 * before it heard of that counts, and nothing is lost. */
static void saved_all_the_same(void **unused)
{
    struct world world;
    struct worker *saver;
    int64_t level;

    (void)unused;
    running(&world, 0, 1);
    world.full = true;
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 10);
    saver = world_worker(&world, JOB, "a", 0);
    assert_true(saver->unsaved);
    level = saver->level;
    world_wish(&world, JOB, world_pause, 0);
    world_decide(&world);
    assert_null(world_state(&world, JOB)->saver);
    saver->has_saved = true;
    saver->saved = level;
    world_kill(&world, saver);
    world_agent(&world, 0);
    world_decide(&world);
    assert_int_equal(world_state(&world, JOB)->parked->step, level);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(&world, JOB)->level, level);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* A job that must leave its devices does not stay on them, whatever the user takes back. */
static void not_on_a_node_that_is_left(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 0, 1);
    world.full = true;
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 10);
    world_node_leaving(&world, 0, true);
    world_wish(&world, JOB, world_pause, 0);
    world_rounds(&world, 10);
    assert_non_null(world_state(&world, JOB)->saver);
    world.full = false;
    world_rounds(&world, 10);
    assert_true(world_event(&world, "parked"));
    world_end(&world);
}

/* The job is moved off a node whose disk is full: from process to process, as always. */
static void to_another_node(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 0, 1);
    world_add_node(&world, "b", 1);
    world.full = true;
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 10);
    assert_true(world_worker(&world, JOB, "a", 0)->unsaved);
    world_cordon(&world, "a", true, true);
    world_wish(&world, JOB, world_pause, 0);
    world_rounds(&world, 60);
    assert_string_equal(world_active(&world, JOB)->members[0]->node, "b");
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_null(world_state(&world, JOB)->parked);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* A link is broken between members of a paused job, so none can gather: they come together
 * first. */
static void frozen_before_it_is_gathered(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 2, 4);
    for (uint32_t d = 0; d < 4; d++) {
        struct worker *worker = world_worker(&world, JOB, "a", d);

        worker->state = RB__WORKER_REPORT__STATE__FROZEN;
        worker->dirty = true;
    }
    world_agent(&world, 0);
    pauses(&world);
    assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
    world_end(&world);
}

/* A cancelled job, after a pause or not, waits for room as a paused one does; or for nothing. */
static void cancelled_where_it_cannot_be_saved(void **unused)
{
    (void)unused;
    for (uint32_t replicas = 0; replicas <= 2; replicas++)
        for (int how = 0; how < 4; how++) {
            const bool behind_a_pause = how & 1, at_once = how & 2;
            struct world world;

            running(&world, replicas, 4);
            world.full = true;
            if (behind_a_pause) {
                world_wish(&world, JOB, world_pause, 1);
                world_rounds(&world, 60);
                assert_string_equal(world_state(&world, JOB)->reason, "paused: no room");
            }
            world_wish(&world, JOB, world_cancel_keeping, 1);
            world_rounds(&world, 60);
            assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
            assert_string_equal(world_state(&world, JOB)->reason, "cancelled: no room");
            if (at_once)
                world_wish(&world, JOB, world_cancel_at_once, 1);
            else
                world.full = false;
            world_rounds(&world, 20);
            assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
            assert_int_equal(world_state(&world, JOB)->parked != NULL, !at_once);
            assert_int_equal(world.n_workers, 0);
            world_end(&world);
        }
}

/* Once a pause is taken back, or while the state is gathered; no process is left over. */
static void cancelled_while_it_is_gathered(void **unused)
{
    (void)unused;
    for (int how = 0; how < 8; how++) {
        const bool resumed = how & 1, at_once = how & 2, cancels_first = how & 4;
        struct world world;

        running(&world, 2, 4);
        world_wish(&world, JOB, cancels_first ? world_cancel_keeping : world_pause, 1);
        until_gathered(&world);
        if (resumed) {
            world_wish(&world, JOB, world_pause, 0);
            world_decide(&world);
        }
        world_wish(&world, JOB, at_once ? world_cancel_at_once : world_cancel_keeping, 1);
        world_decide(&world);
        assert_int_equal(world_state(&world, JOB)->phase == RB__PHASE__Cancelled, at_once);
        world_rounds(&world, 60);
        assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
        assert_int_equal(world_state(&world, JOB)->parked != NULL, !at_once);
        assert_int_equal(world_state(&world, JOB)->n_restarts, 0);
        assert_int_equal(world.n_workers, 0);
        world_end(&world);
    }
}

static void why_it_does_not_end(void **unused)
{
    struct world world;

    (void)unused;
    running(&world, 0, 2);
    world.full = true;
    for (int i = 0; i < 2; i++)
        world_worker(&world, JOB, "a", (uint32_t)i)->level = 999;
    world_rounds(&world, 5);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_string_equal(world_state(&world, JOB)->reason, "all steps are done: no room");
    world.full = false;
    world_rounds(&world, 5);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Succeeded);
    assert_null(world_state(&world, JOB)->reason);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gatherer_stands),
        cmocka_unit_test(resumed_behind_the_flip),
        cmocka_unit_test(paused_again_meanwhile),
        cmocka_unit_test(a_save_that_fails_is_taken_back),
        cmocka_unit_test(a_save_that_goes_well_is_not),
        cmocka_unit_test(saved_all_the_same),
        cmocka_unit_test(not_on_a_node_that_is_left),
        cmocka_unit_test(to_another_node),
        cmocka_unit_test(frozen_before_it_is_gathered),
        cmocka_unit_test(cancelled_where_it_cannot_be_saved),
        cmocka_unit_test(cancelled_while_it_is_gathered),
        cmocka_unit_test(why_it_does_not_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
