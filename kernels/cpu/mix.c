/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/mix.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/wide_panel.h"

#include <string.h>

enum { ROWS = RB_WIDE_ROWS, LANES = RB_WIDE_LANES, VECTORS = RB_WIDE_VECTORS };
enum { COLUMNS = RB_WIDE_COLUMNS };

/* A block of w of this depth and width stays in the second cache while all rows of x go through it.
 */
enum { DEPTH = 256, WIDTH = 6 * COLUMNS };

/* More rows pay for packing w (tall).  A shallow product costs the memory of y, and is not worth
 * the 4 MB of code that oneDNN writes for it.  With a w that stays in cache oneDNN is as fast. */
enum {
    MOST_ROWS = 383,
    LEAST_ROWS = 8,
    LEAST_COLUMNS = 64,
    LEAST_ELEMENTS = 1 << 19,
    SHALLOW = 32
};

/* Rows of a shallow product; of one run at most so many that those of all runs fit. */
enum { MOST_SHALLOW = 512, MOST_ROWS_EACH = MOST_SHALLOW / RB_KERNEL_EACH };

struct mix {
    struct rb_kernel base;
    int64_t m, n, k;
    bool bias;
};

#if defined(__x86_64__)

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* The rows of all runs in one list. */
struct list {
    int64_t n;
    const float *x[MOST_SHALLOW];
    float *y[MOST_SHALLOW];
};

/* Up to ROWS rows times columns of a block of w: from the k-th number of a row on, and from column
 * j on. */
struct block {
    const float *const *x;
    float *const *y;
    const float *w;
    const float *bias;  /* NULL: there is none, or the sums are not whole yet */
    int64_t rows, step; /* step: from row to row of w */
    int64_t k, depth, j;
    const float *ahead; /* what will be wanted next of w */
    bool first;
    __mmask16 last; /* which columns of the last vector exist */
};

RB_WIDE static RB_INLINE void multiply(const struct block *b, int vectors, bool whole)
{
    const __mmask16 last = whole ? 0xffff : b->last;
    const __mmask16 m0 = vectors == 1 ? last : 0xffff, m1 = vectors == 2 ? last : 0xffff, m2 = last;
    const float *x[ROWS], *w = b->w, *ahead = b->ahead;
    __m512 c[ROWS][VECTORS];

#define BEGIN(r)                                                                                   \
    x[r] = b->x[r < b->rows ? r : 0] + b->k;                                                       \
    c[r][0] = c[r][1] = c[r][2] = _mm512_setzero_ps();                                             \
    if (!b->first && r < b->rows) {                                                                \
        c[r][0] = _mm512_maskz_loadu_ps(m0, b->y[r] + b->j);                                       \
        if (vectors > 1)                                                                           \
            c[r][1] = _mm512_maskz_loadu_ps(m1, b->y[r] + b->j + LANES);                           \
        if (vectors > 2)                                                                           \
            c[r][2] = _mm512_maskz_loadu_ps(m2, b->y[r] + b->j + 2 * LANES);                       \
    }
#define STEP(r)                                                                                    \
    {                                                                                              \
        const __m512 x_ = _mm512_set1_ps(x[r][k]);                                                 \
        c[r][0] = _mm512_fmadd_ps(x_, w0, c[r][0]);                                                \
        if (vectors > 1)                                                                           \
            c[r][1] = _mm512_fmadd_ps(x_, w1, c[r][1]);                                            \
        if (vectors > 2)                                                                           \
            c[r][2] = _mm512_fmadd_ps(x_, w2, c[r][2]);                                            \
    }
#define ADD_BIAS(r)                                                                                \
    c[r][0] = _mm512_add_ps(c[r][0], b0);                                                          \
    c[r][1] = _mm512_add_ps(c[r][1], b1);                                                          \
    c[r][2] = _mm512_add_ps(c[r][2], b2);
#define STORE(r)                                                                                   \
    if (r < b->rows) {                                                                             \
        _mm512_mask_storeu_ps(b->y[r] + b->j, m0, c[r][0]);                                        \
        if (vectors > 1)                                                                           \
            _mm512_mask_storeu_ps(b->y[r] + b->j + LANES, m1, c[r][1]);                            \
        if (vectors > 2)                                                                           \
            _mm512_mask_storeu_ps(b->y[r] + b->j + 2 * LANES, m2, c[r][2]);                        \
    }
    EACH_ROW(BEGIN)
    for (int64_t k = 0; k < b->depth; k++, w += b->step, ahead += b->step) {
        const __m512 w0 = _mm512_maskz_loadu_ps(m0, w);
        const __m512 w1 = vectors > 1 ? _mm512_maskz_loadu_ps(m1, w + LANES) : w0;
        const __m512 w2 = vectors > 2 ? _mm512_maskz_loadu_ps(m2, w + 2 * LANES) : w0;

        __builtin_prefetch(ahead);
        if (vectors > 1)
            __builtin_prefetch(ahead + LANES);
        if (vectors > 2)
            __builtin_prefetch(ahead + 2 * LANES);
        EACH_ROW(STEP)
    }
    if (b->bias) {
        const float *const bias = b->bias + b->j;
        const __m512 b0 = _mm512_maskz_loadu_ps(m0, bias);
        const __m512 b1 = vectors > 1 ? _mm512_maskz_loadu_ps(m1, bias + LANES) : b0;
        const __m512 b2 = vectors > 2 ? _mm512_maskz_loadu_ps(m2, bias + 2 * LANES) : b0;

        EACH_ROW(ADD_BIAS)
    }
    EACH_ROW(STORE)
#undef BEGIN
#undef STEP
#undef ADD_BIAS
#undef STORE
}

/* Functions of their own: compilers keep a tile in registers there. */
#define MULTIPLIER(name, vectors, whole)                                                           \
    RB_WIDE static void name(const struct block *b)                                                \
    {                                                                                              \
        multiply(b, vectors, whole);                                                               \
    }
MULTIPLIER(part_one, 1, false)
MULTIPLIER(part_two, 2, false)
MULTIPLIER(part_three, 3, false)
MULTIPLIER(whole_one, 1, true)
MULTIPLIER(whole_two, 2, true)
MULTIPLIER(whole_three, 3, true)
#undef MULTIPLIER

static void multiply_columns(struct block *b, int64_t columns, int vectors)
{
    static void (*const multipliers[2][VECTORS])(const struct block *) = {
        {part_one, part_two, part_three}, {whole_one, whole_two, whole_three}};
    const int64_t missing = vectors * LANES - columns;

    b->last = (__mmask16)(0xffff >> (missing > 0 ? missing : 0));
    multipliers[missing <= 0][vectors - 1](b);
}

/* All rows times a block of w. */
static void go_through(const struct mix *mix, const struct list *list, const float *w,
                       const float *bias, int64_t k, int64_t first, int64_t end)
{
    struct block b = {.k = k, .first = k == 0, .step = mix->n};
    int vectors;

    b.depth = mix->k - k < DEPTH ? mix->k - k : DEPTH;
    b.bias = k + b.depth == mix->k ? bias : NULL;
    for (b.j = first; b.j < end; b.j += vectors * LANES) {
        vectors = rb_wide_vectors(end - b.j);
        b.w = w + k * mix->n + b.j;
        for (int64_t i = 0; i < list->n; i += ROWS) {
            b.rows = list->n - i < ROWS ? list->n - i : ROWS;
            b.x = list->x + i;
            b.y = list->y + i;
            b.ahead = i == 0 ? b.w + vectors * LANES : b.w;
            multiply_columns(&b, end - b.j, vectors);
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
