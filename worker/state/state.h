/* SPDX-License-Identifier: Apache-2.0 */
/* All state of a training run: what travels with joins and checkpoints, and nothing else.
 *
 * opening, restore > [state] > step, update > checkpoint
 *
 * Flat float32 arrays of one length hold weights and running statistics (w) and the optimizer's
 * moments (m, v); Model.blocks cut them.  The counters and exponents beside them belong to the same
 * level.
 *
 * Where the state is sharded, a rank holds some blocks only.  Of the other blocks it has the
 * weights; their moments are zero and take no room.  Between an update and the gathering of the
 * weights behind it the state is torn: the weights of those other blocks may be of the level
 * before, and in a pipeline (worker/step/step.h) of any.
 *
 * Around a planned change a block may be held that the placement gives to others:
 *
 *     NOT --taken (worker/join/taking.h)--> TAKEN --flip--> HELD --flip--> LINGERS --commit--> NOT
 */
#ifndef RB_WORKER_STATE_STATE_H
#define RB_WORKER_STATE_STATE_H

#include "base/buffer.h"
#include "base/error.h"
#include "kernels/device.h"
#include "plan.pb-c.h"
#include "worker/state/exponent.h"
#include "worker/state/window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rb_held {
    RB_HELD_NOT,
    RB_HELD,         /* as the placement says */
    RB_HELD_TAKEN,   /* for a configuration to come; updated like RB_HELD */
    RB_HELD_LINGERS, /* for the one before, until all ranks are known to have what they need in this
                        one: the block is of the present level, and not updated any more */
};

struct rb_state {
    int64_t level;      /* steps taken, those that were skipped included; -1: nothing here */
    int64_t applied;    /* steps that changed the weights: the optimizer's t */
    int64_t not_finite; /* skipped steps in a row whose gradients or loss were no numbers */
    struct rb_exponent *exponents; /* by variable */
    float *w, *m, *v;              /* m, v: NULL where the optimizer has none */
    uint8_t *fixed;                /* FIXED variables; never changes once it is there */
    uint8_t *held;                 /* by block: enum rb_held; 0: its moments are not here */
    bool torn;                     /* weights of blocks that are not held may be older */

    size_t elements, fixed_bytes, variables, blocks;
    struct rb_device *device; /* whose memory this is; NULL: plain memory */
    struct rb_window *window; /* through which other threads look at it while it changes */
};

enum rb_state_part { RB_STATE_W, RB_STATE_M, RB_STATE_V, RB_STATE_PARTS };

/* Where a device's memory has two sides (kernels/device.h), the arrays are up to date on the
 * device's; `fixed` is on both.  A caller that reads them on the host pulls, one that writes them
 * pushes: elements [first, first + count) of all parts. */
void rb_state_pull(const struct rb_state *state, size_t first, size_t count);
void rb_state_push(const struct rb_state *state, size_t first, size_t count);

/* Empty state for `model`, all zero.  RB_ENOMEM. */
int rb_state_open(const Rb__Model *model, struct rb_device *device, struct rb_state *ret_state,
                  struct rb_why *why);
void rb_state_done(struct rb_state *state);

/* Does the next step bring a block that is held so to the next level? */
static inline bool rb_held_follows(uint8_t held)
{
    return held == RB_HELD || held == RB_HELD_TAKEN;
}

/* Does the state have every block, each at its level and to stay? */
bool rb_state_whole(const struct rb_state *state);

/* Hold the blocks of `holds` alone, as it says; the memory of the moments of other blocks is given
 * back. */
void rb_state_hold(struct rb_state *state, const Rb__Model *model, const uint8_t *holds);
void rb_state_hold_all(struct rb_state *state);

/* One of the flat arrays, NULL where the optimizer has none. */
float *rb_state_part(const struct rb_state *state, enum rb_state_part part);

/* Counters and exponents, and then all that `from` holds. */
void rb_state_copy_counters(struct rb_state *to, const struct rb_state *from);
void rb_state_copy(struct rb_state *to, const struct rb_state *from, const Rb__Model *model);

/* One block; its moments only where they are `held`. */
void rb_state_copy_block(struct rb_state *to, const struct rb_state *from, const Rb__Block *block,
                         bool held);

/* Moments are zero from now on, and take no room. */
void rb_state_clear_moments(struct rb_state *state);

/* Counters and exponents as bytes of a fixed size for a model. */
size_t rb_state_counters_size(const struct rb_state *state);
void rb_state_counters_pack(const struct rb_state *state, void *bytes);
void rb_state_counters_unpack(struct rb_state *state, const void *bytes);

/* Hash of the counters and exponents: each vote compares it. */
uint64_t rb_state_agreement(const struct rb_state *state);
/* The 1 + blocks hashes that each opening compares: of what every rank has, and of the moments of
 * each block (0 for blocks that are not held). */
void rb_state_hashes(const struct rb_state *state, const Rb__Model *model, uint64_t *ret_hashes);

#endif
