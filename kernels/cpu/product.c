/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product.h"

#include "base/prefetch.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product_pack.h"
#include "kernels/cpu/product_tile.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = RB_TILE_ROWS, COLUMNS = RB_TILE_COLUMNS };

/* A panel of up to DEPTH stays in the first cache, a block of TALL rows in the second, and a block
 * of panels (PANELS bytes) in the third.  Where there are at most LOW rows, they stay in the second
 * cache with what is packed for NARROW columns. */
enum { DEPTH = 272, LANES = 8, TALL = 24 * ROWS, PANELS = 43 * COLUMNS * 256 * (int)sizeof(float) };
enum { LOW = 32 * ROWS, NARROW = 6 * COLUMNS };

/* A product of up to this depth goes into sums: in one block, so that no part of it is ever
 * written. */
enum { DEEPEST = 512 };

/* Several runs at once: MOST_ROWS_EACH rows of one run do not pay for packing what runs share, and
 * a run of DEEPEST_EACH computes so little of a sum that its memory is what costs. */
enum { MOST_ROWS_EACH = 64, DEEPEST_EACH = 128 };

/* Where memory decides, oneDNN is as good, but not at sums of outer products, the gradients of a
 * few samples: here they go into fixed-point sums from registers. */
enum { LEAST_ROWS = 4, LEAST_COLUMNS = 16, LEAST_DEPTH = 8, SHALLOW = 8 };

struct product {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n, k;
    bool swap_a, swap_b, bias;
    int64_t batches;
    int64_t *a_at, *b_at; /* by batch: where its matrices begin */
};

#if defined(__x86_64__)

/* What is multiplied: some rows of a, of one run or of several, with the b that runs share, or with
 * their own run's b. */
