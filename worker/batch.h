/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples a microbatch has.
 *
 * step, microbatch > [batch] > sample numbers > data/order.h > data/source.h > a program's inputs
 *
 * Sample j of step s (counted from 0) has the number s * B + j.  Microbatches are cut by index: all
 * of the same size but the last.  Devices do not occur in any of this. */
#ifndef RB_WORKER_BATCH_H
#define RB_WORKER_BATCH_H

#include "base/error.h"
#include "data/source.h"
#include "plan.pb-c.h"
#include "worker/program/program.h"

#include <stdint.h>

struct rb_batch {
    uint64_t first; /* number of its first sample */
    uint32_t samples;
};

/* Microbatches of a step. */
uint32_t rb_batch_count(int64_t global_batch, int64_t micro_batch);
struct rb_batch rb_batch_of(int64_t global_batch, int64_t micro_batch, int64_t step,
                            uint32_t microbatch);

struct rb_batch_slot {
    uint8_t *to;  /* NULL: the program does not read this slot */
    size_t bytes; /* of one sample */
};

/* Where samples go: the input slots of a prepared program. */
struct rb_batch_slots {
    struct rb_batch_slot features, targets;
    struct rb_batch_slot inputs[RB_SOURCE_INPUTS]; /* as those of the source */
};

/* Are the features floats? (Some programs of a split model do not read the features.) */
bool rb_batch_takes_floats(const Rb__Model *message);

/* Find the slots and check their types against those of the source. */
int rb_batch_slots(const Rb__Program *message, struct rb_program *program,
                   const struct rb_source_info *info, struct rb_batch_slots *ret_slots,
                   struct rb_why *why);

/* Fill the slots with samples [first, first + samples) of the order under `seed`. */
void rb_batch_fill(const struct rb_batch_slots *slots, const struct rb_source *source,
                   uint64_t seed, const struct rb_batch *batch);

/* Fill the slots with the source's own samples first, first + 1, ... : evaluation reads the samples
 * in order. */
void rb_batch_fill_plain(const struct rb_batch_slots *slots, const struct rb_source *source,
                         const struct rb_batch *batch);

#endif
