/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of a sum of outer products, in registers: how it is made and where it goes.
 *
 * outer > [outer_tile] > fixed
 *
 * A tile is 14 rows of two vectors; at the edges of c only the rows and columns that exist are
 * used.  A summand goes into sums as rb_cpu_fixed_add adds it: scaled, rounded to nearest, clamped,
 * and noted in `largest`. */
#ifndef RB_KERNELS_CPU_OUTER_TILE_H
#define RB_KERNELS_CPU_OUTER_TILE_H

#include "base/prefetch.h"
#include "kernels/cpu/fixed.h"
#include "kernels/cpu/outer_pack.h"

#include <string.h>

#if defined(__x86_64__)

enum { RB_OUTER_HALF = RB_OUTER_COLUMNS / 2 };

/* For each row of a tile: written out, so that rows are registers. */
#define RB_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

/* Where a tile goes: how many of its rows exist, and which columns, as masks. */
struct rb_outer_place {
    int64_t at, step; /* elements: the tile's first one, from row to row */
    int rows, columns;
    __mmask16 left, right;
};

RB_DOTS static RB_INLINE void rb_outer_multiply(__m512 c[RB_OUTER_ROWS][2], const rb_word *strip,
                                                const rb_word *panel, int64_t words, bool pairs)
{
#define CLEAR(r) c[r][0] = c[r][1] = _mm512_setzero_ps();
#define STEP(r)                                                                                    \
    {                                                                                              \
        const __m512 a_ = _mm512_set1_ps(strip[r]);                                                \
        c[r][0] = rb_add_product(c[r][0], a_, left, pairs);                                        \
        c[r][1] = rb_add_product(c[r][1], a_, right, pairs);                                       \
    }
    RB_EACH_ROW(CLEAR)
    for (int64_t k = 0; k < words; k++, strip += RB_OUTER_ROWS, panel += RB_OUTER_COLUMNS) {
        const __m512 left = _mm512_loadu_ps(panel), right = _mm512_loadu_ps(panel + RB_OUTER_HALF);

        RB_EACH_ROW(STEP)
    }
#undef CLEAR
#undef STEP
}

RB_WIDE static RB_INLINE void rb_outer_store(const __m512 c[RB_OUTER_ROWS][2], float *to,
                                             const struct rb_outer_place *place)
{
#define STORE(r)                                                                                   \
    if (r < place->rows) {                                                                         \
        _mm512_mask_storeu_ps(to + r * place->step, place->left, c[r][0]);                         \
        _mm512_mask_storeu_ps(to + r * place->step + RB_OUTER_HALF, place->right, c[r][1]);        \
    }
    RB_EACH_ROW(STORE)
#undef STORE
}

/* By lane, bits of the largest |g * weight| of a tile. */
RB_WIDE static RB_INLINE __m512i rb_outer_largest(const __m512 c[RB_OUTER_ROWS][2],
                                                  const struct rb_outer_place *place, bool whole)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    const __m512i left_size = whole ? size : _mm512_maskz_mov_epi32(place->left, size);
    const __m512i right_size = whole ? size : _mm512_maskz_mov_epi32(place->right, size);
    __m512i left = _mm512_setzero_si512(), right = left;

#define LARGER(r)                                                                                  \
    if (whole || r < place->rows) {                                                                \
        left = _mm512_max_epu32(left, _mm512_and_epi32(left_size, _mm512_castps_si512(c[r][0])));  \
        right =                                                                                    \
            _mm512_max_epu32(right, _mm512_and_epi32(right_size, _mm512_castps_si512(c[r][1])));   \
    }
    RB_EACH_ROW(LARGER)
#undef LARGER
    return _mm512_max_epu32(left, right);
}

/* What a tile's summands are added to, and where the sums go: the first element, and steps from row
 * to row. */
struct rb_outer_sums {
    const int32_t *from;
    int32_t *to;
    int64_t from_step, to_step;
};

/* Some summand is beyond the limit, or not a number: add row by row, as if the tile were in memory.
 */
