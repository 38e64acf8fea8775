/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, and the gradients of their inputs, on processors with AVX2 and no AVX-512, where
 * oneDNN turns blocks of 16 channels around first and takes up to a fifth longer.
 *
 * conv > [conv_direct] > conv_direct_phases, conv_tile
 *
 * Windows are read where they lie; an input is copied only where zeros have to stand at its sides
 * as padding, and rows of padding above and below are left out.  The gradient of the input is a
 * convolution, too: of dy with the weights turned around, and with a stride of s one convolution
 * for each of s x s places.  Each element is one chain of fused multiply-adds from the bias on,
 * over blocks of channels and rows of the window in an order that shapes alone decide: its bits
 * depend on its window and its weights alone. */
#ifndef RB_KERNELS_CPU_CONV_DIRECT_H
#define RB_KERNELS_CPU_CONV_DIRECT_H

#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

/* y, with m channels in blocks, from x as `window` says, with one group and equal strides.
 * RB_EUNSUPPORTED: another kernel is quicker here, which shapes and the numeric class alone decide.
 * RB_ENOMEM.
 *
 * blocked: x is in blocks, too; if not, it has few channels. */
int rb_cpu_conv_direct(struct rb_cpu *cpu, const struct rb_window *window, int64_t m, bool blocked,
                       bool bias, struct rb_kernel **ret_kernel);
/* dx, in blocks, from dy and the weights. */
int rb_cpu_conv_direct_back(struct rb_cpu *cpu, const struct rb_window *window, int64_t m,
                            bool blocked, struct rb_kernel **ret_kernel);

/* Do the tiles of AVX2 (conv_tile.h) suit this window? */
bool rb_conv_direct_suits(const struct rb_window *window, bool blocked);

#endif
