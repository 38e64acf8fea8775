/* SPDX-License-Identifier: Apache-2.0 */
/* The RPC methods that users call (docs/rpc.md), and the leader's work beyond deciding.
 *
 * server > [methods] > store, server (other nodes) */
#ifndef RB_DAEMON_RPC_METHODS_H
#define RB_DAEMON_RPC_METHODS_H

struct rb_daemon;
struct rb_methods;

/* Add all methods to daemon->server.  daemon's store, server and blobs are there already. */
struct rb_methods *rb_methods_new(struct rb_daemon *daemon);

/* Called by the leader after each change of facts and decision, when nothing is left to write:
 * start what needs more than facts (receipts, from the nodes' metrics), if it is not under way. */
void rb_methods_lead(struct rb_methods *methods);

/* Pending calls end without effect. */
void rb_methods_free(struct rb_methods *methods);

#endif
