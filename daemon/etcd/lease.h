/* SPDX-License-Identifier: Apache-2.0 */
/* The lease: what ties keys in etcd to the life of this rubatod.
 *
 * etcd > [lease] > store (leased writes), presence, election
 *
 * Granted, kept alive three times within its life, and granted anew when it was lost.  A restart of
 * etcd arms leases to their full time again, so silence from etcd says nothing about a lease. */
#ifndef RB_DAEMON_ETCD_LEASE_H
#define RB_DAEMON_ETCD_LEASE_H

#include <stdint.h>
#include <uv.h>

struct rb_etcd;
struct rb_lease;

/* known: a lease that this node had before it was restarted, to go on with; 0: none.
 * changed: with the lease's id when there is one, with 0 when it was lost. */
struct rb_lease *rb_lease_new(uv_loop_t *loop, struct rb_etcd *etcd, int64_t ttl_s, int64_t known,
                              void (*changed)(int64_t id, void *context), void *context);

int64_t rb_lease_id(const struct rb_lease *lease);    /* 0: none now */
int64_t rb_lease_known(const struct rb_lease *lease); /* also one that etcd has not confirmed yet */

/* Give it up, with all its keys; `done` runs once, at the latest after `timeout_ms`. */
void rb_lease_revoke(struct rb_lease *lease, uint64_t timeout_ms, void (*done)(void *context),
                     void *context);

void rb_lease_free(struct rb_lease *lease); /* leaves it to run out */

#endif
