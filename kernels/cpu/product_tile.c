/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product_tile.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fixed.h"
#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2 __attribute__((target("avx2,fma")))

enum { ROWS = RB_TILE_ROWS, COLUMNS = RB_TILE_COLUMNS, LANES = 8 };

/* Numbers of a strip that are on their way from the second cache while others are multiplied. */
enum { AHEAD = 32 * ROWS };

/* For each row of a tile: written out, so that rows are registers. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)

/* Four steps at a time: where another thread shares the core, instructions beside the products are
 * what costs. */
RB_AVX2 static RB_INLINE void multiply(__m256 c[ROWS][2], const float *strip, const float *panel,
                                       int64_t depth)
{
    int64_t k = 0;

#define ROW(r)                                                                                     \
    {                                                                                              \
        const __m256 a_ = _mm256_broadcast_ss(a + r);                                              \
        c[r][0] = _mm256_fmadd_ps(a_, left, c[r][0]);                                              \
        c[r][1] = _mm256_fmadd_ps(a_, right, c[r][1]);                                             \
    }
#define STEP(i)                                                                                    \
    {                                                                                              \
        const float *const a = strip + i * ROWS, *const b = panel + i * COLUMNS;                   \
        const __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + LANES);                \
                                                                                                   \
        EACH_ROW(ROW)                                                                              \
    }
    for (; k + 4 <= depth; k += 4, strip += 4 * ROWS, panel += 4 * COLUMNS) {
        __builtin_prefetch(strip + AHEAD);
        STEP(0)
        STEP(1)
        __builtin_prefetch(strip + AHEAD + 2 * ROWS);
        STEP(2)
        STEP(3)
    }
    for (; k < depth; k++, strip += ROWS, panel += COLUMNS)
        STEP(0)
#undef ROW
#undef STEP
}

/* ---- Into memory -----------------------------------------------------------------------------*/

/* All of a tile, at row[r] + column. */
RB_AVX2 static RB_INLINE void write_whole(float *const *row, int64_t column, const float *bias,
                                          bool first, const float *strip, const float *panel,
                                          int64_t depth)
{
    __m256 c[ROWS][2];

#define BEGIN(r)                                                                                   \
    c[r][0] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(row[r] + column);                      \
    c[r][1] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(row[r] + column + LANES);
#define END(r)                                                                                     \
    if (bias) {                                                                                    \
        c[r][0] = _mm256_add_ps(c[r][0], _mm256_loadu_ps(bias));                                   \
        c[r][1] = _mm256_add_ps(c[r][1], _mm256_loadu_ps(bias + LANES));                           \
    }                                                                                              \
    _mm256_storeu_ps(row[r] + column, c[r][0]);                                                    \
    _mm256_storeu_ps(row[r] + column + LANES, c[r][1]);
    EACH_ROW(BEGIN)
    multiply(c, strip, panel, depth);
    EACH_ROW(END)
#undef BEGIN
#undef END
}

/* Of whole columns the rows that are there; the others are written beside. */
RB_AVX2 static __attribute__((noinline)) void
write_some(const struct rb_tile_place *place, const float *strip, const float *panel, int64_t depth)
{
    float beside[COLUMNS] = {0}, *at[ROWS];

    for (int r = 0; r < ROWS; r++)
        at[r] = r < place->rows ? place->row[r] + place->column : beside;
    write_whole(at, 0, place->bias, place->first, strip, panel, depth);
}

/* What is there of it. */
RB_AVX2 static void write_part(const struct rb_tile_place *place, const float *strip,
                               const float *panel, int64_t depth)
{
    float tile[ROWS][COLUMNS] = {{0}}, bias[COLUMNS] = {0}, *row[ROWS];
    size_t width = (size_t)place->columns * sizeof(float);

    for (int r = 0; r < ROWS; r++) {
        row[r] = tile[r];
        if (!place->first && r < place->rows)
            memcpy(tile[r], place->row[r] + place->column, width);
    }
    if (place->bias)
        memcpy(bias, place->bias, width);
    write_whole(row, 0, place->bias ? bias : NULL, place->first, strip, panel, depth);
    for (int r = 0; r < place->rows; r++)
        memcpy(place->row[r] + place->column, tile[r], width);
}

RB_AVX2 void rb_tile_write(const struct rb_tile_place *place, const float *strip,
                           const float *panel, int64_t depth)
{
    if (place->columns < COLUMNS)
        write_part(place, strip, panel, depth);
    else if (place->rows < ROWS)
        write_some(place, strip, panel, depth);
    else
        write_whole(place->row, place->column, place->bias, place->first, strip, panel, depth);
}

/* ---- Into sums -------------------------------------------------------------------------------*/

#define CLEAR(r) c[r][0] = c[r][1] = _mm256_setzero_ps();

/* Row by row, from memory: for tiles at the edges, and where some summand is beyond the limit, or
 * no number. */
static __attribute__((noinline)) void
add_rows(float tile[ROWS][COLUMNS], const struct rb_fixed *into, const struct rb_tile_place *place)
{
    for (int r = 0; r < place->rows; r++)
        rb_cpu_fixed_add(NULL, place->sum + r * place->step, tile[r], (size_t)place->columns,
                         into->fresh, into->weight, into->exponent, into->limit, into->largest,
                         into->overflow);
}

