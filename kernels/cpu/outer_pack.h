/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of an outer product in the order in which its tiles go through them.
 *
 * outer > [outer_pack] > pairs
 *
 * A strip is RB_OUTER_ROWS columns of a (rows of c), a panel RB_OUTER_COLUMNS columns of b: for
 * each word along k that many side by side, zeros behind the last column. */
#ifndef RB_KERNELS_CPU_OUTER_PACK_H
#define RB_KERNELS_CPU_OUTER_PACK_H

#include "kernels/cpu/pairs.h"

/* A tile is as many elements of c as fit the registers: 28 of 32, the rest are factors. */
enum { RB_OUTER_ROWS = 14, RB_OUTER_COLUMNS = 32 };

/* A factor: `depth` rows of `columns` numbers. */
struct rb_outer_factor {
    const void *from;
    bool pairs; /* of bfloat16 */
    int64_t depth, columns;
};

/* All of b, panel after panel: */
void rb_outer_panels(const struct rb_outer_factor *b, rb_word *panels);
/* The strip of a from column i on, of which `rows` columns exist: */
void rb_outer_strip(const struct rb_outer_factor *a, int64_t i, int rows, rb_word *strip);

#endif
