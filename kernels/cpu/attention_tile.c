/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_tile.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pairs.h"

#include <stddef.h>

enum { COLUMNS = RB_BLOCK_COLUMNS, STEP = RB_BLOCK_STEP, MOST_ROWS = 12 };

_Static_assert(COLUMNS == 16, "tiles are written out: two registers of AVX2, one of AVX-512");
_Static_assert(RB_BLOCK_KEYS % COLUMNS == 0 && RB_BLOCK_KEYS + COLUMNS <= STEP,
               "a row has room for what is 0 behind what is seen");

/* c [rows, COLUMNS], `step` apart, += a [rows, depth] times a panel; fresh: onto nothing.  A depth
 * of words. */
typedef void tile_run(const rb_word *a, const rb_word *panel, int64_t depth, float *c, int64_t step,
                      bool fresh);

struct rb_attention_tiles {
    int rows;
    bool pairs;
    tile_run *straight, *turned; /* the rows of a are rows of a block, or its columns */
};

#if defined(__x86_64__)

#define RB_AVX2 __attribute__((target("avx2,fma"), noinline))

/* Where row r and step k of a lie. */
#define STRAIGHT(r) a[r * STEP + k]
#define TURNED(r)   a[k * STEP + r]

/* For each row of a tile: written out, so that rows are registers. */
#define EACH_6(X, A)  X(0, A) X(1, A) X(2, A) X(3, A) X(4, A) X(5, A)
#define EACH_12(X, A) EACH_6(X, A) X(6, A) X(7, A) X(8, A) X(9, A) X(10, A) X(11, A)

/* ---- Eight lanes: two registers a row ---- */

#define BEGIN(r, A)                                                                                \
    left##r = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * step);                         \
    right##r = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * step + 8);
#define ADD(r, A)                                                                                  \
    left##r = _mm256_fmadd_ps(_mm256_broadcast_ss(&A(r)), left, left##r);                          \
    right##r = _mm256_fmadd_ps(_mm256_broadcast_ss(&A(r)), right, right##r);
#define END(r, A)                                                                                  \
    _mm256_storeu_ps(c + r * step, left##r);                                                       \
    _mm256_storeu_ps(c + r * step + 8, right##r);
#define TILE(A)                                                                                    \
    {                                                                                              \
        __m256 left0, left1, left2, left3, left4, left5;                                           \
        __m256 right0, right1, right2, right3, right4, right5;                                     \
        EACH_6(BEGIN, A)                                                                           \
        _Pragma("GCC unroll 4") for (int64_t k = 0; k < depth; k++, panel += COLUMNS)              \
        {                                                                                          \
            const __m256 left = _mm256_loadu_ps(panel), right = _mm256_loadu_ps(panel + 8);        \
                                                                                                   \
            EACH_6(ADD, A)                                                                         \
        }                                                                                          \
        EACH_6(END, A)                                                                             \
    }

RB_AVX2 static void straight_6(const rb_word *a, const rb_word *panel, int64_t depth, float *c,
                               int64_t step, bool fresh){TILE(STRAIGHT)}

RB_AVX2 static void turned_6(const rb_word *a, const rb_word *panel, int64_t depth, float *c,
                             int64_t step, bool fresh)
{
    TILE(TURNED)
}

#undef BEGIN
#undef ADD
#undef END
#undef TILE

/* ---- Sixteen: one, and twice the rows ---- */

#define BEGIN(r, A) c##r = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * step);
#define ADD(r, A)   c##r = rb_add_word(c##r, &A(r), b, pairs);
#define END(r, A)   _mm512_storeu_ps(c + r * step, c##r);
#define TILE(A)                                                                                    \
    {                                                                                              \
        __m512 c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11;                                   \
        EACH_12(BEGIN, A)                                                                          \
        _Pragma("GCC unroll 4") for (int64_t k = 0; k < depth; k++, panel += COLUMNS)              \
        {                                                                                          \
            const __m512 b = _mm512_loadu_ps(panel);                                               \
                                                                                                   \
            EACH_12(ADD, A)                                                                        \
        }                                                                                          \
        EACH_12(END, A)                                                                            \
    }
#define TILES(name, of_pairs)                                                                      \
    RB_DOTS __attribute__((noinline)) static void straight_##name(                                 \
        const rb_word *a, const rb_word *panel, int64_t depth, float *c, int64_t step, bool fresh) \
    {                                                                                              \
        const bool pairs = of_pairs;                                                               \
        TILE(STRAIGHT)                                                                             \
    }                                                                                              \
    RB_DOTS __attribute__((noinline)) static void turned_##name(                                   \
        const rb_word *a, const rb_word *panel, int64_t depth, float *c, int64_t step, bool fresh) \
    {                                                                                              \
        const bool pairs = of_pairs;                                                               \
        TILE(TURNED)                                                                               \
    }

