/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/wide_panel.h"

#include <string.h>

#if defined(__x86_64__)

enum { LANES = RB_WIDE_LANES, VECTORS = RB_WIDE_VECTORS };

int rb_wide_vectors(int64_t columns)
{
    const int64_t vectors = (columns + LANES - 1) / LANES;

    return vectors == VECTORS + 1 ? 2 : vectors < VECTORS ? (int)vectors : VECTORS;
}

/* Lanes behind the last column repeat it. */
RB_WIDE static void turn_lanes(const rb_word *const *column, int64_t columns, int64_t words,
                               rb_word *to, int64_t step)
{
    const rb_word *x[LANES];
    int64_t k = 0;

    for (int64_t i = 0; i < LANES; i++)
        x[i] = column[i < columns ? i : columns - 1];
    for (; k + LANES <= words; k += LANES) {
        __m512 r[LANES];

        for (int i = 0; i < LANES; i++)
            r[i] = _mm512_loadu_ps(x[i] + k);
        rb_wide_turn_sixteen(r);
        for (int i = 0; i < LANES; i++)
            _mm512_storeu_ps(to + (k + i) * step, r[i]);
    }
    for (; k < words; k++)
        for (int i = 0; i < LANES; i++)
            to[k * step + i] = x[i][k];
}

void rb_wide_turn(const rb_word *const *column, int64_t columns, int64_t words, rb_word *panels)
{
    for (int64_t j = 0; j < columns;) {
        const int vectors = rb_wide_vectors(columns - j);

        for (int v = 0; v < vectors; v++, j += LANES)
            turn_lanes(column + j, columns - j, words, panels + v * LANES, vectors * LANES);
        panels += words * vectors * LANES;
    }
}

RB_WIDE void rb_wide_copy(const float *w, int64_t step, int64_t columns, int64_t words,
                          rb_word *panels)
{
    for (int64_t j = 0; j < columns;) {
        const int wide = rb_wide_vectors(columns - j) * LANES;
        const int64_t there = columns - j < wide ? columns - j : wide;

        for (int64_t k = 0; k < words; k++, panels += wide) {
            memcpy(panels, w + k * step + j, (size_t)there * sizeof *panels);
            if (there < wide)
                memset(panels + there, 0, (size_t)(wide - there) * sizeof *panels);
        }
        j += wide;
    }
}

void rb_wide_copy_pairs(const uint16_t *w, int64_t step, int64_t columns, int64_t depth,
                        rb_word *panels)
{
    for (int64_t j = 0; j < columns;) {
        const int wide = rb_wide_vectors(columns - j) * LANES;

        rb_pairs_pack(w + j, step, depth, columns - j < wide ? columns - j : wide, wide, panels);
        panels += rb_words(depth, true) * wide;
        j += wide;
    }
}

#endif
