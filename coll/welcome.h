/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving the answer to a hello, with the memory that may come with it. */
#ifndef RB_COLL_WELCOME_H
#define RB_COLL_WELCOME_H

#include "coll/hello.h"

/* All or nothing; `memory` is -1 or a descriptor to pass.  0 or RB_EPEER. */
int rb_welcome_send(int fd, const struct rb_welcome *welcome, int memory);

/* A welcome that is on its way. */
struct rb_welcome_inbox {
    uint8_t bytes[RB_WELCOME_SIZE];
    size_t got;
    int memory; /* the descriptor that came with it; -1 at first; the owner closes it */
};

/* 0 and *ret once it is complete, RB_EAGAIN before, RB_EPEER, RB_EINVAL. */
int rb_welcome_receive(int fd, struct rb_welcome_inbox *inbox, struct rb_welcome *ret);

#endif
