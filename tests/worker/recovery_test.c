/* SPDX-License-Identifier: Apache-2.0 */
/* Every way in which deaths can tear a step, for up to four ranks and each number of replicas, and
 * a second death while the others recover from the first: nothing is lost that a survivor holds,
 * and no rank takes a block of one level for another. */
#include "worker/join/recovery.h"

#include "worker/state/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4, ATTEMPT = 3 };

/* How far a rank is in the step from level 0 to level 1. */
enum stage { COMPUTING, VOTED, COMMITTED, GATHERED, STAGES };

struct world {
    uint32_t ranks, copies;
    enum stage stage[MOST];
    bool dead[MOST];
};

/* Block b has rank b as its primary, and the ranks after it as its other holders. */
static bool holds(const struct world *world, uint32_t rank, uint32_t block)
{
    return (rank + world->ranks - block) % world->ranks < world->copies;
}

/* A rank that knows the decision has the records of all; a rank that has gathered has weights of
 * primaries that committed. */
static bool is_possible(const struct world *world)
{
    bool committed = false, all_voted = true;

    for (uint32_t r = 0; r < world->ranks; r++) {
        committed |= world->stage[r] >= COMMITTED;
        all_voted &= world->stage[r] >= VOTED;
        for (uint32_t b = 0; world->stage[r] == GATHERED && b < world->ranks; b++)
            if (!holds(world, r, b) && world->stage[b] < COMMITTED)
                return false;
    }
    return !committed || all_voted;
}

/* The level of a rank, and so of each block that it holds. */
static int64_t level_of(const struct world *world, uint32_t rank)
{
    return world->stage[rank] >= COMMITTED;
}

static uint32_t testify(const struct world *world, struct rb_testimony *testimonies, uint8_t *held,
                        uint32_t *ret_was)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < world->ranks; r++) {
        if (world->dead[r])
            continue;
        testimonies[n] = (struct rb_testimony){
            .level = level_of(world, r),
            .reduced = world->stage[r] == VOTED ? 1 + ATTEMPT : 0,
            .entry = world->stage[r] >= COMMITTED ? 1 + ATTEMPT : 0,
            .torn = world->stage[r] == COMMITTED,
        };
        for (uint32_t b = 0; b < world->ranks; b++)
            held[n * world->ranks + b] = holds(world, r, b);
        ret_was[n++] = r;
    }
    return n;
}

static bool survives(const struct world *world, uint32_t block)
{
    for (uint32_t r = 0; r < world->ranks; r++)
        if (!world->dead[r] && holds(world, r, block))
            return true;
    return false;
}

/* Check that the survivors' judgement is right.  Returns the ranks that apply, as a bit set. */
static unsigned check(const struct world *world)
{
    struct rb_testimony testimonies[MOST];
    uint8_t held[MOST * MOST];
    uint32_t was[MOST];
    uint32_t n = testify(world, testimonies, held, was);
    struct rb_recovery recovery;
    int64_t level = 0, lost = -1;
    unsigned apply = 0;

    if (!n)
        return 0;
    rb_recovery_judge(testimonies, held, n, world->ranks, &recovery);
    for (uint32_t r = 0; r < n; r++)
        level = level_of(world, was[r]) > level ? level_of(world, was[r]) : level;
    assert_int_equal(recovery.level, level);
    for (uint32_t r = 0; r < n; r++) {
        enum stage stage = world->stage[was[r]];
        bool behind = level_of(world, was[r]) < level;

        /* A rank that is behind can always follow: it has voted, or no rank could be ahead. */
        assert_int_equal(recovery.fates[r], behind ? RB_FATE_APPLIES : RB_FATE_LEVEL);
        assert_true(!behind || stage == VOTED);
        apply |= behind ? 1u << was[r] : 0;
    }
    for (uint32_t b = world->ranks; b-- > 0;) {
        assert_int_equal(recovery.givers[b] >= 0, survives(world, b));
        if (recovery.givers[b] < 0)
            lost = b;
        else
            assert_true(holds(world, was[recovery.givers[b]], b));
    }
    assert_int_equal(recovery.lost, lost);
    assert_true(!apply || testimonies[recovery.teller].level == level);
    rb_recovery_done(&recovery);
    return apply;
}

static void kill_some(struct world *world, unsigned set)
{
    for (uint32_t r = 0; r < world->ranks; r++)
        world->dead[r] |= (set >> r & 1) != 0;
}

