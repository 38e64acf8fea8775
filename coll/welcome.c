/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/welcome.h"

#include "coll/pass.h"

#include <errno.h>

int rb_welcome_send(int fd, const struct rb_welcome *welcome, int memory)
{
    uint8_t bytes[RB_WELCOME_SIZE];

    rb_welcome_encode(welcome, bytes);
    /* A fresh socket has room for this; one that has no room is of no use. */
    return rb_pass_send(fd, bytes, sizeof bytes, memory) == sizeof bytes ? 0 : RB_EPEER;
}

int rb_welcome_receive(int fd, struct rb_welcome_inbox *inbox, struct rb_welcome *ret)
{
    ssize_t got = rb_pass_receive(fd, inbox->bytes + inbox->got, sizeof inbox->bytes - inbox->got,
                                  &inbox->memory);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? RB_EAGAIN : RB_EPEER;
    if (got == 0)
        return RB_EPEER;
    inbox->got += (size_t)got;
    if (inbox->got < sizeof inbox->bytes)
        return RB_EAGAIN;
    return rb_welcome_decode(inbox->bytes, ret);
}
