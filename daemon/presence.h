/* SPDX-License-Identifier: Apache-2.0 */
/* Presence: this node's key, tied to its lease; and its candidacy for the coordinator's place.
 *
 * lease, store > [presence] > nodes/NODE, leader > coordinator */
#ifndef RB_DAEMON_PRESENCE_H
#define RB_DAEMON_PRESENCE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_daemon;
struct rb_etcd;
struct rb_presence;

/* address: where other nodes reach this one's rubatod. */
struct rb_presence *rb_presence_new(struct rb_daemon *daemon, struct rb_etcd *etcd,
                                    const char *address);

/* `taken` runs, once, where the node's name is another living rubatod's. */
void rb_presence_on_taken(struct rb_presence *presence, void (*taken)(void *context),
                          void *context);

/* Where this node serves health and metrics; once, before the loop runs. */
void rb_presence_serves(struct rb_presence *presence, const char *http);

/* Is the node's key in etcd, under a lease that stands? */
bool rb_presence_announced(const struct rb_presence *presence);

/* Who has the node's name, by the lease of its key in facts: this state folder, nobody, or another
 * rubatod, which lives or died a moment ago. */
enum rb_name { RB_NAME_OURS, RB_NAME_FREE, RB_NAME_ANOTHERS };
enum rb_name rb_presence_name(const struct rb_presence *presence);

/* Say that this node stops, in `within_ms` at the latest: jobs are to move off it. */
void rb_presence_leave(struct rb_presence *presence, uint64_t within_ms);

/* Give up the lease, and with it all keys under it. */
void rb_presence_end(struct rb_presence *presence, uint64_t timeout_ms, void (*done)(void *context),
                     void *context);

/* What the node's key says may have changed (devices, links): other nodes are to hear of it. */
void rb_presence_look(struct rb_presence *presence);

void rb_presence_free(struct rb_presence *presence);

#endif
