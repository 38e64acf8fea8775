/* SPDX-License-Identifier: Apache-2.0 */
/* Windows on a GPU: which kernel elements an output sees inside the input, and which outputs see an
 * input.  Loops go over what is there, however large a kernel is. */
#ifndef RB_KERNELS_CUDA_WINDOW_H
#define RB_KERNELS_CUDA_WINDOW_H

#include "kernels/cuda/launch.h"

/* Rounded up, for divisors above 0. */
static inline RB_GPU int64_t rb_up(int64_t a, int64_t b)
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

struct rb_span {
    int64_t first, end;
};

/* Kernel elements along `axis` that output `o` has at places [low, high) of the input. */
static inline RB_GPU struct rb_span rb_seen_by(const struct rb_window &w, int axis, int64_t o,
                                               int64_t low, int64_t high)
{
    int64_t at = o * w.stride[axis] - w.begin[axis]; /* of element 0 */
    struct rb_span k = {rb_up(low - at, w.dilation[axis]), rb_up(high - at, w.dilation[axis])};

    k.first = k.first > 0 ? k.first : 0;
    k.end = k.end < w.kernel[axis] ? k.end : w.kernel[axis];
    return k;
}

/* Outputs along `axis` among which are all that see place `i` of the input; rb_element_of says
 * with which element. */
static inline RB_GPU struct rb_span rb_seeing(const struct rb_window &w, int axis, int64_t i)
{
    int64_t last = i + w.begin[axis], reach = (w.kernel[axis] - 1) * w.dilation[axis];
    struct rb_span o = {rb_up(last - reach, w.stride[axis]), last / w.stride[axis] + 1};

    o.first = o.first > 0 ? o.first : 0;
    o.end = o.end < w.out[axis] ? o.end : w.out[axis];
    return o;
}

/* -1: output `o` does not see place `i`. */
static inline RB_GPU int64_t rb_element_of(const struct rb_window &w, int axis, int64_t o,
                                           int64_t i)
{
    int64_t d = i + w.begin[axis] - o * w.stride[axis];

    return d >= 0 && d % w.dilation[axis] == 0 && d / w.dilation[axis] < w.kernel[axis]
               ? d / w.dilation[axis]
               : -1;
}

/* A flat place of a plane of these sizes, by axis. */
static inline RB_GPU void rb_plane_index(const int64_t *dim, int64_t i, int64_t *ret)
{
    ret[2] = i % dim[2];
    ret[1] = i / dim[2] % dim[1];
    ret[0] = i / dim[2] / dim[1];
}

#endif
