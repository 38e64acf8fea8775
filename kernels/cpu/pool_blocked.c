/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/pool.h"
#include "proto/blocked.h"

/* `body` for each output and each place that it sees: `o` and `p`, by their first channel. */
#define FOR_PLACES(w, body)                                                                        \
    FOR_PIECES(w, piece, {                                                                         \
        for (int64_t i = 0; i < piece.n; i++) {                                                    \
            const int64_t o = (piece.out + i) * RB_BLOCK;                                          \
            const int64_t p = (piece.in + i * (w)->stride[2]) * RB_BLOCK;                          \
            body                                                                                   \
        }                                                                                          \
    })

/* Keep the better of two elements and its position, by masks. */
static RB_INLINE void keep_where(int32_t better, float *best, int32_t *at, float v,
                                 int32_t position)
{
    uint32_t kept, bits;

    memcpy(&kept, best, sizeof(kept));
    memcpy(&bits, &v, sizeof(bits));
    kept ^= (kept ^ bits) & (uint32_t)better;
    memcpy(best, &kept, sizeof(kept));
    *at ^= (*at ^ position) & better;
}

static RB_INLINE void keep(float *best, int32_t *at, float v, int32_t position)
{
    keep_where(-(int32_t)((v > *best) | ((v != v) & (*best == *best))), best, at, v, position);
}

/* An output that has seen nothing, at -1, takes what comes. */
static RB_INLINE void keep_better(float *restrict best, int32_t *restrict at,
                                  const float *restrict x, int32_t position)
{
    for (int l = 0; l < RB_BLOCK; l++) {
        float v = x[l], b = best[l];

        keep_where(-(int32_t)((v > b) | ((v != v) & (b == b)) | (at[l] < 0)), &best[l], &at[l], v,
                   position);
    }
}

/* The usual pool, 2 x 2 and two apart, with nothing left over: a row of outputs at a time, so that
 * two rows of the input are read once. */
RB_CLONES static void max_two(const struct rb_window *w, const float *restrict x, float *restrict y,
                              int32_t *restrict at)
{
    const int64_t width = w->in[2];

    for (int64_t h = 0; h < w->out[1]; h++)
        for (int64_t c = 0; c < w->out[2]; c++) {
            const int64_t o = (h * w->out[2] + c) * RB_BLOCK, corner = 2 * (h * width + c);
            const float *restrict upper = x + corner * RB_BLOCK;
            const float *restrict lower = upper + width * RB_BLOCK;
            const int32_t place = (int32_t)corner, below = (int32_t)(corner + width);

            for (int l = 0; l < RB_BLOCK; l++) {
                float best = upper[l];
                int32_t where = place;

                keep(&best, &where, upper[RB_BLOCK + l], place + 1);
                keep(&best, &where, lower[l], below);
                keep(&best, &where, lower[RB_BLOCK + l], below + 1);
                y[o + l] = best;
                at[o + l] = where;
            }
        }
}

RB_CLONES static void max_grad_two(const struct rb_window *w, const float *restrict dy,
                                   const int32_t *restrict at, float *restrict dx)
{
    const int64_t width = w->in[2];

    for (int64_t h = 0; h < w->out[1]; h++)
        for (int64_t c = 0; c < w->out[2]; c++) {
            const int64_t o = (h * w->out[2] + c) * RB_BLOCK, corner = 2 * (h * width + c);
            float *restrict upper = dx + corner * RB_BLOCK;
            float *restrict lower = upper + width * RB_BLOCK;
            const int32_t place = (int32_t)corner, below = (int32_t)(corner + width);

            for (int l = 0; l < RB_BLOCK; l++) {
                const float passed = dy[o + l];
                const int32_t where = at[o + l];

                upper[l] = where == place ? passed : 0.0f;
                upper[RB_BLOCK + l] = where == place + 1 ? passed : 0.0f;
                lower[l] = where == below ? passed : 0.0f;
                lower[RB_BLOCK + l] = where == below + 1 ? passed : 0.0f;
            }
        }
}

RB_CLONES static void max_any(const struct rb_window *w, const float *restrict x, float *restrict y,
                              int32_t *restrict at)
{
    int64_t n = w->out[0] * w->out[1] * w->out[2] * RB_BLOCK;

    for (int64_t i = 0; i < n; i++) {
        y[i] = -INFINITY;
        at[i] = -1;
    }
    FOR_PLACES(w, { keep_better(y + o, at + o, x + p, (int32_t)(p / RB_BLOCK)); });
}

/* Is it 2 x 2, two apart, with every element of the input in a window? */
static bool is_two(const struct rb_window *w)
{
    for (int i = 0; i < 3; i++) {
        int64_t size = i == 0 ? 1 : 2;

        if (w->kernel[i] != size || w->stride[i] != size || w->begin[i] != 0 ||
            w->dilation[i] != 1 || w->out[i] * size != w->in[i])
            return false;
    }
    return w->out[0] == 1;
}

void rb_pool_max(const struct rb_window *w, const float *x, float *y, int32_t *at)
{
    if (is_two(w))
        max_two(w, x, y, at);
    else
        max_any(w, x, y, at);
}

/* dy where the output took this place. */
RB_CLONES static void max_grad_any(const struct rb_window *w, const float *restrict dy,
                                   const int32_t *restrict at, float *restrict dx)
{
    memset(dx, 0, sizeof(*dx) * (size_t)(w->in[0] * w->in[1] * w->in[2] * RB_BLOCK));
    FOR_PLACES(w, {
        for (int l = 0; l < RB_BLOCK; l++)
            dx[p + l] += at[o + l] == (int32_t)(p / RB_BLOCK) ? dy[o + l] : 0.0f;
    });
}

void rb_pool_max_grad(const struct rb_window *w, const float *dy, const int32_t *at, float *dx)
{
    if (is_two(w))
        max_grad_two(w, dy, at, dx);
    else
        max_grad_any(w, dy, at, dx);
}

RB_CLONES void rb_pool_average(const struct rb_window *w, const float *restrict share,
                               const float *restrict x, float *restrict y)
{
    int64_t n = w->out[0] * w->out[1] * w->out[2];

    memset(y, 0, sizeof(*y) * (size_t)(n * RB_BLOCK));
    FOR_PLACES(w, {
        for (int l = 0; l < RB_BLOCK; l++)
            y[o + l] += x[p + l];
    });
    for (int64_t i = 0; i < n; i++)
        for (int l = 0; l < RB_BLOCK; l++)
            y[i * RB_BLOCK + l] *= share[i];
}

RB_CLONES void rb_pool_average_grad(const struct rb_window *w, const float *restrict share,
                                    const float *restrict dy, float *restrict dx)
{
    FOR_PLACES(w, {
        for (int l = 0; l < RB_BLOCK; l++)
            dx[p + l] += dy[o + l] * share[o / RB_BLOCK];
    });
}
