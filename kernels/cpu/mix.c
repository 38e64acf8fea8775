/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/mix.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pairs.h"

#include <string.h>

/* A tile of y: 24 registers of sums, 3 of factors. */
enum { ROWS = 8, LANES = 16, VECTORS = 3, COLUMNS = VECTORS * LANES };

/* So many words of a row of x, and so many columns of w at a time stay in cache while all rows of x
 * go through them.  Pairs are put together first, so fewer columns are. */
enum { DEPTH = 64, WIDTH = 22 * COLUMNS, DEPTH_OF_PAIRS = 256, WIDTH_OF_PAIRS = 6 * COLUMNS };

/* More rows than this are a product that pays for packing its factors.  Putting pairs together is
 * a part of that. */
enum { MOST_ROWS = 64, MOST_ROWS_OF_PAIRS = 48, LEAST_ROWS = 8, LEAST_COLUMNS = 64 };

/* What stays in cache is oneDNN's: it multiplies faster, and only memory is slow here.  So shallow
 * a product is memory, too, that of y, and not worth the 4 MB of code that oneDNN writes for it. */
enum { LEAST_ELEMENTS = 1 << 19, SHALLOW = 32 };

/* Of one run, and of all runs that are given at once. */
enum { MOST_SHALLOW = RB_KERNEL_EACH * MOST_ROWS };

struct mix {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n, k;
    int64_t words;        /* of a row of x */
    int64_t depth, width; /* of a block */
    bool pairs, bias;
};

#if defined(__x86_64__)

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Rows of the runs, one list. */
struct list {
    int64_t n;
    const rb_word *x[MOST_SHALLOW];
    float *y[MOST_SHALLOW];
};

/* Up to ROWS rows times a block of w: from the k-th word of a row on, and from column j on. */
struct block {
    const rb_word *const *x;
    float *const *y;
    const rb_word *w;
    const float *bias;  /* NULL: there is none, or the sums are not whole yet */
    int64_t rows, step; /* step: from word to word of w */
    int64_t k, depth, j;
    bool first;
    __mmask16 mask[VECTORS];
};

RB_DOTS static RB_INLINE void multiply(const struct block *b, bool whole, bool pairs)
{
    const rb_word *x[ROWS], *w = b->w;
    const __mmask16 m0 = whole ? 0xffff : b->mask[0], m1 = whole ? 0xffff : b->mask[1];
    const __mmask16 m2 = whole ? 0xffff : b->mask[2];
    __m512 c[ROWS][VECTORS];

#define BEGIN(r)                                                                                   \
    x[r] = b->x[r < b->rows ? r : 0] + b->k;                                                       \
    if (b->first || r >= b->rows) {                                                                \
        c[r][0] = c[r][1] = c[r][2] = _mm512_setzero_ps();                                         \
    } else {                                                                                       \
        c[r][0] = _mm512_maskz_loadu_ps(m0, b->y[r] + b->j);                                       \
        c[r][1] = _mm512_maskz_loadu_ps(m1, b->y[r] + b->j + LANES);                               \
        c[r][2] = _mm512_maskz_loadu_ps(m2, b->y[r] + b->j + 2 * LANES);                           \
    }
#define STEP(r)                                                                                    \
    {                                                                                              \
        const __m512 x_ = _mm512_set1_ps(x[r][k]);                                                 \
        c[r][0] = rb_add_product(c[r][0], x_, w0, pairs);                                          \
        c[r][1] = rb_add_product(c[r][1], x_, w1, pairs);                                          \
        c[r][2] = rb_add_product(c[r][2], x_, w2, pairs);                                          \
    }
#define END(r)                                                                                     \
    if (r < b->rows) {                                                                             \
        if (b->bias) {                                                                             \
            c[r][0] = _mm512_add_ps(c[r][0], _mm512_maskz_loadu_ps(m0, b->bias + b->j));           \
            c[r][1] = _mm512_add_ps(c[r][1], _mm512_maskz_loadu_ps(m1, b->bias + b->j + LANES));   \
            c[r][2] =                                                                              \
                _mm512_add_ps(c[r][2], _mm512_maskz_loadu_ps(m2, b->bias + b->j + 2 * LANES));     \
        }                                                                                          \
        _mm512_mask_storeu_ps(b->y[r] + b->j, m0, c[r][0]);                                        \
        _mm512_mask_storeu_ps(b->y[r] + b->j + LANES, m1, c[r][1]);                                \
        _mm512_mask_storeu_ps(b->y[r] + b->j + 2 * LANES, m2, c[r][2]);                            \
    }
    EACH_ROW(BEGIN)
    for (int64_t k = 0; k < b->depth; k++, w += b->step) {
        const __m512 w0 = _mm512_maskz_loadu_ps(m0, w), w1 = _mm512_maskz_loadu_ps(m1, w + LANES);
        const __m512 w2 = _mm512_maskz_loadu_ps(m2, w + 2 * LANES);

        EACH_ROW(STEP)
    }
    EACH_ROW(END)
#undef BEGIN
#undef STEP
#undef END
}

/* Functions of their own: compilers keep a tile in registers there. */
typedef void multiplier(const struct block *b);

