/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/outer_pack.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { ROWS = RB_OUTER_ROWS, COLUMNS = RB_OUTER_COLUMNS, HALF = COLUMNS / 2 };

static RB_INLINE void pack_floats(const float *from, int64_t step, int64_t depth, int64_t n,
                                  int64_t wide, float *to)
{
    for (int64_t k = 0; k < depth; k++, from += step, to += wide) {
        if (n == wide) {
            memcpy(to, from, (size_t)wide * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)wide * sizeof *to);
        memcpy(to, from, (size_t)n * sizeof *to);
    }
}

/* Sixteen words of two rows, as many as `mask` says. */
RB_WIDE static RB_INLINE __m512i sixteen_pairs(const uint16_t *first, const uint16_t *second,
                                               __mmask16 mask)
{
    const __m512i upper = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
    __m512i words = _mm512_slli_epi32(upper, 16);

    if (second)
        words =
            _mm512_or_si512(words, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second)));
    return words;
}

RB_WIDE static RB_INLINE void pack_pairs(const uint16_t *from, int64_t step, int64_t depth,
                                         int64_t n, int64_t wide, uint32_t *to)
{
    for (int64_t k = 0; k < depth; k += 2, from += 2 * step, to += wide) {
        const uint16_t *second = k + 1 < depth ? from + step : NULL;

        for (int64_t j = 0; j < wide; j += HALF) {
            const int64_t here = n - j < 0 ? 0 : n - j < HALF ? n - j : HALF;
            const int64_t room = wide - j < HALF ? wide - j : HALF;

            _mm512_mask_storeu_epi32(
                to + j, (__mmask16)((1u << room) - 1),
                sixteen_pairs(from + j, second ? second + j : NULL, (__mmask16)((1u << here) - 1)));
        }
    }
}

RB_WIDE static RB_INLINE void pack(const struct rb_outer_factor *f, int64_t first, int64_t n,
                                   int64_t wide, void *to)
{
    if (f->pairs)
        pack_pairs((const uint16_t *)f->from + first, f->columns, f->depth, n, wide, to);
    else
        pack_floats((const float *)f->from + first, f->columns, f->depth, n, wide, to);
}

RB_WIDE void rb_outer_panels(const struct rb_outer_factor *b, void *panels)
{
    uint32_t *to = panels;

    for (int64_t j = 0; j < b->columns; j += COLUMNS) {
        pack(b, j, b->columns - j < COLUMNS ? b->columns - j : COLUMNS, COLUMNS, to);
        to += COLUMNS * rb_outer_steps(b->depth, b->pairs);
    }
}

RB_WIDE void rb_outer_strip(const struct rb_outer_factor *a, int64_t i, int rows, void *strip)
{
    pack(a, i, rows, ROWS, strip);
}

#endif
