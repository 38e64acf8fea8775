/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a convolution's weights where there are many channels and few pixels: what deep
 * layers make of small microbatches.
 *
 * conv > [conv_outer] > outer
 *
 * dw [m, c * taps] is a sum over all pixels of dy: of the pixel's m channels times what its window
 * shows of x.  That is an outer product, which can go into fixed-point sums from registers.  oneDNN
 * writes a gradient of that size in blocks, and turns it around.  Windows are laid out for some
 * channels of x at a time, so that they stay in cache. */
#ifndef RB_KERNELS_CPU_CONV_OUTER_H
#define RB_KERNELS_CPU_CONV_OUTER_H

#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

/* For one group, with m channels of dy, and x as `window` says, both in blocks of channels; dw is
 * float32.  RB_EUNSUPPORTED: another kernel is quicker here, which shapes and the numeric class
 * alone decide.  RB_ENOMEM. */
int rb_cpu_conv_outer(struct rb_cpu *cpu, const struct rb_window *window, int64_t m,
                      enum rb_dtype factors, struct rb_kernel **ret_kernel);

#endif
