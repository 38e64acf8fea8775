/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/product.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product_pack.h"
#include "kernels/cpu/product_tile.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = RB_TILE_ROWS, COLUMNS = RB_TILE_COLUMNS };

/* A panel of DEPTH stays in the first cache, a block of TALL rows in the second, and a block of
 * panels (bytes) in the third. */
enum { DEPTH = 256, TALL = 16 * ROWS, PANELS = 1 << 20 };

/* So deep a product goes into sums: in one block, so that no part of it is ever written. */
enum { DEEPEST = 512 };

/* Several runs at once: so few rows each do not pay for packing what they share, and so little of a
 * sum is made of each that its memory is what costs. */
enum { MOST_ROWS_EACH = 64, DEEPEST_EACH = DEEPEST / RB_KERNEL_EACH };

/* Where its memory decides, oneDNN is as good. */
enum { LEAST_ROWS = 4, LEAST_COLUMNS = 16, LEAST_DEPTH = 8 };

struct product {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n, k;
    bool swap_a, swap_b, bias;
    int64_t batches;
    int64_t *a_at, *b_at; /* by batch: where its matrices begin */
};

#if defined(__x86_64__)

/* What is multiplied: some rows of a, of one run or of several, with all of b, or with their run's.
 */
struct factors {
    int n; /* runs */
    const float *a[RB_KERNEL_EACH], *b[RB_KERNEL_EACH];
    float *c[RB_KERNEL_EACH]; /* where there are no sums */
    const float *bias;
    bool into_sums;
    struct rb_tile_sums sums[RB_KERNEL_EACH]; /* by run: the same sums */
};

/* ---- Blocks ----------------------------------------------------------------------------------*/

/* A part of k and some columns, for which all rows are gone through. */
struct block {
    const struct product *product;
    struct factors *factors;
    int64_t k, depth, j, wide;
    float *panels; /* of run e: e * the room of one */
    int64_t room;
    float *strips;
    float *row[TALL]; /* of c, of the rows that are gone through */
};

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void pack_b(const struct block *block)
{
    const struct product *p = block->product;
    const struct factors *factors = block->factors;

    for (int e = 0; e < (factors->into_sums ? factors->n : 1); e++) {
        float *panels = block->panels + e * block->room;

        if (p->swap_b)
            rb_pack_turned_columns(factors->b[e] + block->j * p->k + block->k, p->k, block->wide,
                                   block->depth, panels);
        else
            rb_pack_columns(factors->b[e] + block->k * p->n + block->j, p->n, block->wide,
                            block->depth, panels);
    }
}

/* Rows [i, i + n) of run e, or of all runs one behind the other. */
static void pack_a(struct block *block, int e, int64_t i, int64_t n)
{
    const struct product *p = block->product;
    const struct factors *factors = block->factors;
    float *strips = block->strips + e * round_up(n, ROWS) * block->depth;
    const float *rows[TALL];

    for (int64_t r = 0; r < n; r++) {
        const int64_t run = factors->into_sums ? e : (i + r) / p->m;
        const int64_t at = factors->into_sums ? i + r : (i + r) % p->m;

        rows[r] = factors->a[run] + at * p->k;
        if (!factors->into_sums)
            block->row[r] = factors->c[run] + at * p->n;
    }
    if (p->swap_a)
        rb_pack_turned_rows(factors->a[e] + block->k * p->m + i, p->m, n, block->depth, strips);
    else
        rb_pack_rows(rows, n, block->k, block->depth, strips);
}

/* A tile of the sums, of all runs while it is in cache. */
static void add_tiles(const struct block *block, const struct rb_tile_place *place,
                      const float *strip, int64_t strips, const float *panel)
{
    for (int e = 0; e < block->factors->n; e++, strip += strips, panel += block->room)
        rb_tile_add(&block->factors->sums[e], place, strip, panel, block->depth);
}

