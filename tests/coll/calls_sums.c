/* SPDX-License-Identifier: Apache-2.0 */
/* Sums: of everything, and of ranges that some ranks make and some are to have; calls.c runs
 * this. */
#include "tests/coll/calls_inside.h"

#include "base/arena.h"

#include <stdlib.h>

static int32_t element(int rank, size_t i, uint64_t tag)
{
    return (int32_t)((uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503 + (int)tag * 7919));
}

void check_sum(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
{
    int32_t *in = rb_alloc(4 * n), *out = rb_alloc(4 * n + 4);
    struct rb_why why = {{0}};

    for (size_t i = 0; i < n; i++)
        in[i] = element(crew->rank, i, tag);
    out[n] = 12345;
    CREW_OK(crew, rb_coll_sum(coll, tag, in, out, n, &why), &why);
    for (size_t i = 0; i < n; i++) {
        uint32_t sum = 0;

        for (int r = 0; r < crew->size; r++)
            sum += (uint32_t)element(r, i, tag);
        CREW_CHECK(crew, out[i] == (int32_t)sum);
        CREW_CHECK(crew, in[i] == element(crew->rank, i, tag));
    }
    CREW_CHECK(crew, out[n] == 12345);
    free(in);
    free(out);
}

/* Bytes that leave this rank by frames, for ranges that all are to have (coll/coll.h). */
static uint64_t expect_sent(const struct crew *crew, const struct rb_coll_range *range)
{
    uint64_t n = (uint64_t)crew->size, makers = 0, bytes = 4 * range->count;
    bool mine = range->from[crew->rank];

    for (int r = 0; r < crew->size; r++)
        makers += range->from[r];
    if (bytes <= 8192)
        return mine ? (n - 1) * bytes : 0;
    if (makers == 1)
        return mine ? bytes : (n - 2) * bytes / (n - 1);
    return (mine ? (n - 1) * bytes / n : 0) + (n - 1) * bytes / n;
}

void check_makers(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
{
    enum { RANGES = 11, HEADS = 48 * CREW_MAX, ROUNDED = 64 * CREW_MAX };
    struct rb_coll_range ranges[RANGES];
    bool from[RANGES][CREW_MAX] = {{false}};
    int32_t *in = rb_alloc(4 * RANGES * n + 4), *out = rb_alloc(4 * RANGES * n + 4);
    uint64_t expected = 0, before = rb_coll_bytes_sent(coll), sent;
    struct rb_why why = {{0}};

    for (size_t k = 0; k < RANGES; k++) {
        for (size_t r = 0; r < k % 4; r++) /* the same twice is one less */
            from[k][(k * 3 + r * r) % (size_t)crew->size] = true;
        ranges[k] = (struct rb_coll_range){RB_COLL_ALL, k * n, n - k % 2 * (n > 9), from[k]};
        for (size_t i = 0; i < ranges[k].count; i++)
            in[k * n + i] = from[k][crew->rank] ? element(crew->rank, i, tag) : 0;
        for (size_t i = 0; i < n; i++)
            out[k * n + i] = 4711;
        expected += k % 4 ? expect_sent(crew, &ranges[k]) : 0;
    }
    CREW_OK(crew, rb_coll_sum_ranges(coll, tag, in, out, ranges, RANGES, &why), &why);
    sent = rb_coll_bytes_sent(coll) - before;
    for (size_t k = 0; k < RANGES; k++)
        for (size_t i = 0; i < n; i++) {
            uint32_t sum = 0;

            for (int r = 0; r < crew->size; r++)
                sum += from[k][r] ? (uint32_t)element(r, i, tag) : 0;
            CREW_CHECK(crew, out[k * n + i] == (i < ranges[k].count ? (int32_t)sum : 4711));
        }
    if (crew->size > 1)
        CREW_CHECK(crew, sent + RANGES * ROUNDED >= expected &&
                             sent <= expected + RANGES * (HEADS + ROUNDED));
    free(in);
    free(out);
}

void check_ranges(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
{
    enum { RANGES = 23 };
    static const bool even[CREW_MAX] = {true, false, true, false, true, false};
    struct rb_coll_range ranges[2 * RANGES];
    int32_t *in = rb_alloc(4 * n + 4), *out = rb_alloc(4 * n + 4);
    uint8_t *mine = rb_alloc(n + 1);
    struct rb_why why = {{0}};
    size_t k = 0, each = n / RANGES;

    for (size_t i = 0; i < RANGES; i++) {
        int first = (int)(i * i) % crew->size, second = (int)(i + 1) % crew->size;

        if (i % 5 == 4)
            continue;
        ranges[k++] = (struct rb_coll_range){first, i * each, each - i % 3 * (each > 3),
                                             i % 3 == 1 ? even : NULL};
        if (i % 2 && second != first)
            ranges[k++] = (struct rb_coll_range){second, i * each, each, i % 3 == 1 ? even : NULL};
    }
    for (size_t i = 0; i < n; i++) {
        if (!each || i / each % 3 != 1 || even[crew->rank])
            in[i] = element(crew->rank, i, tag);
        out[i] = 4711;
    }
    for (size_t i = 0; i < k; i++)
        if (ranges[i].rank == crew->rank)
            memset(mine + ranges[i].first, 1, ranges[i].count);
    CREW_OK(crew, rb_coll_sum_ranges(coll, tag, in, out, ranges, k, &why), &why);
    for (size_t i = 0; i < n; i++) {
        uint32_t sum = 0;

        for (int r = 0; r < crew->size; r++)
            if (!each || i / each % 3 != 1 || even[r])
                sum += (uint32_t)element(r, i, tag);
        CREW_CHECK(crew, out[i] == (mine[i] ? (int32_t)sum : 4711));
    }
    free(in);
    free(out);
    free(mine);
}
