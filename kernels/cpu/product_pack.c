/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product_pack.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2 __attribute__((target("avx2,fma")))

enum { ROWS = RB_TILE_ROWS, COLUMNS = RB_TILE_COLUMNS, LANES = 8 };

/* Panels that are written at a time, so that their places in the cache are not each other's. */
enum { BESIDE = 8 };

/* Eight rows of eight numbers as eight columns, `step` apart. */
RB_AVX2 static RB_INLINE void transpose(const float *const rows[LANES], int64_t at, float *to,
                                        int64_t step)
{
    __m256 r[LANES], pair[LANES], four[LANES];

    for (int i = 0; i < LANES; i++)
        r[i] = _mm256_loadu_ps(rows[i] + at);
    for (int i = 0; i < LANES; i += 2) {
        pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int h = 0; h < 2; h++) {
            four[i + 2 * h] = _mm256_shuffle_ps(pair[i + h], pair[i + 2 + h], 0x44);
            four[i + 2 * h + 1] = _mm256_shuffle_ps(pair[i + h], pair[i + 2 + h], 0xee);
        }
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(to + i * step, _mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(to + (i + 4) * step, _mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
}

/* Rows as columns of `wide` numbers; the last write says up to RB_STRIP_SLACK more. */
RB_AVX2 static RB_INLINE void turn(const float *const rows[LANES], int wide, int64_t first,
                                   int64_t depth, float *to, int64_t step)
{
    int64_t k = 0;

    for (; k + LANES <= depth; k += LANES)
        transpose(rows, first + k, to + k * step, step);
    for (; k < depth; k++)
        for (int i = 0; i < wide; i++)
            to[k * step + i] = rows[i][first + k];
}

/* The rows of `from` behind the n-th are its first one once more; their lanes are zeros then. */
static void clear_lanes(float *to, int64_t step, int64_t depth, int64_t n, int64_t end)
{
    for (int64_t k = 0; k < depth && n < end; k++)
        memset(to + k * step + n, 0, (size_t)(end - n) * sizeof *to);
}

RB_AVX2 void rb_pack_rows(const float *const *rows, int64_t n, int64_t first, int64_t depth,
                          int64_t apart, float *strips)
{
    for (int64_t i = 0; i < n; i += ROWS, strips += apart) {
        const float *from[LANES];
        float behind[RB_STRIP_SLACK]; /* may be another run's */
        int64_t here = n - i < ROWS ? n - i : ROWS;

        for (int r = 0; r < LANES; r++)
            from[r] = rows[i + (r < here ? r : 0)];
        memcpy(behind, strips + ROWS * depth, sizeof behind);
        turn(from, ROWS, first, depth, strips, ROWS);
        memcpy(strips + ROWS * depth, behind, sizeof behind);
        clear_lanes(strips, ROWS, depth, here, ROWS);
    }
}

RB_AVX2 void rb_pack_turned_rows(const float *a, int64_t step, int64_t n, int64_t depth,
                                 int64_t apart, float *strips)
{
    const int64_t whole = n / ROWS * ROWS;

    for (int64_t k = 0; k < depth; k++, a += step) {
        float *to = strips + k * ROWS;

        for (int64_t i = 0; i < whole; i += ROWS, to += apart)
            memcpy(to, a + i, ROWS * sizeof *to);
        if (whole < n) {
            memset(to, 0, ROWS * sizeof *to);
            memcpy(to, a + whole, (size_t)(n - whole) * sizeof *to);
        }
    }
}

/* Are four steps of a strip zeros, of whatever sign? */
RB_AVX2 static RB_INLINE bool four_zeros(const float *strip)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i any = _mm256_loadu_si256((const void *)strip);

    any = _mm256_or_si256(any, _mm256_loadu_si256((const void *)(strip + LANES)));
    any = _mm256_or_si256(any, _mm256_loadu_si256((const void *)(strip + 2 * LANES)));
    return _mm256_testz_si256(any, size) != 0;
}

RB_AVX2 struct rb_strip_part rb_pack_part(const float *strip, int64_t depth)
{
    struct rb_strip_part part = {0, depth};

    while (part.from + 4 <= part.to && four_zeros(strip + part.from * ROWS))
        part.from += 4;
    while (part.from + 4 <= part.to && four_zeros(strip + (part.to - 4) * ROWS))
        part.to -= 4;
    return part;
}

RB_AVX2 void rb_pack_columns(const float *b, int64_t step, int64_t n, int64_t depth, int64_t apart,
                             float *panels)
{
    for (int64_t j = 0; j < n; j += BESIDE * COLUMNS, panels += BESIDE * apart) {
        const int64_t end = n - j < BESIDE * COLUMNS ? n - j : BESIDE * COLUMNS;
        const int64_t whole = end / COLUMNS * COLUMNS;

        for (int64_t k = 0; k < depth; k++) {
            const float *from = b + k * step + j;
            float *to = panels + k * COLUMNS;

            for (int64_t c = 0; c < whole; c += COLUMNS, to += apart)
                memcpy(to, from + c, COLUMNS * sizeof *to);
            if (whole < end) {
                memset(to, 0, COLUMNS * sizeof *to);
                memcpy(to, from + whole, (size_t)(end - whole) * sizeof *to);
            }
        }
    }
}

RB_AVX2 void rb_pack_turned_columns(const float *b, int64_t step, int64_t n, int64_t depth,
                                    int64_t apart, float *panels)
{
    for (int64_t j = 0; j < n; j += COLUMNS, panels += apart) {
        const int64_t here = n - j < COLUMNS ? n - j : COLUMNS;

        for (int half = 0; half < COLUMNS; half += LANES) {
            const float *from[LANES];

            for (int r = 0; r < LANES; r++)
                from[r] = b + (j + (half + r < here ? half + r : 0)) * step;
            turn(from, LANES, 0, depth, panels + half, COLUMNS);
        }
        clear_lanes(panels, COLUMNS, depth, here, COLUMNS);
    }
}

#endif
