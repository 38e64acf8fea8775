/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes through a unix socket, and a file with them.
 *
 * welcome, link_shared > [pass] */
#ifndef RB_COLL_PASS_H
#define RB_COLL_PASS_H

#include <stddef.h>
#include <sys/types.h>

/* As send and recv, without waiting.  file: a descriptor to pass; -1: none. */
ssize_t rb_pass_send(int fd, const void *bytes, size_t size, int file);

/* *file: if it is -1, it becomes the descriptor that has come, if one has: the caller closes it. */
ssize_t rb_pass_receive(int fd, void *bytes, size_t size, int *file);

#endif
