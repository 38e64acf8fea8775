/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product_pack.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2 __attribute__((target("avx2,fma")))

enum { ROWS = RB_TILE_ROWS, LANES = 8, LINE = 16 };

/* How wide panels are: known when loops are compiled. */
enum { NARROW = 16, WIDE = 24 };

/* How many panels are written at a time, so that they do not take each other's places in the cache.
 */
enum { BESIDE = 8 };

/* How far ahead of the copy memory is fetched: rows, or numbers of a row. */
enum { ROWS_AHEAD = 8, AHEAD = 4 * LINE };

/* Pairs of 4 x 4 blocks turned around: in r[i] row i, its first four numbers and its others. */
RB_AVX2 static RB_INLINE void turn_fours(__m256 r[4])
{
    const __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);

    r[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    r[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    r[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    r[3] = _mm256_shuffle_ps(high01, high23, 0xee);
}

/* Eight numbers of each of four rows as eight columns side by side. */
RB_AVX2 static RB_INLINE void turn_strip(const float *const rows[ROWS], int64_t at, float *to)
{
    __m256 r[ROWS];

    for (int i = 0; i < ROWS; i++)
        r[i] = _mm256_loadu_ps(rows[i] + at);
    turn_fours(r);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < ROWS; i += 2, to += 2 * ROWS)
            _mm256_storeu_ps(to, half ? _mm256_permute2f128_ps(r[i], r[i + 1], 0x31)
                                      : _mm256_permute2f128_ps(r[i], r[i + 1], 0x20));
}

/* Eight numbers of each of eight rows as eight columns, `wide` from each other. */
RB_AVX2 static RB_INLINE void turn_panel(const float *const rows[LANES], int64_t at, float *to,
                                         int64_t wide)
{
    __m256 upper[4], lower[4];

    for (int i = 0; i < 4; i++) {
        upper[i] = _mm256_loadu_ps(rows[i] + at);
        lower[i] = _mm256_loadu_ps(rows[i + 4] + at);
    }
    turn_fours(upper);
    turn_fours(lower);
    for (int i = 0; i < 4; i++, to += wide) {
        _mm256_storeu_ps(to, _mm256_permute2f128_ps(upper[i], lower[i], 0x20));
        _mm256_storeu_ps(to + 4 * wide, _mm256_permute2f128_ps(upper[i], lower[i], 0x31));
    }
}

RB_AVX2 static void turn_square(const float *from, int64_t step, float *to, int64_t to_step)
{
    const float *rows[LANES];

    for (int i = 0; i < LANES; i++)
        rows[i] = from + i * step;
    turn_panel(rows, 0, to, to_step);
}

/* Square by square, and what is beside the last ones number by number. */
void rb_turn(const float *from, int64_t step, int64_t rows, int64_t columns, float *to,
             int64_t to_step)
{
    const int64_t high = rows / LANES * LANES, wide = columns / LANES * LANES;

    for (int64_t r = 0; r < high; r += LANES)
        for (int64_t c = 0; c < wide; c += LANES)
            turn_square(from + r * step + c, step, to + c * to_step + r, to_step);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < high ? wide : 0; c < columns; c++)
            to[c * to_step + r] = from[r * step + c];
}

/* The rows of `from` behind the n-th are its first one once more; here their lanes become zeros. */
static void clear_lanes(float *to, int64_t step, int64_t depth, int64_t n, int64_t end)
{
    for (int64_t k = 0; k < depth && n < end; k++)
        memset(to + k * step + n, 0, (size_t)(end - n) * sizeof *to);
}

RB_AVX2 void rb_pack_rows(const float *const *rows, int64_t n, int64_t first, int64_t depth,
                          int64_t apart, float *strips)
{
    for (int64_t i = 0; i < n; i += ROWS, strips += apart) {
        const float *from[ROWS];
        int64_t here = n - i < ROWS ? n - i : ROWS, k = 0;

        for (int r = 0; r < ROWS; r++)
            from[r] = rows[i + (r < here ? r : 0)] + first;
        for (; k + LINE <= depth; k += LINE) {
            for (int64_t r = i + ROWS; r < i + 2 * ROWS && r < n; r++)
                __builtin_prefetch(rows[r] + first + k);
            turn_strip(from, k, strips + k * ROWS);
            turn_strip(from, k + LANES, strips + (k + LANES) * ROWS);
        }
        for (; k < depth; k++)
            for (int r = 0; r < ROWS; r++)
                strips[k * ROWS + r] = from[r][k];
        clear_lanes(strips, ROWS, depth, here, ROWS);
    }
}

/* ROWS numbers of each of ROWS steps: a line of a strip. */
RB_AVX2 static RB_INLINE void copy_square(const float *a, int64_t step, float *strip)
{
    for (int k = 0; k < ROWS; k++)
        _mm_storeu_ps(strip + k * ROWS, _mm_loadu_ps(a + k * step));
}

