/* SPDX-License-Identifier: Apache-2.0 */
/* Which source feeds which newcomer, what a log entry covers, and when a newcomer is level. */
#include "worker/join/roster.h"

#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void test_roles(void **state)
{
    static const struct rb_role grown[] = {{7, 0}, {0, 1}, {7, 0}, {0, 1}, {0, 1}};
    static const struct rb_role shrunk[] = {{7, 0}, {7, 0}};
    static const struct rb_role start[] = {{0, 1}, {0, 1}};
    static const struct rb_role crash[] = {{0, 0}, {0, 1}};
    static const struct rb_role half[] = {{7, 0}, {0, 0}};
    static const struct rb_role torn[] = {{7, 0}, {8, 0}, {0, 1}};
    struct rb_roster roster = {0};

    (void)state;
    assert_true(rb_roster_make(grown, 5, NULL, NULL, 0, &roster));
    assert_int_equal(roster.n_sources, 2);
    assert_int_equal(roster.n_newcomers, 3);
    assert_int_equal(rb_roster_source(&roster, 2), 1);
    assert_int_equal(rb_roster_source(&roster, 1), -1);
    assert_int_equal(rb_roster_newcomer(&roster, 4), 2);
    assert_int_equal(rb_roster_newcomer(&roster, 0), -1);
    rb_roster_done(&roster);
    assert_true(rb_roster_make(shrunk, 2, NULL, NULL, 0, &roster));
    assert_int_equal(roster.n_newcomers, 0);
    rb_roster_done(&roster);
    assert_false(rb_roster_make(start, 2, NULL, NULL, 0, &roster)); /* no member has state */
    assert_false(rb_roster_make(crash, 2, NULL, NULL, 0, &roster)); /* it has, but does not train */
    assert_false(
        rb_roster_make(half, 2, NULL, NULL, 0, &roster)); /* an old state, of whatever level */
    assert_false(rb_roster_make(torn, 3, NULL, NULL, 0, &roster)); /* amid a flip */
    assert_null(roster.sources);
}

static void make(uint32_t sources, uint32_t newcomers, size_t blocks, struct rb_roster *ret_roster)
{
    struct rb_role roles[32] = {0};

    for (uint32_t r = 0; r < sources + newcomers; r++)
        roles[r] = r < sources ? (struct rb_role){.term = 1} : (struct rb_role){.fresh = 1};
    assert_true(rb_roster_make(roles, sources + newcomers, NULL, NULL, blocks, ret_roster));
}

/* Each block comes to each newcomer once, in order; shares differ by at most one, and newcomers
 * begin with different sources. */
static void test_shares(void **state)
{
    (void)state;
    for (uint32_t sources = 1; sources <= 7; sources++)
        for (uint32_t newcomers = 1; newcomers <= 9; newcomers++)
            for (size_t blocks = 0; blocks < 20; blocks++) {
                struct rb_roster roster;

                make(sources, newcomers, blocks, &roster);
                for (uint32_t i = 0; i < newcomers; i++) {
                    size_t given[20] = {0}, total = 0;

                    assert_int_equal(rb_roster_other(&roster, i), i % sources);
                    for (uint32_t s = 0; s < sources; s++) {
                        size_t count = 0;

                        for (size_t b = rb_roster_next(&roster, s, i, 0); b < blocks;
                             b = rb_roster_next(&roster, s, i, b + 1)) {
                            assert_int_equal(s, (b + i) % sources);
                            given[b]++;
                            count++;
                        }
                        assert_in_range(count, blocks / sources, (blocks + sources - 1) / sources);
                        total += count;
                    }
                    assert_int_equal(total, blocks);
                    for (size_t b = 0; b < blocks; b++) {
                        assert_int_equal(given[b], 1);
                        assert_int_equal(roster.heirs[b], -1);
                    }
                }
                rb_roster_done(&roster);
            }
}

/* Parts of the state: a block comes from a source that holds it, and all holders have their turn.
 * A block that only leavers hold has one heir, which gives it to all newcomers; the heir is a
 * source that shall hold the block, if there is one. */