#define MULTIPLIER(name, whole, pairs)                                                             \
    RB_DOTS static void name(const struct block *b)                                                \
    {                                                                                              \
        multiply(b, whole, pairs);                                                                 \
    }
MULTIPLIER(multiply_part, false, false)
MULTIPLIER(multiply_whole, true, false)
MULTIPLIER(multiply_part_of_pairs, false, true)
MULTIPLIER(multiply_whole_of_pairs, true, true)
#undef MULTIPLIER

static multiplier *const multipliers[2][2] = {{multiply_part, multiply_whole},
                                              {multiply_part_of_pairs, multiply_whole_of_pairs}};

static void set_mask(struct block *b, int64_t columns)
{
    const uint64_t mask = columns >= COLUMNS ? ~0ull : (1ull << columns) - 1;

    for (int i = 0; i < VECTORS; i++)
        b->mask[i] = (__mmask16)(mask >> (i * LANES));
}

/* Words of w from the k-th of each column on, `depth` of them, and columns [first, end): where they
 * lie, or put together. */
static const rb_word *words_of(const struct mix *mix, const void *w, int64_t k, int64_t depth,
                               int64_t first, int64_t end, int64_t *ret_step)
{
    const int64_t rows = mix->k - 2 * k < 2 * depth ? mix->k - 2 * k : 2 * depth;

    *ret_step = mix->pairs ? mix->width : mix->n;
    if (!mix->pairs)
        return (const rb_word *)w + k * mix->n + first;
    rb_pairs_pack((const uint16_t *)w + 2 * k * mix->n + first, mix->n, rows, end - first,
                  mix->width, mix->cpu->panels.memory);
    return mix->cpu->panels.memory;
}

/* All rows times a block of w. */
static void go_through(const struct mix *mix, const struct list *list, const void *w,
                       const float *bias, int64_t k, int64_t first, int64_t end)
{
    struct block b = {.k = k, .first = k == 0};
    const rb_word *words;

    b.depth = mix->words - k < mix->depth ? mix->words - k : mix->depth;
    b.bias = k + b.depth == mix->words ? bias : NULL;
    words = words_of(mix, w, k, b.depth, first, end, &b.step);
    for (b.j = first; b.j < end; b.j += COLUMNS) {
        set_mask(&b, end - b.j);
        b.w = words + b.j - first;
        for (int64_t i = 0; i < list->n; i += ROWS) {
            b.rows = list->n - i < ROWS ? list->n - i : ROWS;
            b.x = list->x + i;
            b.y = list->y + i;
            multipliers[mix->pairs][end - b.j >= COLUMNS](&b);
        }
    }
}

static void mix_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                     void *const *const *out, const struct rb_key *keys)
{
    const struct mix *mix = (const struct mix *)kernel;
    const float *bias = mix->bias ? in[0][2] : NULL;
    struct list list;

    (void)keys;
    list.n = 0;
    for (int e = 0; e < n; e++)
        for (int64_t i = 0; i < mix->m; i++, list.n++) {
            list.x[list.n] = (const rb_word *)in[e][0] + i * mix->words;
            list.y[list.n] = (float *)out[e][0] + i * mix->n;
        }
    for (int64_t j = 0; j < mix->n; j += mix->width)
        for (int64_t k = 0; k < mix->words; k += mix->depth)
            go_through(mix, &list, in[0][1], bias, k, j,
                       mix->n - j < mix->width ? mix->n : j + mix->width);
}

static void mix_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                    const struct rb_key *key)
{
    mix_each(kernel, 1, &in, &out, key);
}

static bool suits(const struct rb_matrices *s, bool pairs)
{
    const int64_t most = pairs ? MOST_ROWS_OF_PAIRS : MOST_ROWS;

    return s->batch == 0 && !s->swap_a && !s->swap_b && s->m >= LEAST_ROWS &&
           s->m <= (s->k <= SHALLOW ? MOST_SHALLOW : most) && s->n >= LEAST_COLUMNS && s->k > 0 &&
           (s->k <= SHALLOW || s->n * s->k >= LEAST_ELEMENTS) &&
           strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

int rb_cpu_mix(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
               struct rb_kernel **ret_kernel)
{
    const bool pairs = factors == RB_BF16;
    struct mix *mix;

    if (!suits(s, pairs) || !rb_cpu_rows_of_words(cpu, factors, s->k))
        return RB_EUNSUPPORTED;
    if (pairs && rb_cpu_need(&cpu->panels, sizeof(rb_word) * DEPTH_OF_PAIRS * WIDTH_OF_PAIRS))
        return RB_ENOMEM;
    mix = rb_cpu_kernel(sizeof *mix, mix_run);
    mix->base.each = s->m <= MOST_ROWS ? mix_each : NULL;
    mix->base.shared = bias ? 2 : 1;
    mix->cpu = cpu;
    mix->m = s->m;
    mix->n = s->n;
    mix->k = s->k;
    mix->words = rb_words(s->k, pairs);
    mix->depth = pairs ? DEPTH_OF_PAIRS : DEPTH;
    mix->width = pairs ? WIDTH_OF_PAIRS : WIDTH;
    mix->pairs = pairs;
    mix->bias = bias;
    *ret_kernel = &mix->base;
    return 0;
}

#endif
