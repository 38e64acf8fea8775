/* SPDX-License-Identifier: Apache-2.0 */
/* Tags for coll: calls of different steps, attempts or purposes never meet. */
#ifndef RB_WORKER_TAG_H
#define RB_WORKER_TAG_H

#include <stdint.h>

enum rb_tag {
    RB_TAG_REDUCE,
    RB_TAG_VOTE,
    RB_TAG_EVALUATE,
    RB_TAG_OPENING,
    RB_TAG_COPY,
    RB_TAG_GATHER,
    RB_TAG_STAGE,
    RB_TAG_STEAL,
    RB_TAG_VIEWS,
    RB_TAG_VIEWED,
    RB_TAG_LANES
};

/* `part` distinguishes calls of one purpose and attempt. */
uint64_t rb_tag(enum rb_tag purpose, int64_t level, uint32_t attempt, uint64_t part);

#endif
