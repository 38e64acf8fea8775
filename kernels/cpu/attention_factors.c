/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_factors.h"

#include <string.h>

#if defined(__x86_64__)

enum { STEP = RB_BLOCK_STEP, COLUMNS = RB_BLOCK_COLUMNS };

const void *rb_attention_row(bool pairs, const void *rows, int64_t n, int64_t width)
{
    return (const char *)rows + n * width * (int64_t)(pairs ? sizeof(uint16_t) : sizeof(float));
}

void rb_attention_copy(bool pairs, const void *from, int n, int64_t width, rb_word *to)
{
    for (int i = 0; i < n; i++)
        memcpy(to + i * STEP, rb_attention_row(pairs, from, i, width),
               (size_t)rb_words(width, pairs) * sizeof *to);
}

void rb_attention_pack(bool pairs, const void *from, int rows, int64_t width, rb_word *panels)
{
    if (!pairs)
        rb_pack_columns(from, width, width, rows, COLUMNS, COLUMNS * rows, panels);
    for (int64_t e = 0; e < width && pairs; e += COLUMNS)
        rb_pairs_pack((const uint16_t *)from + e, width, rows, width - e, COLUMNS,
                      panels + e * rb_words(rows, true));
}

void rb_attention_pack_turned(bool pairs, const void *from, int rows, int64_t width,
                              rb_word *panels)
{
    const int64_t words = rb_words(width, pairs);

    rb_pack_turned_columns(from, words, rows, words, COLUMNS, COLUMNS * words, panels);
}

/* Includes the zeros behind what is seen. */
const rb_word *rb_attention_along_keys(const struct rb_attention_block *block, float *scores)
{
    for (int i = 0; i < block->queries && rb_attention_of_pairs(block->tiles); i++)
        rb_pairs_of_row(scores + i * STEP, rb_attention_seen(block, i) + COLUMNS,
                        scores + i * STEP);
    return scores;
}

const rb_word *rb_attention_along_queries(const struct rb_attention_block *block,
                                          const float *scores, rb_word *turned)
{
    if (!rb_attention_of_pairs(block->tiles))
        return scores;
    for (int i = 0; i < block->queries; i += 2)
        rb_pairs_of_rows(scores + i * STEP, i + 1 < block->queries ? scores + (i + 1) * STEP : NULL,
                         rb_attention_seen(block, i) + COLUMNS, turned + i / 2 * STEP);
    return turned;
}

#endif
