/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to the parts that read them, and their gradients back: SPREAD and FOLD of one part.
 *
 * Program + stage > [exchange] > rb_coll_post, rb_coll_receive
 *
 * A microbatch makes one message to each part that reads some of these filters, sample by sample,
 * filters in their order.  Messages are posted as soon as what they hold is made, so no part waits
 * to send; they are posted and received in the program's order, which is the same in all parts, so
 * no parts wait for each other. */
#ifndef RB_WORKER_STAGES_EXCHANGE_H
#define RB_WORKER_STAGES_EXCHANGE_H

#include "base/error.h"
#include "coll/coll.h"
#include "worker/program/program.h"
#include "worker/stages/stage.h"

#include <stdint.h>

/* Microbatches of one program that exchange together. */
struct rb_exchange {
    const struct rb_stage *stage;
    struct rb_coll *coll;
    struct rb_device *device;
    const Rb__Program *message;
    const int *ready; /* rb_exchange_ready, of `message` */
    int n;
    struct {
        struct rb_program *program;
        uint64_t tag; /* of the step, the attempt and the microbatch */
        uint32_t microbatch;
    } of[RB_KERNEL_EACH];
    size_t next;              /* instruction up to which all is given; 0 at the start */
    uint64_t messages, bytes; /* sent so far, without frames' heads */
};

/* Check every exchange of a program: what it sends and receives is inside its tensors, and of parts
 * that there are.  Else RB_EINVAL. */
int rb_exchange_check(const Rb__Program *message, struct rb_why *why);

/* ret_ready: room for all instructions, written for those that exchange: behind which instruction
 * each can give; -1: at once.  None gives before an exchange in front of it. */
void rb_exchange_ready(const Rb__Program *message, int *ret_ready);

/* After instruction `i` (-1: before the first): give all that other parts read of what is made by
 * now. */
int rb_exchange_give(struct rb_exchange *exchange, int i, struct rb_why *why);

/* At instruction `i`, which is an exchange (rb_program_exchanges) and has given: take what other
 * parts gave. */
int rb_exchange_take(struct rb_exchange *exchange, int i, struct rb_why *why);

#endif
