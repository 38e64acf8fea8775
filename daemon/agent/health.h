/* SPDX-License-Identifier: Apache-2.0 */
/* Health: every few seconds this node's GPUs are looked at; one that is sick is left, and nobody
 * new comes to it.
 *
 * nvml > [health] > devices > presence (the node's fact) > coordinator
 *
 * A sick GPU is like a drained node of that one device: who trains on it moves off, without a step
 * lost where it still works.  It stays sick until rubatod is started again, which is what follows a
 * repair.  Looking is done by another thread. */
#ifndef RB_DAEMON_AGENT_HEALTH_H
#define RB_DAEMON_AGENT_HEALTH_H

struct rb_devices;
struct rb_health;
struct rb_presence;

#include <uv.h>

/* NULL where there is no GPU to look at. */
struct rb_health *rb_health_new(uv_loop_t *loop, struct rb_devices *devices,
                                struct rb_presence *presence);
void rb_health_free(struct rb_health *health);

#endif
