/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward: a block of queries goes through the keys; what it has summed up is scaled down
 * whenever a larger score comes.
 *
 * attention > [attention_forward] > tile */
#ifndef RB_KERNELS_CUDA_ATTENTION_FORWARD_H
#define RB_KERNELS_CUDA_ATTENTION_FORWARD_H

#include "kernels/cuda/attention_tile.h"

namespace
{

template <class T> struct forward_body : common<T> {
    void *y;
    bool short_y;
    float *l; /* or NULL */

    RB_GPU void take_keys(struct rb_tile &tile, int64_t matrix, int64_t i0, int64_t j0) const
    {
        const struct forward_body &my = *this;
        const int rows = my.at.rows;
        auto score = my.floats(tile, my.at.score, rows);
        auto p = my.factors(tile, my.at.p, rows);
        auto sum = my.floats(tile, my.at.sum[1], my.at.width);
        float *most = (float *)(tile.room + my.at.most);
        float *total = (float *)(tile.room + my.at.total);

        my.drop(tile, matrix, i0, j0);
        tile.rows(rows, [&](int i, auto &lanes) {
            float before = most[i];
            float top = lanes.fold(rows, before, rb_larger_of(), [&](int64_t j) {
                return my.sees(i0 + i, j0 + j) ? my.s.scale * score(i, j) : -INFINITY;
            });
            float base = top == -INFINITY ? 0 : top, less = expf(before - base);
            float part = lanes.fold(rows, 0.0f, rb_sum_of(), [&](int64_t j) {
                bool seen = my.sees(i0 + i, j0 + j);
                float e = seen ? expf(my.s.scale * score(i, j) - base) : 0;

                rb_tile_put(&p(i, j), seen ? e * my.factor(tile, i, j) : 0);
                return e;
            });

            lanes.each(my.at.width, [&](int64_t e) { sum(i, e) *= less; });
            if (lanes.first()) {
                most[i] = top;
                total[i] = total[i] * less + part;
            }
        });
    }

    RB_GPU void operator()(int64_t block, struct rb_tile &tile) const
    {
        const struct forward_body &my = *this;
        const int rows = my.at.rows, depth = my.at.depth, width = my.at.width;
        int64_t tiles = (my.s.queries + rows - 1) / rows, matrix = block / tiles;
        int64_t i0 = block % tiles * rows;
        const T *keys = my.k + matrix * my.s.keys * my.s.depth;
        const T *values = my.v + matrix * my.s.keys * my.s.width;
        auto q = my.factors(tile, my.at.own[0], depth), k = my.factors(tile, my.at.other[0], depth);
        auto v = my.factors(tile, my.at.other[1], width), p = my.factors(tile, my.at.p, rows);
        auto score = my.floats(tile, my.at.score, rows);
        auto sum = my.floats(tile, my.at.sum[1], width);
        float *most = (float *)(tile.room + my.at.most);
        float *total = (float *)(tile.room + my.at.total);

        my.load(tile, q, depth, my.q + matrix * my.s.queries * my.s.depth, i0, my.s.queries,
                my.s.depth);
        my.clear(tile, sum, width);
        tile.each(rows, [&](int i) {
            most[i] = -INFINITY;
            total[i] = 0;
        });
        for (int64_t j0 = 0; j0 < my.s.keys && (!my.s.causal || j0 < i0 + rows); j0 += rows) {
            my.load(tile, k, depth, keys, j0, my.s.keys, my.s.depth);
            my.load(tile, v, width, values, j0, my.s.keys, my.s.width);
            my.clear(tile, score, rows);
            rb_tile_multiply<false, true>(tile, rows, rows, depth, q, k, score);
            take_keys(tile, matrix, i0, j0);
            rb_tile_multiply<false, false>(tile, rows, width, rows, p, v, sum);
        }
        tile.rows(rows, [&](int i, auto &lanes) {
            int64_t row = matrix * my.s.queries + i0 + i;

            if (i0 + i >= my.s.queries)
                return;
            lanes.each(my.s.width, [&](int64_t e) {
                rb_real_put(my.y, my.short_y, row * my.s.width + e, sum(i, e) / total[i]);
            });
            if (my.l && lanes.first())
                my.l[row] = most[i] + logf(total[i]);
        });
    }
};

} // namespace

#endif
