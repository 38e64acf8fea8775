/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's hands: while this rubatod leads, call rb_decide and commit what it says.
 *
 * election, store > [coordinator] > decide > store */
#ifndef RB_DAEMON_COORDINATOR_H
#define RB_DAEMON_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

struct rb_daemon;
struct rb_coordinator;
struct rb_fence;

struct rb_coordinator *rb_coordinator_new(struct rb_daemon *daemon);
void rb_coordinator_free(struct rb_coordinator *coordinator);

/* Told by presence: this rubatod holds the leader key that was created at revision `fence`; 0: no
 * more. */
void rb_coordinator_lead(struct rb_coordinator *coordinator, int64_t fence);

bool rb_coordinator_leads(const struct rb_coordinator *coordinator);

/* For commits of RPC methods served at the leader: they hold only while this rubatod leads. */
const struct rb_fence *rb_coordinator_fence(const struct rb_coordinator *coordinator);

#endif
