/* SPDX-License-Identifier: Apache-2.0 */
/* The private etcd of --single-node: a child process on unix sockets in the state folder.
 *
 * main > [private_etcd] > etcd
 *
 * etcd dies with rubatod, also when rubatod is killed, and is started again when it dies by
 * itself. */
#ifndef RB_DAEMON_ETCD_PRIVATE_ETCD_H
#define RB_DAEMON_ETCD_PRIVATE_ETCD_H

#include "base/error.h"

#include <uv.h>

struct rb_private_etcd;

/* self: rubatod's own binary, which is run again to tie etcd's life to ours.
 * ret_endpoint: "unix:PATH", the private_etcd's. */
int rb_private_etcd_start(uv_loop_t *loop, const char *self, const char *folder,
                          const char **ret_endpoint, struct rb_private_etcd **ret,
                          struct rb_why *why);

/* End it; `done` runs once, when it is gone (killed after `timeout_ms`). */
void rb_private_etcd_stop(struct rb_private_etcd *etcd, uint64_t timeout_ms,
                          void (*done)(void *context), void *context);
void rb_private_etcd_free(struct rb_private_etcd *etcd); /* kills it if it still runs */

/* What main does when it finds itself run as "rubatod --launch PARENT PROGRAM ARGUMENTS...": asks
 * the kernel to end this process with its parent, then becomes the program.  Returns the exit
 * status when that fails. */
int rb_private_etcd_launch(int argc, char **argv);
#define RB_PRIVATE_ETCD_LAUNCH "--launch"

#endif