/* Deaths, and further deaths while some of the ranks that are told of the entry have applied it. */
static unsigned long die(const struct world *start)
{
    unsigned long n = 0;
    unsigned all = 1u << start->ranks;

    for (unsigned first = 0; first < all; first++) {
        struct world torn = *start;
        unsigned apply;

        kill_some(&torn, first);
        apply = check(&torn);
        for (unsigned applied = apply;; applied = (applied - 1) & apply) {
            for (unsigned second = 0; second < all; second++, n++) {
                struct world again = torn;

                for (uint32_t r = 0; r < again.ranks; r++)
                    if (applied >> r & 1)
                        again.stage[r] = COMMITTED;
                kill_some(&again, second);
                check(&again);
            }
            if (!applied)
                break;
        }
    }
    return n;
}

static void test_every_moment(void **state)
{
    unsigned long n = 0;

    (void)state;
    for (uint32_t ranks = 2; ranks <= MOST; ranks++)
        for (uint32_t copies = 1; copies <= ranks; copies++) {
            struct world world = {.ranks = ranks, .copies = copies};
            unsigned ways = 1;

            for (uint32_t r = 0; r < ranks; r++)
                ways *= STAGES;
            for (unsigned way = 0; way < ways; way++) {
                for (uint32_t r = 0, rest = way; r < ranks; r++, rest /= STAGES)
                    world.stage[r] = rest % STAGES;
                if (is_possible(&world))
                    n += die(&world);
            }
        }
    assert_true(n > 10000);
}

/* One block each, held by every rank unless a test says otherwise. */
static struct rb_recovery judge(const struct rb_testimony *testimonies, uint32_t ranks,
                                uint8_t *held)
{
    struct rb_recovery recovery;

    rb_recovery_judge(testimonies, held, ranks, 1, &recovery);
    return recovery;
}

static void test_old_and_fresh(void **state)
{
    struct rb_testimony three[] = {{.level = -1}, {.level = 7}, {.level = 9}};
    uint8_t held[] = {0, 1, 1};
    struct rb_recovery recovery = judge(three, 3, held);

    (void)state;
    assert_int_equal(recovery.level, 9);
    assert_int_equal(recovery.source, 2);
    assert_int_equal(recovery.teller, RB_RECOVERY_NOBODY);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    assert_int_equal(recovery.fates[1], RB_FATE_VOID);
    assert_int_equal(recovery.givers[0], 2);
    rb_recovery_done(&recovery);
    held[2] = 0; /* what rank 1 holds is too old to be of use */
    recovery = judge(three, 3, held);
    assert_int_equal(recovery.lost, 0);
    rb_recovery_done(&recovery);
}

static void test_other_attempts(void **state)
{
    struct rb_testimony two[] = {{.level = 5, .entry = 2}, {.level = 4, .reduced = 1}};
    uint8_t held[] = {1, 1};
    struct rb_recovery recovery = judge(two, 2, held);

    (void)state;
    assert_int_equal(recovery.fates[1], RB_FATE_VOID);
    rb_recovery_done(&recovery);
    two[1].reduced = 2;
    recovery = judge(two, 2, held);
    assert_int_equal(recovery.fates[1], RB_FATE_APPLIES);
    rb_recovery_done(&recovery);
}

/* Rank 0 was given its level by a rank that is dead, and rank 1 voted with that rank: which of the
 * two goes by the other depends on whether rank 1 has all blocks. */
static void test_given_and_undecided(void **state)
{
    struct rb_testimony two[] = {{.level = 5}, {.level = 4, .reduced = 1}};
    uint8_t held[] = {RB_HELD, RB_HELD_LINGERS};
    struct rb_recovery recovery = judge(two, 2, held);

    (void)state;
    assert_int_equal(recovery.level, 4);
    assert_int_equal(recovery.source, 1);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    assert_int_equal(recovery.givers[0], 1);
    rb_recovery_done(&recovery);
    held[1] = RB_HELD_NOT;
    recovery = judge(two, 2, held);
    assert_int_equal(recovery.level, 5);
    assert_int_equal(recovery.givers[0], 0);
    rb_recovery_done(&recovery);
    held[1] = RB_HELD;
    two[1].reduced = 0; /* from an older time */
    recovery = judge(two, 2, held);
    assert_int_equal(recovery.level, 5);
    rb_recovery_done(&recovery);
}

/* Rank 1 voted, lost all others, and was given block 0 in an opening of what was left, which did
 * not come to its end.  Rank 0 is back, and knows the outcome of the vote: rank 1 has no sums of
 * block 0. */
