/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the CPU as a device: slots of its operations table (kernels/backend.h).
 *
 * cpu/device > [memory] > the heap, maps, files without a name
 *
 * Large memory is mapped, in large pages where the kernel has them, and takes up physical memory
 * only where it was written.  Shown memory lies in a file that other processes may map. */
#ifndef RB_KERNELS_CPU_MEMORY_H
#define RB_KERNELS_CPU_MEMORY_H

#include "kernels/device.h"

void *rb_cpu_alloc(struct rb_device *device, size_t bytes);
void *rb_cpu_alloc_shown(struct rb_device *device, size_t bytes);
int rb_cpu_shown(struct rb_device *device, const void *memory);
void rb_cpu_release(struct rb_device *device, void *memory);
void rb_cpu_discard(struct rb_device *device, void *memory, size_t bytes);
void rb_cpu_expect(struct rb_device *device, void *memory, size_t bytes,
                   const struct rb_extent *extents, size_t n);

#endif
