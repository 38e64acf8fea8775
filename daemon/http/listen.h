/* SPDX-License-Identifier: Apache-2.0 */
/* The socket on which health and metrics are asked for.
 *
 * settings > [listen] > http */
#ifndef RB_DAEMON_HTTP_LISTEN_H
#define RB_DAEMON_HTTP_LISTEN_H

#include "base/error.h"

#include <sys/socket.h>

/* ADDRESS:PORT or [ADDRESS]:PORT, with a numeric address; one of IPv6 may do without brackets, as
 * Kubernetes gives it.  RB_EINVAL: it is neither. */
int rb_http_address(const char *text, struct sockaddr_storage *ret, struct rb_why *why);

/* A socket that listens and does not block, the caller's to close; port 0: any.
 *
 * ret_address: the address really taken, the caller's to free.  RB_EEXISTS: in use. */
int rb_http_listen(const char *text, int *ret_socket, char **ret_address, struct rb_why *why);

#endif
