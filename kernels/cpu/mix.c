/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/mix.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A tile of y: 24 registers of sums, 3 of factors. */
enum { ROWS = 8, LANES = 16, VECTORS = 3, COLUMNS = VECTORS * LANES };

/* So much of a row of x, and so many columns of w at a time stay in cache while all rows of x go
 * through them. */
enum { DEPTH = 64, WIDTH = 22 * COLUMNS };

/* More rows are lanes (samples), but where k is shallow: then the product is memory, that of y, and
 * not worth the 4 MB of code that oneDNN writes for it.  So is what stays in cache, but oneDNN
 * multiplies faster. */
enum { MOST_ROWS = 11, LEAST_ROWS = 8, LEAST_COLUMNS = 64, LEAST_ELEMENTS = 1 << 19, SHALLOW = 32 };

/* Of a shallow product; of one run so many that all of them fit. */
enum { MOST_SHALLOW = 512, MOST_ROWS_EACH = MOST_SHALLOW / RB_KERNEL_EACH };

struct mix {
    struct rb_kernel base;
    int64_t m, n, k;
    bool bias;
};

#if defined(__x86_64__)

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Rows of the runs, one list. */
struct list {
    int64_t n;
    const float *x[MOST_SHALLOW];
    float *y[MOST_SHALLOW];
};

/* Up to ROWS rows times a block of w: from the k-th number of a row on, and from column j on. */
struct block {
    const float *const *x;
    float *const *y;
    const float *w;
    const float *bias;  /* NULL: there is none, or the sums are not whole yet */
    int64_t rows, step; /* step: from row to row of w */
    int64_t k, depth, j;
    bool first;
    __mmask16 mask[VECTORS];
};

RB_WIDE static RB_INLINE void multiply(const struct block *b, bool whole)
{
    const float *x[ROWS], *w = b->w;
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
        c[r][0] = _mm512_fmadd_ps(x_, w0, c[r][0]);                                                \
        c[r][1] = _mm512_fmadd_ps(x_, w1, c[r][1]);                                                \
        c[r][2] = _mm512_fmadd_ps(x_, w2, c[r][2]);                                                \
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
RB_WIDE static void multiply_part(const struct block *b)
{
    multiply(b, false);
}

RB_WIDE static void multiply_whole(const struct block *b)
{
    multiply(b, true);
}

static void set_mask(struct block *b, int64_t columns)
{
    const uint64_t mask = columns >= COLUMNS ? ~0ull : (1ull << columns) - 1;

    for (int i = 0; i < VECTORS; i++)
        b->mask[i] = (__mmask16)(mask >> (i * LANES));
}

/* All rows times a block of w. */
static void go_through(const struct mix *mix, const struct list *list, const float *w,
                       const float *bias, int64_t k, int64_t first, int64_t end)
{
    struct block b = {.k = k, .first = k == 0, .step = mix->n};

    b.depth = mix->k - k < DEPTH ? mix->k - k : DEPTH;
    b.bias = k + b.depth == mix->k ? bias : NULL;
    for (b.j = first; b.j < end; b.j += COLUMNS) {
        set_mask(&b, end - b.j);
        b.w = w + k * mix->n + b.j;
        for (int64_t i = 0; i < list->n; i += ROWS) {
            b.rows = list->n - i < ROWS ? list->n - i : ROWS;
            b.x = list->x + i;
            b.y = list->y + i;
            if (end - b.j >= COLUMNS)
                multiply_whole(&b);
            else
                multiply_part(&b);
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
            list.x[list.n] = (const float *)in[e][0] + i * mix->k;
            list.y[list.n] = (float *)out[e][0] + i * mix->n;
        }
    for (int64_t j = 0; j < mix->n; j += WIDTH)
        for (int64_t k = 0; k < mix->k; k += DEPTH)
            go_through(mix, &list, in[0][1], bias, k, j, mix->n - j < WIDTH ? mix->n : j + WIDTH);
}

static void mix_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                    const struct rb_key *key)
{
    mix_each(kernel, 1, &in, &out, key);
}

static bool suits(const struct rb_matrices *s)
{
    const bool shallow = s->k <= SHALLOW;

    return s->batch == 0 && !s->swap_a && !s->swap_b && s->m >= LEAST_ROWS &&
           s->m <= (shallow ? MOST_SHALLOW : MOST_ROWS) && s->n >= LEAST_COLUMNS && s->k > 0 &&
           (shallow || s->n * s->k >= LEAST_ELEMENTS) && strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

int rb_cpu_mix(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
               struct rb_kernel **ret_kernel)
{
    struct mix *mix;

    (void)cpu;
    if (factors != RB_F32 || !suits(s))
        return RB_EUNSUPPORTED;
    mix = rb_cpu_kernel(sizeof *mix, mix_run);
    mix->base.each = s->m <= MOST_ROWS_EACH ? mix_each : NULL;
    mix->base.shared = bias ? 2 : 1;
    mix->m = s->m;
    mix->n = s->n;
    mix->k = s->k;
    mix->bias = bias;
    *ret_kernel = &mix->base;
    return 0;
}

#endif
