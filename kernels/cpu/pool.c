/* SPDX-License-Identifier: Apache-2.0 */
/* Pools over 1 to 3 spatial axes.
 *
 * Plane by plane; for each element of the kernel, the rows of outputs that see it are combined with
 * the row of inputs they see, so that the inner loop is long and has no tests of borders. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/window.h"

struct pool {
    struct rb_kernel base;
    struct rb_window window;
    int64_t planes, in, out; /* elements of a plane */
    bool positions;          /* wanted */
    bool count_pads;
};

/* Outputs [first, end) of one row, all seeing kernel element (kd, kh, kw). */
struct piece {
    int64_t first, n; /* along the output's last axis */
    int64_t out, in;  /* offset of the first of them in the output, of its element in the input */
};

/* Call `body` for each piece of a plane.  A macro, so that the loops inside become vectors. */
#define FOR_PIECES(w, piece, body)                                                                 \
    for (int64_t kd = 0; kd < (w)->kernel[0]; kd++)                                                \
        for (int64_t kh = 0; kh < (w)->kernel[1]; kh++)                                            \
            for (int64_t kw = 0; kw < (w)->kernel[2]; kw++) {                                      \
                int64_t d0, d1, h0, h1, w0, w1;                                                    \
                rb_window_range(w, 0, kd, &d0, &d1);                                               \
                rb_window_range(w, 1, kh, &h0, &h1);                                               \
                rb_window_range(w, 2, kw, &w0, &w1);                                               \
                for (int64_t d = d0; d < d1; d++)                                                  \
                    for (int64_t h = h0; h < h1; h++) {                                            \
                        struct piece piece = piece_at(w, d, h, w0, w1, kd, kh, kw);                \
                        body                                                                       \
                    }                                                                              \
            }

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

static RB_INLINE void max_row(const float *restrict x, int64_t stride, float *restrict y,
                              int32_t *restrict at, int32_t in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i * stride], best = y[i];
        int32_t position = in + (int32_t)(i * stride), before = at[i];
        /* A NaN wins, and the first of several stays. */
        int better = (v > best) | ((v != v) & (best == best)) | (before < 0);

        y[i] = better ? v : best;
        at[i] = better ? position : before;
    }
}

/* The stride is a constant in the usual cases, so that loads become shuffles. */
RB_CLONES static void max_piece(const float *restrict x, int64_t stride, float *restrict y,
                                int32_t *restrict at, int32_t in, int64_t n)
{
    if (stride == 1)
        max_row(x, 1, y, at, in, n);
    else if (stride == 2)
        max_row(x, 2, y, at, in, n);
    else
        max_row(x, stride, y, at, in, n);
}

/* Positions are kept even where nobody wants them: they say which outputs have been seen. */
struct max_pool {
    struct pool pool;
    int32_t positions[]; /* of one plane */
};

static void max_pool_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    struct max_pool *max = (struct max_pool *)kernel;
    const struct pool *pool = &max->pool;
    const struct rb_window *w = &pool->window;

    (void)key;
    for (int64_t p = 0; p < pool->planes; p++) {
        const float *x = (const float *)in[0] + p * pool->in;
        float *y = (float *)out[0] + p * pool->out;
        int32_t *at = pool->positions ? (int32_t *)out[1] + p * pool->out : max->positions;

        for (int64_t i = 0; i < pool->out; i++) {
            y[i] = -INFINITY;
            at[i] = -1;
        }
        FOR_PIECES(w, piece, {
            max_piece(x + piece.in, w->stride[2], y + piece.out, at + piece.out, (int32_t)piece.in,
                      piece.n);
        })
    }
}

static void max_pool_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                              const struct rb_key *key)
{
    const struct pool *pool = (const struct pool *)kernel;

    (void)key;
    memset(out[0], 0, (size_t)(pool->planes * pool->in) * sizeof(float));
    for (int64_t p = 0; p < pool->planes; p++) {
        const float *dy = (const float *)in[0] + p * pool->out;
        const int32_t *at = (const int32_t *)in[1] + p * pool->out;
        float *dx = (float *)out[0] + p * pool->in;

        for (int64_t i = 0; i < pool->out; i++)
            if (at[i] >= 0 && at[i] < pool->in)
                dx[at[i]] += dy[i];
    }
}

/* Elements of the window of output (d, h, w) that are counted. */
static RB_INLINE int64_t counted(const struct rb_window *w, int axis, int64_t o, bool pads)
{
    int64_t start = o * w->stride[axis] - w->begin[axis], end = start + w->kernel[axis];
    int64_t low = pads ? -w->begin[axis] : 0, high = w->in[axis] + (pads ? w->end[axis] : 0);

    start = start < low ? low : start;
    end = end > high ? high : end;
    return end > start ? end - start : 0;
}

static float window_share(const struct pool *pool, int64_t d, int64_t h, int64_t column)
{
    const struct rb_window *w = &pool->window;
    int64_t count = counted(w, 0, d, pool->count_pads) * counted(w, 1, h, pool->count_pads) *
                    counted(w, 2, column, pool->count_pads);

    return count > 0 ? 1.0f / (float)count : 0.0f;
}

