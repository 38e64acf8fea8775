/* SPDX-License-Identifier: Apache-2.0 */
/* Panels: the factor of a product that tiles read in vectors, in the order in which they read it.
 *
 * mix, samples, tall > [wide_panel], wide_tile > pairs
 *
 * A panel is up to 48 columns, for each step along k that many words side by side; words behind the
 * last column may be anything.  Four vectors become two panels of two: a panel of one vector has
 * too few chains to keep the multipliers busy. */
#ifndef RB_KERNELS_CPU_WIDE_PANEL_H
#define RB_KERNELS_CPU_WIDE_PANEL_H

#include "kernels/cpu/wide_tile.h"

/* How many vectors the next panel has where `columns` are left. */
int rb_wide_vectors(int64_t columns);

/* Columns whose words along k are side by side: column j begins at column[j]. */
void rb_wide_turn(const rb_word *const *column, int64_t columns, int64_t words, rb_word *panels);

/* Rows along k: word k of column j is w[k * step + j]. */
void rb_wide_copy(const float *w, int64_t step, int64_t columns, int64_t words, rb_word *panels);
/* The same of pairs, of rows 2 k and 2 k + 1 of `depth`. */
void rb_wide_copy_pairs(const uint16_t *w, int64_t step, int64_t columns, int64_t depth,
                        rb_word *panels);

#if defined(__x86_64__)
/* 16 rows of 16 words become 16 columns. */
RB_WIDE static RB_INLINE void rb_wide_turn_sixteen(__m512 r[RB_WIDE_LANES])
{
    __m512 t[RB_WIDE_LANES];

    for (int i = 0; i < RB_WIDE_LANES; i += 4) {
        const __m512 low01 = _mm512_unpacklo_ps(r[i], r[i + 1]);
        const __m512 high01 = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const __m512 low23 = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m512 high23 = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm512_shuffle_ps(low01, low23, 0x44);
        t[i + 1] = _mm512_shuffle_ps(low01, low23, 0xee);
        t[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
        t[i + 3] = _mm512_shuffle_ps(high01, high23, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* quarters */
        const __m512 even01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const __m512 odd01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const __m512 even23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const __m512 odd23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);

        r[i] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}
#endif

#endif
