/* SPDX-License-Identifier: Apache-2.0 */
/* Dialling: begin to connect to "unix:PATH" or "tcp:HOST:PORT".
 *
 * meet > [dial] > a socket */
#ifndef RB_COLL_DIAL_H
#define RB_COLL_DIAL_H

#include "base/error.h"

#include <stdbool.h>

/* A socket that is connected or about to be (poll it for POLLOUT), or a negative error: RB_EAGAIN
 * when the peer is busy, RB_EINVAL for a malformed address. */
int rb_dial(const char *address, bool *ret_local);

/* 0 once connected, RB_EAGAIN while under way, RB_EUNREACHABLE. */
int rb_dial_result(int fd);

#endif
