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

/* In the second half of a move members flip to what the first rank is not in: it may have trained
 * its last step already. */
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

static void on_a_and_b(struct world *world, uint32_t min)
{
    world_begin(world, 1);
    world_add_node(world, "a", 1);
    world_add_node(world, "b", 1);
    world_add_job(world, JOB, min, 2, 2, 100000);
    world_rounds(world, 20);
    assert_int_equal(world_active(world, JOB)->n_members, 2);
}

static void silent_node_is_not_waited_for(void **unused)
{
    struct world world;

    (void)unused;
    on_a_and_b(&world, 1);
    world.silent = "b"; /* nobody has frozen: it may answer whom it likes */
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

/* Who coordinates now knows it only by its silence: its lease has ended with the last one's. */
static void silent_node_without_a_lease(void **unused)
{
    struct world world;

    (void)unused;
    on_a_and_b(&world, 1);
    world_node_up(&world, 1, false);
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world.silent = "b";
    rounds_of_a(&world, 5);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    world_end(&world);
}

/* Nobody trains any more: it saves the end, and others have what it saves. */
static void first_rank_is_away_behind_the_last_step(void **unused)
{
    struct world world;
    const Rb__Configuration *active;
    struct worker *other;
    size_t first;

    (void)unused;
    on_a_and_b(&world, 1);
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

/* A link broke, and the coordinator alone cannot reach b, whose worker has frozen as that of a has.
 */
static void silent_node_whose_worker_has_frozen(void **unused)
{
    struct world world;
    uint32_t active;

    (void)unused;
    on_a_and_b(&world, 1);
    active = world_active(&world, JOB)->number;
    for (size_t n = 0; n < 2; n++) {
        struct worker *worker = world_worker(&world, JOB, n ? "b" : "a", 0);

        worker->state = RB__WORKER_REPORT__STATE__FROZEN;
        worker->dirty = true;
    }
    world.silent = "b";
    world_rounds(&world, 40);
    assert_int_equal(world_active(&world, JOB)->n_members, 2);
    assert_true(world_active(&world, JOB)->number > active);
    assert_false(world_event(&world, "node-lost"));
    world_end(&world);
}

/* Both have frozen for a broken link, and a recovery of both is made: then nothing is heard of b.
 */
static void freeze_and_lose_b(struct world *world)
{
    for (size_t n = 0; n < 2; n++) {
        struct worker *worker = world_worker(world, JOB, n ? "b" : "a", 0);

        worker->state = RB__WORKER_REPORT__STATE__FROZEN;
        worker->dirty = true;
    }
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
    on_a_and_b(&world, 1);
    freeze_and_lose_b(&world);
    rounds_of_a(&world, 15);
    assert_int_equal(world_next(&world, JOB)->n_members, 2); /* it may be slow */
    rounds_of_a(&world, 15);
    assert_int_equal(world_active(&world, JOB)->n_members, 1);
    assert_null(world_next(&world, JOB));
    assert_true(world_event(&world, "node-lost"));
    world_end(&world);
}

static void in_parts_on_a_and_b(struct world *world)
{
    world_begin(world, 1);
    world->replicas = 1;
    world_add_node(world, "a", 1);
    world_add_node(world, "b", 1);
    world_add_job(world, JOB, 1, 2, 2, 100000);
    world_rounds(world, 20);
}

/* It alone has a part of the state: there is nothing to do without it. */
static void silent_node_in_a_recovery_has_what_others_lack(void **unused)
{
    struct world world;
    uint32_t number;

    (void)unused;
    in_parts_on_a_and_b(&world);
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

/* Its lease has ended, too, and a is frozen: that a part is away is told before anybody is asked.
 */
static void node_away_has_what_others_lack(void **unused)
{
    struct world world;
    struct worker *frozen;

    (void)unused;
    in_parts_on_a_and_b(&world);
    frozen = world_worker(&world, JOB, "a", 0);
    frozen->state = RB__WORKER_REPORT__STATE__FROZEN;
    frozen->dirty = true;
    world_kill(&world, world_worker(&world, JOB, "b", 0));
    world_node_up(&world, 1, false);
    rounds_of_a(&world, 5);
    assert_null(world_next(&world, JOB));
    assert_string_equal(world_state(&world, JOB)->reason,
                        "waits for node b, which is out of reach and has a part of its state");
    world_end(&world);
}

/* Nobody else can save: who asked for a pause sees why there is none. */
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
    world_begin(&world, 1);
    world_add_node(&world, "a", 1);
    world_add_node(&world, "b", 1);
    world_add_node(&world, "c", 1);
    world_add_job(&world, JOB, 1, 3, 3, 100000);
    world_rounds(&world, 20);
    for (size_t n = 0; n < 3; n++) {
        struct worker *worker = world_worker(&world, JOB, n == 1 ? "b" : n ? "c" : "a", 0);

        worker->state = RB__WORKER_REPORT__STATE__FROZEN;
        worker->dirty = n != 1;
    }
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

/* b dies, and behind the order to go on without it c, of which nothing was heard since.  Each is
 * told of once, and has failed the job once, however many recoveries are without it. */
static void silent_node_in_what_was_foreseen(void **unused)
{
    struct world world;

    (void)unused;
    world_begin(&world, 1);
    world_add_node(&world, "a", 1);
    world_add_node(&world, "b", 1);
    world_add_node(&world, "c", 1);
    world_add_job(&world, JOB, 1, 3, 3, 100000);
    world_rounds(&world, 20);
    assert_int_equal(world_active(&world, JOB)->n_members, 3);
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
    on_a_and_b(&world, 2);
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

/* All who could say whether they have flipped are out of reach. */
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

/* Two nodes of one device; the job trains on a and goes to both.  b is cut off behind the GO, and
 * the step that is voted on takes longer than anyone waits. */
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

    world_train(&world, JOB); /* the vote; then its node is back, and hears that it was given up */
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

/* With two devices each has all of the state, with three it is in shards: nobody can be told to
 * save behind the GO, for it may have been flipped to. */
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
        cmocka_unit_test(what_went_is_not_taken_back_unheard),
        cmocka_unit_test(what_was_flipped_to_is_revived),
        cmocka_unit_test(paused_on_the_way_into_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
