/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, and what they hand back, on processors with AVX2 and no AVX-512, where oneDNN's
 * turn blocks of 16 channels around first and take up to a fifth longer.
 *
 * conv > [conv_direct] > conv_direct_phases, conv_tile
 *
 * A window is gone through where it lies, so only what padding there is at the sides is copied
 * around; rows of it above and below are left out.  What is handed back is a convolution, too: of
 * dy with the weights turned around, and with a stride of s one for each of s x s places.  Each
 * element is one chain of fused multiply-adds from the bias on, over the blocks of channels, in
 * each over the rows of the window: its bits depend on its window and its weights alone. */
#ifndef RB_KERNELS_CPU_CONV_DIRECT_H
#define RB_KERNELS_CPU_CONV_DIRECT_H

#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

/* y, with m channels in blocks, of x as `window` says, of one group and with equal strides.
 * RB_EUNSUPPORTED: others are quicker here, which shapes and the numeric class alone decide.
 * RB_ENOMEM.
 *
 * blocked: x is, too; if not, it has few channels. */
int rb_cpu_conv_direct(struct rb_cpu *cpu, const struct rb_window *window, int64_t m, bool blocked,
                       bool bias, struct rb_kernel **ret_kernel);
/* dx, in blocks, of dy and the weights. */
int rb_cpu_conv_direct_back(struct rb_cpu *cpu, const struct rb_window *window, int64_t m,
                            bool blocked, struct rb_kernel **ret_kernel);

/* Is such a window one for tiles of AVX2 (conv_tile.h)? */
bool rb_conv_direct_suits(const struct rb_window *window, bool blocked);

#endif
