/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/recovery.h"

#include "base/arena.h"
#include "worker/state/state.h"

#include <stdlib.h>

/* The last configuration that any rank with state has opened. */
static uint32_t last_opened(const struct rb_testimony *testimonies, uint32_t ranks)
{
    uint32_t last = 0;

    for (uint32_t r = 0; r < ranks; r++)
        if (testimonies[r].level >= 0 && testimonies[r].opened > last)
            last = testimonies[r].opened;
    return last;
}

/* The level that a rank comes to by itself. */
static int64_t reach(const struct rb_testimony *one, uint32_t opened)
{
    if (one->level < 0)
        return -1;
    return one->ran >= opened ? one->level + one->lap : one->level;
}

/* The lowest rank at the level, with a lap that leads to it or without.  tells: the lowest of the
 * ranks that can tell what led to it. */
static int find(const struct rb_testimony *testimonies, uint32_t ranks, int64_t level, bool tells)
{
    uint32_t opened = last_opened(testimonies, ranks);

    for (uint32_t r = 0; r < ranks; r++)
        if (testimonies[r].level == level ? !tells || testimonies[r].entry
                                          : !tells && reach(&testimonies[r], opened) == level)
            return (int)r;
    return RB_RECOVERY_NOBODY;
}

static enum rb_fate fate_of(const struct rb_testimony *one, int64_t level, uint32_t entry,
                            uint32_t opened)
{
    if (level < 0)
        return RB_FATE_VOID;
    if (one->level == level)
        return RB_FATE_LEVEL;
    if (reach(one, opened) == level)
        return RB_FATE_APPLIES;
    if (one->level >= 0 && one->level == level - 1 && entry && one->reduced == entry)
        return RB_FATE_APPLIES;
    return RB_FATE_VOID;
}

bool rb_recovery_has(const struct rb_recovery *recovery, const uint8_t *held, uint32_t rank,
                     size_t block)
{
    uint8_t how = held[rank * recovery->blocks + block];

    switch (recovery->fates[rank]) {
    case RB_FATE_LEVEL:
        return how != RB_HELD_NOT;
    case RB_FATE_APPLIES:
        return rb_held_follows(how);
    default:
        return false;
    }
}

uint8_t rb_recovery_held(uint8_t before, bool shall_hold, bool undecided)
{
    if (!before && !shall_hold)
        return RB_HELD_NOT;
    return undecided && !rb_held_follows(before) ? RB_HELD_LINGERS : RB_HELD;
}

bool rb_recovery_gains(const uint8_t *held, const uint8_t *shall_hold, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        if (shall_hold[b] && !rb_held_follows(held[b]))
            return true;
    return false;
}

static int giver_of(const struct rb_recovery *recovery, const uint8_t *held, size_t block)
{
    for (uint32_t r = 0; r < recovery->ranks; r++)
        if (rb_recovery_has(recovery, held, r, block))
            return (int)r;
    return RB_RECOVERY_NOBODY;
}

static void judge_at(const struct rb_testimony *testimonies, const uint8_t *held, uint32_t ranks,
                     size_t blocks, int64_t level, struct rb_recovery *ret_recovery)
{
    struct rb_recovery recovery = {.level = level, .blocks = blocks, .ranks = ranks, .lost = -1};
    uint32_t entry, opened = last_opened(testimonies, ranks);

    recovery.source = find(testimonies, ranks, recovery.level, false);
    recovery.teller = find(testimonies, ranks, recovery.level, true);
    entry = recovery.teller >= 0 ? testimonies[recovery.teller].entry : 0;
    recovery.fates = rb_alloc(ranks * sizeof *recovery.fates);
    recovery.givers = rb_alloc((blocks + 1) * sizeof *recovery.givers);
    for (uint32_t r = 0; r < ranks; r++)
        recovery.fates[r] = fate_of(&testimonies[r], recovery.level, entry, opened);
    for (size_t b = 0; b < blocks; b++) {
        recovery.givers[b] = giver_of(&recovery, held, b);
        if (recovery.givers[b] < 0 && recovery.lost < 0)
            recovery.lost = (int64_t)b;
    }
    *ret_recovery = recovery;
}

/* The highest level that ranks have come to, with their laps or without. */
static int64_t highest(const struct rb_testimony *testimonies, uint32_t ranks, bool laps)
{
    uint32_t opened = last_opened(testimonies, ranks);
    int64_t level = -1;

    for (uint32_t r = 0; r < ranks; r++) {
        int64_t one = laps ? reach(&testimonies[r], opened) : testimonies[r].level;

        if (one > level)
            level = one;
    }
    return level;
}

/* Did some rank vote for the step to `level` without hearing what came of it? */
static bool is_undecided(const struct rb_testimony *testimonies, uint32_t ranks, int64_t level)
{
    for (uint32_t r = 0; r < ranks; r++)
        if (testimonies[r].level >= 0 && testimonies[r].level == level - 1 &&
            testimonies[r].reduced)
            return true;
    return false;
}

/* A level below the judged one that is better if all of the state is there; -1: none is. */
static int64_t fallback(const struct rb_testimony *testimonies, const struct rb_recovery *judged)
{
    int64_t committed = highest(testimonies, judged->ranks, false);

    if (committed < judged->level) /* a lap leads to it */
        return judged->lost >= 0 ? committed : -1;
    if (judged->lost >= 0 ||
        (judged->teller < 0 && is_undecided(testimonies, judged->ranks, judged->level)))
        return judged->level - 1;
    return -1;
}

void rb_recovery_judge(const struct rb_testimony *testimonies, const uint8_t *held, uint32_t ranks,
                       size_t blocks, struct rb_recovery *ret_recovery)
{
    struct rb_recovery below;
    int64_t lower;

    judge_at(testimonies, held, ranks, blocks, highest(testimonies, ranks, true), ret_recovery);
    lower = fallback(testimonies, ret_recovery);
    if (lower < 0)
        return;
    judge_at(testimonies, held, ranks, blocks, lower, &below);
    if (below.lost < 0) {
        rb_recovery_done(ret_recovery);
        *ret_recovery = below;
    } else {
        rb_recovery_done(&below);
    }
}

void rb_recovery_done(struct rb_recovery *recovery)
{
    free(recovery->fates);
    free(recovery->givers);
    *recovery = (struct rb_recovery){.level = -1, .lost = -1};
}
