/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product_tile.h"

#include "base/prefetch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define RB_AVX2 __attribute__((target("avx2,fma")))

enum { ROWS = RB_TILE_ROWS, COLUMNS = RB_TILE_COLUMNS, LANES = 8, VECTORS = COLUMNS / LANES };

/* Numbers of a strip that are on their way from the second cache while others are multiplied. */
enum { AHEAD = 32 * ROWS };

/* This many samples in a microbatch: their product into sums is so short that the end of its loop
 * is predicted wrong too often, so it has no loop. */
enum { FEW = 16 };

/* For each row, or vector, of a tile: written out, so that they are registers. */
#define EACH_ROW(X)       X(0) X(1) X(2) X(3)
#define EACH_OF_ROW(X, r) X(r, 0) X(r, 1) X(r, 2)
#define EACH(X)           EACH_OF_ROW(X, 0) EACH_OF_ROW(X, 1) EACH_OF_ROW(X, 2) EACH_OF_ROW(X, 3)

/* The first `wide` vectors of each row; few: depth is FEW.  Four steps at a time: where another
 * thread shares the core, instructions beside the products are what costs. */
RB_AVX2 static RB_INLINE void multiply(__m256 c[ROWS][VECTORS], const float *strip,
                                       const float *panel, int64_t depth, int wide, bool few)
{
    int64_t k = 0;

#define MULTIPLY(r, v)                                                                             \
    if (v < wide)                                                                                  \
        c[r][v] = _mm256_fmadd_ps(a_, v == 0 ? first : v == 1 ? second : third, c[r][v]);
#define ROW(r)                                                                                     \
    {                                                                                              \
        const __m256 a_ = _mm256_broadcast_ss(a + r);                                              \
        EACH_OF_ROW(MULTIPLY, r)                                                                   \
    }
#define STEP(i)                                                                                    \
    {                                                                                              \
        const float *const a = strip + (i)*ROWS, *const b = panel + (i)*COLUMNS;                   \
        const __m256 first = _mm256_loadu_ps(b);                                                   \
        const __m256 second = wide > 1 ? _mm256_loadu_ps(b + LANES) : first;                       \
        const __m256 third = wide > 2 ? _mm256_loadu_ps(b + 2 * LANES) : first;                    \
                                                                                                   \
        EACH_ROW(ROW)                                                                              \
    }
#define FOUR_STEPS(i) STEP(i) STEP(i + 1) STEP(i + 2) STEP(i + 3)
    if (few) {
        FOUR_STEPS(0)
        FOUR_STEPS(4)
        FOUR_STEPS(8)
        FOUR_STEPS(12)
        return;
    }
    for (; k + 4 <= depth; k += 4, strip += 4 * ROWS, panel += 4 * COLUMNS) {
        __builtin_prefetch(strip + AHEAD);
        FOUR_STEPS(0)
    }
    for (; k < depth; k++, strip += ROWS, panel += COLUMNS)
        STEP(0)
#undef FOUR_STEPS
#undef MULTIPLY
#undef ROW
#undef STEP
}

/* ---- Into memory -----------------------------------------------------------------------------*/

/* All rows of `wide` vectors, at row[r] + column. */
RB_AVX2 static RB_INLINE void write_wide(float *const *row, int64_t column, const float *bias,
                                         bool first, const float *strip, const float *panel,
                                         int64_t depth, int wide)
{
    __m256 c[ROWS][VECTORS];

#define AT(r, v) (row[r] + column + v * LANES)
#define BEGIN(r, v)                                                                                \
    if (v < wide)                                                                                  \
        c[r][v] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(AT(r, v));
#define END(r, v)                                                                                  \
    if (v < wide && bias)                                                                          \
        c[r][v] = _mm256_add_ps(c[r][v], _mm256_loadu_ps(bias + v * LANES));                       \
    if (v < wide)                                                                                  \
        _mm256_storeu_ps(AT(r, v), c[r][v]);
    EACH(BEGIN)
    multiply(c, strip, panel, depth, wide, false);
    EACH(END)
#undef AT
#undef BEGIN
#undef END
}

/* Writes whole vectors of the rows that exist; the other rows go to `beside`. */
RB_AVX2 static __attribute__((noinline)) void
write_some(const struct rb_tile_place *place, const float *strip, const float *panel, int64_t depth)
{
    float beside[COLUMNS] = {0}, *at[ROWS];

    for (int r = 0; r < ROWS; r++)
        at[r] = r < place->rows ? place->row[r] + place->column : beside;
    if (place->columns == COLUMNS)
        write_wide(at, 0, place->bias, place->first, strip, panel, depth, 3);
    else if (place->columns == 2 * LANES)
        write_wide(at, 0, place->bias, place->first, strip, panel, depth, 2);
    else
        write_wide(at, 0, place->bias, place->first, strip, panel, depth, 1);
}

/* Writes what exists of a tile. */
RB_AVX2 static __attribute__((noinline)) void
write_part(const struct rb_tile_place *place, const float *strip, const float *panel, int64_t depth)
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
    write_wide(row, 0, place->bias ? bias : NULL, place->first, strip, panel, depth, 3);
    for (int r = 0; r < place->rows; r++)
        memcpy(place->row[r] + place->column, tile[r], width);
}

RB_AVX2 void rb_tile_write(const struct rb_tile_place *place, const float *strip,
                           const float *panel, int64_t depth)
{
    if (place->columns % LANES != 0)
        write_part(place, strip, panel, depth);
    else if (place->rows < ROWS || place->columns < COLUMNS)
        write_some(place, strip, panel, depth);
    else
        write_wide(place->row, place->column, place->bias, place->first, strip, panel, depth, 3);
}