static void test_given_while_undecided(void **state)
{
    static const uint8_t holds[] = {true, true, true};
    struct rb_testimony two[] = {{.level = 5, .entry = 1}, {.level = 4, .reduced = 1}};
    uint8_t held[] = {RB_HELD, RB_HELD, RB_HELD_NOT, RB_HELD_NOT, RB_HELD, RB_HELD};
    struct rb_recovery recovery;

    (void)state;
    for (int b = 0; b < 3; b++)
        held[3 + b] = rb_recovery_held(held[3 + b], true, true);
    assert_true(rb_recovery_gains(held + 3, holds, 3)); /* opening that voids these sums */
    rb_recovery_judge(two, held, 2, 3, &recovery);
    assert_int_equal(recovery.level, 5);
    assert_int_equal(recovery.fates[1], RB_FATE_APPLIES);
    assert_int_equal(recovery.givers[0], 0);
    assert_int_equal(recovery.givers[2], 1);
    assert_int_equal(recovery.lost, -1);
    rb_recovery_done(&recovery);
    held[0] = RB_HELD_NOT; /* rank 1 has all blocks at its own level: that step is taken again */
    rb_recovery_judge(two, held, 2, 3, &recovery);
    assert_int_equal(recovery.level, 4);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    assert_int_equal(recovery.givers[0], 1);
    assert_int_equal(recovery.lost, -1);
    rb_recovery_done(&recovery);
    held[3] = RB_HELD_NOT;
    rb_recovery_judge(two, held, 2, 3, &recovery);
    assert_int_equal(recovery.level, 5);
    assert_int_equal(recovery.lost, 0);
    rb_recovery_done(&recovery);
    assert_int_equal(rb_recovery_held(RB_HELD_TAKEN, false, true), RB_HELD); /* it followed */
    assert_int_equal(rb_recovery_held(RB_HELD_NOT, true, false), RB_HELD);
    assert_int_equal(rb_recovery_held(RB_HELD_NOT, false, false), RB_HELD_NOT);
}

static void test_nobody(void **state)
{
    struct rb_testimony two[] = {{.level = -1}, {.level = -1}};
    uint8_t held[] = {0, 0};
    struct rb_recovery recovery = judge(two, 2, held);

    (void)state;
    assert_int_equal(recovery.level, -1);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    rb_recovery_done(&recovery);
}

/* ---- Laps ------------------------------------------------------------------------------------*/

enum { LAP = 16 };

/* A lap instead of a step: a rank that voted has it whole, and no other needs to tell it. */
static uint32_t testify_of_lap(const struct world *world, struct rb_testimony *testimonies,
                               uint8_t *held)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < world->ranks; r++) {
        if (world->dead[r])
            continue;
        testimonies[n] = (struct rb_testimony){
            .level = world->stage[r] == COMMITTED ? LAP : 0,
            .lap = world->stage[r] == VOTED ? LAP : 0,
        };
        for (uint32_t b = 0; b < world->ranks; b++)
            held[n * world->ranks + b] = holds(world, r, b);
        n++;
    }
    return n;
}

/* Do survivors have all of the state, at the lap's end (voted) or at its beginning? */
static bool have_all(const struct world *world, bool voted)
{
    for (uint32_t b = 0; b < world->ranks; b++) {
        bool found = false;

        for (uint32_t r = 0; r < world->ranks; r++)
            found |= !world->dead[r] && holds(world, r, b) &&
                     (voted ? world->stage[r] >= VOTED : world->stage[r] <= VOTED);
        if (!found)
            return false;
    }
    return true;
}

/* A lap that was reported is never lost, and neither is a state that survivors have between
 * them. */
static void check_lap(const struct world *world)
{
    struct rb_testimony testimonies[MOST];
    struct rb_recovery recovery;
    uint8_t held[MOST * MOST];
    uint32_t n = testify_of_lap(world, testimonies, held);
    bool committed = false;

    if (!n)
        return;
    rb_recovery_judge(testimonies, held, n, world->ranks, &recovery);
    for (uint32_t r = 0; r < world->ranks; r++)
        committed |= world->stage[r] == COMMITTED;
    if (have_all(world, true))
        assert_true(recovery.lost < 0 && recovery.level == LAP);
    else if (have_all(world, false) && !committed)
        assert_true(recovery.lost < 0 && recovery.level == 0);
    else
        assert_true(recovery.lost >= 0);
    for (uint32_t r = 0; r < n && recovery.lost < 0; r++) {
        bool at = testimonies[r].level == recovery.level;
        bool comes = testimonies[r].level + testimonies[r].lap == recovery.level;

        assert_int_equal(recovery.fates[r], at      ? RB_FATE_LEVEL
                                            : comes ? RB_FATE_APPLIES
                                                    : RB_FATE_VOID);
    }
    for (uint32_t b = 0; b < world->ranks && recovery.lost < 0; b++)
        assert_true(recovery.givers[b] >= 0 && held[recovery.givers[b] * world->ranks + b] &&
                    recovery.fates[recovery.givers[b]] != RB_FATE_VOID);
    rb_recovery_done(&recovery);
}