struct factors {
    int n; /* runs */
    const float *a[RB_KERNEL_EACH], *b[RB_KERNEL_EACH];
    float *c[RB_KERNEL_EACH]; /* where there are no sums */
    const float *bias;
    bool into_sums;
    struct rb_tile_sums sums[RB_KERNEL_EACH]; /* by run: the same sums */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Blocks ----------------------------------------------------------------------------------*/

/* A part of k and some columns, for which all rows are gone through. */
struct block {
    const struct product *product;
    struct factors *factors;
    int64_t k, depth, j, wide;
    int64_t runs; /* that have factors packed: a panel of each, then the next of each */
    float *panels, *strips;
    float *row[LOW]; /* rows of c, for the rows that are gone through */
};

static void pack_b(const struct block *block)
{
    const struct product *p = block->product;
    const struct factors *factors = block->factors;

    for (int64_t e = 0; e < block->runs; e++) {
        const int64_t panel = COLUMNS * block->depth, apart = block->runs * panel;
        float *panels = block->panels + e * panel;

        if (p->swap_b)
            rb_pack_turned_columns(factors->b[e] + block->j * p->k + block->k, p->k, block->wide,
                                   block->depth, COLUMNS, apart, panels);
        else
            rb_pack_columns(factors->b[e] + block->k * p->n + block->j, p->n, block->wide,
                            block->depth, COLUMNS, apart, panels);
    }
}

/* Rows [i, i + n) of run e, or of all runs one behind the other. */
static void pack_a(struct block *block, int e, int64_t i, int64_t n)
{
    const struct product *p = block->product;
    const struct factors *factors = block->factors;
    const int64_t strip = ROWS * block->depth, apart = block->runs * strip;
    float *strips = block->strips + e * strip;
    const float *rows[LOW];

    for (int64_t r = 0; r < n; r++) {
        const int64_t run = factors->into_sums ? e : (i + r) / p->m;
        const int64_t at = factors->into_sums ? i + r : (i + r) % p->m;

        rows[r] = factors->a[run] + at * p->k;
        if (!factors->into_sums)
            block->row[r] = factors->c[run] + at * p->n;
    }
    if (p->swap_a)
        rb_pack_turned_rows(factors->a[e] + block->k * p->m + i, p->m, n, block->depth, apart,
                            strips);
    else
        rb_pack_rows(rows, n, block->k, block->depth, apart, strips);
}

/* Fetch the rows of c that the next strip will want: they may be far apart. */
static void fetch(const struct block *block, int64_t r, int64_t n, int64_t column)
{
    for (int64_t at = r + ROWS; at < n && at < r + 2 * ROWS; at++) {
        rb_prefetch_write(block->row[at] + column);
        rb_prefetch_write(block->row[at] + column + COLUMNS - 1);
    }
}

/* The part of each strip that is not zeros.  Only products of several matrices are masked.  Their
 * strips are the same however many runs there are, so that not even a NaN that is left out because
 * 0 stands against it depends on the number of runs. */
static void find_parts(const struct block *block, int64_t n, struct rb_strip_part *parts)
{
    for (int64_t r = 0; r < n; r += ROWS, parts++)
        *parts = block->product->batches > 1
                     ? rb_pack_part(block->strips + r * block->depth, block->depth)
                     : (struct rb_strip_part){0, block->depth};
}

/* Rows [i, i + n); parts: of each strip, what is not zeros. */
struct rows {
    int64_t i, n;
    struct rb_strip_part parts[LOW / ROWS];
};

/* The tile that begins at row r of these rows and column j of the block. */
static void one_tile(const struct block *block, const struct rows *rows, int64_t r, int64_t j)
{
    const struct product *p = block->product;
    struct factors *factors = block->factors;
    const float *strip = block->strips + block->runs * r * block->depth;
    const float *panel = block->panels + block->runs * j * block->depth;
    const bool last = block->k + block->depth == p->k;
    struct rb_tile_place place = {.step = p->n, .first = block->k == 0};

    place.row = block->row + r;
    place.rows = (int)least(rows->n - r, ROWS);
    place.column = block->j + j;
    place.columns = (int)least(block->wide - j, COLUMNS);
    if (factors->into_sums) {
        place.sum = factors->sums->into->sum + (rows->i + r) * p->n + place.column;
        rb_tile_add(factors->sums, factors->n, &place, strip, panel, block->depth);
    } else {
        const struct rb_strip_part *part = &rows->parts[r / ROWS];

        place.bias = factors->bias && last ? factors->bias + place.column : NULL;
        fetch(block, r, rows->n, place.column);
        rb_tile_write(&place, strip + part->from * ROWS, panel + part->from * COLUMNS,
                      part->to - part->from);
    }
}

/* Each panel times all strips of rows [i, i + n); a shallow product, whose memory decides, goes row
 * by row. */
static void go_through(const struct block *block, int64_t i, int64_t n)
{
    struct rows rows = {.i = i, .n = n};

    if (!block->factors->into_sums)
        find_parts(block, n, rows.parts);
    if (block->depth <= SHALLOW)
        for (int64_t r = 0; r < n; r += ROWS)
            for (int64_t j = 0; j < block->wide; j += COLUMNS)
                one_tile(block, &rows, r, j);
    else
        for (int64_t j = 0; j < block->wide; j += COLUMNS)
            for (int64_t r = 0; r < n; r += ROWS)
                one_tile(block, &rows, r, j);
}

/* So few rows that all of them stay in the second cache: b is packed piece by piece, and stays
 * there too. */
static void run_low(struct block *block, int64_t rows)
{
    const int64_t end = block->j + block->wide;

    for (int e = 0; e < block->runs; e++)
        pack_a(block, e, 0, rows);
    for (; block->j < end; block->j += NARROW) {
        block->wide = least(end - block->j, NARROW);
        pack_b(block);
        go_through(block, 0, rows);
    }
}

static void run_tall(struct block *block, int64_t rows, int64_t tall)
{
    pack_b(block);
    for (int64_t i = 0; i < rows; i += tall) {
        const int64_t n = least(rows - i, tall);

        for (int e = 0; e < block->runs; e++)
            pack_a(block, e, i, n);
        go_through(block, i, n);
    }
}

/* Depth of the blocks, about as much each time, and their columns where `runs` second factors are
 * packed at once. */
static int64_t block_depth(const struct product *p, bool sums)
{
    const int64_t times = sums ? 1 : (p->k + DEPTH - 1) / DEPTH;

    return times == 1 ? p->k : (p->k + times * LANES - 1) / (times * LANES) * LANES;
}

static int64_t block_wide(const struct product *p, bool sums, int64_t runs)
{
    int64_t most = PANELS / (int64_t)sizeof(float) / (block_depth(p, sums) * runs);

    return least(p->n, most < COLUMNS ? COLUMNS : most / COLUMNS * COLUMNS);
}

/* As many of `most` rows as have room: the strips of all runs have that of one run at its deepest.
 */
static int64_t block_tall(const struct product *p, bool sums, int64_t runs, int64_t most)
{
    const int64_t room = LOW * DEEPEST / (block_depth(p, sums) * runs) / ROWS * ROWS;

    return least(room, most);
}

static void run_factors(const struct product *p, struct factors *factors)
{
    const bool sums = factors->into_sums;
    const int64_t runs = sums ? factors->n : 1, rows = sums ? p->m : p->m * factors->n;
    const int64_t depth = block_depth(p, sums), wide = block_wide(p, sums, runs);
    float *const panels = p->cpu->panels.memory;
    struct block block = {.product = p, .factors = factors, .runs = runs, .panels = panels};

    block.strips = panels + PANELS / sizeof(float) + COLUMNS * DEEPEST;
    for (int64_t j = 0; j < p->n; j += wide)
        for (block.k = 0; block.k < p->k; block.k += depth) {
            block.j = j;
            block.wide = least(p->n - j, wide);
            block.depth = least(p->k - block.k, depth);
            if (rows <= block_tall(p, sums, runs, LOW))
                run_low(&block, rows);
            else
                run_tall(&block, rows, block_tall(p, sums, runs, TALL));
        }
}

/* ---- The kernel ------------------------------------------------------------------------------*/

static void product_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                         void *const *const *out, const struct rb_key *keys)
{
    const struct product *p = (const struct product *)kernel;
    struct factors factors = {.n = n, .bias = p->bias ? in[0][2] : NULL};

    (void)keys;
    for (int64_t batch = 0; batch < p->batches; batch++) {
        for (int e = 0; e < n; e++) {
            factors.a[e] = (const float *)in[e][0] + p->a_at[batch];
            factors.b[e] = (const float *)in[e][1] + p->b_at[batch];
            factors.c[e] = (float *)out[e][0] + batch * p->m * p->n;
        }
        run_factors(p, &factors);
    }
}

