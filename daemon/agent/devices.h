/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of this node: cores as the settings say, and the GPUs that a worker sees.
 *
 * rubato-worker --devices cuda > [devices] > presence (the node's fact), agent (spawning)
 *
 * Devices are looked for once, when rubatod starts; rubatod itself opens no GPU. */
#ifndef RB_DAEMON_AGENT_DEVICES_H
#define RB_DAEMON_AGENT_DEVICES_H

#include "base/error.h"
#include "facts.pb-c.h"

#include <stdbool.h>

/* GPU k of a node is its device 2000 + k, so that no number changes with the number of cores. */
enum { RB_DEVICES_GPU = 2000 };

struct rb_devices {
    Rb__Device **at;
    size_t n;
    size_t gpus;
    uint64_t memory; /* bytes, of the machine; 0: unknown */
    char *missing;   /* a sentence: why there is no GPU, or not more; NULL: nothing is */
};

/* worker: the program to ask.  Cannot fail: what is wrong with GPUs is in `missing`. */
struct rb_devices *rb_devices_new(const char *worker, unsigned cpu_devices);
void rb_devices_free(struct rb_devices *devices);

/* What a line of `rubato-worker --devices` says, added to `devices`. */
int rb_devices_take(struct rb_devices *devices, const char *line, struct rb_why *why);

/* Note the health of devices->at[i]; an empty text: nothing is known.  True: others should be told.
 */
bool rb_devices_note(struct rb_devices *devices, size_t i, const char *sick, const char *slow,
                     uint64_t used);

/* NULL: the node has no such device (any more). */
const Rb__Device *rb_devices_find(const struct rb_devices *devices, uint32_t index);

#endif
