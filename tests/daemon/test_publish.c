/* SPDX-License-Identifier: Apache-2.0 */
/* What is published of a job, and when: also where the job is done before facts know that it
 * trains. */
#include "daemon/facts/publish.h"
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define JOB WORLD_JOB

static enum rb_publish may(struct world *world, uint32_t configuration)
{
    Rb__Progress progress = RB__PROGRESS__INIT;

    progress.configuration = configuration;
    progress.step = 1;
    return rb_publish_progress(world_job(world, JOB), &progress);
}

static void progress_of_the_first_configuration(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 2);
    world_add_job(&world, JOB, 1, 2, 1, 1000);
    world_decide(&world);
    assert_int_equal(world_next(&world, JOB)->number, 1);
    assert_null(world_active(&world, JOB));
    assert_int_equal(may(&world, 1), RB_PUBLISH_LATER);
    assert_int_equal(may(&world, 2), RB_PUBLISH_NEVER); /* facts know of none */
    world_rounds(&world, 10);
    assert_int_equal(world_active(&world, JOB)->number, 1);
    assert_int_equal(may(&world, 1), RB_PUBLISH_NOW);
    world_progress(&world, JOB, 1);
    assert_int_equal(may(&world, 1), RB_PUBLISH_NEVER); /* facts have it */
    world_end(&world);
}

static void progress_of_what_was_given_up(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 2);
    world_add_job(&world, JOB, 1, 2, 1, 1000);
    world_decide(&world);
    world_wish(&world, JOB, world_cancel, 1);
    world_rounds(&world, 3);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Cancelled);
    assert_int_equal(may(&world, 1), RB_PUBLISH_NEVER);
    world_end(&world);
}

static enum rb_publish may_save(struct world *world, uint32_t configuration)
{
    Rb__Checkpoint checkpoint = RB__CHECKPOINT__INIT;

    checkpoint.configuration = configuration;
    checkpoint.step = 1;
    return rb_publish_checkpoint(world_job(world, JOB), &checkpoint);
}

/* The checkpoint's writer finishes when it has gone on to gather the state, which is in shards, to
 * park it. */
static void checkpoint_that_a_pause_overtakes(void **unused)
{
    struct world world;
    uint32_t active, park;

    (void)unused;
    world_begin(&world, 1);
    world.replicas = 2;
    world_add_node(&world, "a", 3);
    world_add_job(&world, JOB, 1, 3, 3, 1000);
    world_rounds(&world, 10);
    active = world_active(&world, JOB)->number;
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    park = world_next(&world, JOB)->number;
    assert_string_equal(world_next(&world, JOB)->cause, "park");
    assert_int_equal(may_save(&world, active), RB_PUBLISH_NOW);
    assert_int_equal(may_save(&world, park), RB_PUBLISH_NOW);
    world_rounds(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_int_equal(may_save(&world, park), RB_PUBLISH_NOW);
    world_wish(&world, JOB, world_pause, 0);
    world_rounds(&world, 10);
    assert_true(world_active(&world, JOB)->number > park);
    assert_int_equal(may_save(&world, park), RB_PUBLISH_NEVER);
    world_end(&world);
}

/* Rank 0 may write a checkpoint while it leaves. */
static void checkpoint_that_changes_overtake(void **unused)
{
    struct world world;
    uint32_t first, left, grown, again;

    (void)unused;
    world_running(&world, 3, 1, 2);
    first = world_active(&world, JOB)->number;
    world_kill(&world, world_worker(&world, JOB, "a", 1));
    while (world_active(&world, JOB)->number == first)
        world_rounds(&world, 1);
    left = world_active(&world, JOB)->number;
    assert_int_equal(left, first + 1); /* what is left of it, then a place for the lost one */
    world_wish(&world, JOB, world_want, 3);
    while (world_active(&world, JOB)->n_members < 3)
        world_rounds(&world, 1);
    grown = world_active(&world, JOB)->number;
    assert_true(grown > left);
    assert_int_equal(may_save(&world, first), RB_PUBLISH_NOW);
    assert_int_equal(may_save(&world, left), RB_PUBLISH_NOW);
    assert_int_equal(may_save(&world, grown + 1), RB_PUBLISH_LATER);
    for (uint32_t device = 0; device < 3; device++)
        world_kill(&world, world_worker(&world, JOB, "a", device));
    while (!world_next(&world, JOB) || !world_next(&world, JOB)->members[0]->restores)
        world_rounds(&world, 1);
    assert_int_equal(may_save(&world, grown), RB_PUBLISH_NEVER); /* from the decision on */
    world_rounds(&world, 10);
    again = world_active(&world, JOB)->number;
    assert_true(again > grown + 2); /* from the start */
    assert_int_equal(may_save(&world, again), RB_PUBLISH_NOW);
    assert_int_equal(may_save(&world, grown), RB_PUBLISH_NEVER);
    assert_int_equal(may_save(&world, first), RB_PUBLISH_NEVER);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_of_the_first_configuration),
        cmocka_unit_test(progress_of_what_was_given_up),
        cmocka_unit_test(checkpoint_that_a_pause_overtakes),
        cmocka_unit_test(checkpoint_that_changes_overtake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
