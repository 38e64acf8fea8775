/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: nodes that do not answer, with a lease and without. */
#include "tests/daemon/world_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

/* As rounds, but the agent of b does nothing any more; its lease has not ended. */
static void rounds_of_a(struct world *world, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        world_agent(world, 0);
        world_train(world, JOB);
        world_decide(world);
        world->now += 100;
    }
}

/* Nodes a, b, ... of one device each, and the job on all of them.  replicas: 0: all. */
static void on_nodes(struct world *world, uint32_t n, uint32_t min, uint32_t replicas)
{
    world_begin(world, 1);
    world->replicas = replicas;
    for (uint32_t i = 0; i < n; i++)
        world_add_node(world, (char[]){(char)('a' + i), 0}, 1);
    world_add_job(world, JOB, min, n, n, 100000);
    world_rounds(world, 20);
    assert_int_equal(world_active(world, JOB)->n_members, n);
}

static void silent_node_is_not_waited_for(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 2, 1, 0);
    world.silent = "b"; /* nobody has frozen: b need not answer */
    rounds_of_a(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world.silent = NULL;
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    rounds_of_a(&world, 10);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    world.silent = "b";
    rounds_of_a(&world, 5);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_string_equal(world_active(&world, JOB)->cause, "crash");
    assert_true(world_event(&world, "node-lost"));
    world_end(&world);
}

/* A new coordinator knows b only by its silence: b's lease has ended with the last
 * coordinator's. */
static void silent_node_without_a_lease(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 2, 1, 0);
    world_node_up(&world, 1, false);
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world.silent = "b";
    rounds_of_a(&world, 5);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    world_end(&world);
}

/* Nobody trains any more: the first rank saves the end, and others have what it saves. */
static void first_rank_is_away_behind_the_last_step(void **unused)
{
    struct world world;
    const Rb__Configuration *active;
    struct worker *other;
    size_t first;

    (void)unused;
    on_nodes(&world, 2, 1, 0);
    active = world_active(&world, JOB);
    first = !strcmp(active->members[0]->node, "b");
    other = world_worker(&world, JOB, first ? "a" : "b", 0);
    other->level = 100000;
    other->state = RB__WORKER_REPORT__STATE__DONE;
    other->dirty = true;
    world_node_up(&world, first, false);
    for (unsigned i = 0; i < 120; i++) {
        world_agent(&world, !first);
        world_decide(&world);
        world.now += 100;
    }
    assert_string_equal(world_next(&world, JOB)->cause, "crash");
    assert_int_equal(world_next(&world, JOB)->n_members, 1);
    assert_true(world_event(&world, "node-lost"));
    world_end(&world);
}

/* A link broke, and the coordinator alone cannot reach b, whose worker has frozen like that of
 * a. */
static void silent_node_whose_worker_has_frozen(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    on_nodes(&world, 2, 1, 0);
    active = world_active(&world, JOB)->number;
    world_freeze(world_worker(&world, JOB, "a", 0));
    world_freeze(world_worker(&world, JOB, "b", 0));
    world.silent = "b";
    world_rounds(&world, 40);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_true(world_active(&world, JOB)->number > active);
    assert_false(world_event(&world, "node-lost"));
    world_end(&world);
}

/* Both have frozen because of a broken link, and a recovery of both is made; then nothing is heard
 * of b. */
static void freeze_and_lose_b(struct world *world)
{
    world_freeze(world_worker(world, JOB, "a", 0));
    world_freeze(world_worker(world, JOB, "b", 0));
    world_agent(world, 1);
    for (unsigned i = 0; i < 40 && !world_next(world, JOB); i++)
        rounds_of_a(world, 1);
    assert_int_equal(world_next(world, JOB)->n_members, 2);
    world_kill(world, world_worker(world, JOB, "b", 0));
    world->silent = "b";
}

static void silent_node_in_a_recovery(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 2, 1, 0);
    freeze_and_lose_b(&world);
    rounds_of_a(&world, 15);
    assert_int_equal(world_next(&world, JOB)->n_members, 2); /* b may be slow */
    rounds_of_a(&world, 15);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_null(world_next(&world, JOB));
    assert_true(world_event(&world, "node-lost"));
    world_end(&world);
}

/* b alone has a part of the state: there is nothing to do without it. */
static void silent_node_in_a_recovery_has_what_others_lack(void **unused)
{
    struct world world;
    uint32_t number;

    (void)unused;
    on_nodes(&world, 2, 1, 1);
    freeze_and_lose_b(&world);
    number = world_next(&world, JOB)->number;
    rounds_of_a(&world, 60);
    assert_int_equal(world_next(&world, JOB)->number, number);
    assert_string_equal(world_state(&world, JOB)->reason,
                        "waits for node b, which does not answer and has a part of its state");
    world.silent = NULL;
    rounds_of_a(&world, 1);
    assert_string_equal(world_state(&world, JOB)->reason, "brings its workers together again");
    world_end(&world);
}