static __attribute__((noinline)) void rb_outer_add_clamped(const float *tile,
                                                           const struct rb_fixed *into,
                                                           const struct rb_outer_sums *sums,
                                                           const struct rb_outer_place *place)
{
    for (int r = 0; r < place->rows; r++) {
        int32_t *to = sums->to + r * sums->to_step;

        if (sums->from != sums->to && !into->fresh)
            memcpy(to, sums->from + r * sums->from_step, (size_t)place->columns * sizeof *to);
        rb_cpu_fixed_add(NULL, to, tile + r * RB_OUTER_COLUMNS, (size_t)place->columns, into->fresh,
                         1, into->exponent, into->limit, into->largest, into->overflow);
    }
}

/* Scale, round to nearest even, add; `fresh`: onto nothing. */
RB_WIDE static RB_INLINE void rb_outer_add_inside(const __m512 c[RB_OUTER_ROWS][2],
                                                  const struct rb_outer_sums *sums,
                                                  const struct rb_outer_place *place, __m512 scale,
                                                  bool fresh, bool whole)
{
    const int32_t *from = sums->from;
    int32_t *to = sums->to;

#define ADD(r, half_, mask_, g_)                                                                   \
    {                                                                                              \
        const __mmask16 m_ = whole ? 0xffff : mask_;                                               \
        __m512i old_ = fresh ? _mm512_setzero_si512()                                              \
                             : _mm512_maskz_loadu_epi32(m_, from + r * sums->from_step + half_);   \
        _mm512_mask_storeu_epi32(                                                                  \
            to + r * sums->to_step + half_, m_,                                                    \
            _mm512_add_epi32(old_, _mm512_cvtps_epi32(_mm512_mul_ps(g_, scale))));                 \
    }
#define ADD_ROW(r)                                                                                 \
    if (whole || r < place->rows) {                                                                \
        ADD(r, 0, place->left, c[r][0])                                                            \
        ADD(r, RB_OUTER_HALF, place->right, c[r][1])                                               \
    }
    RB_EACH_ROW(ADD_ROW)
#undef ADD_ROW
#undef ADD
}

/* Returns the largest by lane, which is not yet in into->largest. */
RB_WIDE static RB_INLINE __m512i rb_outer_add(
    __m512 c[RB_OUTER_ROWS][2], const struct rb_fixed *into, const struct rb_outer_sums *sums,
    const struct rb_outer_place *place, const struct rb_fixed_quick *quick, bool fresh, bool whole)
{
    __m512i largest;

#define WEIGH(r)                                                                                   \
    c[r][0] = _mm512_mul_ps(c[r][0], weight);                                                      \
    c[r][1] = _mm512_mul_ps(c[r][1], weight);
    if (quick->weight != 1) {
        const __m512 weight = _mm512_set1_ps(quick->weight);

        RB_EACH_ROW(WEIGH)
    }
#undef WEIGH
    largest = rb_outer_largest(c, place, whole);
    if (__builtin_expect(!_mm512_cmpgt_epi32_mask(largest, _mm512_set1_epi32(quick->bound)),
                         true)) {
        rb_outer_add_inside(c, sums, place, _mm512_set1_ps(quick->scale), fresh, whole);
    } else {
        const struct rb_outer_place all = {
            0, RB_OUTER_COLUMNS, place->rows, RB_OUTER_COLUMNS, 0xffff, 0xffff};
        float tile[RB_OUTER_ROWS * RB_OUTER_COLUMNS];

        rb_outer_store(c, tile, &all);
        rb_outer_add_clamped(tile, into, sums, place);
    }
    return largest;
}

/* Fetch the lines of c that the next tile will want. */
static RB_INLINE void rb_outer_fetch(const void *c, int64_t at, int64_t step)
{
#define FETCH(r)                                                                                   \
    rb_prefetch_write((const float *)c + at + r * step);                                           \
    rb_prefetch_write((const float *)c + at + r * step + RB_OUTER_HALF);
    RB_EACH_ROW(FETCH)
#undef FETCH
}

#undef RB_EACH_ROW

#endif

#endif
