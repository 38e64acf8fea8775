// SPDX-License-Identifier: Apache-2.0
/* Attention in tiles: of the scores there is never more than a tile, in shared memory.
 *
 *     forward    a block of queries goes through the keys; what it has summed up is scaled down
 *                whenever a larger score comes
 *     backward   scores are made again from the logarithms of the forward's sums: a block of keys
 *                goes through the queries for dk and dv, a block of queries through the keys for dq
 *
 * So each gradient is summed by one block, in one order, and nothing is added from two sides. */
#include "kernels/cuda/random.h"
#include "kernels/cuda/tile.h"

extern "C" {
#include "kernels/attention.h"
}

namespace
{

/* Places of the matrices of a tile in shared memory, in bytes; rows and columns as they are padded.
 * Forward: `own` are queries, `sum` results.  Backward: rows that a block stays with, and their
 * gradients; `other` are those that it goes through.  What a way does not use is not there. */
struct layout {
    int rows, depth, width;
    size_t own[2], other[2]; /* [rows, depth] and [rows, width] */
    size_t score, gradient;  /* float [rows, rows] */
    size_t p, d;             /* the same as factors: in their place where these are floats */
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

/* What both ways need: T is what factors are kept as. */
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

    /* What that makes of a probability of the tile: its factor. */
    RB_GPU float factor(const struct rb_tile &tile, int64_t i, int64_t j) const
    {
        if (!s.drops)
            return 1;
        return tile.room[at.kept + (size_t)(i * (at.rows + RB_TILE_GAP) + j)] ? s.factor : 0;
    }
};

/* ---- Forward ----------------------------------------------------------------------------------*/

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

/* ---- Backward ---------------------------------------------------------------------------------*/

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

/* ---- Kernels ----------------------------------------------------------------------------------*/

template <class T> struct attention : rb_work {
    struct rb_attention s;
    struct layout at;
    bool grad, together, short_out[3];

    int64_t tiles(int64_t rows) const
    {
        return s.batch * ((rows + at.rows - 1) / at.rows);
    }

    void set(struct rb_cuda *cuda, struct common<T> *body, const void *const *in,
             const struct rb_key *key) const
    {
        body->s = s;
        body->at = at;
        body->together = together;
        body->words = {rb_cuda_key_of(key), rb_cuda_tape_key(cuda)};
        body->q = (const T *)in[grad];
        body->k = (const T *)in[grad + 1];
        body->v = (const T *)in[grad + 2];
    }

    void forward(struct rb_cuda *cuda, const void *const *in, void *const *out,
                 const struct rb_key *key) const
    {
        struct forward_body<T> body;

        set(cuda, &body, in, key);
        body.y = out[0];
        body.short_y = short_out[0];
        body.l = (float *)out[1];
        rb_tiles(cuda, tiles(s.queries), at.bytes, body);
    }

    void backward(struct rb_cuda *cuda, const void *const *in, void *const *out,
                  const struct rb_key *key) const
    {
        struct inner_body<T> inner = {
            s.width, (const T *)in[0], (const T *)in[4], (float *)cuda->scratch
        };
        struct backward_body<T> body;

        set(cuda, &body, in, key);
        body.dy = (const T *)in[0];
        body.l = (const float *)in[5];
        body.inner = (const float *)cuda->scratch;
        body.dq = out[0];
        body.dk = out[1];
        body.dv = out[2];
        memcpy(body.short_out, short_out, sizeof(short_out));
        rb_rows(cuda, s.batch * s.queries, s.width, inner);
        body.of_queries = true;
        if (out[0])
            rb_tiles(cuda, tiles(s.queries), at.bytes, body);
        body.of_queries = false;
        if (out[1] || out[2])
            rb_tiles(cuda, tiles(s.keys), at.bytes, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out,
             const struct rb_key *key)
    {
        if (grad)
            backward(cuda, in, out, key);
        else
            forward(cuda, in, out, key);
    }
};

template <class T>
int make(struct rb_cuda *cuda, const struct rb_call *call, const struct rb_attention *s,
         struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct attention<T> work = {
    };
    struct forward_body<T> forward;
    struct backward_body<T> backward;
    int err = 0;

    work.s = *s;
    work.grad = call->op == RB_OP_ATTENTION_GRAD;
    work.at = choose_layout(s, sizeof(T), work.grad);
    work.together = !call->slices && s->depth * sizeof(T) % sizeof(struct piece) == 0 &&
                    s->width * sizeof(T) % sizeof(struct piece) == 0;
    for (int i = 0; i < call->n_out && i < 3; i++)
        work.short_out[i] = call->out[i].dtype == RB_BF16;
    if (work.at.bytes > RB_TILE_MOST || work.tiles(s->queries) > INT32_MAX ||
        work.tiles(s->keys) > INT32_MAX)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "a GPU has no room for such rows");
    if (!rb_gpu_enter(cuda->gpu)) /* what is allowed below is of the thread's GPU */
        return rb_gpu_check(cuda->gpu, why);
    if (work.grad)
        err = rb_cuda_need(cuda, (size_t)(s->batch * s->queries + 1) * sizeof(float), why);
    if (err)
        return err;
    err = work.grad ? rb_tiles_allow(backward, work.at.bytes)
                    : rb_tiles_allow(forward, work.at.bytes);
    if (err)
        return rb_call_refuse(call, err, why, "this GPU has not as much shared memory");
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_attention(struct rb_cuda *cuda, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_attention s;
    int err = rb_attention_read(call, &s, why);

    if (err)
        return err;
    if (call->in[0].dtype == RB_BF16)
        return make<uint16_t>(cuda, call, &s, ret_kernel, why);
    return make<float>(cuda, call, &s, ret_kernel, why);
}
