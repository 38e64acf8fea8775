/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of calls share: each checks some of the calls, in a rank's own process.
 *
 * calls: groups and links > [calls_sums, calls_messages] > crew */
#ifndef RB_TESTS_COLL_CALLS_INSIDE_H
#define RB_TESTS_COLL_CALLS_INSIDE_H

#include "tests/coll/crew.h"

#include <string.h>

/* Compared by memcmp, which a sanitizer checks once and not for each byte. */
static inline bool all_are(const void *bytes, int value, size_t size)
{
    const uint8_t *at = bytes;

    return !size || (at[0] == (uint8_t)value && !memcmp(at, at + 1, size - 1));
}

/* ---- calls.c ----------------------------------------------------------------------------------*/

/* Bytes that show their place and their rank: a pattern of 64 KiB, again and again. */
enum { PATTERN = 65536 };
uint8_t pattern(size_t i, int root);
void write_pattern(uint8_t *bytes, size_t size, int root);
bool is_pattern(const uint8_t *bytes, size_t size, int root);

void check_gather(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);

/* ---- Sums: calls_sums.c -----------------------------------------------------------------------*/

void check_sum(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n);
/* Ranges that all ranks are to have, made by one rank, by some and by none, behind each other:
 * nothing is sent twice, and what others have there does not count where they send nothing. */
void check_makers(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n);
/* Many ranges, of uneven lengths, some with two ranks that have them and some with none; in some of
 * them only even ranks count. */
void check_ranges(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t n);

/* ---- Messages from one rank to another: calls_messages.c --------------------------------------*/

/* Every rank sends to some others, several times, pieces of all sizes. */
void check_moves(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);
/* Once around the ring, growing by a byte at each rank: odd sizes, and each rank waits for the one
 * before it. */
void check_ring(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);
/* Every rank sends more than links take to every other before any receives; a sum goes behind
 * it. */
void check_posts(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);
/* Messages that lie in pieces at either end, cut at different places at the two ends. */
void check_pieces(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);
/* Posts are gone after a flush: the receivers have them although this rank is in no call. */
void check_flush(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size);
/* Rank 0 hears the others in whatever order they send.  Ranks that it does not listen to, the time,
 * and a descriptor end its wait as they should. */
void check_wait(struct crew *crew, struct rb_coll *coll, uint64_t tag);

#endif
