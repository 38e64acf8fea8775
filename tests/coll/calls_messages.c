/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from one rank to another, and waiting for them; calls.c runs this. */
#include "tests/coll/calls_inside.h"

#include "base/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

void check_moves(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
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

void check_ring(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
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

void check_posts(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
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

/* Between two pieces lies memory of no piece. */
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

void check_pieces(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
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

void check_flush(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    enum { EACH = 3 };
    _Atomic uint64_t *heard = &crew->board->word[0];
    uint64_t all = atomic_load(heard);
    uint8_t *bytes = rb_alloc(size);
    struct rb_why why = {{0}};

    check_gather(crew, coll, tag, 1); /* every rank knows `all` */
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

void check_wait(struct crew *crew, struct rb_coll *coll, uint64_t tag)
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
