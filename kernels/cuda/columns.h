/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a convolution written out as columns of a matrix, and gathered again.
 *
 * conv.cu > [columns] > launch.h
 *
 * Everything here is for one group and one tile: some whole samples; or, where a whole sample would
 * not fit, some places of its output or some channels of its input. */
#ifndef RB_KERNELS_CUDA_COLUMNS_H
#define RB_KERNELS_CUDA_COLUMNS_H

#include "kernels/cuda/number.h"
#include "kernels/cuda/window.h"

struct rb_conv_shape {
    struct rb_window w;
    int64_t group, m, c; /* groups; outputs and inputs of one */
    int64_t in, out, kernel, depth;
};

struct rb_conv_tile {
    int64_t group;
    int64_t first, n;  /* samples */
    int64_t from, len; /* places, or channels */
};

/* Column [sample, depth, place] from the inputs; zero beyond their ends. */
template <class T> struct rb_columns_body {
    struct rb_conv_shape s;
    struct rb_conv_tile tile; /* of places */
    int64_t sample_step, depth_step;
    const T *x;
    T *columns;

    RB_GPU void operator()(int64_t i) const
    {
        const struct rb_window &w = s.w;
        int64_t at = i % tile.len, d = i / tile.len % s.depth, sample = i / tile.len / s.depth;
        int64_t o[3], k[3], place = 0, from;
        bool inside = true;

        rb_plane_index(w.out, tile.from + at, o);
        rb_plane_index(w.kernel, d % s.kernel, k);
        for (int a = 0; a < 3; a++) {
            int64_t index = o[a] * w.stride[a] + k[a] * w.dilation[a] - w.begin[a];

            inside = inside && index >= 0 && index < w.in[a];
            place = place * w.in[a] + index;
        }
        from = ((tile.first + sample) * s.group + tile.group) * s.c + d / s.kernel;
        columns[sample * sample_step + d * depth_step + at] = inside ? x[from * s.in + place] : 0;
    }
};

/* Row [output, (sample, place)] of the gradients, which are stored sample by sample. */
template <class T> struct rb_gradient_rows_body {
    struct rb_conv_shape s;
    struct rb_conv_tile tile; /* of places */
    int64_t row;
    const T *dy;
    T *rows;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t at = i % tile.len, sample = i / tile.len % tile.n, m = i / tile.len / tile.n;
        int64_t from = ((tile.first + sample) * s.group + tile.group) * s.m + m;

        rows[m * row + sample * tile.len + at] = dy[from * s.out + tile.from + at];
    }
};

/* Input [sample, channel, place]: the sum of what columns [sample, channel and kernel, place] hold
 * of it. */
struct rb_inputs_body {
    struct rb_conv_shape s;
    struct rb_conv_tile tile; /* of channels */
    int64_t row;
    const float *columns;
    void *x;
    bool is_short;

    RB_GPU void operator()(int64_t i) const
    {
        const struct rb_window &w = s.w;
        int64_t channel = i / s.in, c = channel % tile.len, sample = channel / tile.len;
        int64_t index[3], o[3], k[3];
        struct rb_span span[3];
        float sum = 0;

        rb_plane_index(w.in, i % s.in, index);
        for (int a = 0; a < 3; a++)
            span[a] = rb_seeing(w, a, index[a]);
        for (o[0] = span[0].first; o[0] < span[0].end; o[0]++)
            for (o[1] = span[1].first; o[1] < span[1].end; o[1]++)
                for (o[2] = span[2].first; o[2] < span[2].end; o[2]++) {
                    bool sees = true;

                    for (int a = 0; a < 3; a++) {
                        k[a] = rb_element_of(w, a, o[a], index[a]);
                        sees = sees && k[a] >= 0;
                    }
                    if (sees)
                        sum += columns[(channel * s.kernel +
                                        (k[0] * w.kernel[1] + k[1]) * w.kernel[2] + k[2]) *
                                           row +
                                       (o[0] * w.out[1] + o[1]) * w.out[2] + o[2]];
                }
        channel = ((tile.first + sample) * s.group + tile.group) * s.c + tile.from + c;
        rb_real_put(x, is_short, channel * s.in + i % s.in, sum);
    }
};

#endif
