/* SPDX-License-Identifier: Apache-2.0 */
/* Every call on every kind of link, in groups of one to five. */
#include "tests/coll/crew.h"

#include "base/arena.h"
#include "base/sanitized.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int32_t element(int rank, size_t i, uint64_t tag)
{
    return (int32_t)((uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503 + (int)tag * 7919));
}

/* Looked at by memcmp, which a sanitizer asks about once and not for each byte. */
static bool all_are(const void *bytes, int value, size_t size)
{
    const uint8_t *at = bytes;

    return !size || (at[0] == (uint8_t)value && !memcmp(at, at + 1, size - 1));
}

/* Bytes that tell where they are, and whose: a pattern of 64 KiB, again and again. */
enum { PATTERN = 65536 };

static uint8_t pattern(size_t i, int root)
{
    return (uint8_t)(i * 31 + (i >> 8) + (size_t)root);
}

static void write_pattern(uint8_t *bytes, size_t size, int root)
{
    for (size_t i = 0; i < size && i < PATTERN; i++)
        bytes[i] = pattern(i, root);
    for (size_t i = PATTERN; i < size; i += PATTERN)
        memcpy(bytes + i, bytes, size - i < PATTERN ? size - i : PATTERN);
}

static bool is_pattern(const uint8_t *bytes, size_t size, int root)
{
    uint8_t expected[PATTERN];
    size_t head = size < PATTERN ? size : PATTERN;

    write_pattern(expected, head, root);
    return !memcmp(bytes, expected, head) && !memcmp(bytes + head, bytes, size - head);
}

