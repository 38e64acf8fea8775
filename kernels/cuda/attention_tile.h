/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of attention: where its matrices lie, and what forward and backward both do with them.
 *
 * attention > [attention_tile] > attention_forward, attention_backward */
#ifndef RB_KERNELS_CUDA_ATTENTION_TILE_H
#define RB_KERNELS_CUDA_ATTENTION_TILE_H

#include "kernels/cuda/random.h"
#include "kernels/cuda/tile.h"

extern "C" {
#include "kernels/attention.h"
}

namespace
{

/* Places of the matrices of a tile in shared memory, in bytes; rows and columns are padded.
 * Forward: `own` are queries, `sum` results.  Backward: `own` are the rows that a block stays with,
 * `sum` their gradients.  `other` are the rows that the block goes through.  A matrix that a
 * direction does not use is not there. */
struct layout {
    int rows, depth, width;
    size_t own[2], other[2]; /* [rows, depth] and [rows, width] */
    size_t score, gradient;  /* float [rows, rows] */
    size_t p, d;             /* the same as factors: in the same place where factors are floats */
    size_t sum[2];           /* float [rows, depth] and [rows, width] */
    size_t most, total;      /* a float a row */
    size_t kept;             /* a byte for each score: does dropout keep it? */
    size_t bytes;
};

size_t take(struct layout *at, size_t rows, size_t columns, size_t size)
{
    size_t place = at->bytes;

    at->bytes += (rows * (columns + RB_TILE_GAP) * size + 127) / 128 * 128;
    return place;
}

struct layout layout_of(const struct rb_attention *s, size_t size, int rows, bool grad)
{
    struct layout at = {};

    at.rows = rows;
    at.depth = (int)((s->depth + RB_TILE_STEP - 1) / RB_TILE_STEP * RB_TILE_STEP);
    at.width = (int)((s->width + RB_TILE_STEP - 1) / RB_TILE_STEP * RB_TILE_STEP);
    at.own[0] = take(&at, rows, at.depth, size);
    at.own[1] = grad ? take(&at, rows, at.width, size) : 0;
    at.other[0] = take(&at, rows, at.depth, size);
    at.other[1] = take(&at, rows, at.width, size);
    at.score = take(&at, rows, rows, sizeof(float));
    at.p = size == sizeof(float) ? at.score : take(&at, rows, rows, size);
    at.sum[1] = take(&at, rows, at.width, sizeof(float));
    if (grad) {
        at.gradient = take(&at, rows, rows, sizeof(float));
        at.d = size == sizeof(float) ? at.gradient : take(&at, rows, rows, size);
        at.sum[0] = take(&at, rows, at.depth, sizeof(float));
    }
    at.most = take(&at, rows, 1, sizeof(float));
    at.total = take(&at, rows, 1, sizeof(float));
    at.kept = s->drops ? take(&at, rows, rows, 1) : 0;
    return at;
}

/* As many rows at a time as there is memory for. */
struct layout choose_layout(const struct rb_attention *s, size_t size, bool grad)
{
    struct layout at = layout_of(s, size, 64, grad);

    for (int rows = 32; at.bytes > RB_TILE_MOST && rows >= RB_TILE_STEP; rows /= 2)
        at = layout_of(s, size, rows, grad);
    return at;
}

struct words {
    struct rb_cuda_key key;
    const struct rb_cuda_key *kept; /* instead of `key`, on a tape */
};

struct __attribute__((aligned(16), may_alias)) piece {
    uint32_t words[4];
};

/* What forward and backward both need; T is the type of factors. */
template <class T> struct common {
    struct rb_attention s;
    struct layout at;
    struct words words;
    bool together; /* rows start at multiples of 16 bytes */
    const T *q, *k, *v;

    RB_GPU rb_tile_matrix<T> factors(const struct rb_tile &tile, size_t place, int columns) const
    {
        return {(T *)(tile.room + place), columns + RB_TILE_GAP};
    }

    RB_GPU rb_tile_matrix<float> floats(const struct rb_tile &tile, size_t place, int columns) const
    {
        return {(float *)(tile.room + place), columns + RB_TILE_GAP};
    }

    /* Rows from `first` on of `n` rows of `size` elements; zeros beyond both ends. */
    RB_GPU void load(struct rb_tile &tile, const rb_tile_matrix<T> &to, int columns, const T *from,
                     int64_t first, int64_t n, int64_t size) const
    {
        if (together)
            load_together(tile, to, columns, from, first, n, size);
        else
            load_each(tile, to, columns, from, first, n, size);
    }

    /* 16 bytes at a time. */
    RB_GPU void load_together(struct rb_tile &tile, const rb_tile_matrix<T> &to, int columns,
                              const T *from, int64_t first, int64_t n, int64_t size) const
    {
        const int some = sizeof(struct piece) / sizeof(T), pieces = columns / some;

        tile.each(at.rows * pieces, [&](int e) {
            int i = e / pieces, j = e % pieces * some;

            *(struct piece *)&to(i, j) = first + i < n && j < size
                                             ? *(const struct piece *)&from[(first + i) * size + j]
                                             : piece{};
        });
    }

    RB_GPU void load_each(struct rb_tile &tile, const rb_tile_matrix<T> &to, int columns,
                          const T *from, int64_t first, int64_t n, int64_t size) const
    {
        tile.each(at.rows * columns, [&](int e) {
            int64_t i = e / columns, j = e % columns;

            to(i, j) = first + i < n && j < size ? from[(first + i) * size + j] : (T)0;
        });
    }

    RB_GPU void clear(struct rb_tile &tile, const rb_tile_matrix<float> &to, int columns) const
    {
        tile.each(at.rows * columns, [&](int e) { to(e / columns, e % columns) = 0; });
    }

    RB_GPU bool sees(int64_t i, int64_t j) const
    {
        return i < s.queries && j < s.keys && (!s.causal || j <= i);
    }

    /* Which of four numbers, whose random words are block `block`, dropout keeps: a bit each. */
    RB_GPU unsigned kept_of(uint64_t block) const
    {
        unsigned bits = 0;
        uint32_t w[4];

        rb_random_block(words.kept ? *words.kept : words.key, s.id, block, w);
        for (int n = 0; n < 4; n++)
            bits |= (unsigned)(w[n] >= s.least) << n;
        return bits;
    }

    /* What dropout keeps of the probabilities of queries from i0 and keys from j0. */
    RB_GPU void drop(struct rb_tile &tile, int64_t matrix, int64_t i0, int64_t j0) const
    {
        const int fours = at.rows / 4;
        uint8_t *kept = tile.room + at.kept;

        if (!s.drops)
            return;
        tile.each(at.rows * fours, [&](int e) {
            int i = e / fours, j = e % fours * 4;
            uint64_t first = (uint64_t)((matrix * s.queries + i0 + i) * s.keys + j0 + j);
            unsigned bits = kept_of(first / 4) >> first % 4;

            if (first % 4)
                bits |= kept_of(first / 4 + 1) << (4 - first % 4);
            for (int n = 0; n < 4; n++)
                kept[i * (at.rows + RB_TILE_GAP) + j + n] = bits >> n & 1;
        });
    }

    /* The factor that dropout gives a probability of the tile. */
    RB_GPU float factor(const struct rb_tile &tile, int64_t i, int64_t j) const
    {
        if (!s.drops)
            return 1;
        return tile.room[at.kept + (size_t)(i * (at.rows + RB_TILE_GAP) + j)] ? s.factor : 0;
    }
};

} // namespace

#endif
