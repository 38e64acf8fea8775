/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation of activations in blocks of channels (proto/blocked.h): a block at a time.
 *
 * A block is a run of places a sample, each with 16 channels side by side.  Four places are summed
 * side by side, runs are joined in double in index order. */
#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"
#include "proto/blocked.h"

enum { WIDE = 4 * RB_BLOCK, PIECE = 16 * WIDE }; /* a piece of each tensor fits the nearest cache */

/* Where the runs of a block are: run i starts at i * step and has `length` elements. */
struct runs {
    int64_t n, step, length;
};

static struct runs runs_of(const struct rb_batch_norm *b)
{
    return (struct runs){b->n, b->c * b->inner, b->inner * RB_BLOCK};
}

/* Joins a run's lanes, in double. */
static RB_INLINE void join(const float *lane, double *ret)
{
    for (int c = 0; c < RB_BLOCK; c++)
        ret[c] += (double)((lane[c] + lane[c + RB_BLOCK]) +
                           (lane[c + 2 * RB_BLOCK] + lane[c + 3 * RB_BLOCK]));
}

/* ret[channel] = the sum of TERM, an expression of the index `at_` and the lane `l_`. */
#define BLOCK_SUM(runs, ret, TERM)                                                                 \
    do {                                                                                           \
        for (int64_t run_ = 0; run_ < (runs).n; run_++) {                                          \
            float lane_[WIDE] = {0};                                                               \
            int64_t start_ = run_ * (runs).step;                                                   \
            RB_LANE_ADD(lane_, WIDE, start_, start_ + (runs).length, TERM);                        \
            join(lane_, ret);                                                                      \
        }                                                                                          \
    } while (0)

/* An element a channel, once for each of the places that are summed side by side. */
static RB_INLINE void widen(const float *from, float *wide)
{
    for (int l = 0; l < WIDE; l++)
        wide[l] = from[l % RB_BLOCK];
}

RB_CLONES static void sum(const float *restrict x, struct runs runs, double *restrict ret)
{
    BLOCK_SUM(runs, ret, x[at_]);
}

RB_CLONES static void squares(const float *restrict x, struct runs runs, const float *mean,
                              double *restrict ret)
{
    float shift[WIDE];

    widen(mean, shift);
    BLOCK_SUM(runs, ret, (x[at_] - shift[l_]) * (x[at_] - shift[l_]));
}

/* Sums of dy, and of dy (x - mean), piece by piece: dy comes from memory once. */
RB_CLONES static void products(const float *restrict dy, const float *restrict x, struct runs runs,
                               const float *mean, double *restrict ret_sums,
                               double *restrict ret_products)
{
    float shift[WIDE];

    widen(mean, shift);
    for (int64_t run = 0; run < runs.n; run++) {
        const int64_t start = run * runs.step, end = start + runs.length;
        float sums[WIDE] = {0}, products[WIDE] = {0};

        for (int64_t at = start; at < end; at += PIECE) {
            const int64_t stop = at + PIECE < end ? at + PIECE : end;

            RB_LANE_ADD(sums, WIDE, at, stop, dy[at_]);
            RB_LANE_ADD(products, WIDE, at, stop, dy[at_] * (x[at_] - shift[l_]));
        }
        join(sums, ret_sums);
        join(products, ret_products);
    }
}

/* y = (x - shift) * scale + bias */
RB_CLONES static void rescale(const float *restrict x, float *restrict y, struct runs runs,
                              const float *restrict shift, const float *restrict scale,
                              const float *restrict bias)
{
    for (int64_t run = 0; run < runs.n; run++)
        for (int64_t k = run * runs.step; k < run * runs.step + runs.length; k += RB_BLOCK)
            for (int c = 0; c < RB_BLOCK; c++)
                y[k + c] = (x[k + c] - shift[c]) * scale[c] + bias[c];
}

/* What the gradient of a block is made with, an element a channel. */
struct slopes {
    float mean_dy[RB_BLOCK], slope[RB_BLOCK], scale[RB_BLOCK];
};

/* dx = (dy - mean_dy - (x - mean) slope) * scale */
RB_CLONES static void gradient(const float *restrict dy, const float *restrict x,
                               float *restrict dx, int64_t n, const float *restrict mean,
                               const struct slopes *restrict s)
{
    for (int64_t k = 0; k < n; k += RB_BLOCK)
        for (int c = 0; c < RB_BLOCK; c++)
            dx[k + c] =
                (dy[k + c] - s->mean_dy[c] - (x[k + c] - mean[c]) * s->slope[c]) * s->scale[c];
}

