/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are taken for a configuration to come: which rank is asked for what, and when all is
 * taken; that a rank that took a block is given its sums; and when leavers are not needed. */
#include "worker/join/taking.h"

#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "plan/replicas.h"
#include "worker/join/recovery.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, PARTS = 40, ELEMENTS = 100 };

/* A state of PARTS blocks, which are more than a tiny model has, with a gap between any two. */
struct world {
    Rb__Model *message;
    Rb__Plan *plan;
    struct rb_model model;
    struct rb_configuration active, next;
    uint8_t wants[PARTS];
};

static void cut_finely(Rb__Model *message)
{
    for (size_t b = 0; b < message->n_blocks; b++)
        free(message->blocks[b]);
    message->n_blocks = PARTS;
    message->blocks = rb_realloc(message->blocks, PARTS * sizeof *message->blocks);
    for (size_t b = 0; b < PARTS; b++) {
        message->blocks[b] = rb_alloc(sizeof(Rb__Block));
        rb__block__init(message->blocks[b]);
        message->blocks[b]->first = b * (ELEMENTS + 3);
        message->blocks[b]->count = ELEMENTS;
    }
}

static void open_world(struct world *world, uint32_t copies, uint32_t rank)
{
    static const struct tiny_options job = {
        .samples = 40, .global_batch = 8, .micro_batch = 2, .steps = 1, .hidden = 1 << 10};

    *world = (struct world){.message = tiny_model("/tmp", &job)};
    cut_finely(world->message);
    world->plan = tiny_plan(world->message, RANKS);
    rb_replicas_place(&(struct rb_replicas){copies, PARTS, RANKS, NULL}, world->message,
                      world->plan);
    world->model.message = world->message;
    assert_int_equal(rb_state_open(world->message, NULL, &world->model.state, NULL), 0);
    assert_int_equal(rb_placement_make(world->plan, world->message, &world->active.placement, NULL),
                     0);
    world->active.rank = rank;
    world->active.size = RANKS;
    world->next.wants = world->wants;
    memcpy(world->model.state.held, world->active.placement.holds + rank * PARTS, PARTS);
}

static void close_world(struct world *world)
{
    rb_state_done(&world->model.state);
    rb_placement_done(&world->active.placement);
    rb__plan__free_unpacked(world->plan, NULL);
    rb__model__free_unpacked(world->message, NULL);
}

static struct rb_vote_ready say(struct world *world, size_t bytes)
{
    struct rb_vote_ready ready = {0};

    rb_taking_say(&world->model, &world->active, &world->next, bytes, &ready);
    return ready;
}

/* What all ranks note after the step, except for the bytes. */
static void take(struct world *world, const struct rb_vote_ready *ready)
{
    rb_placement_take(&world->active.placement, world->message, world->active.rank,
                      ready->takes_first, ready->takes);
    memset(world->model.state.held + ready->takes_first, RB_HELD_TAKEN, ready->takes);
}

/* Bit r of each element: rank r is given its sum. */
static void assert_summed_where_held(const struct world *world)
{
    const struct rb_placement *placement = &world->active.placement;
    size_t n = PARTS * (ELEMENTS + 3);
    RB_CLEANUP(rb_freep) uint8_t *counts = rb_alloc(n);
    RB_CLEANUP(rb_freep)
    struct rb_coll_range *ranges = rb_alloc(rb_placement_most(placement) * sizeof *ranges);

    for (size_t first = 0; first < n; first += 777) {
        size_t k = rb_placement_ranges(placement, first, n - first < 777 ? n - first : 777, ranges);

        for (size_t i = 0; i < k; i++)
            for (size_t e = 0; e < ranges[i].count; e++)
                counts[ranges[i].first + e] += ranges[i].rank == (int)world->active.rank;
    }
    for (size_t b = 0; b < PARTS; b++)
        for (size_t e = 0; e < ELEMENTS; e++)
            assert_int_equal(counts[world->message->blocks[b]->first + e],
                             world->model.state.held[b] != 0);
}

/* All blocks that are wanted are asked for, each once, in runs that one rank can give and that are
 * no longer than allowed; then the taking is complete. */
