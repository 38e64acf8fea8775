/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/pairs.h"

#if defined(__x86_64__)

enum { LANES = 16 };

RB_WIDE static RB_INLINE __m512i join(__m256i first, __m256i second)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), LANES));
}

static RB_INLINE __mmask16 mask_of(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

RB_DOTS static RB_INLINE __m512 load(const float *from, int64_t n)
{
    return _mm512_maskz_loadu_ps(mask_of(n), from);
}

RB_DOTS void rb_pairs_of_row(const float *from, int64_t n, rb_word *to)
{
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        const __m512 low = load(from + j, n - j), high = load(from + j + LANES, n - j - LANES);

        _mm512_mask_storeu_ps(to + j / 2, mask_of((n - j + 1) / 2),
                              (__m512)_mm512_cvtne2ps_pbh(high, low));
    }
}

RB_DOTS static RB_INLINE __m256i rounded(const float *from, int64_t n)
{
    return (__m256i)_mm512_cvtneps_pbh(load(from, n));
}

RB_DOTS void rb_pairs_of_rows(const float *first, const float *second, int64_t n, rb_word *to)
{
    for (int64_t j = 0; j < n; j += LANES)
        _mm512_mask_storeu_epi32(to + j, mask_of(n - j),
                                 join(rounded(first + j, n - j), second ? rounded(second + j, n - j)
                                                                        : _mm256_setzero_si256()));
}

/* Packs two rows, or one with zeros behind it. */
RB_WIDE static RB_INLINE void pack_rows(const uint16_t *first, const uint16_t *second, int64_t n,
                                        int64_t wide, rb_word *to)
{
    int64_t j = 0;

    for (; second && j + LANES <= n && j + LANES <= wide; j += LANES)
        _mm512_storeu_si512(to + j, join(_mm256_loadu_si256((const __m256i *)(first + j)),
                                         _mm256_loadu_si256((const __m256i *)(second + j))));
    for (; j < wide; j += LANES) {
        const __mmask16 there = mask_of(n - j);

        _mm512_mask_storeu_epi32(
            to + j, mask_of(wide - j),
            join(_mm256_maskz_loadu_epi16(there, first + j),
                 second ? _mm256_maskz_loadu_epi16(there, second + j) : _mm256_setzero_si256()));
    }
}

RB_WIDE void rb_pairs_pack(const uint16_t *from, int64_t step, int64_t depth, int64_t n,
                           int64_t wide, rb_word *to)
{
    for (int64_t k = 0; k < depth; k += 2, from += 2 * step, to += wide)
        pack_rows(from, k + 1 < depth ? from + step : NULL, n, wide, to);
}

#endif
