/* SPDX-License-Identifier: Apache-2.0 */
/* Health: every few seconds this node's GPUs are looked at; jobs leave a sick GPU, and no new
 * worker comes to it.
 *
 * nvml > [health] > devices > presence (the node's fact) > coordinator
 *
 * A sick GPU is like a drained node of that one device: the job that trains on it moves off, and
 * loses no step if the GPU still works.  The GPU stays sick until rubatod is restarted, which is
 * what follows a repair.  Another thread does the looking. */
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
