/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of float32 or of bfloat16 (pairs) as factors of attention's products.
 *
 * attention_blocked > [attention_factors] > attention_tile
 *
 * Only here does it matter which of the two they are: tiles see words (pairs.h), and scores are
 * float32 until they become a factor. */
#ifndef RB_KERNELS_CPU_ATTENTION_FACTORS_H
#define RB_KERNELS_CPU_ATTENTION_FACTORS_H

#include "kernels/cpu/attention_tile.h"

/* Row n of rows of `width` numbers. */
const void *rb_attention_row(bool pairs, const void *rows, int64_t n, int64_t width);

/* Copy n rows, to places RB_BLOCK_STEP words apart. */
void rb_attention_copy(bool pairs, const void *from, int n, int64_t width, rb_word *to);

/* Panels for a product that sums over rows, or (turned) over the numbers of a row. */
void rb_attention_pack(bool pairs, const void *from, int rows, int64_t width, rb_word *panels);
void rb_attention_pack_turned(bool pairs, const void *from, int rows, int64_t width,
                              rb_word *panels);

/* A block's scores as a factor of rb_attention_mix; for tiles of pairs they are rounded in place.
 */
const rb_word *rb_attention_along_keys(const struct rb_attention_block *block, float *scores);

/* The same for rb_attention_gather; pairs go to `turned`, which has half the room of scores. */
const rb_word *rb_attention_along_queries(const struct rb_attention_block *block,
                                          const float *scores, rb_word *turned);

#endif
