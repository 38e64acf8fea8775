/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's rules, scene by scene: members that take much longer than the others. */
#include "tests/daemon/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define JOB WORLD_JOB

enum { WATCH_MS = 30000 };

static const struct rb_facts *facts_of(struct world *world)
{
    return rb_mirror_facts(world->mirror);
}

static void measure(struct world *world, const uint32_t *us, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++) {
        struct worker *w = world_worker(world, JOB, "a", d);

        w->microbatch_us = us[d];
        w->dirty = true;
    }
    world_agent(world, 0);
    world_decide(world);
}

/* So many devices of "a" train, on even shares or by speed, and have measured their speeds. */
static void train(struct world *world, const uint32_t *us, uint32_t n, bool even)
{
    world_begin(world, 1);
    world->even = even;
    world_add_node(world, "a", n);
    world_add_job(world, JOB, 1, 8, n, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_active(world, JOB)->n_members, n);
    measure(world, us, n);
}

static void wait(struct world *world, uint64_t ms)
{
    world->now += ms;
    world_decide(world);
}

static size_t events(struct world *world, const char *kind, const char **ret_text)
{
    const struct rb_facts *facts = facts_of(world);
    size_t n = 0;

    for (size_t i = 0; i < facts->events.n; i++) {
        const Rb__Event *event = facts->events.at[i].event;

        if (strcmp(event->kind, kind))
            continue;
        n++;
        assert_string_equal(event->node, "a");
        if (ret_text)
            *ret_text = event->text;
    }
    return n;
}

static void expect(struct world *world, size_t told, size_t over)
{
    assert_int_equal(events(world, "straggler", NULL), told);
    assert_int_equal(events(world, "straggler-over", NULL), over);
}

/* Reported after its time, and once; over after its time, and once. */
static void told_when_it_lasts(void **unused)
{
    static const uint32_t slow[] = {10000, 10400, 16000}, still[] = {10000, 10400, 13500},
                          well[] = {10000, 10400, 12500};
    const char *text = "";
    struct world world;

    (void)unused;
    train(&world, slow, 3, true);
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 1);
    assert_null(rb_straggler_told(world_state(&world, JOB), "a", 2));
    assert_true(world.wake == world.now + WATCH_MS);
    wait(&world, WATCH_MS - 1);
    expect(&world, 0, 0);
    wait(&world, 1);
    assert_int_equal(events(&world, "straggler", &text), 1);
    assert_string_equal(text, "a:2 takes 16 ms for a microbatch, the other cpu devices 10.4 ms in "
                              "the median");
    assert_int_equal(rb_straggler_told(world_state(&world, JOB), "a", 2)->microbatch_us, 16000);
    assert_int_equal(rb_straggler_told(world_state(&world, JOB), "a", 2)->others_us, 10400);
    wait(&world, 20 * WATCH_MS);
    measure(&world, still, 3); /* not enough to be told of, nor to be over */
    wait(&world, 2 * WATCH_MS);
    expect(&world, 1, 0);
    measure(&world, well, 3);
    wait(&world, WATCH_MS - 1);
    expect(&world, 1, 0);
    measure(&world, slow, 3); /* a short slow spell changes nothing */
    measure(&world, well, 3);
    wait(&world, WATCH_MS - 1);
    expect(&world, 1, 0);
    wait(&world, 1);
    assert_int_equal(events(&world, "straggler-over", &text), 1);
    assert_string_equal(text, "a:2 keeps up again: 12.5 ms for a microbatch, the others 10.4 ms in "
                              "the median");
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    wait(&world, 20 * WATCH_MS);
    expect(&world, 1, 1);
    world_end(&world);
}

/* Slowness that passes is not reported. */
static void not_told_when_it_passes(void **unused)
{
    static const uint32_t slow[] = {10000, 10000, 16000}, well[] = {10000, 10000, 15000};
    struct world world;

    (void)unused;
    train(&world, slow, 3, true);
    wait(&world, WATCH_MS - 1);
    measure(&world, well, 3);
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    wait(&world, WATCH_MS);
    measure(&world, slow, 3);
    wait(&world, WATCH_MS - 1);
    expect(&world, 0, 0);
    world_end(&world);
}

/* A device that goes to and fro about a limit, each time for long enough: there are two limits, and
 * a speed between them changes nothing. */