static void check_sum(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
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

static void check_gather(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    char *mine = rb_alloc(size), *all = rb_alloc(size * (size_t)crew->size + 1);
    struct rb_why why = {{0}};

    memset(mine, 'a' + crew->rank, size);
    all[size * (size_t)crew->size] = '!';
    CREW_OK(crew, rb_coll_gather(coll, tag, mine, all, size, &why), &why);
    for (int r = 0; r < crew->size; r++)
        CREW_CHECK(crew, all_are(all + (size_t)r * size, 'a' + r, size));
    CREW_CHECK(crew, all[size * (size_t)crew->size] == '!');
    free(mine);
    free(all);
}

static void check_broadcast(struct crew *crew, struct rb_coll *coll, uint64_t tag, int root,
                            size_t size)
{
    uint8_t *bytes = rb_alloc(size + 1);
    struct rb_why why = {{0}};

    if (crew->rank == root)
        write_pattern(bytes, size, root);
    bytes[size] = '!';
    CREW_OK(crew, rb_coll_broadcast(coll, tag, root, bytes, size, &why), &why);
    CREW_CHECK(crew, is_pattern(bytes, size, root));
    CREW_CHECK(crew, bytes[size] == '!');
    free(bytes);
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

/* Ranges that everyone is to have, from one rank, from some and from none, behind each other:
 * nothing is sent twice, and what others have there does not count where they send nothing. */
static void check_makers(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
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

/* Many ranges, of uneven lengths, some with two ranks that have them and some with none; in some of
 * them only even ranks count. */
static void check_ranges(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n)
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

/* Everyone sends to some others, several times, pieces of all sizes. */
static void check_moves(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    enum { MOVES = 60 };
    struct rb_coll_move moves[MOVES];
    uint8_t *bytes = rb_alloc(MOVES * (size + 1));
    struct rb_why why = {{0}};

    for (size_t i = 0; i < MOVES; i++) {
        moves[i] = (struct rb_coll_move){
            .from = (int)(i * 7 / 3) % crew->size,
            .to = (int)(i * i) % crew->size,
            .bytes = bytes + i * (size + 1),
            .size = size >> i % 4,
        };
        if (moves[i].from == crew->rank)
            memset(moves[i].bytes, (int)i + 1, moves[i].size);
    }
    CREW_OK(crew, rb_coll_move(coll, tag, moves, MOVES, &why), &why);
    for (size_t i = 0; i < MOVES; i++) {
        bool mine = moves[i].from == crew->rank || moves[i].to == crew->rank;
        const uint8_t *at = bytes + i * (size + 1);

        CREW_CHECK(crew, all_are(at, mine ? (int)i + 1 : 0, moves[i].size));
        CREW_CHECK(crew, all_are(at + moves[i].size, 0, size + 1 - moves[i].size));
    }
    moves[3].to = crew->size;
    CREW_CHECK(crew, rb_coll_move(coll, tag, moves + 3, 1, &why) == RB_EINVAL);
    free(bytes);
}

/* Once around the ring, growing by a byte at each rank: odd sizes, and one waits for the other. */
static void check_ring(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    int next = (crew->rank + 1) % crew->size, before = (crew->rank + crew->size - 1) % crew->size;
    uint8_t *bytes = rb_alloc(size + CREW_MAX);
    struct rb_why why = {{0}};

    if (crew->rank != 0) {
        CREW_OK(crew, rb_coll_receive(coll, tag, before, bytes, size + (size_t)crew->rank, &why),
                &why);
        CREW_CHECK(crew, is_pattern(bytes, size, 7));
    } else {
        write_pattern(bytes, size, 7);
    }
    bytes[size + (size_t)crew->rank] = (uint8_t)crew->rank;
    CREW_OK(crew, rb_coll_send(coll, tag, next, bytes, size + (size_t)crew->rank + 1, &why), &why);
    if (crew->rank == 0) {
        CREW_OK(crew, rb_coll_receive(coll, tag, before, bytes, size + (size_t)crew->size, &why),
                &why);
        for (int r = 0; r < crew->size; r++)
            CREW_CHECK(crew, bytes[size + (size_t)r] == r);
    }
    free(bytes);
}

/* Everyone sends more than links take to everyone before anyone receives; a sum goes behind it. */
static void check_posts(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    enum { EACH = 3 };
    uint8_t *bytes = rb_alloc(size + EACH);
    struct rb_why why = {{0}};

    for (int r = 0; r < crew->size; r++)
        for (size_t k = 0; r != crew->rank && k < EACH; k++) {
            memset(bytes, (int)k + 16 * crew->rank, size + k);
            CREW_OK(crew, rb_coll_post(coll, tag + k, r, bytes, size + k, &why), &why);
        }
    CREW_OK(crew, rb_coll_nudge(coll, &why), &why);
    for (int r = 0; r < crew->size; r++)
        for (size_t k = 0; r != crew->rank && k < EACH; k++) {
            CREW_OK(crew, rb_coll_receive(coll, tag + k, r, bytes, size + k, &why), &why);
            CREW_CHECK(crew, all_are(bytes, (int)k + 16 * r, size + k));
        }
    free(bytes);
    check_sum(crew, coll, tag + EACH, size % 50000);
}

/* `size` bytes in pieces of `each`, as far apart as they are long; an empty one, nowhere, in
 * front. */
static size_t cut_pieces(uint8_t *memory, size_t size, size_t each, struct iovec *ret_pieces)
{
    size_t n = 1;

    ret_pieces[0] = (struct iovec){NULL, 0};
    for (size_t at = 0; at < size; at += each)
        ret_pieces[n++] = (struct iovec){memory + 2 * at, size - at < each ? size - at : each};
    return n;
}

/* Between two pieces lies what is nobody's. */
static bool is_scattered(const struct iovec *pieces, size_t n, int root)
{
    uint8_t *expected = rb_alloc(PATTERN);
    bool same = true;
    size_t at = 0;

    write_pattern(expected, PATTERN, root);
    for (size_t i = 1; i < n; at += pieces[i++].iov_len) {
        const uint8_t *bytes = pieces[i].iov_base;

        for (size_t k = 0; k < pieces[i].iov_len; k++)
            same &= bytes[k] == expected[(at + k) % PATTERN];
        if (i + 1 < n)
            same &= all_are(bytes + pieces[i].iov_len, '.', pieces[i].iov_len);
    }
    free(expected);
    return same;
}

/* Messages that lie in pieces at either end, cut here and there at other places. */
static void check_pieces(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    enum { EACH = 2, FROM = 200, TO = 332 };
    uint8_t *memory = rb_alloc(2 * size + 2 * TO);
    struct iovec *pieces = rb_alloc((size / FROM + 2) * sizeof *pieces);
    struct rb_why why = {{0}};
    size_t n = cut_pieces(memory, size, FROM, pieces);

    for (size_t i = 0, at = 0; i < n; at += pieces[i++].iov_len)
        for (size_t k = 0; k < pieces[i].iov_len; k++)
            ((uint8_t *)pieces[i].iov_base)[k] = pattern((at + k) % PATTERN, crew->rank);
    for (int r = 0; r < crew->size; r++)
        for (size_t k = 0; r != crew->rank && k < EACH; k++)
            CREW_OK(crew, rb_coll_post_pieces(coll, tag + k, r, pieces, n, &why), &why);
    n = cut_pieces(memory, size, TO, pieces);
    for (int r = 0; r < crew->size; r++)
        for (size_t k = 0; r != crew->rank && k < EACH; k++) {
            memset(memory, '.', 2 * size);
            CREW_OK(crew, rb_coll_receive_pieces(coll, tag + k, r, pieces, n, &why), &why);
            CREW_CHECK(crew, is_scattered(pieces, n, r));
        }
    free(pieces);
    free(memory);
}

/* What was posted is gone behind a flush: the receivers have it though this rank is in no call. */
static void check_flush(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    enum { EACH = 3 };
    _Atomic uint64_t *heard = &crew->board->word[0];
    uint64_t all = atomic_load(heard);
    uint8_t *bytes = rb_alloc(size);
    struct rb_why why = {{0}};

    check_gather(crew, coll, tag, 1); /* everyone knows `all` */
    all += (uint64_t)crew->size - 1;
    for (size_t k = 0; k < EACH; k++) {
        memset(bytes, 'a' + (int)k, size);
        for (int r = 1; r < crew->size && crew->rank == 0; r++)
            CREW_OK(crew, rb_coll_post(coll, tag + 1 + k, r, bytes, size, &why), &why);
    }
    CREW_OK(crew, rb_coll_flush(coll, &why), &why);
    for (size_t k = 0; k < EACH && crew->rank; k++) {
        CREW_OK(crew, rb_coll_receive(coll, tag + 1 + k, 0, bytes, size, &why), &why);
        CREW_CHECK(crew, all_are(bytes, 'a' + (int)k, size));
    }
    atomic_fetch_add(heard, crew->rank ? 1 : 0);
    while (atomic_load(heard) < all)
        usleep(100);
    free(bytes);
}

/* Rank 0 hears the others in whatever order they speak; those that it does not listen to, and the
 * time, and a descriptor, end its wait as they should. */
static void check_wait(struct crew *crew, struct rb_coll *coll, uint64_t tag)
{
    bool from[CREW_MAX] = {false};
    struct rb_why why = {{0}};
    uint64_t mine = (uint64_t)crew->rank, got, one = 1;
    int rank = 7, event = eventfd(0, EFD_NONBLOCK);

    CREW_OK(crew, rb_coll_wait(coll, from, -1, 0, &rank, &why), &why);
    CREW_CHECK(crew, rank == -1);
    CREW_OK(crew, rb_coll_wait(coll, from, event, 3, &rank, &why), &why);
    CREW_CHECK(crew, rank == -1);
    CREW_CHECK(crew, write(event, &one, sizeof one) == sizeof one);
    CREW_OK(crew, rb_coll_wait(coll, from, event, 60000, &rank, &why), &why);
    CREW_CHECK(crew, rank == -1);
    close(event);
    if (crew->rank != 0) {
        CREW_OK(crew, rb_coll_send(coll, tag, 0, &mine, sizeof mine, &why), &why);
        return;
    }
    for (int left = crew->size - 1; left > 0; left--) {
        for (int r = 1; r < crew->size && left == crew->size - 1; r++)
            from[r] = true;
        do
            CREW_OK(crew, rb_coll_wait(coll, from, -1, 10000, &rank, &why), &why);
        while (rank < 0);
        CREW_CHECK(crew, from[rank]);
        CREW_OK(crew, rb_coll_receive(coll, tag, rank, &got, sizeof got, &why), &why);
        CREW_CHECK(crew, got == (uint64_t)rank);
        from[rank] = false;
    }
}

static void all_calls(struct crew *crew)
{
    static const size_t counts[] = {0, 1, 7, 16, 1000, 2048, 2049, 65536, 1000003};
    /* The last is more than any link takes; than shared memory takes, where each byte takes longer.
     */
    static const size_t sizes[] = {1, 3, 8, 100, 70001, RB_SANITIZED ? 1000001 : 3000001};
    static const char *const links[] = {"shared memory", "unix", "tcp"};
    struct rb_coll *coll;
    struct rb_why why = {{0}};
    uint64_t tag = 0;

    CREW_OK(crew, crew_open(crew, 1, 30000, &coll, &why), &why);
    CREW_CHECK(crew, rb_coll_size(coll) == crew->size && rb_coll_rank(coll) == crew->rank);
    for (int r = 0; r < crew->size; r++)
        CREW_CHECK(crew,
                   !strcmp(rb_coll_link(coll, r), r == crew->rank ? "none" : links[crew->link]));
    for (size_t i = 0; i < RB_COUNT(counts); i++)
        check_sum(crew, coll, ++tag, counts[i]);
    for (size_t i = 0; i < RB_COUNT(sizes); i++) {
        check_gather(crew, coll, ++tag, sizes[i]);
        for (int root = 0; root < crew->size; root++)
            check_broadcast(crew, coll, ++tag, root, sizes[i]);
        if (crew->size > 1)
            check_ring(crew, coll, ++tag, sizes[i]);
        check_wait(crew, coll, ++tag);
        check_posts(crew, coll, tag + 1, sizes[i]);
        tag += 4;
        check_pieces(crew, coll, tag + 1, sizes[i]);
        tag += 2;
        check_flush(crew, coll, tag + 1, sizes[i]);
        tag += 4;
        check_sum(crew, coll, ++tag, sizes[i] % 50000);
        check_ranges(crew, coll, ++tag, sizes[i] % 200000);
        check_makers(crew, coll, ++tag, sizes[i] % 50000);
        check_moves(crew, coll, ++tag, sizes[i] % 200000);
    }
    check_makers(crew, coll, ++tag, 300000); /* segments that are fetched */
    for (int i = 0; i < 300; i++)
        check_sum(crew, coll, ++tag, (size_t)i);
    CREW_CHECK(crew, crew->size == 1 || rb_coll_bytes_sent(coll) > 1000000);
    CREW_CHECK(crew, !rb_coll_lost(coll, crew->rank));
    rb_coll_close(coll);
}

static void over_shared_memory(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        crew_run(size, CREW_SHARED, 0, all_calls, NULL);
}

static void over_unix(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++)
        crew_run(size, CREW_UNIX, 0, all_calls, NULL);
}

static void over_tcp(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++)
        crew_run(size, CREW_TCP, 0, all_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_unix),
        cmocka_unit_test(over_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
