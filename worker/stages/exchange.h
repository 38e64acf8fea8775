/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to who reads them, and their gradients back: SPREAD and FOLD of one part.
 *
 * Program + stage > [exchange] > rb_coll_post, rb_coll_receive
 *
 * A microbatch makes one message to each part that reads some of these filters, sample by sample,
 * filters in their order.  Messages are posted as soon as what they hold is made, so nobody waits
 * to send; they are posted and received in the program's order, which is the same in all parts, so
 * nobody waits for who waits for it. */
#ifndef RB_WORKER_STAGES_EXCHANGE_H
#define RB_WORKER_STAGES_EXCHANGE_H

#include "base/error.h"
#include "coll/coll.h"
#include "worker/program/program.h"
#include "worker/stages/stage.h"

#include <stdint.h>

struct rb_exchange {
    const struct rb_stage *stage;
    struct rb_coll *coll;
    struct rb_device *device;
    const Rb__Program *message;
    struct rb_program *program;
    uint64_t tag; /* of the step, the attempt and the microbatch */
    uint32_t microbatch;
    uint64_t messages, bytes; /* sent so far, without frames' heads */
};

/* Every exchange of a program: what it sends and receives is inside its tensors, and of parts that
 * there are.  RB_EINVAL. */
int rb_exchange_check(const Rb__Program *message, struct rb_why *why);

/* By instruction: of those that exchange the one behind which it can give (-1: it has nothing to
 * wait for), and all in front of it have given. */
void rb_exchange_ready(const Rb__Program *message, int *ret_ready);

/* Instruction `i`, which rb_program_exchanges: give what others read, then take what they gave.  Of
 * several microbatches all may be given before the first is taken. */
int rb_exchange_give(struct rb_exchange *exchange, size_t i, struct rb_why *why);
int rb_exchange_take(struct rb_exchange *exchange, size_t i, struct rb_why *why);

#endif