/* From element `first` on, where it belongs; rounded if it is to be. */
static void write_gradient(const struct rb_batch_norm *b, const float *dy, const float *x, void *dx,
                           int64_t first, const float *mean, const struct slopes *s)
{
    const struct runs runs = runs_of(b);
    float room[PIECE];

    for (int64_t run = 0; run < runs.n; run++)
        for (int64_t k = 0; k < runs.length; k += PIECE) {
            const int64_t at = first + run * runs.step + k;
            const int64_t n = runs.length - k < PIECE ? runs.length - k : PIECE;
            float *to = b->rounds ? room : (float *)dx + at;

            gradient(dy + at, x + at, to, n, mean, s);
            if (b->rounds)
                rb_cpu_narrow((uint16_t *)dx + at, room, n);
        }
}

void rb_batch_norm_blocked(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    double count = (double)(b->n * b->inner);

    (void)key;
    for (int64_t c = 0; c < b->c; c += RB_BLOCK) {
        const float *x = (const float *)in[0] + c * b->inner;
        double sums[RB_BLOCK] = {0}, square[RB_BLOCK] = {0};
        float mean[RB_BLOCK], variance[RB_BLOCK], deviation[RB_BLOCK], scale[RB_BLOCK];

        sum(x, runs_of(b), sums);
        for (int i = 0; i < RB_BLOCK; i++)
            mean[i] = (float)(sums[i] / count);
        squares(x, runs_of(b), mean, square);
        for (int i = 0; i < RB_BLOCK; i++) {
            variance[i] = (float)(square[i] / count);
            deviation[i] = 1.0f / sqrtf(variance[i] + b->epsilon);
            scale[i] = deviation[i] * ((const float *)in[1])[c + i];
        }
        rescale(x, (float *)out[0] + c * b->inner, runs_of(b), mean, scale,
                (const float *)in[2] + c);
        if (b->wanted & 2)
            memcpy((float *)out[1] + c, mean, sizeof(mean));
        if (b->wanted & 4)
            memcpy((float *)out[2] + c, variance, sizeof(variance));
        if (b->wanted & 8)
            memcpy((float *)out[3] + c, deviation, sizeof(deviation));
    }
}

void rb_batch_norm_eval_blocked(struct rb_kernel *kernel, const void *const *in, void *const *out,
                                const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    const float *scales = in[1], *bias = in[2], *mean = in[3], *variance = in[4];

    (void)key;
    for (int64_t c = 0; c < b->c; c += RB_BLOCK) {
        float scale[RB_BLOCK];

        for (int i = 0; i < RB_BLOCK; i++)
            scale[i] = 1.0f / sqrtf(variance[c + i] + b->epsilon) * scales[c + i];
        rescale((const float *)in[0] + c * b->inner, (float *)out[0] + c * b->inner, runs_of(b),
                mean + c, scale, bias + c);
    }
}

void rb_batch_norm_grad_blocked(struct rb_kernel *kernel, const void *const *in, void *const *out,
                                const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    const float *scale = in[2], *mean = in[3], *deviation = in[4];
    double count = (double)(b->n * b->inner);

    (void)key;
    for (int64_t c = 0; c < b->c; c += RB_BLOCK) {
        const float *dy = (const float *)in[0] + c * b->inner;
        const float *x = (const float *)in[1] + c * b->inner;
        double sums[RB_BLOCK] = {0}, product[RB_BLOCK] = {0};
        struct slopes s;

        products(dy, x, runs_of(b), mean + c, sums, product);
        for (int i = 0; i < RB_BLOCK; i++) {
            double inverse = (double)deviation[c + i];

            s.mean_dy[i] = (float)(sums[i] / count);
            s.slope[i] = (float)(product[i] / count * inverse * inverse);
            s.scale[i] = scale[c + i] * deviation[c + i];
            if (b->wanted & 2)
                ((float *)out[1])[c + i] = (float)(product[i] * inverse);
            if (b->wanted & 4)
                ((float *)out[2])[c + i] = (float)sums[i];
        }
        if (b->wanted & 1)
            write_gradient(b, in[0], in[1], out[0], c * b->inner, mean + c, &s);
    }
}
