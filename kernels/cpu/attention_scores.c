/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_scores.h"

#include "kernels/cpu/math.h"

enum { STEP = RB_BLOCK_STEP };

static RB_INLINE void clear_behind(float *row, int seen)
{
    memset(row + seen, 0, RB_BLOCK_COLUMNS * sizeof *row);
}

/* Where only minus infinity was seen, powers are 0 and not NaN: a key further on may have another
 * score. */
RB_CLONES void rb_attention_soften(const struct rb_attention_block *block, float scale,
                                   float *scores, const struct rb_attention_rows *rows)
{
    for (int i = 0; i < block->queries; i++) {
        const int n = rb_attention_seen(block, i);
        float *restrict x = scores + i * STEP;
        float most, shift, before;

        for (int j = 0; j < n; j++)
            x[j] *= scale;
        most = rb_most(x, n);
        most = rows->fresh || most > rows->most[i] ? most : rows->most[i];
        shift = most == -INFINITY ? 0 : most;
        for (int j = 0; j < n; j++)
            x[j] = rb_exp_belowf(x[j] - shift);
        before = rows->fresh ? 0 : rb_exp_belowf(rows->most[i] - shift);
        rows->sum[i] = (rows->fresh ? 0 : rows->sum[i] * before) + rb_sum(x, n);
        for (int64_t e = 0; e < rows->width && !rows->fresh && before != 1; e++)
            rows->y[i * rows->width + e] *= before;
        rows->most[i] = most;
        clear_behind(x, n);
    }
}

static RB_INLINE const uint32_t *words_of(const struct rb_attention_words *words, int i)
{
    return words->words + i * STEP + (words->first + (uint64_t)(i * words->keys)) % 4;
}

RB_CLONES void rb_attention_drop(const struct rb_attention_block *block, float *scores,
                                 uint32_t least, const struct rb_attention_words *words)
{
    for (int i = 0; i < block->queries; i++) {
        const int n = rb_attention_seen(block, i);
        const uint32_t *restrict word = words_of(words, i);
        float *restrict x = scores + i * STEP;

        for (int j = 0; j < n; j++)
            x[j] = word[j] >= least ? x[j] : 0;
    }
}

RB_CLONES void rb_attention_finish(const struct rb_attention_rows *rows, int64_t n, float factor,
                                   float *l)
{
    for (int64_t i = 0; i < n; i++) {
        float *restrict y = rows->y + i * rows->width, scale = factor / rows->sum[i];

        for (int64_t e = 0; e < rows->width; e++)
            y[e] *= scale;
        if (l)
            l[i] = rows->most[i] + rb_logf(rows->sum[i]);
    }
}

RB_CLONES void rb_attention_differentiate(const struct rb_attention_block *block,
                                          const struct rb_attention *s, float *scores, float *d,
                                          const float *l, const float *inner,
                                          const struct rb_attention_words *words)
{
    const float scale = s->scale, factor = s->factor;
    const uint32_t least = s->least;

    for (int i = 0; i < block->queries; i++) {
        const int n = rb_attention_seen(block, i);
        const float log = l[i], mean = inner[i];
        float *restrict p = scores + i * STEP, *restrict g = d + i * STEP;

        for (int j = 0; j < n; j++)
            p[j] = rb_exp_belowf(p[j] * scale - log);
        if (s->drops) {
            const uint32_t *restrict word = words_of(words, i);

            for (int j = 0; j < n; j++) {
                float kept = word[j] >= least ? factor : 0;

                g[j] = p[j] * (g[j] * kept - mean) * scale;
                p[j] *= kept;
            }
        } else {
            for (int j = 0; j < n; j++)
                g[j] = p[j] * (g[j] - mean) * scale;
        }
        clear_behind(p, n);
        clear_behind(g, n);
    }
}

RB_CLONES void rb_attention_inner(const float *dy, const float *y, int n, int64_t width,
                                  float *inner)
{
    for (int i = 0; i < n; i++)
        inner[i] = rb_dot(dy + i * width, y + i * width, width);
}
