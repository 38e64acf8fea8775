/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a convolution's weights on processors with AVX2 and no AVX-512, where oneDNN's take
 * up to half as long again.
 *
 * conv > [conv_weights] > conv_direct (which windows suit), conv_tile
 *
 * One number of x is multiplied with 16 channels of dy at a time, over all pixels at which a tap of
 * the windows sees x.  Some pixels, which stay in the first cache, are gone through for all taps.
 * Each element is one chain of fused multiply-adds in the order of images and pixels: its bits
 * depend on nothing else. */
#ifndef RB_KERNELS_CPU_CONV_WEIGHTS_H
#define RB_KERNELS_CPU_CONV_WEIGHTS_H

#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

/* For one group, with m channels of dy in blocks; blocked: x is in blocks, too, and if not it has
 * few channels.  RB_EUNSUPPORTED: another kernel is quicker here, which shapes and the numeric
 * class alone decide.  RB_ENOMEM. */
int rb_cpu_conv_weights(struct rb_cpu *cpu, const struct rb_window *window, int64_t m, bool blocked,
                        struct rb_kernel **ret_kernel);

#endif
