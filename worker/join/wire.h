/* SPDX-License-Identifier: Apache-2.0 */
/* What a source says to a newcomer, and what it hears.
 *
 * feed > [wire] > follow
 *
 *   START           counters: the level at which the log begins
 *   BLOCK b         a copy of it (w, m, v) at the level that the stream has reached, and its hash
 *   FIXED offset    a piece of the fixed bytes, and its hash
 *   ENTRY           terms, exponents as used, counters after it; then the sums of all blocks given
 *   SHELF           where a newcomer of this host finds parcels (worker/parcels.h)
 *
 * Where the newcomer finds them, the bytes of blocks, sums and weights come as parcels from then
 * on, and the link carries the number of the parcel in their place.
 *
 * A block that the newcomer will not hold comes as weights alone, and only once: behind the sums of
 * the last entry.
 *
 * The newcomer answers with the level at which it has everything, or with another word. */
#ifndef RB_WORKER_JOIN_WIRE_H
#define RB_WORKER_JOIN_WIRE_H

#include "worker/model.h"
#include "worker/step/update.h"

#include <sys/uio.h>

enum rb_wire_kind {
    RB_WIRE_START = 1,
    RB_WIRE_BLOCK,
    RB_WIRE_FIXED,
    RB_WIRE_ENTRY,
    RB_WIRE_SHELF,
};

/* Answers that are no levels. */
enum rb_wire_answer {
    RB_WIRE_ALIVE = -1, /* a sign of life */
    RB_WIRE_TAKEN = -2, /* the oldest parcel that was not taken */
    RB_WIRE_FOUND = -3, /* the shelf */
    RB_WIRE_NOT_FOUND = -4,
};

enum rb_wire_flag {
    RB_WIRE_COMMIT = 1, /* sums follow; else the step was skipped */
    RB_WIRE_FLIP = 2,   /* the vote of this step flips: nothing comes after it */
};

enum { RB_WIRE_PIECE = 1 << 20 }; /* of the fixed bytes */
enum { RB_WIRE_PARCELS = 8 };     /* that lie on a shelf at once */

/* Precedes each payload; travels as it lies. */
struct rb_wire {
    uint32_t kind, flags;
    uint64_t index; /* of a block; offset of a piece */
    int64_t level;
    uint64_t bytes, hash; /* of the payload; hash: of a parcel, its number */
};

/* Tags: of the nth header and the nth acknowledgement of a stream; of a payload; of the sums of a
 * block, and of its weights. */
uint64_t rb_wire_header_tag(uint64_t n);
uint64_t rb_wire_answer_tag(uint64_t n);
uint64_t rb_wire_payload_tag(const struct rb_wire *header);
uint64_t rb_wire_sums_tag(int64_t level, size_t block);
uint64_t rb_wire_weights_tag(int64_t level, size_t block);

/* A block's payload: its range of each part that there is. */
size_t rb_wire_block_bytes(const struct rb_state *state, const Rb__Block *block);
size_t rb_wire_largest_bytes(const struct rb_model *model); /* of any block */
int rb_wire_block_pieces(const struct rb_state *state, const Rb__Block *block,
                         struct iovec ret_pieces[RB_STATE_PARTS]);
void rb_wire_block_pack(const struct rb_state *state, const Rb__Block *block, void *bytes);
void rb_wire_block_unpack(const struct rb_state *state, const Rb__Block *block, const void *bytes);

/* An entry's payload.  terms NULL: of a skip.  Unpacking sets model->exponents, and leaves the
 * counters of the state as bytes (rb_state_counters_unpack), for they hold only once all blocks are
 * level. */
size_t rb_wire_entry_bytes(const struct rb_model *model);
void rb_wire_entry_pack(const struct rb_model *model, const struct rb_update_terms *terms,
                        void *bytes);
void rb_wire_entry_unpack(struct rb_model *model, const void *bytes,
                          struct rb_update_terms *ret_terms, void *ret_counters);

#endif
