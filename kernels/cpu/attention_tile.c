/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention_tile.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <stddef.h>

enum { COLUMNS = RB_BLOCK_COLUMNS, STEP = RB_BLOCK_STEP, MOST_ROWS = 12 };

_Static_assert(COLUMNS == 16, "tiles are written out: two registers of AVX2, one of AVX-512");
_Static_assert(RB_BLOCK_KEYS % COLUMNS == 0 && RB_BLOCK_KEYS + COLUMNS <= STEP,
               "a row has room for what is 0 behind what is seen");

/* c [rows, COLUMNS], `step` apart, += a [rows, depth] times a panel; fresh: onto nothing. */
typedef void tile_run(const float *a, const float *panel, int64_t depth, float *c, int64_t step,
                      bool fresh);

struct rb_attention_tiles {
    int rows;
    tile_run *straight, *turned; /* the rows of a are rows of a block, or its columns */
};

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2      __attribute__((target("avx2,fma"), noinline))
#define RB_WIDE_TILE RB_WIDE __attribute__((noinline))

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

RB_AVX2 static void straight_6(const float *a, const float *panel, int64_t depth, float *c,
                               int64_t step, bool fresh){TILE(STRAIGHT)}

RB_AVX2 static void turned_6(const float *a, const float *panel, int64_t depth, float *c,
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
#define ADD(r, A)   c##r = _mm512_fmadd_ps(_mm512_set1_ps(A(r)), b, c##r);
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

RB_WIDE_TILE static void straight_12(const float *a, const float *panel, int64_t depth, float *c,
                                     int64_t step, bool fresh){TILE(STRAIGHT)}

RB_WIDE_TILE static void turned_12(const float *a, const float *panel, int64_t depth, float *c,
                                   int64_t step, bool fresh)
{
    TILE(TURNED)
}

const struct rb_attention_tiles *rb_attention_tiles(void)
{
    static const struct rb_attention_tiles avx2 = {6, straight_6, turned_6};
    static const struct rb_attention_tiles avx512 = {MOST_ROWS, straight_12, turned_12};
    const char *isa = rb_dnnl_isa();

    return strncmp(isa, "avx512", 6) == 0 ? &avx512 : strncmp(isa, "avx2", 4) == 0 ? &avx2 : NULL;
}

#else

const struct rb_attention_tiles *rb_attention_tiles(void)
{
    return NULL;
}

#endif

/* ---- Blocks ----------------------------------------------------------------------------------*/

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Of a tile at the edge what is there. */
static void run_part(tile_run *run, const float *a, const float *panel, int64_t depth,
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

void rb_attention_scores(const struct rb_attention_block *block, const float *a,
                         const float *panels, int64_t depth, float *c)
{
    const struct rb_attention_tiles *tiles = block->tiles;

    for (int j = 0; j < block->keys; j += COLUMNS, panels += COLUMNS * depth)
        for (int i = 0; i < block->queries; i += tiles->rows)
            if (j < rb_attention_seen(block, smaller(i + tiles->rows, block->queries) - 1))
                tiles->straight(a + i * STEP, panels, depth, c + i * STEP + j, STEP, true);
}

void rb_attention_mix(const struct rb_attention_block *block, const float *scores,
                      const float *panels, const struct rb_attention_sum *sum)
{
    const struct rb_attention_tiles *tiles = block->tiles;

    for (int64_t j = 0; j < sum->width; j += COLUMNS, panels += COLUMNS * block->keys) {
        const int columns = sum->width - j < COLUMNS ? (int)(sum->width - j) : COLUMNS;

        for (int i = 0; i < block->queries; i += tiles->rows) {
            const int rows = smaller(tiles->rows, block->queries - i);
            const int depth = rb_attention_seen(block, i + rows - 1);
            float *c = sum->c + i * sum->step + j;

            if (rows == tiles->rows && columns == COLUMNS)
                tiles->straight(scores + i * STEP, panels, depth, c, sum->step, sum->fresh);
            else
                run_part(tiles->straight, scores + i * STEP, panels, depth, sum, c, rows, columns);
        }
    }
}

void rb_attention_gather(const struct rb_attention_block *block, const float *scores,
                         const float *panels, const struct rb_attention_sum *sum)
{
    const struct rb_attention_tiles *tiles = block->tiles;

    for (int j = 0; j < block->keys; j += tiles->rows) {
        const int rows = smaller(tiles->rows, block->keys - j);
        const int blind = j > block->ahead ? smaller(j - (int)block->ahead, block->queries) : 0;
        const float *a = scores + blind * STEP + j, *panel = panels + blind * COLUMNS;

        for (int64_t e = 0; e < sum->width; e += COLUMNS, panel += COLUMNS * block->queries) {
            const int columns = sum->width - e < COLUMNS ? (int)(sum->width - e) : COLUMNS;
            float *c = sum->c + j * sum->step + e;

            if (rows == tiles->rows && columns == COLUMNS)
                tiles->turned(a, panel, block->queries - blind, c, sum->step, sum->fresh);
            else
                run_part(tiles->turned, a, panel, block->queries - blind, sum, c, rows, columns);
        }
    }
}
