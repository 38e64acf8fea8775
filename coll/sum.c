/* SPDX-License-Identifier: Apache-2.0 */
/* Sums.  The makers of a range's summands send them to the ranks that add, and those send the sum
 * on:
 *
 * for one rank     that rank adds
 * little, or two   every rank sends everything to every other and adds for itself: one crossing
 * much             every rank adds one segment and sends it on while it grows: two crossings, but
 *                  only twice the vector through each rank's links whatever the size of the group
 * from one rank    nothing is to be added: the maker sends each other rank one segment, which that
 *                  rank passes on while it comes, so the range goes once through the maker's link
 *
 * Two ranks of one host that both make much do as many ranks do with much, because each then adds
 * half: they fetch from each other, or should.
 *
 * A lane takes only so many frames a call, so a long list of ranges is run in rounds.  All ranks
 * have the same list and cut it alike.  In a round summands go in front of all sums, so that no
 * rank waits for others' summands to send its own. */
#include "coll/group.h"

#include "base/arena.h"

#include <string.h>

enum { SMALL = 8 * 1024, LARGE = 256 * 1024, NOBODY = -1 };

/* A range in a round, and which ranks send which frames to which:
 *
 *     for rank t     each maker to t            WHOLE
 *     whole          each maker to everyone     WHOLE
 *     several        each maker to each rank    PART, the segment that the receiver adds
 *                    each rank to everyone      TOTAL, its segment
 *     one, m         m to each other rank       PART, the segment that the receiver passes on
 *                    each other to all but m    TOTAL, its segment
 *     nobody         none: every rank's summands are zeros */
struct way {
    const struct rb_coll_range *range;
    bool whole; /* a rank that adds has all of it; else it has a segment, and sends that on */
    int makers; /* of summands, */
    int only;   /* the only maker, if there is just one */
    struct rb_summing sum;
    const uint64_t *ready; /* bytes of this rank's segment that may be sent on */
};

static bool makes(const struct rb_coll_range *range, int rank)
{
    return !range->from || range->from[rank];
}

static bool adds(const struct way *way, int rank)
{
    if (way->range->rank != RB_COLL_ALL)
        return rank == way->range->rank;
    return way->whole || rank != way->only;
}

/* Is it better that all ranks that are to have the sum add all of it? */
static bool is_whole(const struct rb_coll *coll, const struct way *way)
{
    size_t bytes = 4 * way->range->count;

    if (way->range->rank != RB_COLL_ALL || way->makers == 0 || coll->size == 1)
        return true;
    if (coll->size == 2 && way->makers == 2) /* the kind of a link is the same at both ends */
        return bytes < LARGE || !coll->link[!coll->rank]->ops->reach;
    return bytes <= SMALL;
}

static struct way find_way(const struct rb_coll *coll, const struct rb_coll_range *range)
{
    struct way way = {.range = range, .only = NOBODY};

    for (int r = 0; r < coll->size; r++)
        if (makes(range, r)) {
            way.only = way.makers ? NOBODY : r;
            way.makers++;
        }
    way.whole = is_whole(coll, &way);
    return way;
}

/* The part of the range that `rank` adds; segments are cut at multiples of 16 integers. */
static size_t find_part(const struct rb_coll *coll, const struct way *way, int rank,
                        size_t *ret_count)
{
    size_t n = way->range->count, parts = (size_t)coll->size - (way->only != NOBODY);
    size_t each = way->whole ? n : ((n + parts - 1) / parts + 15) & ~(size_t)15;
    size_t turn = way->whole ? 0 : (size_t)(rank - (way->only != NOBODY && rank > way->only));
    size_t first = each * turn < n ? each * turn : n;

    *ret_count = n - first < each ? n - first : each;
    return way->range->first + first;
}

/* ---- Frames ---------------------------------------------------------------------------------*/

static struct rb_frame new_frame(const struct way *way, enum rb_frame_kind kind, uint64_t tag)
{
    return (struct rb_frame){way->whole ? RB_FRAME_SUM_WHOLE : kind, tag,
                             4 * (uint64_t)way->range->count};
}

static void send_summands(struct rb_coll *coll, uint64_t tag, const int32_t *in,
                          const struct way *way)
{
    struct rb_frame frame = new_frame(way, RB_FRAME_SUM_PART, tag);

    for (int r = 0; r < coll->size; r++) {
        size_t count, first;

        if (r == coll->rank || !adds(way, r))
            continue;
        first = find_part(coll, way, r, &count);
        rb_progress_offer(coll, r, frame, in + first, 4 * count, NULL);
    }
}

