/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: nodes that are drained, leave and are out of reach. */
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

static void drain_moves_through_both(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
    world_add_node(&world, "b", 1);
    world_cordon(&world, "a", true, true);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "drain");
    assert_int_equal(world_next(&world, JOB)->n_members, 2); /* a member has to bring the state */
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

/* A process that is still there when the time is over is killed; that is a crash and costs no
 * step. */
static void killed_when_the_time_is_over(void **unused)
{
    struct world world;
    int64_t level;

    (void)unused;
    drained_with_a_lame_newcomer(&world, 1);
    level = world_worker(&world, JOB, "a", 0)->level;
    world.now += 2000; /* no agent heard of the new configuration */
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
    world_running(&world, 2, 1, 2);
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

/* In the second half of a move members flip to a configuration without the first rank, which may
 * have trained its last step already. */
static void paused_while_the_first_rank_leaves(void **unused)
{
    const Rb__Configuration *next = NULL;
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 1);
    world_wish(&world, JOB, pin_to_second, ++world.now);
    for (int i = 0;
         i < 100 && !(next && next->n_members == 1 && next->state == RB__CONFIGURATION__STATE__GO);
         i++) {
        world_agent(&world, 0);
        world_train(&world, JOB);
        world_decide(&world);
        next = world_next(&world, JOB);
    }
    assert_non_null(next);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    assert_string_equal(world_state(&world, JOB)->saver, world_worker(&world, JOB, "a", 1)->name);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    world_end(&world);
}

static void a_pinned_move_is_answered_by_its_last_configuration(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 1);
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
    world_running(&world, 2, 1, 2);
    world_node_leaving(&world, 0, true);
    world_rounds(&world, 8);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Pending);
    assert_non_null(world_state(&world, JOB)->parked);
    assert_int_equal(world.n_workers, 0);
    assert_non_null(strstr(world_state(&world, JOB)->reason, "its state; node a is leaving"));
    world_node_up(&world, 0, false);
    world_rounds(&world, 3);
    assert_non_null(
        strstr(world_state(&world, JOB)->reason, "node a, which holds its state and is not there"));
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
    world_running(&world, 3, 1, 2);
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
    world_running(&world, 1, 1, 1);
    world_add_node(&world, "b", 1);
    world_wish(&world, JOB, world_want, 2);
    world_rounds(&world, 10);
    active = world_active(&world, JOB)->number;
    world_node_up(&world, 1, false);
    world_rounds(&world, 300); /* the job trains on for half a minute */
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

/* No other member can save: the user who asked for a pause sees why there is none. */
static void paused_while_its_node_is_away(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 1, 1, 1);
    world_node_up(&world, 0, false);
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 5);
    assert_string_equal(world_state(&world, JOB)->reason,
                        "paused: waits for node a, which is out of reach and has its state");
    world_node_up(&world, 0, true);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    world_end(&world);
}

/* All members that could say whether they have flipped are out of reach. */
static void what_went_is_not_taken_back_unheard(void **unused)
{
    struct world world;

    (void)unused;
    world_running(&world, 2, 1, 1);
    world_wish(&world, JOB, world_want, 2);
    world_decide(&world);
    while (world_next(&world, JOB)->state != RB__CONFIGURATION__STATE__GO) {
        world_agent(&world, 0);
        world_train(&world, JOB);
        world_decide(&world);
    }
    world_node_up(&world, 0, false);
    world_rounds(&world, 300);
    assert_int_equal(world_next(&world, JOB)->state, RB__CONFIGURATION__STATE__GO);
    assert_false(world_event(&world, "abandoned"));
    assert_string_equal(world_state(&world, JOB)->reason,
                        "node a is out of reach: changes wait for it");
    world_node_up(&world, 0, true);
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_null(world_state(&world, JOB)->reason);
    world_end(&world);
}

/* Two nodes of one device; the job trains on a and goes to both.  b is cut off after the GO, and
 * the step that is voted on takes longer than the coordinator waits. */
static void what_was_flipped_to_is_revived(void **unused)
{
    struct world world;
    struct worker *fed;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 1);
    world_add_node(&world, "b", 1);
    world_add_job(&world, JOB, 1, 2, 1, 100000);
    world_rounds(&world, 20);
    world_wish(&world, JOB, world_want, 2);
    world_decide(&world);
    while (world_next(&world, JOB)->state != RB__CONFIGURATION__STATE__GO) {
        world_agent(&world, 0);
        world_agent(&world, 1);
        world_train(&world, JOB);
        world_decide(&world);
    }
    world_agent(&world, 0);
    world_agent(&world, 1);
    world_node_up(&world, 1, false);
    world.now += 2 * WORLD_PATIENCE;
    world_decide(&world);
    assert_true(world_event(&world, "abandoned"));
    assert_null(world_next(&world, JOB));

    world_train(&world, JOB); /* the vote; then b is back, and hears that 2 was given up */
    fed = world_worker(&world, JOB, "b", 0);
    world_node_up(&world, 1, true);
    world_agent(&world, 1);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    world_rounds(&world, 20);
    assert_true(world_event(&world, "revived"));
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_ptr_equal(world_worker(&world, JOB, "b", 0), fed);
    assert_true(fed->alive);
    assert_null(world_state(&world, JOB)->reason);
    world_end(&world);
}

/* With two devices each has all of the state, with three it is in shards: no member can be told to
 * save after the GO, because members may have flipped. */
static void paused_on_the_way_into_shards(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world.replicas = 2;
    world_add_node(&world, "a", 3);
    world_add_job(&world, JOB, 1, 3, 2, 100000);
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world_wish(&world, JOB, world_want, 3);
    world_decide(&world);
    while (world_next(&world, JOB)->state != RB__CONFIGURATION__STATE__GO) {
        world_agent(&world, 0);
        world_train(&world, JOB);
        world_decide(&world);
    }
    world_wish(&world, JOB, world_pause, 1);
    world_decide(&world);
    assert_null(world_state(&world, JOB)->saver);
    world_rounds(&world, 40);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    assert_false(world_event(&world, "saver-lost"));
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drain_moves_through_both),
        cmocka_unit_test(no_newcomer_is_waited_for_in_a_hurry),
        cmocka_unit_test(too_few_in_a_hurry_park),
        cmocka_unit_test(killed_when_the_time_is_over),
        cmocka_unit_test(uncordon_takes_the_time_back),
        cmocka_unit_test(paused_while_the_first_rank_leaves),
        cmocka_unit_test(paused_while_its_node_is_away),
        cmocka_unit_test(a_pinned_move_is_answered_by_its_last_configuration),
        cmocka_unit_test(last_node_leaves),
        cmocka_unit_test(cordon_keeps_who_is_there),
        cmocka_unit_test(lost_lease_is_no_death),
        cmocka_unit_test(what_went_is_not_taken_back_unheard),
        cmocka_unit_test(what_was_flipped_to_is_revived),
        cmocka_unit_test(paused_on_the_way_into_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
