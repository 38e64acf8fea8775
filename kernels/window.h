/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that slide over 1 to 3 spatial axes: what convolutions and pools share.
 *
 * Attributes are read and checked against the tensors' shapes once; a plane with fewer than three
 * spatial axes gets axes of size 1 in front. */
#ifndef RB_KERNELS_WINDOW_H
#define RB_KERNELS_WINDOW_H

#include "kernels/call.h"

struct rb_window {
    int spatial;  /* axes of the tensors: 1 to 3 */
    int64_t n, c; /* samples and channels of the input (pools: of the output too) */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
};

/* How many spatial axes a convolution (with these weights) or a pool (w NULL) has: it tells
 * activations in blocks of channels (proto/blocked.h) from plain ones.  0 or less: neither. */
int rb_window_spatial(const struct rb_call *call, const struct rb_tensor_type *w);

/* x: the input's type, y: the output's, both without blocks.  Kernel sizes come from `w`'s last
 * axes, or from the attribute "kernel" where w is NULL.  That is a pool, which is refused where the
 * padding on a side is not smaller than the window (a convolution may have more). */
int rb_window_read(const struct rb_call *call, const struct rb_tensor_type *x,
                   const struct rb_tensor_type *w, const struct rb_tensor_type *y,
                   struct rb_window *ret_window, struct rb_why *why);

/* The first kernel element along `axis` from `k` on that any output sees inside the input, and the
 * outputs [*ret_first, *ret_end) that do; the kernel's size if there is none.  Takes no more steps
 * than there are outputs, however large the kernel. */
int64_t rb_window_next(const struct rb_window *window, int axis, int64_t k, int64_t *ret_first,
                       int64_t *ret_end);

#endif