/* The range of a single maker only has to arrive. */
static void add_summands(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                         struct way *way)
{
    struct rb_frame frame = new_frame(way, RB_FRAME_SUM_PART, tag);
    size_t count, first = find_part(coll, way, coll->rank, &count);
    int others = 0;

    way->sum = (struct rb_summing){.in = in + first, .out = out + first};
    way->ready = &way->sum.complete;
    for (int r = 0; r < coll->size; r++) {
        if (r == coll->rank || !makes(way->range, r))
            continue;
        if (way->only == r)
            way->ready = rb_progress_receive(coll, r, frame, way->sum.out, 4 * count);
        else
            rb_progress_add(coll, r, frame, &way->sum, 4 * count);
        others++;
    }
    if (!others && count)
        memcpy(way->sum.out, way->sum.in, 4 * count);
}

/* Send this rank's segment to all ranks that have not made it themselves, and receive theirs. */
static void send_sums(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                      const struct way *way)
{
    struct rb_frame frame = new_frame(way, RB_FRAME_SUM_TOTAL, tag);
    size_t count, first = find_part(coll, way, coll->rank, &count);

    if (way->whole)
        return;
    for (int r = 0; r < coll->size; r++) {
        size_t theirs, size;

        if (r == coll->rank)
            continue;
        if (adds(way, coll->rank) && r != way->only)
            rb_progress_offer(coll, r, frame, out + first, 4 * count, way->ready);
        theirs = find_part(coll, way, r, &size);
        if (adds(way, r) && coll->rank != way->only)
            rb_progress_receive(coll, r, frame, out + theirs, 4 * size);
    }
    if (coll->rank == way->only)
        memcpy(out + way->range->first, in + way->range->first, 4 * way->range->count);
}

/* ---- Rounds ---------------------------------------------------------------------------------*/

static int check_range(const struct rb_coll *coll, const struct rb_coll_range *range,
                       struct rb_why *why)
{
    if (range->rank != RB_COLL_ALL && (range->rank < 0 || range->rank >= coll->size))
        return rb_why_set(why, RB_EINVAL, "a sum for rank %d of %d", range->rank, coll->size);
    if (range->count > SIZE_MAX / 8)
        return rb_why_set(why, RB_EINVAL, "a sum of %zu integers", range->count);
    return 0;
}

/* Is there room for the frames of the range in all lanes?  frames: by rank, the most in any lane to
 * that rank. */
static bool fits(const struct rb_coll *coll, const struct way *way, int *frames)
{
    int more = way->whole || way->only != NOBODY ? 1 : 2;
    bool room = true;

    for (int r = 0; r < coll->size; r++)
        room &= (way->range->rank != RB_COLL_ALL && way->range->rank != r) ||
                frames[r] + more <= RB_LANE_FRAMES;
    for (int r = 0; r < coll->size && room; r++)
        frames[r] += way->range->rank == RB_COLL_ALL || way->range->rank == r ? more : 0;
    return room;
}

static int run_round(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                     struct way *ways, size_t n, struct rb_why *why)
{
    int err = rb_progress_begin(coll, why);

    for (size_t i = 0; !err && i < n; i++) {
        if (makes(ways[i].range, coll->rank))
            send_summands(coll, tag, in, &ways[i]);
        if (adds(&ways[i], coll->rank))
            add_summands(coll, tag, in, out, &ways[i]);
    }
    for (size_t i = 0; !err && i < n; i++)
        send_sums(coll, tag, in, out, &ways[i]);
    return err ? err : rb_progress_run(coll, why);
}

int rb_coll_sum_ranges(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                       const struct rb_coll_range *ranges, size_t n, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) struct way *ways = rb_alloc((n + 1) * sizeof *ways);
    RB_CLEANUP(rb_freep) int *frames = rb_alloc((size_t)coll->size * sizeof *frames);
    size_t begun = 0;
    int err = rb_progress_begin(coll, why);

    for (size_t i = 0; !err && i < n; i++)
        err = check_range(coll, &ranges[i], why);
    for (size_t i = 0; !err && i < n; i++) {
        ways[i] = find_way(coll, &ranges[i]);
        if (fits(coll, &ways[i], frames))
            continue;
        err = run_round(coll, tag, in, out, ways + begun, i - begun, why);
        begun = i;
        memset(frames, 0, (size_t)coll->size * sizeof *frames);
        fits(coll, &ways[i], frames);
    }
    return err ? err : run_round(coll, tag, in, out, ways + begun, n - begun, why);
}

int rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out, size_t n,
                struct rb_why *why)
{
    const struct rb_coll_range all = {.rank = RB_COLL_ALL, .count = n};

    return rb_coll_sum_ranges(coll, tag, in, out, &all, 1, why);
}