/* ---- Into sums -------------------------------------------------------------------------------*/

#define CLEAR(r, v) c[r][v] = _mm256_setzero_ps();

/* Adds row by row, from memory: for tiles at the edges, and where some summand is beyond the limit,
 * or not a number. */
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

/* A tile that is not whole, or of which some is beyond the bound. */
RB_AVX2 static __attribute__((noinline)) void add_part(const struct rb_tile_sums *sums,
                                                       const struct rb_tile_place *place,
                                                       const float *strip, const float *panel,
                                                       int64_t depth)
{
    __m256 c[ROWS][VECTORS];
    float tile[ROWS][COLUMNS];

#define WRITE(r, v) _mm256_storeu_ps(tile[r] + v * LANES, c[r][v]);
    EACH(CLEAR)
    multiply(c, strip, panel, depth, VECTORS, false);
    EACH(WRITE)
#undef WRITE
    add_rows(tile, sums->into, place);
}

/* false: some of it is beyond the bound, and nothing was done. */
RB_AVX2 static RB_INLINE bool add_wide(struct rb_tile_sums *sums, int32_t *sum, int64_t step,
                                       const float *strip, const float *panel, int64_t depth,
                                       int wide, bool fresh, bool few)
{
    __m256i size, largest = _mm256_setzero_si256();
    __m256 c[ROWS][VECTORS], scale;

#define WEIGH(r, v) c[r][v] = _mm256_mul_ps(c[r][v], weight);
#define LARGER(r, v)                                                                               \
    if (v < wide)                                                                                  \
        largest = _mm256_max_epu32(largest, _mm256_and_si256(size, _mm256_castps_si256(c[r][v])));
#define ADD(r, v)                                                                                  \
    if (v < wide)                                                                                  \
        add_eight(sum + r * step + v * LANES, c[r][v], scale, fresh);
    EACH(CLEAR)
    multiply(c, strip, panel, depth, wide, few);
    if (sums->quick.weight != 1) {
        const __m256 weight = _mm256_set1_ps(sums->quick.weight);

        EACH(WEIGH)
    }
    size = _mm256_set1_epi32(0x7fffffff);
    EACH(LARGER)
    if (__builtin_expect(_mm256_movemask_epi8(_mm256_cmpgt_epi32(
                             largest, _mm256_set1_epi32(sums->quick.bound))) != 0,
                         false))
        return false;
    scale = _mm256_set1_ps(sums->quick.scale);
    EACH(ADD)
    largest = _mm256_max_epu32(largest, _mm256_loadu_si256((const void *)sums->largest));
    _mm256_storeu_si256((void *)sums->largest, largest);
    return true;
#undef WEIGH
#undef LARGER
#undef ADD
}
#undef CLEAR

/* Functions of their own: compilers keep a tile in registers there. */
typedef bool adder(struct rb_tile_sums *, int32_t *sum, int64_t step, const float *strip,
                   const float *panel, int64_t depth);

#define ADDER(name, wide, fresh, few)                                                              \
    RB_AVX2 static bool name(struct rb_tile_sums *sums, int32_t *sum, int64_t step,                \
                             const float *strip, const float *panel, int64_t depth)                \
    {                                                                                              \
        return add_wide(sums, sum, step, strip, panel, depth, wide, fresh, few);                   \
    }
ADDER(add_one, 1, false, false)
ADDER(add_two, 2, false, false)
ADDER(add_three, 3, false, false)
ADDER(set_one, 1, true, false)
ADDER(set_two, 2, true, false)
ADDER(set_three, 3, true, false)
ADDER(add_few, 3, false, true)
#undef ADDER

static adder *const adders[][VECTORS] = {{add_one, add_two, add_three},
                                         {set_one, set_two, set_three}};

/* NULL: the tile is at an edge. */
static adder *find_adder(const struct rb_tile_place *place, int64_t depth, bool fresh)
{
    if (place->rows < ROWS || place->columns % LANES != 0)
        return NULL;
    if (depth == FEW && place->columns == COLUMNS && !fresh)
        return add_few;
    return adders[fresh][place->columns / LANES - 1];
}

void rb_tile_add(struct rb_tile_sums *sums, int n, const struct rb_tile_place *place,
                 const float *strip, const float *panel, int64_t depth)
{
    adder *const add[] = {find_adder(place, depth, false), find_adder(place, depth, true)};

    for (int r = ROWS; r < 2 * ROWS; r++) {
        rb_prefetch_write(place->sum + r * place->step);
        rb_prefetch_write(place->sum + r * place->step + COLUMNS - 1);
    }
    for (int e = 0; e < n; e++, sums++, strip += ROWS * depth, panel += COLUMNS * depth) {
        adder *const one = add[sums->fresh];

        if (!one || !one(sums, place->sum, place->step, strip, panel, depth))
            add_part(sums, place, strip, panel, depth);
    }
}

struct rb_tile_sums rb_tile_begin(const struct rb_fixed *into)
{
    return (struct rb_tile_sums){
        .into = into,
        .fresh = into->fresh,
        .quick = rb_fixed_quick(into),
    };
}

void rb_tile_end(const struct rb_tile_sums *sums)
{
    for (int l = 0; l < LANES; l++)
        if (sums->largest[l] > *sums->into->largest)
            *sums->into->largest = sums->largest[l];
}

#endif
