/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a block of attention: some queries, some keys, and the scores between them.
 *
 * attention_blocked > [attention_tile]
 *
 * Matrices with a row for each query have RB_BLOCK_STEP numbers a row, whatever is in them.  So
 * tiles find their rows at distances that are known when they are compiled, and scores are packed
 * for none of the three ways in which they are multiplied.  The other factor is panels
 * (product_pack.h).  As in product, each element is one chain of fused multiply-adds in its order:
 * its bits do not depend on the size of tiles.
 *
 * Factors are words (pairs.h): with pairs a row has half as many words along what is summed over,
 * and a turned factor has rows of two queries each. */
#ifndef RB_KERNELS_CPU_ATTENTION_TILE_H
#define RB_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/pairs.h"
#include "kernels/cpu/product_pack.h"

/* A block's scores and their gradients stay in the second cache beside what they are made of.  A
 * step is an odd number of cache lines, so that rows do not take each other's places in the cache.
 */
enum { RB_BLOCK_QUERIES = 48, RB_BLOCK_KEYS = 128, RB_BLOCK_STEP = 144 };

/* Columns of a panel. */
enum { RB_BLOCK_COLUMNS = 16 };

struct rb_attention_tiles;

/* The tiles for this processor; NULL: there are none.  pairs: of bfloat16; the caller has asked
 * rb_cpu_dots. */
const struct rb_attention_tiles *rb_attention_tiles(bool pairs);
bool rb_attention_of_pairs(const struct rb_attention_tiles *tiles);

/* Query i of the block sees its keys [0, i + ahead]. */
struct rb_attention_block {
    const struct rb_attention_tiles *tiles;
    int queries, keys;
    int64_t ahead; /* at least 0; RB_BLOCK_KEYS: each query sees all keys */
};

/* How many keys query i sees. */
static inline int rb_attention_seen(const struct rb_attention_block *block, int i)
{
    return i + block->ahead + 1 < block->keys ? (int)(i + block->ahead + 1) : block->keys;
}

/* c [queries, keys] = a [queries, depth] times keys as panels, as far as queries see and a little
 * further; depth counts words. */
void rb_attention_scores(const struct rb_attention_block *block, const rb_word *a,
                         const rb_word *panels, int64_t depth, float *c);

/* Rows of `width` numbers, `step` apart, to add to: to what they hold, or (fresh) to nothing. */
struct rb_attention_sum {
    float *c;
    int64_t step, width;
    bool fresh;
};

/* c [queries, width] += scores [queries, keys] times panels of `keys` rows.  Scores of keys that
 * are not seen are 0 up to RB_BLOCK_COLUMNS behind the last key that is seen. */
void rb_attention_mix(const struct rb_attention_block *block, const rb_word *scores,
                      const rb_word *panels, const struct rb_attention_sum *sum);

/* c [keys, width] += scores turned [keys, queries] times panels of `queries` rows. */
void rb_attention_gather(const struct rb_attention_block *block, const rb_word *scores,
                         const rb_word *panels, const struct rb_attention_sum *sum);

#endif