static void told_once_where_it_hovers(void **unused)
{
    static const uint32_t above[] = {10000, 10000, 16000}, between[] = {10000, 10000, 13000},
                          below[] = {10000, 10000, 12000};
    struct world world;

    (void)unused;
    train(&world, between, 3, true);
    wait(&world, 2 * WATCH_MS);
    expect(&world, 0, 0);
    for (int i = 0; i < 10; i++) {
        measure(&world, above, 3);
        wait(&world, 2 * WATCH_MS);
        measure(&world, between, 3);
        wait(&world, 2 * WATCH_MS);
    }
    expect(&world, 1, 0);
    measure(&world, below, 3);
    wait(&world, WATCH_MS);
    expect(&world, 1, 1);
    for (int i = 0; i < 10; i++) {
        measure(&world, between, 3);
        wait(&world, 2 * WATCH_MS);
        measure(&world, below, 3);
        wait(&world, 2 * WATCH_MS);
    }
    expect(&world, 1, 1);
    world_end(&world);
}

/* The limits: of two devices twice the other's time, of more one and a half times; a device that
 * has measured nothing is no straggler. */
static void limits(void **unused)
{
    static const struct {
        uint32_t us[4], n;
        size_t told;
    } cases[] = {
        {{10000, 20000}, 2, 0},
        {{10000, 20001}, 2, 1},
        {{10000, 10000, 15000}, 3, 0},
        {{10000, 10000, 15001}, 3, 1},
        {{10000, 10000, 40000, 40000}, 4, 2},
        {{10000, 40000, 40000}, 3, 0}, /* one is quick */
        {{10000, 15001, 0}, 3, 0},
        {{0, 0, 90000}, 3, 0},
    };

    (void)unused;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct world world;

        train(&world, cases[i].us, cases[i].n, true);
        wait(&world, WATCH_MS);
        expect(&world, cases[i].told, 0);
        world_end(&world);
    }
}

/* While a change is prepared no straggler is reported; what was seen before no longer counts. */
static void not_beside_a_change(void **unused)
{
    static const uint32_t slow[] = {10000, 10000, 16000};
    struct world world;

    (void)unused;
    train(&world, slow, 3, true);
    wait(&world, WATCH_MS - 1000);
    world_wish(&world, JOB, world_want, 4);
    world_add_node(&world, "b", 1);
    world_decide(&world);
    assert_non_null(world_next(&world, JOB));
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    world_rounds(&world, 5);
    assert_null(world_next(&world, JOB));
    assert_int_equal(world_active(&world, JOB)->n_members, 4);
    wait(&world, WATCH_MS - 1000);
    expect(&world, 0, 0);
    wait(&world, 1000);
    expect(&world, 1, 0);
    world_end(&world);
}

/* Shares even the slowness out, and it is reported all the same, once. */
static void shares_do_not_hide_it(void **unused)
{
    static const uint32_t slow[] = {10000, 10000, 10000, 40000};
    struct world world;

    (void)unused;
    train(&world, slow, 4, false);
    wait(&world, WATCH_MS);
    expect(&world, 1, 0);
    world_progress(&world, JOB, WORLD_BALANCE_STEPS);
    world_decide(&world);
    assert_string_equal(world_next(&world, JOB)->cause, "balance");
    world_rounds(&world, 5);
    assert_true(world_event(&world, "balanced"));
    wait(&world, 2 * WATCH_MS);
    expect(&world, 1, 0);
    assert_non_null(rb_straggler_told(world_state(&world, JOB), "a", 3));
    world_end(&world);
}

/* A straggler that leaves is over, and its device starts afresh; one that was seen but not reported
 * leaves without an event. */
static void over_for_who_leaves(void **unused)
{
    static const uint32_t slow[] = {10000, 10000, 10000, 40000};
    const char *text = "";
    struct world world;

    (void)unused;
    train(&world, slow, 4, true);
    wait(&world, WATCH_MS);
    expect(&world, 1, 0);
    world_kill(&world, world_worker(&world, JOB, "a", 3));
    world_rounds(&world, 10);
    assert_int_equal(events(&world, "straggler-over", &text), 1);
    assert_string_equal(text, "a:3 no longer trains beside others of its kind");
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    world_end(&world);

    train(&world, slow, 4, true);
    world_wish(&world, JOB, world_pause, 1);
    world_rounds(&world, 20);
    assert_int_equal(world_state(&world, JOB)->phase, RB__PHASE__Paused);
    wait(&world, WATCH_MS);
    expect(&world, 0, 0);
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    world_end(&world);

    train(&world, slow, 4, true);
    wait(&world, WATCH_MS);
    world_wish(&world, JOB, world_cancel, 1);
    world_rounds(&world, 5);
    expect(&world, 1, 0); /* a job that is over reports nothing */
    assert_int_equal(world_state(&world, JOB)->n_stragglers, 0);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_when_it_lasts),        cmocka_unit_test(not_told_when_it_passes),
        cmocka_unit_test(told_once_where_it_hovers), cmocka_unit_test(limits),
        cmocka_unit_test(not_beside_a_change),       cmocka_unit_test(shares_do_not_hide_it),
        cmocka_unit_test(over_for_who_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