/* Scale, round to nearest even, add; `fresh`: onto nothing. */
RB_AVX2 static RB_INLINE void add_eight(int32_t *sum, __m256 g, __m256 scale, bool fresh)
{
    const __m256i old = fresh ? _mm256_setzero_si256() : _mm256_loadu_si256((const void *)sum);

    _mm256_storeu_si256((void *)sum,
                        _mm256_add_epi32(old, _mm256_cvtps_epi32(_mm256_mul_ps(g, scale))));
}

/* A tile of which not all is there, or some of it is beyond the bound. */
RB_AVX2 static __attribute__((noinline)) void add_part(const struct rb_tile_sums *sums,
                                                       const struct rb_tile_place *place,
                                                       const float *strip, const float *panel,
                                                       int64_t depth)
{
    __m256 c[ROWS][2];
    float tile[ROWS][COLUMNS];

#define WRITE(r)                                                                                   \
    _mm256_storeu_ps(tile[r], c[r][0]);                                                            \
    _mm256_storeu_ps(tile[r] + LANES, c[r][1]);
    EACH_ROW(CLEAR)
    multiply(c, strip, panel, depth);
    EACH_ROW(WRITE)
#undef WRITE
    add_rows(tile, sums->into, place);
}

/* false: some of it is beyond the bound, and nothing was done. */
RB_AVX2 static RB_INLINE bool add_whole(struct rb_tile_sums *sums, int32_t *sum, int64_t step,
                                        const float *strip, const float *panel, int64_t depth,
                                        bool fresh)
{
    __m256i size, largest = _mm256_setzero_si256();
    __m256 c[ROWS][2], scale;

#define WEIGH(r)                                                                                   \
    c[r][0] = _mm256_mul_ps(c[r][0], weight);                                                      \
    c[r][1] = _mm256_mul_ps(c[r][1], weight);
#define LARGER(g_)                                                                                 \
    largest = _mm256_max_epu32(largest, _mm256_and_si256(size, _mm256_castps_si256(g_)));
#define LARGER_ROW(r) LARGER(c[r][0]) LARGER(c[r][1])
#define ADD(r)                                                                                     \
    add_eight(sum + r * step, c[r][0], scale, fresh);                                              \
    add_eight(sum + r * step + LANES, c[r][1], scale, fresh);
    EACH_ROW(CLEAR)
    multiply(c, strip, panel, depth);
    if (sums->weight != 1) {
        const __m256 weight = _mm256_set1_ps(sums->weight);

        EACH_ROW(WEIGH)
    }
    size = _mm256_set1_epi32(0x7fffffff);
    EACH_ROW(LARGER_ROW)
    if (__builtin_expect(
            _mm256_movemask_epi8(_mm256_cmpgt_epi32(largest, _mm256_set1_epi32(sums->bound))) != 0,
            false))
        return false;
    scale = _mm256_set1_ps(sums->scale);
    EACH_ROW(ADD)
    largest = _mm256_max_epu32(largest, _mm256_loadu_si256((const void *)sums->largest));
    _mm256_storeu_si256((void *)sums->largest, largest);
    return true;
#undef WEIGH
#undef LARGER
#undef LARGER_ROW
#undef ADD
}

/* Functions of their own: compilers keep a tile in registers there. */
RB_AVX2 static __attribute__((noinline)) bool add_old(struct rb_tile_sums *sums, int32_t *sum,
                                                      int64_t step, const float *strip,
                                                      const float *panel, int64_t depth)
{
    return add_whole(sums, sum, step, strip, panel, depth, false);
}

RB_AVX2 static __attribute__((noinline)) bool add_fresh(struct rb_tile_sums *sums, int32_t *sum,
                                                        int64_t step, const float *strip,
                                                        const float *panel, int64_t depth)
{
    return add_whole(sums, sum, step, strip, panel, depth, true);
}

RB_AVX2 void rb_tile_add(struct rb_tile_sums *sums, int n, const struct rb_tile_place *place,
                         const float *strip, const float *panel, int64_t depth)
{
    const bool whole = place->rows == ROWS && place->columns == COLUMNS;
    int32_t *const sum = place->sum;
    const int64_t step = place->step;

    for (int e = 0; e < n; e++, sums++, strip += ROWS * depth, panel += COLUMNS * depth) {
        bool done =
            whole && (sums->fresh ? add_fresh : add_old)(sums, sum, step, strip, panel, depth);

        if (!done)
            add_part(sums, place, strip, panel, depth);
    }
}
#undef CLEAR

/* Powers of two that are no extremes are one factor: it is exact, but for what rounds to 0 anyway.
 */
struct rb_tile_sums rb_tile_begin(const struct rb_fixed *into)
{
    enum { EXTREME = 100 };
    const struct rb_fixed_scale scale = rb_fixed_scale(into->weight, into->exponent, into->limit);
    const bool plain = into->exponent >= -EXTREME && into->exponent <= EXTREME;

    return (struct rb_tile_sums){
        .into = into,
        .fresh = into->fresh,
        .weight = into->weight,
        .scale = scale.first * scale.second,
        .bound = plain ? (int32_t)rb_fixed_bound(&scale) : -1, /* all is beyond that */
    };
}

void rb_tile_end(const struct rb_tile_sums *sums)
{
    for (int l = 0; l < LANES; l++)
        if (sums->largest[l] > *sums->into->largest)
            *sums->into->largest = sums->largest[l];
}

#endif