/* One output plane's shares: y[i] = a[i] / count, a and y may be the same. */
static void apply_shares(const struct pool *pool, const float *a, float *y)
{
    const struct rb_window *w = &pool->window;

    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++)
            for (int64_t c = 0; c < w->out[2]; c++)
                *y++ = *a++ * window_share(pool, d, h, c);
}

RB_CLONES static void add_strided(float *restrict y, const float *restrict x, int64_t stride,
                                  int64_t n)
{
    if (stride == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i * stride];
}

static void average_pool_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    const struct pool *pool = (const struct pool *)kernel;
    const struct rb_window *w = &pool->window;

    (void)key;
    for (int64_t p = 0; p < pool->planes; p++) {
        const float *x = (const float *)in[0] + p * pool->in;
        float *y = (float *)out[0] + p * pool->out;

        memset(y, 0, (size_t)pool->out * sizeof(float));
        FOR_PIECES(w, piece, { add_strided(y + piece.out, x + piece.in, w->stride[2], piece.n); })
        apply_shares(pool, y, y);
    }
}

/* Scratch for one plane of dy / count. */
struct average_pool_grad {
    struct pool pool;
    float share[];
};

static void average_pool_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                                  const struct rb_key *key)
{
    struct average_pool_grad *grad = (struct average_pool_grad *)kernel;
    const struct pool *pool = &grad->pool;
    const struct rb_window *w = &pool->window;

    (void)key;
    memset(out[0], 0, (size_t)(pool->planes * pool->in) * sizeof(float));
    for (int64_t p = 0; p < pool->planes; p++) {
        float *dx = (float *)out[0] + p * pool->in;

        apply_shares(pool, (const float *)in[0] + p * pool->out, grad->share);
        FOR_PIECES(w, piece, {
            for (int64_t i = 0; i < piece.n; i++)
                dx[piece.in + i * w->stride[2]] += grad->share[piece.out + i];
        })
    }
}

/* A kernel with `extra` bytes behind struct pool for each output of a plane. */
static int pool_new(const struct rb_call *call, const struct rb_tensor_type *x,
                    const struct rb_tensor_type *y, size_t extra, rb_cpu_run *run,
                    struct pool **ret_pool, struct rb_why *why)
{
    struct rb_window window;
    struct pool *pool;
    int64_t in = 1, out = 1;
    int err;

    if (x->dtype != RB_F32 || y->dtype != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "only float32 is pooled");
    err = rb_window_read(call, x, NULL, y, &window, why);
    if (err)
        return err;
    for (int i = 0; i < 3; i++) {
        in *= window.in[i];
        out *= window.out[i];
    }
    if (x->dim[1] != y->dim[1] || in > INT32_MAX || out > INT32_MAX)
        return rb_call_refuse(call, RB_EINVAL, why, "the channels differ or a plane is too large");
    pool = rb_cpu_kernel(sizeof(*pool) + extra * (size_t)out, run);
    pool->window = window;
    pool->planes = window.n * window.c;
    pool->in = in;
    pool->out = out;
    *ret_pool = pool;
    return 0;
}

int rb_cpu_max_pool(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    const struct rb_tensor_type *y = rb_call_out(call, 0), *positions = rb_call_out(call, 1);
    bool wanted = positions->dtype != RB_NONE;
    struct pool *pool;
    int err;

    (void)cpu;
    if (wanted && (positions->dtype != RB_I32 || !rb_call_same_shape(positions, y)))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "positions must be int32 and shaped as the output");
    err = pool_new(call, rb_call_in(call, 0), y, wanted ? 0 : sizeof(int32_t), max_pool_run, &pool,
                   why);
    if (err)
        return err;
    pool->positions = wanted;
    *ret_kernel = &pool->base;
    return 0;
}

int rb_cpu_max_pool_grad(struct rb_cpu *cpu, const struct rb_call *call,
                         struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *dy = rb_call_in(call, 0), *positions = rb_call_in(call, 1);
    struct pool *pool;
    int err;

    (void)cpu;
    if (positions->dtype != RB_I32 || !rb_call_same_shape(positions, dy))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "positions must be int32 and shaped as the gradient");
    err = pool_new(call, rb_call_out(call, 0), dy, 0, max_pool_grad_run, &pool, why);
    if (!err)
        *ret_kernel = &pool->base;
    return err;
}

int rb_cpu_average_pool(struct rb_cpu *cpu, const struct rb_call *call,
                        struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct pool *pool;
    int err =
        pool_new(call, rb_call_in(call, 0), rb_call_out(call, 0), 0, average_pool_run, &pool, why);

    (void)cpu;
    if (err)
        return err;
    pool->count_pads = rb_call_int(call, "countPad", 0) != 0;
    *ret_kernel = &pool->base;
    return 0;
}

int rb_cpu_average_pool_grad(struct rb_cpu *cpu, const struct rb_call *call,
                             struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct pool *pool;
    int err = pool_new(call, rb_call_out(call, 0), rb_call_in(call, 0), sizeof(float),
                       average_pool_grad_run, &pool, why);

    (void)cpu;
    if (err)
        return err;
    pool->count_pads = rb_call_int(call, "countPad", 0) != 0;
    *ret_kernel = &pool->base;
    return 0;
}
