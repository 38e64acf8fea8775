/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of a product in the order in which its tiles go through them.
 *
 * product, attention_blocked, conv_direct, conv_weights > [product_pack]
 *
 * A strip is RB_TILE_ROWS rows of a, a panel 16 or 24 columns of b: for each k that many numbers
 * side by side, zeros where there are no further rows or columns.  Strips and panels of a block lie
 * `apart` numbers from each other, with those of other runs in between. */
#ifndef RB_KERNELS_CPU_PRODUCT_PACK_H
#define RB_KERNELS_CPU_PRODUCT_PACK_H

#include <stdbool.h>
#include <stdint.h>

/* A tile is as many elements as fit 12 of 16 registers; the others are factors.  Of all shapes this
 * one has the fewest loads to a multiplication. */
enum { RB_TILE_ROWS = 4, RB_TILE_COLUMNS = 24 };

/* Rows [0, n) of which each begins at rows[i]; k from `first` on, `depth` of them. */
void rb_pack_rows(const float *const *rows, int64_t n, int64_t first, int64_t depth, int64_t apart,
                  float *strips);
/* The same of a turned around: row i is the numbers a[k * step + i]. */
void rb_pack_turned_rows(const float *a, int64_t step, int64_t n, int64_t depth, int64_t apart,
                         float *strips);

/* The part [from, to) of a strip's k, in units of four steps, outside of which the strip is zeros,
 * as masked scores are: there a product adds nothing. */
struct rb_strip_part {
    int64_t from, to;
};
struct rb_strip_part rb_pack_part(const float *strip, int64_t depth);

/* Columns [0, n) of b, `wide` (16 or 24) a panel: column j is the numbers b[k * step + j]. */
void rb_pack_columns(const float *b, int64_t step, int64_t n, int64_t depth, int wide,
                     int64_t apart, float *panels);
/* The same of b turned around: column j is the numbers b[j * step + k]. */
void rb_pack_turned_columns(const float *b, int64_t step, int64_t n, int64_t depth, int wide,
                            int64_t apart, float *panels);

/* Rows of numbers, `step` apart, turned around: column by column, `to_step` apart. */
void rb_turn(const float *from, int64_t step, int64_t rows, int64_t columns, float *to,
             int64_t to_step);

#endif