TILES(12, false)
TILES(12_of_pairs, true)

const struct rb_attention_tiles *rb_attention_tiles(bool pairs)
{
    static const struct rb_attention_tiles avx2 = {6, false, straight_6, turned_6};
    static const struct rb_attention_tiles avx512 = {MOST_ROWS, false, straight_12, turned_12};
    static const struct rb_attention_tiles dots = {MOST_ROWS, true, straight_12_of_pairs,
                                                   turned_12_of_pairs};
    const char *isa = rb_dnnl_isa();

    if (pairs)
        return &dots;
    return strncmp(isa, "avx512", 6) == 0 ? &avx512 : strncmp(isa, "avx2", 4) == 0 ? &avx2 : NULL;
}

#else

const struct rb_attention_tiles *rb_attention_tiles(bool pairs)
{
    (void)pairs;
    return NULL;
}

#endif

bool rb_attention_of_pairs(const struct rb_attention_tiles *tiles)
{
    return tiles->pairs;
}

/* ---- Blocks ----------------------------------------------------------------------------------*/

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The part of a tile at the edge that exists. */
static void run_part(tile_run *run, const rb_word *a, const rb_word *panel, int64_t depth,
                     const struct rb_attention_sum *sum, float *c, int rows, int columns)
{
    float beside[MOST_ROWS * COLUMNS] = {0};
    size_t width = (size_t)columns * sizeof(float);

    for (int r = 0; r < rows && !sum->fresh; r++)
        memcpy(beside + r * COLUMNS, c + r * sum->step, width);
    run(a, panel, depth, beside, COLUMNS, sum->fresh);
    for (int r = 0; r < rows; r++)
        memcpy(c + r * sum->step, beside + r * COLUMNS, width);
}

void rb_attention_scores(const struct rb_attention_block *block, const rb_word *a,
                         const rb_word *panels, int64_t depth, float *c)
{
    const struct rb_attention_tiles *tiles = block->tiles;

    for (int j = 0; j < block->keys; j += COLUMNS, panels += COLUMNS * depth)
        for (int i = 0; i < block->queries; i += tiles->rows)
            if (j < rb_attention_seen(block, smaller(i + tiles->rows, block->queries) - 1))
                tiles->straight(a + i * STEP, panels, depth, c + i * STEP + j, STEP, true);
}

void rb_attention_mix(const struct rb_attention_block *block, const rb_word *scores,
                      const rb_word *panels, const struct rb_attention_sum *sum)
{
    const struct rb_attention_tiles *tiles = block->tiles;
    const int64_t panel = COLUMNS * rb_words(block->keys, tiles->pairs);

    for (int64_t j = 0; j < sum->width; j += COLUMNS, panels += panel) {
        const int columns = sum->width - j < COLUMNS ? (int)(sum->width - j) : COLUMNS;

        for (int i = 0; i < block->queries; i += tiles->rows) {
            const int rows = smaller(tiles->rows, block->queries - i);
            const int64_t depth = rb_words(rb_attention_seen(block, i + rows - 1), tiles->pairs);
            float *c = sum->c + i * sum->step + j;

            if (rows == tiles->rows && columns == COLUMNS)
                tiles->straight(scores + i * STEP, panels, depth, c, sum->step, sum->fresh);
            else
                run_part(tiles->straight, scores + i * STEP, panels, depth, sum, c, rows, columns);
        }
    }
}

void rb_attention_gather(const struct rb_attention_block *block, const rb_word *scores,
                         const rb_word *panels, const struct rb_attention_sum *sum)
{
    const struct rb_attention_tiles *tiles = block->tiles;
    const int64_t all = rb_words(block->queries, tiles->pairs);

    for (int j = 0; j < block->keys; j += tiles->rows) {
        const int rows = smaller(tiles->rows, block->keys - j);
        const int blind = j > block->ahead ? smaller(j - (int)block->ahead, block->queries) : 0;
        const int64_t first = tiles->pairs ? blind / 2 : blind; /* word */
        const rb_word *a = scores + first * STEP + j, *panel = panels + first * COLUMNS;

        for (int64_t e = 0; e < sum->width; e += COLUMNS, panel += COLUMNS * all) {
            const int columns = sum->width - e < COLUMNS ? (int)(sum->width - e) : COLUMNS;
            float *c = sum->c + j * sum->step + e;

            if (rows == tiles->rows && columns == COLUMNS)
                tiles->turned(a, panel, all - first, c, sum->step, sum->fresh);
            else
                run_part(tiles->turned, a, panel, all - first, sum, c, rows, columns);
        }
    }
}
