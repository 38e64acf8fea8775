/* SPDX-License-Identifier: Apache-2.0 */
/* What was sent to a processor in a GPU's place and has not arrived.  A send arrives as late as it
 * may, in front of the next thing that is done there. */
#ifndef RB_KERNELS_CUDA_GPU_HOST_SEND_H
#define RB_KERNELS_CUDA_GPU_HOST_SEND_H

#include <stddef.h>

struct rb_host_sends;

struct rb_host_sends *rb_host_sends_new(void);
void rb_host_sends_free(struct rb_host_sends *sends);

/* Any thread may call these. */
void rb_host_sends_add(struct rb_host_sends *sends, void *to, const void *from, size_t bytes);
void rb_host_sends_arrive(struct rb_host_sends *sends);

#endif
