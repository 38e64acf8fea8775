/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/outer_pack.h"

#if defined(__x86_64__)

enum { ROWS = RB_OUTER_ROWS, COLUMNS = RB_OUTER_COLUMNS };

static RB_INLINE void pack_floats(const float *from, int64_t step, int64_t depth, int64_t n,
                                  int64_t wide, rb_word *to)
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

static RB_INLINE void pack(const struct rb_outer_factor *f, int64_t first, int64_t n, int64_t wide,
                           rb_word *to)
{
    if (f->pairs)
        rb_pairs_pack((const uint16_t *)f->from + first, f->columns, f->depth, n, wide, to);
    else
        pack_floats((const float *)f->from + first, f->columns, f->depth, n, wide, to);
}

RB_WIDE void rb_outer_panels(const struct rb_outer_factor *b, rb_word *panels)
{
    for (int64_t j = 0; j < b->columns; j += COLUMNS) {
        pack(b, j, b->columns - j < COLUMNS ? b->columns - j : COLUMNS, COLUMNS, panels);
        panels += COLUMNS * rb_words(b->depth, b->pairs);
    }
}

RB_WIDE void rb_outer_strip(const struct rb_outer_factor *a, int64_t i, int rows, rb_word *strip)
{
    pack(a, i, rows, ROWS, strip);
}

#endif
