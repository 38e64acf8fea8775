/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/tall.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/wide_panel.h"

#include <string.h>

enum { ROWS = RB_WIDE_ROWS, LANES = RB_WIDE_LANES, COLUMNS = RB_WIDE_COLUMNS };

/* Rows that are gone through together: words that lie side by side are a line. */
enum { GROUP = LANES };

/* DEPTH is the most words of a panel; PANELS bytes of panels stay in the second cache while rows go
 * through.  Rows that lie, which may have to be put together for each block, want wide panels. */
enum { DEPTH = 1024, DEPTH_OF_LYING = 384, PANELS = 1 << 19 };

/* Fewer rows do not pay for packing, except where pairs have to be put together in any case: with a
 * large b for few rows, too, then of all runs at once.  A product as shallow as SHALLOW costs the
 * memory of c, and is not worth the 4 MB of code that oneDNN writes for it. */
enum { LEAST_ROWS = 384, LEAST_ROWS_OF_PAIRS = 65, FEW_ROWS = 8, LARGE = 1 << 19 };
enum { LEAST_COLUMNS = 32, LEAST_DEPTH = 64, SHALLOW = 32 };

/* A run of more rows than this gains nothing from those of other runs. */
enum { MOST_ROWS_EACH = 64 };

struct tall {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n, k;
    int64_t words;   /* along k */
    int64_t depth;   /* of a block, words */
    int64_t at_once; /* columns whose panels stay in cache */
    bool lies;       /* a is [k, m] */
    bool turned;     /* b is [n, k] */
    bool pairs, bias;
};

#if defined(__x86_64__)

/* A part of the products of all runs: columns [j, j + wide), words [k, k + depth) of each. */
struct block {
    const struct tall *tall;
    const float *bias; /* NULL: none */
    int64_t j, wide, k, depth;
    rb_word *panels, *together;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Along k there may be one number less than the words of a block have room for. */
static int64_t numbers(const struct block *block)
{
    return least(2 * block->depth, block->tall->k - 2 * block->k);
}

static void pack_turned(const struct block *block, const rb_word *from, int64_t n, rb_word *panels)
{
    const int64_t words = block->tall->words;
    const rb_word *column[COLUMNS];

    for (int64_t j = 0; j < n;) {
        const int64_t wide = rb_wide_vectors(n - j) * LANES, there = least(n - j, wide);

        for (int64_t i = 0; i < there; i++)
            column[i] = from + (j + i) * words;
        rb_wide_turn(column, there, block->depth, panels);
        panels += block->depth * wide;
        j += wide;
    }
}

/* Packs [first, first + n) of the `all` rows of a, or columns of b. */
static void pack(const struct block *block, const void *from, int64_t all, bool turned,
                 int64_t first, int64_t n, rb_word *panels)
{
    const struct tall *tall = block->tall;

    if (turned)
        pack_turned(block, (const rb_word *)from + first * tall->words + block->k, n, panels);
    else if (tall->pairs)
        rb_wide_copy_pairs((const uint16_t *)from + 2 * block->k * all + first, all, n,
                           numbers(block), panels);
    else
        rb_wide_copy((const float *)from + block->k * all + first, all, n, block->depth, panels);
}

/* n rows from the i-th on, GROUP or less: where they are if tiles can go through them there, else
 * side by side like the columns of one vector. */
static struct rb_wide_strip find_rows(const struct block *block, const rb_word *a, int64_t i,
                                      int64_t n)
{
    const struct tall *tall = block->tall;

    if (n % ROWS || (tall->lies && (tall->pairs || n < GROUP))) {
        pack(block, a, tall->m, !tall->lies, i, n, block->together);
        return (struct rb_wide_strip){block->together, true, 1, GROUP, block->depth, NULL, 0};
    }
    if (tall->lies)
        return (struct rb_wide_strip){
            a + block->k * tall->m + i, true, 1, tall->m, block->depth, NULL, 0};
    return (struct rb_wide_strip){
        a + i * tall->words + block->k, false, tall->words, 1, block->depth, NULL, 0};
}

/* Fetch what comes behind these rows of a.  Rows that lie may begin anywhere in a line.  Where
 * pairs are put together, each half of a group fetches one of the two rows. */
static void fetch_behind(const struct block *block, const rb_word *a, int64_t i,
                         struct rb_wide_strip *strip)
{
    const struct tall *tall = block->tall;
    const int64_t last = i / GROUP * GROUP + 2 * GROUP - 1, second = i % GROUP > 0;

