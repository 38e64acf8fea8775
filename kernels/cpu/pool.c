/* SPDX-License-Identifier: Apache-2.0 */
/* Pools over 1 to 3 spatial axes.
 *
 * Plane by plane; for each element of the kernel, the rows of outputs that see it are combined with
 * the row of inputs they see, so that the inner loop is long and has no tests of borders. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pool.h"
#include "proto/blocked.h"

struct pool {
    struct rb_kernel base;
    struct rb_window window;
    int64_t planes, in, out; /* elements of a plane */
    bool blocked;            /* 16 planes in one (pool_blocked.c) */
    bool positions;          /* wanted */
    bool two_by_two;         /* 2 x 2 windows, two apart, no padding */
};

/* Keep the better of two elements and its position, by masks: a branch would be a coin toss. */
static RB_INLINE void keep_better(float *best, int32_t *at, float v, int32_t position)
{
    int32_t better = -(int32_t)((v > *best) | ((v != v) & (*best == *best)));
    uint32_t kept, bits;

    memcpy(&kept, best, sizeof(kept));
    memcpy(&bits, &v, sizeof(bits));
    kept ^= (kept ^ bits) & (uint32_t)better;
    memcpy(best, &kept, sizeof(kept));
    *at ^= (*at ^ position) & better;
}

static RB_INLINE void max_row(const float *restrict x, int64_t stride, float *restrict y,
                              int32_t *restrict at, int32_t in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i * stride], best = y[i];
        int32_t position = in + (int32_t)(i * stride), where = at[i];

        /* An output that has seen nothing takes what comes, be it minus infinity. */
        best = where < 0 ? v : best;
        where = where < 0 ? position : where;
        keep_better(&best, &where, v, position);
        y[i] = best;
        at[i] = where;
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

/* The usual pool, 2 x 2 with stride 2 and no padding, on one plane. */
RB_CLONES static void max_plane_two(const float *restrict x, int64_t width, float *restrict y,
                                    int32_t *restrict at, int64_t rows, int64_t columns)
{
    for (int64_t h = 0; h < rows; h++) {
        const float *restrict upper = x + 2 * h * width, *restrict lower = upper + width;
        float *restrict to = y + h * columns;
        int32_t *restrict where = at + h * columns;
        int32_t corner = (int32_t)(2 * h * width), step = (int32_t)width;

        for (int i = 0; i < (int)columns; i++) {
            int32_t first = corner + 2 * i, position = first;
            float best = upper[2 * i];

            keep_better(&best, &position, upper[2 * i + 1], first + 1);
            keep_better(&best, &position, lower[2 * i], first + step);
            keep_better(&best, &position, lower[2 * i + 1], first + step + 1);
            to[i] = best;
            where[i] = position;
        }
    }
}

RB_CLONES static void average_plane_two(const float *restrict x, int64_t width, float *restrict y,
                                        int64_t rows, int64_t columns)
{
    for (int64_t h = 0; h < rows; h++) {
        const float *restrict upper = x + 2 * h * width, *restrict lower = upper + width;

        for (int i = 0; i < (int)columns; i++)
            y[h * columns + i] =
                (upper[2 * i] + upper[2 * i + 1] + lower[2 * i] + lower[2 * i + 1]) * 0.25f;
    }
}

/* Is every window 2 x 2, two apart, and whole? */
static bool is_two_by_two(const struct rb_window *w)
{
    for (int i = 0; i < 3; i++) {
        int64_t size = i == 0 ? 1 : 2;

        if (w->kernel[i] != size || w->stride[i] != size || w->begin[i] != 0 ||
            w->dilation[i] != 1 || w->out[i] * size > w->in[i])
            return false;
    }
    return w->out[0] == 1;
}

/* Positions are kept even where nobody wants them: they say which outputs have been seen. */
struct max_pool {
    struct pool pool;
    int32_t positions[]; /* of one plane, or of one block of them */
};