/* b's lease has ended, too, and a is frozen: that a part is away is reported before any node is
 * asked. */
static void node_away_has_what_others_lack(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 2, 1, 1);
    world_freeze(world_worker(&world, JOB, "a", 0));
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world_node_up(&world, 1, false);
    rounds_of_a(&world, 5);
    assert_null(world_next(&world, JOB));
    assert_string_equal(world_state(&world, JOB)->reason,
                        "waits for node b, which is out of reach and has a part of its state");
    world_end(&world);
}

static size_t events_about(struct world *world, const char *kind, const char *node)
{
    const struct rb_fact_list *events = &rb_mirror_facts(world->mirror)->events;
    size_t n = 0;

    for (size_t i = 0; i < events->n; i++) {
        const Rb__Event *event = events->at[i].event;

        n += !strcmp(event->kind, kind) && event->node && !strcmp(event->node, node);
    }
    return n;
}

/* b is out of reach and the others go on without it; then c, too, stands still. */
static void silent_node_behind_one_that_is_away(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 3, 1, 0);
    world_freeze(world_worker(&world, JOB, "a", 0));
    world_freeze(world_worker(&world, JOB, "c", 0));
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world_node_up(&world, 1, false);
    world_agent(&world, 2);
    for (unsigned i = 0; i < 200 && !world_next(&world, JOB); i++)
        rounds_of_a(&world, 1);
    assert_int_equal(world_next(&world, JOB)->n_members, 2);
    world_kill(&world, world_worker(&world, JOB, "c", 0));
    world_node_up(&world, 2, false);
    world.silent = "c";
    rounds_of_a(&world, 40);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_int_equal(events_about(&world, "node-lost", "b"), 1);
    assert_int_equal(events_about(&world, "node-lost", "c"), 1);
    world_end(&world);
}

/* b dies, and after the order to go on without it c falls silent.  Each is reported once, and has
 * failed the job once, however many recoveries are without it. */
static void silent_node_in_what_was_foreseen(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 3, 1, 0);
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world_kill(&world, world_worker(&world, JOB, "c", 0));
    world_agent(&world, 1);
    world_node_up(&world, 1, false);
    rounds_of_a(&world, 5);
    assert_int_equal(world_next(&world, JOB)->n_members, 2);
    world.silent = "c";
    rounds_of_a(&world, 30);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_int_equal(events_about(&world, "worker-died", "b"), 1);
    assert_int_equal(events_about(&world, "node-lost", "c"), 1);
    world_node_up(&world, 1, true);
    rounds_of_a(&world, 2);
    assert_non_null(world_next(&world, JOB));
    assert_string_equal(world_next(&world, JOB)->members[1]->node, "b");
    world_end(&world);
}

static void silent_node_without_which_too_few_are_left(void **unused)
{
    struct world world;

    (void)unused;
    on_nodes(&world, 2, 2, 0);
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world.silent = "b";
    rounds_of_a(&world, 10);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Pending);
    assert_true(world_event(&world, "parked"));
    world_end(&world);
}

/* All of a job's nodes had lost their leases, and have them again.  The coordinator alone does not
 * reach them, and facts say that the job trains. */
static void silent_nodes_with_leases_train_on(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "b", 1);
    world_add_job(&world, JOB, 1, 1, 1, 100000);
    world_rounds(&world, 20);
    active = world_active(&world, JOB)->number;
    world_node_up(&world, 0, false);
    world.silent = "b";
    world_rounds(&world, 20);
    world_node_up(&world, 0, true);
    world_rounds(&world, 3500);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Running);
    assert_int_equal(world_active(&world, JOB)->number, active);
    assert_false(world_event(&world, "restarted"));
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_node_is_not_waited_for),
        cmocka_unit_test(silent_node_without_a_lease),
        cmocka_unit_test(first_rank_is_away_behind_the_last_step),
        cmocka_unit_test(silent_node_whose_worker_has_frozen),
        cmocka_unit_test(silent_node_in_a_recovery),
        cmocka_unit_test(silent_node_in_a_recovery_has_what_others_lack),
        cmocka_unit_test(node_away_has_what_others_lack),
        cmocka_unit_test(silent_node_behind_one_that_is_away),
        cmocka_unit_test(silent_node_in_what_was_foreseen),
        cmocka_unit_test(silent_node_without_which_too_few_are_left),
        cmocka_unit_test(silent_nodes_with_leases_train_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