static void test_all_is_taken(void **state)
{
    static const size_t budgets[] = {1, 3 * 8 * ELEMENTS, 1 << 20};

    (void)state;
    for (uint32_t copies = 1; copies <= 2; copies++)
        for (size_t i = 0; i < RB_COUNT(budgets); i++) {
            struct world world;
            size_t lacked = 0, taken = 0;

            open_world(&world, copies, 2);
            for (size_t b = 0; b < PARTS; b++) {
                world.wants[b] = b % 7 != 0;
                lacked += world.wants[b] && !world.model.state.held[b];
            }
            assert_true(lacked > 0);
            while (!rb_taking_complete(&world.model.state, &world.next)) {
                struct rb_vote_ready ready = say(&world, budgets[i]);
                const struct rb_shard *shard = rb_placement_takable(&world.active.placement, 2,
                                                                    ready.takes_first, ready.takes);

                assert_non_null(shard);
                assert_true(ready.takes == 1 || ready.takes * 8 * ELEMENTS <= budgets[i]);
                for (uint32_t b = ready.takes_first; b < ready.takes_first + ready.takes; b++)
                    assert_true(world.wants[b] && !world.model.state.held[b]);
                take(&world, &ready);
                taken += ready.takes;
                assert_summed_where_held(&world);
            }
            assert_int_equal(taken, lacked);
            assert_int_equal(say(&world, budgets[i]).takes, 0);
            close_world(&world);
        }
}

/* Blocks that are not wanted any more are given up, all at once, and then their sums do not
 * come. */
static void test_given_up(void **state)
{
    struct world world;
    struct rb_vote_ready ready;

    (void)state;
    open_world(&world, 1, 1);
    memset(world.wants, 1, PARTS);
    ready = say(&world, 1 << 20);
    assert_false(ready.gives_up);
    take(&world, &ready);
    world.wants[ready.takes_first] = 0;
    for (size_t b = 0; b < PARTS; b++) /* it has all that it still wants, and is not complete */
        world.wants[b] &= world.model.state.held[b] != RB_HELD_NOT;
    assert_false(rb_taking_complete(&world.model.state, &world.next));
    ready = say(&world, 1 << 20);
    assert_true(ready.gives_up && !ready.takes);
    ready = (struct rb_vote_ready){0};
    rb_taking_say(&world.model, &world.active, NULL, 1 << 20, &ready);
    assert_true(ready.gives_up);
    rb_placement_give_up(&world.active.placement, 1);
    rb_state_hold(&world.model.state, world.message, world.active.placement.holds + PARTS);
    assert_summed_where_held(&world);
    ready = (struct rb_vote_ready){0};
    rb_taking_say(&world.model, &world.active, NULL, 1 << 20, &ready);
    assert_false(ready.gives_up);
    assert_true(rb_taking_complete(&world.model.state, NULL));
    close_world(&world);
}

/* Newcomers are given taken blocks once these are said to stay for them, and held blocks in any
 * case. */
static void test_given_on(void **state)
{
    struct world world;
    struct rb_vote_ready ready;

    (void)state;
    open_world(&world, 1, 1);
    world.next.number = 7;
    memset(world.wants, 1, PARTS);
    ready = say(&world, 1 << 20);
    take(&world, &ready);
    assert_int_equal(rb_taking_stays_for(&world.model.state, &world.next), 7);
    assert_int_equal(rb_taking_stays_for(&world.model.state, NULL), 0);
    world.wants[ready.takes_first] = 0;
    assert_int_equal(rb_taking_stays_for(&world.model.state, &world.next), 0);
    assert_true(rb_taking_gives(RB_HELD_TAKEN, 7, 7));
    assert_false(rb_taking_gives(RB_HELD_TAKEN, 0, 7));
    assert_false(rb_taking_gives(RB_HELD_TAKEN, 6, 7));
    assert_true(rb_taking_gives(RB_HELD, 0, 7));
    assert_false(rb_taking_gives(RB_HELD_NOT, 7, 7));
    assert_false(rb_taking_gives(RB_HELD_LINGERS, 7, 7));
    close_world(&world);
}

/* Nonsense from other ranks. */
static void test_takable(void **state)
{
    struct world world;
    const struct rb_placement *placement = &world.active.placement;
    const struct rb_shard *shard;

    (void)state;
    open_world(&world, 1, 0);
    shard = &placement->shards[1];
    assert_ptr_equal(rb_placement_takable(placement, 0, shard->first_block, shard->n_blocks),
                     shard);
    assert_null(rb_placement_takable(placement, 1, shard->first_block, 1)); /* its own */
    assert_null(rb_placement_takable(placement, 0, shard->first_block, shard->n_blocks + 1));
    assert_null(rb_placement_takable(placement, 0, shard->first_block, SIZE_MAX));
    assert_null(rb_placement_takable(placement, 0, shard->first_block, 0));
    assert_null(rb_placement_takable(placement, 3, PARTS, 1));
    close_world(&world);
}