static void max_pool_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    struct max_pool *max = (struct max_pool *)kernel;
    const struct pool *pool = &max->pool;
    const struct rb_window *w = &pool->window;

    (void)key;
    for (int64_t p = 0; pool->blocked && p < pool->planes; p += RB_BLOCK)
        rb_pool_max(w, (const float *)in[0] + p * pool->in, (float *)out[0] + p * pool->out,
                    pool->positions ? (int32_t *)out[1] + p * pool->out : max->positions);
    for (int64_t p = 0; !pool->blocked && p < pool->planes; p++) {
        const float *x = (const float *)in[0] + p * pool->in;
        float *y = (float *)out[0] + p * pool->out;
        int32_t *at = pool->positions ? (int32_t *)out[1] + p * pool->out : max->positions;

        if (pool->two_by_two) {
            max_plane_two(x, w->in[2], y, at, w->out[1], w->out[2]);
            continue;
        }
        for (int64_t i = 0; i < pool->out; i++) {
            y[i] = -INFINITY;
            at[i] = -1;
        }
        FOR_PIECES(w, piece, {
            max_piece(x + piece.in, w->stride[2], y + piece.out, at + piece.out, (int32_t)piece.in,
                      piece.n);
        });
    }
}

static void max_pool_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                              const struct rb_key *key)
{
    const struct pool *pool = (const struct pool *)kernel;

    (void)key;
    for (int64_t p = 0; pool->blocked && p < pool->planes; p += RB_BLOCK)
        rb_pool_max_grad(&pool->window, (const float *)in[0] + p * pool->out,
                         (const int32_t *)in[1] + p * pool->out, (float *)out[0] + p * pool->in);
    if (pool->blocked)
        return;
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

/* Elements of the window of output `o` along an axis that are counted. */
static int64_t counted(const struct rb_window *w, int axis, int64_t o, bool pads)
{
    int64_t start = o * w->stride[axis] - w->begin[axis], end = start + w->kernel[axis];
    int64_t low = pads ? -w->begin[axis] : 0, high = w->in[axis] + (pads ? w->end[axis] : 0);

    start = start < low ? low : start;
    end = end > high ? high : end;
    return end > start ? end - start : 0;
}

/* Averages: what each output of a plane is divided by, and room for a plane of gradients. */
struct average_pool {
    struct pool pool;
    float *work;
    float share[]; /* 1 / count */
};

static void make_shares(struct average_pool *average, bool pads)
{
    const struct rb_window *w = &average->pool.window;
    float *share = average->share;

    average->work = share + average->pool.out;
    for (int64_t d = 0; d < w->out[0]; d++)
        for (int64_t h = 0; h < w->out[1]; h++)
            for (int64_t c = 0; c < w->out[2]; c++) {
                int64_t count =
                    counted(w, 0, d, pads) * counted(w, 1, h, pads) * counted(w, 2, c, pads);

                *share++ = count > 0 ? 1.0f / (float)count : 0.0f;
            }
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
    const struct average_pool *average = (const struct average_pool *)kernel;
    const struct pool *pool = &average->pool;
    const struct rb_window *w = &pool->window;

    (void)key;
    for (int64_t p = 0; pool->blocked && p < pool->planes; p += RB_BLOCK)
        rb_pool_average(w, average->share, (const float *)in[0] + p * pool->in,
                        (float *)out[0] + p * pool->out);
    for (int64_t p = 0; !pool->blocked && p < pool->planes; p++) {
        const float *x = (const float *)in[0] + p * pool->in;
        float *y = (float *)out[0] + p * pool->out;

        if (pool->two_by_two) {
            average_plane_two(x, w->in[2], y, w->out[1], w->out[2]);
            continue;
        }
        memset(y, 0, (size_t)pool->out * sizeof(float));
        FOR_PIECES(w, piece, { add_strided(y + piece.out, x + piece.in, w->stride[2], piece.n); });
        for (int64_t i = 0; i < pool->out; i++)
            y[i] *= average->share[i];
    }
}

static void average_pool_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                                  const struct rb_key *key)
{
    const struct average_pool *average = (const struct average_pool *)kernel;
    const struct pool *pool = &average->pool;
    const struct rb_window *w = &pool->window;

    (void)key;
    memset(out[0], 0, (size_t)(pool->planes * pool->in) * sizeof(float));
    for (int64_t p = 0; pool->blocked && p < pool->planes; p += RB_BLOCK)
        rb_pool_average_grad(w, average->share, (const float *)in[0] + p * pool->out,
                             (float *)out[0] + p * pool->in);
    for (int64_t p = 0; !pool->blocked && p < pool->planes; p++) {
        const float *dy = (const float *)in[0] + p * pool->out;
        float *dx = (float *)out[0] + p * pool->in;

        for (int64_t i = 0; i < pool->out; i++)
            average->work[i] = dy[i] * average->share[i];
        FOR_PIECES(w, piece, {
            for (int64_t i = 0; i < piece.n; i++)
                dx[piece.in + i * w->stride[2]] += average->work[piece.out + i];
        });
    }
}

