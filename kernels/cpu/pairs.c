/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/pairs.h"

#if defined(__x86_64__)

enum { LANES = 16 };

/* As many words of two rows as `mask` says. */
RB_WIDE static RB_INLINE __m512i sixteen(const uint16_t *first, const uint16_t *second,
                                         __mmask16 mask)
{
    const __m512i lower = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
    const __m512i upper =
        second ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second)) : lower;

    return second ? _mm512_or_si512(lower, _mm512_slli_epi32(upper, LANES)) : lower;
}

static RB_INLINE __mmask16 mask_of(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

RB_WIDE void rb_pairs_pack(const uint16_t *from, int64_t step, int64_t depth, int64_t n,
                           int64_t wide, rb_word *to)
{
    for (int64_t k = 0; k < depth; k += 2, from += 2 * step, to += wide) {
        const uint16_t *second = k + 1 < depth ? from + step : NULL;

        for (int64_t j = 0; j < wide; j += LANES)
            _mm512_mask_storeu_epi32(to + j, mask_of(wide - j),
                                     sixteen(from + j, second ? second + j : NULL, mask_of(n - j)));
    }
}

#endif