static void copy_part(const float *a, int64_t step, int64_t depth, int64_t n, float *strip)
{
    for (int64_t k = 0; k < depth; k++) {
        memset(strip + k * ROWS, 0, ROWS * sizeof *strip);
        memcpy(strip + k * ROWS, a + k * step, (size_t)n * sizeof *strip);
    }
}

/* Line by line of all strips: strips may have the same places in the first cache, where a line that
 * is written bit by bit would not stay. */
RB_AVX2 void rb_pack_turned_rows(const float *a, int64_t step, int64_t n, int64_t depth,
                                 int64_t apart, float *strips)
{
    for (int64_t k = 0; k < depth; k += ROWS, a += ROWS * step, strips += ROWS * ROWS) {
        const int64_t steps = depth - k < ROWS ? depth - k : ROWS;
        float *to = strips;

        for (int64_t r = ROWS_AHEAD; r < ROWS_AHEAD + ROWS && k + r < depth; r++)
            for (int64_t i = 0; i < n; i += LINE)
                __builtin_prefetch(a + r * step + i);
        for (int64_t i = 0; i < n; i += ROWS, to += apart) {
            if (steps == ROWS && n - i >= ROWS)
                copy_square(a + i, step, to);
            else
                copy_part(a + i, step, steps, n - i < ROWS ? n - i : ROWS, to);
        }
    }
}

/* Are four steps of a strip zeros, of whatever sign? */
RB_AVX2 static RB_INLINE bool four_zeros(const float *strip)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i any = _mm256_loadu_si256((const void *)strip);

    any = _mm256_or_si256(any, _mm256_loadu_si256((const void *)(strip + LANES)));
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

RB_AVX2 static RB_INLINE void pack_columns(const float *b, int64_t step, int64_t n, int64_t depth,
                                           int wide, int64_t apart, float *panels)
{
    for (int64_t j = 0; j < n; j += BESIDE * wide, panels += BESIDE * apart) {
        const int64_t end = n - j < BESIDE * wide ? n - j : BESIDE * wide;
        const int64_t whole = end / wide * wide;

        for (int64_t k = 0; k < depth; k++) {
            const float *from = b + k * step + j;
            float *to = panels + k * wide;

            for (int64_t c = 0; c < end; c += LINE)
                __builtin_prefetch(from + ROWS_AHEAD * step + c);
            for (int64_t c = 0; c < whole; c += wide, to += apart)
                for (int v = 0; v < wide; v += LANES)
                    _mm256_storeu_ps(to + v, _mm256_loadu_ps(from + c + v));
            if (whole < end) {
                memset(to, 0, wide * sizeof *to);
                memcpy(to, from + whole, (size_t)(end - whole) * sizeof *to);
            }
        }
    }
}

RB_AVX2 void rb_pack_columns(const float *b, int64_t step, int64_t n, int64_t depth, int wide,
                             int64_t apart, float *panels)
{
    if (wide == NARROW)
        pack_columns(b, step, n, depth, NARROW, apart, panels);
    else
        pack_columns(b, step, n, depth, WIDE, apart, panels);
}

RB_AVX2 static RB_INLINE void pack_turned_columns(const float *b, int64_t step, int64_t n,
                                                  int64_t depth, int wide, int64_t apart,
                                                  float *panels)
{
    for (int64_t j = 0; j < n; j += wide, panels += apart) {
        const int64_t here = n - j < wide ? n - j : wide;

        for (int part = 0; part < wide; part += LANES) {
            const float *from[LANES];
            float *to = panels + part;
            int64_t k = 0;

            for (int r = 0; r < LANES; r++)
                from[r] = b + (j + (part + r < here ? part + r : 0)) * step;
            for (; k + LINE <= depth; k += LINE) {
                for (int r = 0; r < LANES; r++)
                    __builtin_prefetch(k + AHEAD < depth
                                           ? from[r] + k + AHEAD
                                           : from[r] + LANES * step + k + AHEAD - depth);
                turn_panel(from, k, to + k * wide, wide);
                turn_panel(from, k + LANES, to + (k + LANES) * wide, wide);
            }
            for (; k < depth; k++)
                for (int r = 0; r < LANES; r++)
                    to[k * wide + r] = from[r][k];
        }
        clear_lanes(panels, wide, depth, here, wide);
    }
}

RB_AVX2 void rb_pack_turned_columns(const float *b, int64_t step, int64_t n, int64_t depth,
                                    int wide, int64_t apart, float *panels)
{
    if (wide == NARROW)
        pack_turned_columns(b, step, n, depth, NARROW, apart, panels);
    else
        pack_turned_columns(b, step, n, depth, WIDE, apart, panels);
}

#endif