    strip->pace = tall->lies ? tall->m * (int64_t)sizeof(rb_word) : 0;
    if (!tall->lies)
        strip->ahead = (const char *)(strip->first + ROWS * strip->row);
    else if (!tall->pairs)
        strip->ahead = (const char *)(a + block->k * tall->m + last);
    else
        strip->ahead =
            (const char *)((const uint16_t *)a + (2 * block->k + second) * tall->m + last);
}

/* A tile of which not all rows or columns exist: by way of a whole one. */
static void multiply_part(const struct rb_wide_strip *strip, const rb_word *panel, bool pairs,
                          int64_t rows, int64_t columns, const struct rb_wide_place *place)
{
    const size_t row = (size_t)columns * sizeof(float);
    float tile[RB_WIDE_TILE] = {0}, bias[COLUMNS] = {0};
    const struct rb_wide_place whole = {tile, COLUMNS, place->onto, place->bias ? bias : NULL};

    if (place->bias)
        memcpy(bias, place->bias, row);
    for (int64_t r = 0; r < rows && place->onto; r++)
        memcpy(tile + r * COLUMNS, place->to + r * place->step, row);
    rb_wide_multiply(strip, panel, rb_wide_vectors(columns), pairs, &whole);
    for (int64_t r = 0; r < rows; r++)
        memcpy(place->to + r * place->step, tile + r * COLUMNS, row);
}

/* A strip, of which `rows` rows exist, times all panels; c is where its first row goes. */
static void go_through(const struct block *block, struct rb_wide_strip *strip, int64_t rows,
                       float *c)
{
    const struct tall *tall = block->tall;
    const float *bias = block->k + block->depth == tall->words ? block->bias : NULL;
    const rb_word *panel = block->panels;

    for (int64_t j = 0; j < block->wide;) {
        const int vectors = rb_wide_vectors(block->wide - j);
        const int64_t columns = least(block->wide - j, vectors * LANES);
        const struct rb_wide_place place = {c + block->j + j, tall->n, block->k > 0,
                                            bias ? bias + block->j + j : NULL};

        if (rows == ROWS && columns == vectors * LANES)
            rb_wide_multiply(strip, panel, vectors, tall->pairs, &place);
        else
            multiply_part(strip, panel, tall->pairs, rows, columns, &place);
        strip->ahead = (const char *)panel;
        strip->pace = 0;
        panel += block->depth * vectors * LANES;
        j += vectors * LANES;
    }
}

/* All rows of a run. */
static void run_rows(const struct block *block, const rb_word *a, float *c)
{
    const int64_t m = block->tall->m;

    for (int64_t i = 0; i < m; i += GROUP) {
        struct rb_wide_strip strip = find_rows(block, a, i, least(m - i, GROUP));

        for (int64_t r = i; r < i + GROUP && r < m; r += ROWS) {
            fetch_behind(block, a, r, &strip);
            go_through(block, &strip, least(m - r, ROWS), c + r * block->tall->n);
            strip.first += ROWS * strip.row;
        }
    }
}

static void tall_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                      void *const *const *out, const struct rb_key *keys)
{
    const struct tall *tall = (const struct tall *)kernel;
    struct block block = {.tall = tall, .bias = tall->bias ? in[0][2] : NULL};

    (void)keys;
    block.together = tall->cpu->panels.memory;
    block.panels = block.together + GROUP * tall->depth;
    for (; block.j < tall->n; block.j += block.wide) {
        block.wide = least(tall->n - block.j, tall->at_once);
        for (block.k = 0; block.k < tall->words; block.k += block.depth) {
            block.depth = least(tall->words - block.k, tall->depth);
            pack(&block, in[0][1], tall->n, tall->turned, block.j, block.wide, block.panels);
            for (int e = 0; e < n; e++)
                run_rows(&block, in[e][0], out[e][0]);
        }
    }
}

static void tall_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    tall_each(kernel, 1, &in, &out, key);
}

static int64_t least_rows(const struct rb_matrices *s, bool pairs)
{
    if (s->swap_a || s->swap_b || (!pairs && s->k > SHALLOW))
        return LEAST_ROWS;
    return s->k <= SHALLOW || s->n * s->k >= LARGE ? FEW_ROWS : LEAST_ROWS_OF_PAIRS;
}

static bool suits(const struct rb_matrices *s, bool pairs)
{
    const bool shallow = s->k <= SHALLOW && !s->swap_a && !s->swap_b;

    return s->batch == 0 && s->m >= least_rows(s, pairs) && (!s->swap_a || s->n <= s->m) &&
           s->n >= LEAST_COLUMNS && (shallow || s->k >= LEAST_DEPTH) && s->k > 0 &&
           strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

/* Columns whose panels stay in cache: about as many each time, in whole panels. */
static int64_t columns_at_once(int64_t columns, int64_t depth)
{
    const int64_t most = PANELS / (int64_t)sizeof(rb_word) / depth / COLUMNS * COLUMNS;
    const int64_t times = (columns + most - 1) / most;

    return ((columns + times - 1) / times + COLUMNS - 1) / COLUMNS * COLUMNS;
}

int rb_cpu_tall(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel)
{
    const bool pairs = factors == RB_BF16;
    const int64_t words = rb_words(s->k, pairs);
    const int64_t depth = least(words, s->swap_a ? DEPTH_OF_LYING : DEPTH);
    struct tall *tall;
    int64_t at_once;

    if (!suits(s, pairs) || (pairs && !rb_cpu_dots(cpu)) ||
        ((!s->swap_a || s->swap_b) && !rb_cpu_rows_of_words(cpu, factors, s->k)))
        return RB_EUNSUPPORTED;
    at_once = columns_at_once(s->n, depth);
    if (rb_cpu_need(&cpu->panels, (size_t)((GROUP + at_once) * depth) * sizeof(rb_word)))
        return RB_ENOMEM;
    tall = rb_cpu_kernel(sizeof *tall, tall_run);
    tall->base.each = !s->swap_a && s->m <= MOST_ROWS_EACH ? tall_each : NULL;
    tall->base.shared = bias ? 2 : 1;
    tall->cpu = cpu;
    tall->m = s->m;
    tall->n = s->n;
    tall->k = s->k;
    tall->words = words;
    tall->depth = depth;
    tall->at_once = at_once;
    tall->lies = s->swap_a;
    tall->turned = s->swap_b;
    tall->pairs = pairs;
    tall->bias = bias;
    *ret_kernel = &tall->base;
    return 0;
}

#endif
