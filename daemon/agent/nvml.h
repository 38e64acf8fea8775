/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library says about GPUs.  It opens none of them.
 *
 * libnvidia-ml.so.1 (opened at run time) > [nvml] > health
 *
 * Calls may take long where a GPU is broken: not for the loop's thread, and one at a time. */
#ifndef RB_DAEMON_AGENT_NVML_H
#define RB_DAEMON_AGENT_NVML_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_nvml;
struct rb_nvml_gpu;

/* What was found in one look. */
struct rb_nvml_look {
    char sick[160];     /* why it is not to be computed on; empty: nothing is known against it */
    char slow[80];      /* why its clocks are held down; empty: they are not */
    uint64_t xids;      /* errors that the driver has told of since the look before */
    uint64_t used, all; /* bytes of its memory; 0: it does not say */
};

/* RB_ENOTFOUND and a sentence: there is no library at `path`, or no driver behind it. */
int rb_nvml_open(const char *path, struct rb_nvml **ret_nvml, struct rb_why *why);
void rb_nvml_close(struct rb_nvml *nvml);

/* The GPU at a PCI address as CUDA writes it ("0000:1b:00.0"); lives as long as `nvml`. */
int rb_nvml_find(struct rb_nvml *nvml, const char *bus, struct rb_nvml_gpu **ret_gpu,
                 struct rb_why *why);

/* Take what the driver has told since the last time, of all GPUs that were found. */
void rb_nvml_listen(struct rb_nvml *nvml);

/* The reason that has made a GPU sick is told by each later look, too. */
void rb_nvml_look_at(struct rb_nvml_gpu *gpu, struct rb_nvml_look *ret_look);

#endif