/* A kernel of `size` bytes with `extra` bytes behind it for each output of a plane. */
static int pool_new(const struct rb_call *call, const struct rb_tensor_type *of_x,
                    const struct rb_tensor_type *of_y, size_t size, size_t extra, rb_cpu_run *run,
                    struct pool **ret_pool, struct rb_why *why)
{
    int spatial = rb_window_spatial(call, NULL), err;
    struct rb_tensor_type plain_x = rb_blocked_plain(of_x, spatial), *x = &plain_x;
    struct rb_tensor_type plain_y = rb_blocked_plain(of_y, spatial), *y = &plain_y;
    bool blocked = rb_blocked(of_x, spatial);
    struct rb_window window;
    struct pool *pool;
    int64_t in = 1, out = 1;

    if (x->dtype != RB_F32 || y->dtype != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "only float32 is pooled");
    err = rb_window_read(call, x, NULL, y, &window, why);
    if (err)
        return err;
    if (blocked != rb_blocked(of_y, spatial))
        return rb_call_refuse(call, RB_EINVAL, why, "only one of input and output is in blocks");
    for (int i = 0; i < 3; i++) {
        in *= window.in[i];
        out *= window.out[i];
    }
    if (x->dim[1] != y->dim[1] || in > INT32_MAX || out > INT32_MAX)
        return rb_call_refuse(call, RB_EINVAL, why, "the channels differ or a plane is too large");
    pool = rb_cpu_kernel(size + extra * (size_t)out, run);
    pool->window = window;
    pool->blocked = blocked;
    pool->two_by_two = !blocked && is_two_by_two(&window);
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
    if (wanted && (positions->dtype != RB_I32 || !rb_tensor_same_shape(positions, y)))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "positions must be int32 and shaped as the output");
    err = pool_new(call, rb_call_in(call, 0), y, sizeof(struct max_pool),
                   wanted ? 0 : RB_BLOCK * sizeof(int32_t), max_pool_run, &pool, why);
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
    if (positions->dtype != RB_I32 || !rb_tensor_same_shape(positions, dy))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "positions must be int32 and shaped as the gradient");
    err = pool_new(call, rb_call_out(call, 0), dy, sizeof(*pool), 0, max_pool_grad_run, &pool, why);
    if (!err)
        *ret_kernel = &pool->base;
    return err;
}

int rb_cpu_average_pool(struct rb_cpu *cpu, const struct rb_call *call,
                        struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct pool *pool;
    int err = pool_new(call, rb_call_in(call, 0), rb_call_out(call, 0), sizeof(struct average_pool),
                       sizeof(float), average_pool_run, &pool, why);

    (void)cpu;
    if (err)
        return err;
    make_shares((struct average_pool *)pool, rb_call_int(call, "countPad", 0) != 0);
    *ret_kernel = &pool->base;
    return 0;
}

int rb_cpu_average_pool_grad(struct rb_cpu *cpu, const struct rb_call *call,
                             struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct pool *pool;
    int err = pool_new(call, rb_call_out(call, 0), rb_call_in(call, 0), sizeof(struct average_pool),
                       2 * sizeof(float), average_pool_grad_run, &pool, why);

    (void)cpu;
    if (err)
        return err;
    make_shares((struct average_pool *)pool, rb_call_int(call, "countPad", 0) != 0);
    *ret_kernel = &pool->base;
    return 0;
}
