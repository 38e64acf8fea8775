/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward: scores are made again from the logarithms of the forward's sums; a block of
 * keys goes through the queries for dk and dv, a block of queries through the keys for dq.
 *
 * attention > [attention_backward] > tile
 *
 * So each gradient is summed by one block, in one order, and nothing is added from two sides. */
#ifndef RB_KERNELS_CUDA_ATTENTION_BACKWARD_H
#define RB_KERNELS_CUDA_ATTENTION_BACKWARD_H

#include "kernels/cuda/attention_tile.h"

namespace
{

/* A row of dy times its row of y: what the probabilities of a query have in common. */
template <class T> struct inner_body {
    int64_t width;
    const T *dy, *y;
    float *inner;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        const T *a = dy + row * width, *b = y + row * width;
        float sum = lanes.fold(width, 0.0f, rb_sum_of(),
                               [&](int64_t e) { return rb_tile_get(a[e]) * rb_tile_get(b[e]); });

        if (lanes.first())
            inner[row] = sum;
    }
};

template <class T> struct backward_body : common<T> {
    const T *dy;
    const float *l, *inner;
    bool of_queries; /* dq; else dk and dv */
    void *dq, *dk, *dv;
    bool short_out[3];

    /* p and d of queries from i0 and keys from j0, whichever of them the block stays with. */
    RB_GPU void find(struct rb_tile &tile, int64_t matrix, int64_t i0, int64_t j0,
                     const rb_tile_matrix<T> &q, const rb_tile_matrix<T> &k,
                     const rb_tile_matrix<T> &gradient, const rb_tile_matrix<T> &v) const
    {
        const struct backward_body &my = *this;
        const int rows = my.at.rows;
        auto score = my.floats(tile, my.at.score, rows), dp = my.floats(tile, my.at.gradient, rows);
        auto p = my.factors(tile, my.at.p, rows), d = my.factors(tile, my.at.d, rows);

        my.drop(tile, matrix, i0, j0);
        my.clear(tile, score, rows);
        my.clear(tile, dp, rows);
        rb_tile_multiply<false, true>(tile, rows, rows, my.at.depth, q, k, score);
        rb_tile_multiply<false, true>(tile, rows, rows, my.at.width, gradient, v, dp);
        tile.rows(rows, [&](int i, auto &lanes) {
            int64_t row = matrix * my.s.queries + i0 + i;

            lanes.each(rows, [&](int64_t j) {
                float kept = 0, from = 0;

                if (my.sees(i0 + i, j0 + j)) {
                    float e = expf(my.s.scale * score(i, j) - my.l[row]);
                    float factor = my.factor(tile, i, j);

                    kept = e * factor;
                    from = e * (dp(i, j) * factor - my.inner[row]) * my.s.scale;
                }
                rb_tile_put(&p(i, j), kept);
                rb_tile_put(&d(i, j), from);
            });
        });
    }

    RB_GPU void store(struct rb_tile &tile, const rb_tile_matrix<float> &from, void *to,
                      bool is_short, int64_t matrix, int64_t first, int64_t n, int64_t size) const
    {
        if (to)
            tile.each(this->at.rows * (int)size, [&](int e) {
                int64_t i = e / size, j = e % size;

                if (first + i < n)
                    rb_real_put(to, is_short, (matrix * n + first + i) * size + j, from(i, j));
            });
    }

    RB_GPU void operator()(int64_t block, struct rb_tile &tile) const
    {
        const struct backward_body &my = *this;
        const struct rb_attention &s = my.s;
        const int rows = my.at.rows, depth = my.at.depth, width = my.at.width;
        int64_t own_n = of_queries ? s.queries : s.keys, other_n = of_queries ? s.keys : s.queries;
        int64_t tiles = (own_n + rows - 1) / rows, matrix = block / tiles;
        int64_t first = block % tiles * rows;
        /* Later keys are hidden: queries go through keys up to themselves, keys through queries
         * from themselves on. */
        int64_t from = s.causal && !of_queries ? first : 0;
        int64_t end = s.causal && of_queries && first + rows < other_n ? first + rows : other_n;
        const T *queries = my.q + matrix * s.queries * s.depth;
        const T *gradients = my.dy + matrix * s.queries * s.width;
        const T *keys = my.k + matrix * s.keys * s.depth;
        const T *values = my.v + matrix * s.keys * s.width;
        auto a = my.factors(tile, my.at.own[0], depth), b = my.factors(tile, my.at.own[1], width);
        auto c = my.factors(tile, my.at.other[0], depth);
        auto e = my.factors(tile, my.at.other[1], width);
        auto p = my.factors(tile, my.at.p, rows), d = my.factors(tile, my.at.d, rows);
        auto sum_d = my.floats(tile, my.at.sum[0], depth);
        auto sum_w = my.floats(tile, my.at.sum[1], width);

        my.load(tile, a, depth, of_queries ? queries : keys, first, own_n, s.depth);
        my.load(tile, b, width, of_queries ? gradients : values, first, own_n, s.width);
        my.clear(tile, sum_d, depth);
        my.clear(tile, sum_w, width);
        for (int64_t at = from; at < end; at += rows) {
            my.load(tile, c, depth, of_queries ? keys : queries, at, other_n, s.depth);
            my.load(tile, e, width, of_queries ? values : gradients, at, other_n, s.width);
            if (of_queries) {
                find(tile, matrix, first, at, a, c, b, e);
                rb_tile_multiply<false, false>(tile, rows, depth, rows, d, c, sum_d);
            } else {
                find(tile, matrix, at, first, c, a, e, b);
                rb_tile_multiply<true, false>(tile, rows, depth, rows, d, c, sum_d);
                rb_tile_multiply<true, false>(tile, rows, width, rows, p, e, sum_w);
            }
        }
        if (of_queries) {
            store(tile, sum_d, dq, short_out[0], matrix, first, s.queries, s.depth);
        } else {
            store(tile, sum_d, dk, short_out[1], matrix, first, s.keys, s.depth);
            store(tile, sum_w, dv, short_out[2], matrix, first, s.keys, s.width);
        }
    }
};

} // namespace

#endif