static void test_parts(void **state)
{
    enum { SIZE = 6, BLOCKS = 30 };
    static const struct rb_role roles[SIZE] = {{.term = 3}, {.fresh = 1}, {.term = 3},
                                               {.term = 3}, {.fresh = 1}, {.fresh = 1}};
    uint64_t seed = 11;

    (void)state;
    for (int round = 0; round < 300; round++) {
        uint8_t held[SIZE * BLOCKS] = {0}, shall[SIZE * BLOCKS] = {0};
        struct rb_roster roster;

        for (size_t i = 0; i < SIZE * BLOCKS; i++) {
            held[i] = roles[i / BLOCKS].term && draw(&seed) % 3 == 0;
            shall[i] = draw(&seed) % 3 == 0;
        }
        assert_true(rb_roster_make(roles, SIZE, held, shall, BLOCKS, &roster));
        for (size_t b = 0; b < BLOCKS; b++) {
            bool any = false, can = false;
            unsigned used = 0, holders = 0;

            for (uint32_t s = 0; s < roster.n_sources; s++) {
                any |= held[roster.sources[s] * BLOCKS + b] != 0;
                can |= shall[roster.sources[s] * BLOCKS + b] != 0;
                holders += held[roster.sources[s] * BLOCKS + b];
            }
            assert_int_equal(roster.heirs[b] < 0, any);
            if (!any)
                assert_true(!can || shall[roster.sources[roster.heirs[b]] * BLOCKS + b]);
            for (uint32_t i = 0; i < roster.n_newcomers; i++) {
                uint32_t giver = roster.givers[i * BLOCKS + b];

                assert_true(giver < roster.n_sources);
                if (any)
                    assert_true(held[roster.sources[giver] * BLOCKS + b]);
                else
                    assert_int_equal(giver, roster.heirs[b]);
                used |= 1u << giver;
            }
            if (any) /* there are at most as many newcomers as sources */
                assert_int_equal(__builtin_popcount(used), holders);
        }
        rb_roster_done(&roster);
    }
}

static void test_level(void **state)
{
    struct rb_stream streams[3] = {{-1, 2}, {5, 0}, {6, 0}};

    (void)state;
    assert_int_equal(rb_stream_level(streams, 3), -1);
    streams[0] = (struct rb_stream){7, 1};
    assert_int_equal(rb_stream_level(streams, 3), -1); /* a block is still to come */
    streams[0].missing = 0;
    assert_int_equal(rb_stream_level(streams, 3), 5); /* the slowest stream's */
    streams[1].level = 8;
    assert_int_equal(rb_stream_level(streams, 3), 6);
    streams[2] = (struct rb_stream){-1, 0}; /* a source without a share has not spoken yet */
    assert_int_equal(rb_stream_level(streams, 3), -1);
    assert_int_equal(rb_stream_level(NULL, 0), -1);
}

/* Streams of blocks and entries in any interleaving: by the rule of what an entry covers, every
 * block takes every step after its copy exactly once, and the level that a newcomer would
 * acknowledge is that of all its blocks. */
static void test_log(void **state)
{
    enum { BLOCKS = 23, STEPS = 40 };
    uint64_t seed = 5;

    (void)state;
    for (int round = 0; round < 300; round++) {
        uint32_t sources = 1 + draw(&seed) % 5, newcomer = draw(&seed) % 4;
        struct rb_stream streams[5];
        size_t next[5];
        int64_t level[BLOCKS];
        struct rb_roster roster;
        int64_t trained = 100;

        make(sources, 4, BLOCKS, &roster);
        memset(level, -1, sizeof level);
        for (uint32_t s = 0; s < sources; s++) {
            next[s] = rb_roster_next(&roster, s, newcomer, 0);
            streams[s] = (struct rb_stream){.level = trained};
            for (size_t b = next[s]; b < BLOCKS; b = rb_roster_next(&roster, s, newcomer, b + 1))
                streams[s].missing++;
        }
        while (trained < 100 + STEPS || rb_stream_level(streams, sources) < trained) {
            uint32_t s = draw(&seed) % sources;
            int64_t said;

            if (trained < 100 + STEPS && draw(&seed) % 3 == 0)
                trained++; /* a commit: an entry in the queue of each source */
            if (streams[s].level < trained) {
                streams[s].level++;
                for (size_t b = rb_roster_next(&roster, s, newcomer, 0); b < next[s];
                     b = rb_roster_next(&roster, s, newcomer, b + 1))
                    assert_int_equal(++level[b], streams[s].level);
            } else if (next[s] < BLOCKS) { /* the queue is empty: a copy is at the stream's level */
                level[next[s]] = trained;
                next[s] = rb_roster_next(&roster, s, newcomer, next[s] + 1);
                streams[s].missing--;
            }
            said = rb_stream_level(streams, sources);
            for (size_t b = 0; said >= 0 && b < BLOCKS; b++)
                assert_true(level[b] >= said);
        }
        for (size_t b = 0; b < BLOCKS; b++)
            assert_int_equal(level[b], 100 + STEPS);
        rb_roster_done(&roster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles), cmocka_unit_test(test_shares), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_level), cmocka_unit_test(test_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
