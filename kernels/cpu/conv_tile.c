/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/conv_tile.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2 __attribute__((target("avx2,fma")))

enum { PIXELS = RB_CONV_PIXELS, ROWS = RB_CONV_ROWS, LANES = 8, VECTORS = RB_BLOCK / LANES };
_Static_assert(PIXELS == 6 && ROWS == 6 && VECTORS == 2, "tiles are written out below");

/* For each pixel, or row, of a tile: written out, so that they are registers.  The second three
 * have another register for addresses, and the same steps. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5)

/* c[i] += a number, at near or far, times `first` and `second`. */
#define MULTIPLY(i)                                                                                \
    if (i >= from && i < n) {                                                                      \
        const __m256 a = _mm256_broadcast_ss((i < 3 ? near : far) + i % 3 * apart);                \
        c[i][0] = _mm256_fmadd_ps(a, first, c[i][0]);                                              \
        c[i][1] = _mm256_fmadd_ps(a, second, c[i][1]);                                             \
    }
#define LOAD(i)                                                                                    \
    if (i < n) {                                                                                   \
        c[i][0] = _mm256_loadu_ps(to + i * step);                                                  \
        c[i][1] = _mm256_loadu_ps(to + i * step + LANES);                                          \
    }
#define STORE(i)                                                                                   \
    if (i < n) {                                                                                   \
        _mm256_storeu_ps(to + i * step, c[i][0]);                                                  \
        _mm256_storeu_ps(to + i * step + LANES, c[i][1]);                                          \
    }
#define BEGIN(i)                                                                                   \
    c[i][0] = begin[0];                                                                            \
    c[i][1] = begin[1];

/* ---- Pixels ----------------------------------------------------------------------------------*/

struct window {
    const struct rb_conv_steps *steps;
    const struct rb_conv_runs *runs; /* by group */
    const float *x, *w;
    struct rb_conv_ends ends;
};

/* A run for pixels [from, n).  Where it is a block, the compiler knows all steps but one. */
RB_AVX2 static RB_INLINE void multiply_run(const struct window *window,
                                           const struct rb_conv_run *run, bool block,
                                           const int from, const int n, __m256 c[PIXELS][VECTORS])
{
    const int64_t apart = window->steps->pixel, length = block ? RB_BLOCK : window->steps->length;
    const int64_t channel = block ? 1 : window->steps->channel;
    const float *near = window->x + run->x, *far = near + 3 * apart, *w = window->w + run->w;

#define STEP                                                                                       \
    {                                                                                              \
        const __m256 first = _mm256_loadu_ps(w), second = _mm256_loadu_ps(w + LANES);              \
                                                                                                   \
        EACH(MULTIPLY)                                                                             \
        near += channel;                                                                           \
        far += channel;                                                                            \
        w += RB_BLOCK;                                                                             \
    }
    if (block)
        for (int k = 0; k < RB_BLOCK; k += 4) {
            STEP STEP STEP STEP
        }
    else
        for (int64_t k = 0; k < length; k++)
            STEP
#undef STEP
}

RB_AVX2 static RB_INLINE void multiply_group(const struct window *window, enum rb_conv_group group,
                                             bool block, const int from, const int n,
                                             __m256 c[PIXELS][VECTORS])
{
    const struct rb_conv_run *run = window->runs[group].run, *end = run + window->runs[group].n;

    for (; run < end; run++)
        multiply_run(window, run, block, from, n, c);
}

RB_AVX2 static RB_INLINE void go_through(const struct window *window, bool block, const int n,
                                         __m256 c[PIXELS][VECTORS])
{
    if (window->ends.first)
        multiply_group(window, RB_CONV_FIRST, block, 1, n, c);
    else
        multiply_group(window, RB_CONV_FIRST, block, 0, n, c);
    multiply_group(window, RB_CONV_INSIDE, block, 0, n, c);
    if (window->ends.last)
        multiply_group(window, RB_CONV_LAST, block, 0, n - 1, c);
    else
        multiply_group(window, RB_CONV_LAST, block, 0, n, c);
}

RB_AVX2 static RB_INLINE void tile(const struct window *window, const float *bias, bool onto,
                                   float *to, const int n)
{
    const int64_t step = window->steps->to;
    __m256 c[PIXELS][VECTORS], begin[VECTORS] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

    if (bias)
        for (int v = 0; v < VECTORS; v++)
            begin[v] = _mm256_loadu_ps(bias + v * LANES);
    if (onto) {
        EACH(LOAD)
    } else {
        EACH(BEGIN)
    }
    if (window->steps->length == RB_BLOCK)
        go_through(window, true, n, c);
    else
        go_through(window, false, n, c);
    EACH(STORE)
}

/* ---- Weights ---------------------------------------------------------------------------------*/

RB_AVX2 static RB_INLINE void weights_tile(const struct rb_conv_pixels *p, const float *x,
                                           const float *dy, float *to, int64_t step, const int n)
{
    const int64_t apart = p->x_row;
    const int from = 0;
    __m256 c[ROWS][VECTORS];

    EACH(LOAD)
    for (int64_t i = 0; i < p->images; i++)
        for (int64_t l = 0; l < p->lines; l++) {
            const float *near = x + i * p->x_image + l * p->x_line, *far = near + 3 * apart;
            const float *y = dy + i * p->y_image + l * p->y_line;

            for (int64_t k = 0; k < p->pixels; k++, y += RB_BLOCK) {
                const __m256 first = _mm256_loadu_ps(y), second = _mm256_loadu_ps(y + LANES);

                EACH(MULTIPLY)
                near += p->x_pixel;
                far += p->x_pixel;
            }
        }
    EACH(STORE)
}

/* ---- Functions of their own: compilers keep a tile in registers there -------------------------*/

typedef void pixels_tile(const struct window *window, const float *bias, bool onto, float *y);
typedef void rows_tile(const struct rb_conv_pixels *pixels, const float *x, const float *dy,
                       float *sums, int64_t step);

#define TILE(n)                                                                                    \
    RB_AVX2 static void pixels_##n(const struct window *window, const float *bias, bool onto,      \
                                   float *y)                                                       \
    {                                                                                              \
        tile(window, bias, onto, y, n);                                                            \
    }                                                                                              \
    RB_AVX2 static void rows_##n(const struct rb_conv_pixels *pixels, const float *x,              \
                                 const float *dy, float *sums, int64_t step)                       \
    {                                                                                              \
        weights_tile(pixels, x, dy, sums, step, n);                                                \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#undef TILE

void rb_conv_tile(int pixels, struct rb_conv_ends ends, const struct rb_conv_steps *steps,
                  const struct rb_conv_runs runs[RB_CONV_GROUPS], const float *x, const float *w,
                  const float *bias, bool onto, float *y)
{
    static pixels_tile *const tiles[] = {pixels_1, pixels_2, pixels_3,
                                         pixels_4, pixels_5, pixels_6};
    const struct window window = {steps, runs, x, w, ends};

    tiles[pixels - 1](&window, bias, onto, y);
}

void rb_conv_weights_tile(int rows, const struct rb_conv_pixels *pixels, const float *x,
                          const float *dy, float *sums, int64_t step)
{
    static rows_tile *const tiles[] = {rows_1, rows_2, rows_3, rows_4, rows_5, rows_6};

    tiles[rows - 1](pixels, x, dy, sums, step);
}

#endif