static void product_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    product_each(kernel, 1, &in, &out, key);
}

static void product_sum_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                             const struct rb_fixed *into)
{
    struct factors factors = {.n = n, .into_sums = true};

    for (int e = 0; e < n; e++) {
        factors.a[e] = in[e][0];
        factors.b[e] = in[e][1];
        factors.sums[e] = rb_tile_begin(&into[e]);
    }
    run_factors((const struct product *)kernel, &factors);
    for (int e = 0; e < n; e++)
        rb_tile_end(&factors.sums[e]);
}

static void product_sum(struct rb_kernel *kernel, const void *const *in,
                        const struct rb_fixed *into)
{
    product_sum_each(kernel, 1, &in, into);
}

static void product_free(struct rb_kernel *kernel)
{
    struct product *p = (struct product *)kernel;

    free(p->a_at);
    free(p->b_at);
    free(p);
}

/* Where the matrices of a factor begin; an axis of size 1 is gone through again and again. */
static int64_t *find_places(const struct rb_matrices *s, const int64_t *dim, int64_t matrix,
                            int64_t batches)
{
    int64_t *at = rb_alloc((size_t)batches * sizeof *at);

    for (int64_t i = 0; i < batches; i++) {
        int64_t rest = i, step = matrix;

        for (int axis = s->batch - 1; axis >= 0; axis--) {
            if (dim[axis] > 1)
                at[i] += rest % s->c[axis] * step;
            rest /= s->c[axis];
            step *= dim[axis];
        }
    }
    return at;
}

static bool suits(const struct rb_matrices *s, bool bias)
{
    const bool outer = s->batch == 0 && s->swap_a && !s->swap_b && !bias && s->k > 0;

    return strncmp(rb_dnnl_isa(), "avx2", 4) == 0 && s->m >= LEAST_ROWS && s->n >= LEAST_COLUMNS &&
           (outer || s->k >= LEAST_DEPTH);
}

int rb_cpu_product(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                   bool bias, struct rb_kernel **ret_kernel)
{
    const size_t room = PANELS + (COLUMNS * DEEPEST + LOW * DEEPEST) * sizeof(float);
    struct product *p;

    if (factors != RB_F32 || !suits(s, bias))
        return RB_EUNSUPPORTED;
    if (rb_cpu_need(&cpu->panels, room))
        return RB_ENOMEM;
    p = rb_cpu_kernel(sizeof *p, product_run);
    p->base.free = product_free;
    p->cpu = cpu;
    p->m = s->m;
    p->n = s->n;
    p->k = s->k;
    p->swap_a = s->swap_a;
    p->swap_b = s->swap_b;
    p->bias = bias;
    p->batches = 1;
    for (int axis = 0; axis < s->batch; axis++)
        p->batches *= s->c[axis];
    p->a_at = find_places(s, s->a, s->m * s->k, p->batches);
    p->b_at = find_places(s, s->b, s->k * s->n, p->batches);
    if (s->batch == 0 && !s->swap_a && s->m <= MOST_ROWS_EACH) {
        p->base.each = product_each;
        p->base.shared = bias ? 2 : 1;
    }
    if (s->batch == 0 && !bias && s->k <= DEEPEST) {
        p->base.sum = product_sum;
        p->base.sum_each = s->k <= DEEPEST_EACH ? product_sum_each : NULL;
    }
    *ret_kernel = &p->base;
    return 0;
}

#endif