/* Each panel times all strips of rows [i, i + n). */
static void go_through(const struct block *block, int64_t i, int64_t n)
{
    const struct product *p = block->product;
    const struct factors *factors = block->factors;
    const bool last = block->k + block->depth == p->k;
    const float *panel = block->panels;
    struct rb_tile_place place = {.step = p->n, .first = block->k == 0};

    for (int64_t j = 0; j < block->wide; j += COLUMNS, panel += COLUMNS * block->depth) {
        const float *strip = block->strips;

        place.column = block->j + j;
        place.columns = (int)(block->wide - j < COLUMNS ? block->wide - j : COLUMNS);
        place.bias = factors->bias && last ? factors->bias + place.column : NULL;
        for (int64_t r = 0; r < n; r += ROWS, strip += ROWS * block->depth) {
            place.rows = (int)(n - r < ROWS ? n - r : ROWS);
            place.row = block->row + r;
            if (factors->into_sums) {
                place.sum = factors->sums->into->sum + (i + r) * p->n + place.column;
                add_tiles(block, &place, strip, round_up(n, ROWS) * block->depth, panel);
            } else {
                rb_tile_write(&place, strip, panel, block->depth);
            }
        }
    }
}

static void run_block(struct block *block)
{
    const struct factors *factors = block->factors;
    int runs = factors->into_sums ? factors->n : 1;
    int64_t rows = block->product->m * (factors->into_sums ? 1 : factors->n);

    pack_b(block);
    for (int64_t i = 0; i < rows; i += TALL) {
        int64_t n = rows - i < TALL ? rows - i : TALL;

        for (int e = 0; e < runs; e++)
            pack_a(block, e, i, n);
        go_through(block, i, n);
    }
}

/* Depth of the blocks, and their columns where `runs` second factors are packed at once. */
static int64_t block_depth(const struct product *p, bool sums)
{
    return p->k < DEPTH || sums ? p->k : DEPTH;
}

static int64_t block_wide(const struct product *p, bool sums, int64_t runs)
{
    int64_t most = PANELS / (int64_t)sizeof(float) / (block_depth(p, sums) * runs);

    most = most < COLUMNS ? COLUMNS : most / COLUMNS * COLUMNS;
    return p->n < most ? p->n : most;
}

static void run_factors(const struct product *p, struct factors *factors)
{
    const bool sums = factors->into_sums;
    const int64_t depth = block_depth(p, sums), wide = block_wide(p, sums, sums ? factors->n : 1);
    struct block block = {.product = p, .factors = factors, .panels = p->cpu->panels.memory};

    block.strips = block.panels + PANELS / sizeof(float) + COLUMNS * DEEPEST;
    for (block.j = 0; block.j < p->n; block.j += wide)
        for (block.k = 0; block.k < p->k; block.k += depth) {
            block.wide = p->n - block.j < wide ? p->n - block.j : wide;
            block.depth = p->k - block.k < depth ? p->k - block.k : depth;
            block.room = round_up(block.wide, COLUMNS) * block.depth;
            run_block(&block);
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

bool rb_cpu_product_suits(const struct rb_matrices *s)
{
    return strncmp(rb_dnnl_isa(), "avx2", 4) == 0 && s->m >= LEAST_ROWS && s->n >= LEAST_COLUMNS &&
           s->k >= LEAST_DEPTH;
}

int rb_cpu_product(struct rb_cpu *cpu, const struct rb_matrices *s, bool bias,
                   struct rb_kernel **ret_kernel)
{
    const size_t room =
        PANELS + (COLUMNS * DEEPEST + TALL * DEEPEST + RB_STRIP_SLACK) * sizeof(float);
    struct product *p;

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

#else

bool rb_cpu_product_suits(const struct rb_matrices *s)
{
    (void)s;
    return false;
}

int rb_cpu_product(struct rb_cpu *cpu, const struct rb_matrices *s, bool bias,
                   struct rb_kernel **ret_kernel)
{
    (void)cpu;
    (void)s;
    (void)bias;
    (void)ret_kernel;
    return RB_EUNSUPPORTED;
}

#endif
