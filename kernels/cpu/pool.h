/* SPDX-License-Identifier: Apache-2.0 */
/* How pools go over their planes, and the pools of activations in blocks of channels. */
#ifndef RB_KERNELS_CPU_POOL_H
#define RB_KERNELS_CPU_POOL_H

#include "kernels/cpu/vector.h"
#include "kernels/window.h"

/* Outputs [first, end) of one row, all seeing kernel element (kd, kh, kw). */
struct piece {
    int64_t first, n; /* along the output's last axis */
    int64_t out, in;  /* offset of the first of them in the output, of its element in the input */
};

/* Kernel elements along an axis that are inside the input for outputs [first, end), not empty. */
#define FOR_SEEN(w, axis, k, first, end)                                                           \
    for (int64_t k = rb_window_next(w, axis, 0, &first, &end); k < (w)->kernel[axis];              \
         k = rb_window_next(w, axis, k + 1, &first, &end))

/* Call `body` for each piece of a plane.  A macro, so that the loops inside become vectors. */
#define FOR_PIECES(w, piece, body)                                                                 \
    do {                                                                                           \
        int64_t d0, d1, h0, h1, w0, w1;                                                            \
        FOR_SEEN(w, 0, kd, d0, d1)                                                                 \
        FOR_SEEN(w, 1, kh, h0, h1)                                                                 \
        FOR_SEEN(w, 2, kw, w0, w1)                                                                 \
        for (int64_t d = d0; d < d1; d++)                                                          \
            for (int64_t h = h0; h < h1; h++) {                                                    \
                struct piece piece = piece_at(w, d, h, w0, w1, kd, kh, kw);                        \
                body                                                                               \
            }                                                                                      \
    } while (0)

static RB_INLINE struct piece piece_at(const struct rb_window *w, int64_t d, int64_t h, int64_t w0,
                                       int64_t w1, int64_t kd, int64_t kh, int64_t kw)
{
    int64_t id = d * w->stride[0] + kd * w->dilation[0] - w->begin[0];
    int64_t ih = h * w->stride[1] + kh * w->dilation[1] - w->begin[1];
    int64_t iw = w0 * w->stride[2] + kw * w->dilation[2] - w->begin[2];

    return (struct piece){
        .first = w0,
        .n = w1 - w0,
        .out = (d * w->out[1] + h) * w->out[2] + w0,
        .in = (id * w->in[1] + ih) * w->in[2] + iw,
    };
}

/* ---- One block of channels of one sample (proto/blocked.h): 16 planes side by side ---- */

/* Positions are those of one plane. */
void rb_pool_max(const struct rb_window *w, const float *x, float *y, int32_t *at);
void rb_pool_max_grad(const struct rb_window *w, const float *dy, const int32_t *at, float *dx);

/* share: what the sum of each output of a plane is multiplied by.  dx holds zeros. */
void rb_pool_average(const struct rb_window *w, const float *share, const float *x, float *y);
void rb_pool_average_grad(const struct rb_window *w, const float *share, const float *dy,
                          float *dx);

#endif
