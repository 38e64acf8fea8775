/* SPDX-License-Identifier: Apache-2.0 */
/* An opening from inside: for opening.c (who has what, and the whole) and opening_copy.c (what
 * moves) alone. */
#ifndef RB_WORKER_JOIN_OPENING_INSIDE_H
#define RB_WORKER_JOIN_OPENING_INSIDE_H

#include "worker/join/opening.h"
#include "worker/join/recovery.h"
#include "worker/tag.h"

enum part { PART_TESTIMONIES, PART_RESTORED, PART_HASHES, PART_ENTRY, PART_STATE };

struct opening {
    struct rb_model *model;
    const struct rb_configuration *configuration;
    uint32_t self;
    size_t blocks;
    struct rb_testimony *testimonies; /* by rank */
    uint8_t *held;                    /* by rank * blocks + block */
    struct rb_recovery recovery;
    uint64_t bytes; /* received */
    bool moved;     /* some rank lacked something */
};

static inline uint64_t opening_tag(const struct opening *opening, enum part part)
{
    return rb_tag(RB_TAG_OPENING, opening->configuration->number, 0, part);
}

/* Tell ranks that have the sums of a step but not its outcome what became of it; they apply it. */
int rb_opening_tell(struct opening *opening, struct rb_why *why);

/* Bring each rank all that it lacks of the level, from ranks that have it. */
int rb_opening_align(struct opening *opening, struct rb_why *why);

#endif