/* A shard whose ranks leave needs no heir once a stayer took all of it. */
static void test_heirs(void **state)
{
    static const bool stays[RANKS] = {true, false, true, true};
    struct world world;
    struct rb_placement *placement = &world.active.placement;
    const struct rb_shard *shard;

    (void)state;
    open_world(&world, 1, 0);
    shard = &placement->shards[1];
    assert_true(rb_placement_heir(placement, stays, 1) >= 0);
    assert_int_equal(rb_placement_heir(placement, stays, 0), -1);
    rb_placement_take(placement, world.message, 3, shard->first_block, shard->n_blocks - 1);
    assert_true(rb_placement_heir(placement, stays, 1) >= 0);
    rb_placement_take(placement, world.message, 0, shard->first_block + shard->n_blocks - 1, 1);
    assert_int_equal(rb_placement_heir(placement, stays, 1), -1);
    rb_placement_give_up(placement, 0);
    assert_true(rb_placement_heir(placement, stays, 1) >= 0);
    rb_placement_take(placement, world.message, 3, shard->first_block + shard->n_blocks - 1, 1);
    assert_int_equal(placement->n_taken, 1); /* neighbouring runs are one */
    assert_int_equal(rb_placement_heir(placement, stays, 1), -1);
    close_world(&world);
}

/* A rank that took the end of one shard and the start of the next is given the weights of
 * neither. */
static void test_gifts(void **state)
{
    struct world world;
    struct rb_placement *placement = &world.active.placement;
    RB_CLEANUP(rb_freep) struct rb_coll_move *moves = NULL;
    const struct rb_shard *shard;
    float weights[1];
    size_t n;

    (void)state;
    open_world(&world, 1, 0);
    shard = &placement->shards[1];
    rb_placement_take(placement, world.message, 0, shard->first_block + shard->n_blocks - 2, 2);
    rb_placement_take(placement, world.message, 0, shard[1].first_block, 3);
    assert_int_equal(placement->n_taken, 1);
    moves = rb_alloc(rb_placement_gifts(placement) * sizeof *moves);
    n = rb_placement_spread(placement, weights, moves);
    for (size_t i = 0; i < n; i++) {
        size_t first = (size_t)((float *)moves[i].bytes - weights);

        if (moves[i].to == 0)
            assert_true(first + moves[i].size / sizeof *weights <= placement->taken[0].first ||
                        first >= placement->taken[0].first + placement->taken[0].count);
    }
    close_world(&world);
}

/* Around a flip: blocks that were taken stay; blocks that others hold now linger, and are of use to
 * others at this level alone. */
static void test_flip(void **state)
{
    struct rb_testimony two[] = {{.level = 9, .entry = 1}, {.level = 8, .reduced = 1}};
    uint8_t holds[PARTS] = {0}, held[2 * PARTS];
    struct rb_recovery recovery;
    struct rb_why why = {0};
    struct world world;
    struct rb_vote_ready taking = {.takes_first = 30, .takes = 10};

    (void)state;
    open_world(&world, 1, 0); /* blocks 0..9 */
    memset(holds + 5, 1, 35);
    assert_int_equal(rb_model_shift(&world.model, holds, &why), RB_EINTERNAL);
    close_world(&world);

    open_world(&world, 1, 0);
    take(&world, &taking);
    memset(holds, 0, PARTS);
    memset(holds + 5, 1, 5);
    memset(holds + 30, 1, 10);
    assert_int_equal(rb_model_shift(&world.model, holds, &why), 0);
    for (size_t b = 0; b < PARTS; b++)
        assert_int_equal(world.model.state.held[b], holds[b] ? RB_HELD
                                                    : b < 10 ? RB_HELD_LINGERS
                                                             : RB_HELD_NOT);
    memset(held, RB_HELD_NOT, sizeof held);
    memcpy(held + PARTS, world.model.state.held, PARTS);
    for (int64_t ahead = 0; ahead <= 1; ahead++) {
        two[0].level = 8 + ahead;
        rb_recovery_judge(two, held, 2, PARTS, &recovery);
        assert_int_equal(recovery.fates[1], ahead ? RB_FATE_APPLIES : RB_FATE_LEVEL);
        assert_int_equal(recovery.givers[0], ahead ? -1 : 1);
        assert_int_equal(recovery.givers[7], 1);
        assert_int_equal(recovery.givers[35], 1);
        rb_recovery_done(&recovery);
    }
    close_world(&world);
}

/* A taking costs the same part of a step, however long a step is. */
static void test_pace(void **state)
{
    size_t bytes = RB_TAKING_LEAST;

    (void)state;
    for (int i = 0; i < 40; i++) /* 1 GB/s, steps of 100 ms */
        bytes = rb_taking_pace(bytes, bytes, 100000000);
    assert_in_range(bytes, 100000000 / 32, 100000000 / 8 + RB_TAKING_LEAST);
    for (int i = 0; i < 40; i++)
        bytes = rb_taking_pace(bytes, 1 << 30, 100000000);
    assert_int_equal(bytes, RB_TAKING_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_taken), cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_given_on),     cmocka_unit_test(test_takable),
        cmocka_unit_test(test_heirs),        cmocka_unit_test(test_gifts),
        cmocka_unit_test(test_flip),         cmocka_unit_test(test_pace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
