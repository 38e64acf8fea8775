/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a block of scores between the products, row by row.
 *
 * attention_blocked > [attention_scores] > math
 *
 * Behind the last key that a query sees, RB_BLOCK_COLUMNS scores are 0. */
#ifndef RB_KERNELS_CPU_ATTENTION_SCORES_H
#define RB_KERNELS_CPU_ATTENTION_SCORES_H

#include "kernels/attention.h"
#include "kernels/cpu/attention_tile.h"

/* Random words of a block: query i's first one is words[i * RB_BLOCK_STEP + (first + i * keys) % 4]
 * (they come in fours), keys being those of a whole row of the matrix. */
struct rb_attention_words {
    const uint32_t *words;
    uint64_t first; /* number of the element that the block begins with */
    int64_t keys;
};

/* Rows of which a part was seen: the largest score so far, and the sum of e to the score minus
 * that. */
struct rb_attention_rows {
    float *most, *sum;
    float *y; /* [width] a row, not divided by the sum yet */
    int64_t width;
    bool fresh; /* nothing was seen yet */
};

/* Products become e to the score minus the row's largest so far; the sum and y of what was seen
 * before are rescaled to the same. */
void rb_attention_soften(const struct rb_attention_block *block, float scale, float *scores,
                         const struct rb_attention_rows *rows);

/* Scores that dropout drops become 0; those that it keeps stay as they are. */
void rb_attention_drop(const struct rb_attention_block *block, float *scores, uint32_t least,
                       const struct rb_attention_words *words);

/* When all keys were seen: y is divided by the sum, and l (NULL: not wanted) is the logarithm of
 * the whole sum. */
void rb_attention_finish(const struct rb_attention_rows *rows, int64_t n, float factor, float *l);

/* Products of queries and keys, in scores, become the probabilities as dropout leaves them;
 * products of dy and values, in d, become the gradient of the former products.  l, inner: a number
 * a row; words: used where s drops. */
void rb_attention_differentiate(const struct rb_attention_block *block,
                                const struct rb_attention *s, float *scores, float *d,
                                const float *l, const float *inner,
                                const struct rb_attention_words *words);

/* The inner products of n rows. */
void rb_attention_inner(const float *dy, const float *y, int n, int64_t width, float *inner);

#endif