static void test_laps(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= MOST; ranks++)
        for (uint32_t copies = 1; copies <= ranks; copies++)
            for (uint32_t stages = 0; stages < 81; stages++)
                for (uint32_t dead = 0; dead < 1u << ranks; dead++) {
                    struct world world = {.ranks = ranks, .copies = copies};
                    uint32_t rest = stages;

                    for (uint32_t r = 0; r < ranks; r++, rest /= 3) {
                        world.stage[r] = (enum stage)(rest % 3);
                        world.dead[r] = dead >> r & 1;
                    }
                    if (!rest && is_possible(&world))
                        check_lap(&world);
                }
}

/* Rank 0 has a lap of configuration 1 whole, and was out of reach while rank 1 opened configuration
 * 2 and went on in another way: nothing that was committed in 2 is thrown away. */
static void test_stale_laps(void **state)
{
    struct rb_testimony two[] = {{.level = LAP, .lap = 8, .ran = 1, .opened = 1},
                                 {.level = LAP, .opened = 2}};
    uint8_t held[] = {RB_HELD, RB_HELD};
    struct rb_recovery recovery;

    (void)state;
    for (int64_t level = LAP; level <= LAP + 16; level++) {
        two[1].level = level; /* also where the lap would have led: other bits */
        recovery = judge(two, 2, held);
        assert_int_equal(recovery.level, level);
        assert_int_equal(recovery.lost, -1);
        assert_int_equal(recovery.fates[0], level == LAP ? RB_FATE_LEVEL : RB_FATE_VOID);
        assert_int_equal(recovery.fates[1], RB_FATE_LEVEL);
        rb_recovery_done(&recovery);
    }
    two[1] = (struct rb_testimony){.level = LAP, .lap = 8, .ran = 2, .opened = 2};
    two[0].level = LAP; /* both have a lap */
    recovery = judge(two, 2, held);
    assert_int_equal(recovery.level, LAP + 8);
    assert_int_equal(recovery.source, 1);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    assert_int_equal(recovery.fates[1], RB_FATE_APPLIES);
    rb_recovery_done(&recovery);
}

/* Ranks that entered by flips have opened an older configuration, or none at all; and a rank
 * without state has gone on from nothing. */
static void test_laps_that_count(void **state)
{
    struct rb_testimony three[] = {{.level = LAP + 8, .opened = 1},
                                   {.level = LAP, .lap = 8, .ran = 1, .opened = 1},
                                   {.level = LAP, .lap = 8, .ran = 2}};
    uint8_t held[] = {RB_HELD, RB_HELD, RB_HELD};
    struct rb_recovery recovery = judge(three, 3, held);

    (void)state;
    assert_int_equal(recovery.level, LAP + 8);
    assert_int_equal(recovery.fates[0], RB_FATE_LEVEL);
    assert_int_equal(recovery.fates[1], RB_FATE_APPLIES);
    assert_int_equal(recovery.fates[2], RB_FATE_APPLIES);
    rb_recovery_done(&recovery);
    three[0] = (struct rb_testimony){.level = -1, .opened = 9};
    held[0] = RB_HELD_NOT;
    recovery = judge(three, 3, held);
    assert_int_equal(recovery.level, LAP + 8);
    assert_int_equal(recovery.fates[0], RB_FATE_VOID);
    assert_int_equal(recovery.fates[1], RB_FATE_APPLIES);
    assert_int_equal(recovery.fates[2], RB_FATE_APPLIES);
    rb_recovery_done(&recovery);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_moment),
        cmocka_unit_test(test_old_and_fresh),
        cmocka_unit_test(test_other_attempts),
        cmocka_unit_test(test_given_and_undecided),
        cmocka_unit_test(test_given_while_undecided),
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_laps),
        cmocka_unit_test(test_stale_laps),
        cmocka_unit_test(test_laps_that_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
