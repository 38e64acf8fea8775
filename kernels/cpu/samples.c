/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/samples.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pairs.h"

#include <string.h>

/* A tile: so many rows of w times so many samples; 24 registers of sums, 3 and 1 of factors. */
enum { ROWS = 8, LANES = 16, VECTORS = 3, PANEL = VECTORS * LANES };

/* So many samples at most are gone through at once, fewer where their panels (bytes) would not stay
 * in the second cache. */
enum { MOST = 4 * PANEL, PANELS = 1 << 20 };

/* Words of a row of w that are on their way while others are multiplied: with those of a tile's
 * other rows they fit the first cache, also where rows are a multiple of 4 kB apart. */
enum { AHEAD = 4 * LANES };

/* More samples a run are a product that pays for packing both factors.  Fewer leave lanes empty. */
enum { MOST_SAMPLES = 64, LEAST_SAMPLES = 12, LEAST_DEPTH = 64, LEAST_ROWS = 8 };

/* What so few rows of w are multiplied with in no time is not worth the 4 MB of code that oneDNN
 * writes for a product. */
enum { FEW = 64, MOST_OF_FEW = 512 };

struct samples {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n;
    int64_t words; /* of a row of x or w */
    bool pairs, bias;
};

#if defined(__x86_64__)

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Samples of the runs, one list, and what is made of them. */
struct list {
    int64_t n, words;
    int panels, vectors[MOST / PANEL]; /* of each panel */
    const rb_word *x[MOST];
    float *y[MOST];
    rb_word *packed; /* by panel: [words][vectors] */
};

/* ---- Samples as lanes ------------------------------------------------------------------------*/

/* 16 rows of 16 words become 16 columns. */
RB_WIDE static RB_INLINE void turn_sixteen(__m512 r[LANES])
{
    __m512 t[LANES];

    for (int i = 0; i < LANES; i += 4) {
        const __m512 low01 = _mm512_unpacklo_ps(r[i], r[i + 1]);
        const __m512 high01 = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const __m512 low23 = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m512 high23 = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm512_shuffle_ps(low01, low23, 0x44);
        t[i + 1] = _mm512_shuffle_ps(low01, low23, 0xee);
        t[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
        t[i + 3] = _mm512_shuffle_ps(high01, high23, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* quarters */
        const __m512 even01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const __m512 odd01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const __m512 even23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const __m512 odd23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);

        r[i] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

/* Lanes behind the last sample are that one once more. */
RB_WIDE static void pack_sixteen(const struct list *list, int64_t first, rb_word *to, int64_t step)
{
    const rb_word *x[LANES];
    int64_t k = 0;

    for (int64_t i = 0; i < LANES; i++)
        x[i] = list->x[first + i < list->n ? first + i : list->n - 1];
    for (; k + LANES <= list->words; k += LANES) {
        __m512 r[LANES];

        for (int i = 0; i < LANES; i++)
            r[i] = _mm512_loadu_ps(x[i] + k);
        turn_sixteen(r);
        for (int i = 0; i < LANES; i++)
            _mm512_storeu_ps(to + (k + i) * step, r[i]);
    }
    for (; k < list->words; k++)
        for (int i = 0; i < LANES; i++)
            to[k * step + i] = x[i][k];
}

/* Four vectors are two panels of two: one alone has too few chains to keep multipliers busy. */
static void pack(struct list *list)
{
    int64_t vectors = (list->n + LANES - 1) / LANES, first = 0;
    rb_word *to = list->packed;

    for (list->panels = 0; vectors > 0; vectors -= list->vectors[list->panels++]) {
        const int here = vectors == 4 ? 2 : vectors < VECTORS ? (int)vectors : VECTORS;

        list->vectors[list->panels] = here;
        for (int v = 0; v < here; v++, first += LANES)
            pack_sixteen(list, first, to + v * LANES, here * LANES);
        to += list->words * here * LANES;
    }
}

/* ---- Tiles -----------------------------------------------------------------------------------*/

/* sums [ROWS][PANEL] = rows of w times a panel.  Meanwhile those behind them are fetched: the rows
 * of the tile that comes next are as many further on. */
RB_DOTS static RB_INLINE void multiply(const rb_word *const w[ROWS], const rb_word *panel,
                                       int64_t words, float *sums, int vectors, bool pairs)
{
    __m512 c[ROWS][VECTORS];

#define CLEAR(r) c[r][0] = c[r][1] = c[r][2] = _mm512_setzero_ps();
#define STEP(r)                                                                                    \
    if (vectors == 1) {                                                                            \
        c[r][0] = rb_add_word(c[r][0], &w[r][at], x0, pairs);                                      \
    } else {                                                                                       \
        const __m512 w_ = _mm512_set1_ps(w[r][at]);                                                \
        c[r][0] = rb_add_product(c[r][0], w_, x0, pairs);                                          \
        c[r][1] = rb_add_product(c[r][1], w_, x1, pairs);                                          \
        if (vectors > 2)                                                                           \
            c[r][2] = rb_add_product(c[r][2], w_, x2, pairs);                                      \
    }
#define STORE(r)                                                                                   \
    for (int v = 0; v < vectors; v++)                                                              \
        _mm512_storeu_ps(sums + r * PANEL + v * LANES, c[r][v]);
#define FETCH(r) __builtin_prefetch(w[r] + ahead);
    EACH_ROW(CLEAR)
    for (int64_t at = 0; at < words;) {
        const int64_t end = words - at < LANES ? words : at + LANES;
        const int64_t ahead = at + AHEAD < words ? at + AHEAD : at + AHEAD + (ROWS - 1) * words;

        EACH_ROW(FETCH)
        for (; at < end; at++, panel += vectors * LANES) {
            const __m512 x0 = _mm512_loadu_ps(panel);
            const __m512 x1 = vectors > 1 ? _mm512_loadu_ps(panel + LANES) : x0;
            const __m512 x2 = vectors > 2 ? _mm512_loadu_ps(panel + 2 * LANES) : x0;

            EACH_ROW(STEP)
        }
    }
    EACH_ROW(STORE)
#undef CLEAR
#undef STEP
#undef STORE
#undef FETCH
}

/* Functions of their own: compilers keep a tile in registers there. */
typedef void multiplier(const rb_word *const w[ROWS], const rb_word *panel, int64_t words,
                        float *sums);

#define MULTIPLIER(name, vectors, pairs)                                                           \
    RB_DOTS static void name(const rb_word *const w[ROWS], const rb_word *panel, int64_t words,    \
                             float *sums)                                                          \
    {                                                                                              \
        multiply(w, panel, words, sums, vectors, pairs);                                           \
    }
MULTIPLIER(multiply_one, 1, false)
MULTIPLIER(multiply_two, 2, false)
MULTIPLIER(multiply_three, 3, false)
MULTIPLIER(multiply_one_of_pairs, 1, true)
MULTIPLIER(multiply_two_of_pairs, 2, true)
MULTIPLIER(multiply_three_of_pairs, 3, true)
#undef MULTIPLIER

static multiplier *const multipliers[2][VECTORS + 1] = {
    {NULL, multiply_one, multiply_two, multiply_three},
    {NULL, multiply_one_of_pairs, multiply_two_of_pairs, multiply_three_of_pairs}};

/* ROWS of w from the j-th on times all panels, which are LANES * PANEL apart in the sums. */
static void go_through(const struct list *list, const struct samples *s, const rb_word *w,
                       int64_t j, float *sums)
{
    const rb_word *rows[ROWS], *panel = list->packed;

    for (int64_t r = 0; r < ROWS; r++) /* behind the last it is that once more */
        rows[r] = w + (j + r < s->n ? j + r : s->n - 1) * s->words;
    for (int p = 0; p < list->panels; p++, sums += LANES * PANEL) {
        multipliers[s->pairs][list->vectors[p]](rows, panel, s->words, sums);
        panel += s->words * list->vectors[p] * LANES;
    }
}

/* Of 16 rows of w and of 16 samples, to where it belongs. */
RB_WIDE static void write_sixteen(const struct list *list, const float *sums, int64_t first,
                                  int64_t j, __mmask16 mask, const float *bias)
{
    __m512 r[LANES];

    for (int i = 0; i < LANES; i++)
        r[i] = _mm512_loadu_ps(sums + i * PANEL);
    turn_sixteen(r);
    for (int i = 0; i < LANES && first + i < list->n; i++) {
        if (bias)
            r[i] = _mm512_add_ps(r[i], _mm512_maskz_loadu_ps(mask, bias + j));
        _mm512_mask_storeu_ps(list->y[first + i] + j, mask, r[i]);
    }
}

static void run_list(struct list *list, const struct samples *s, const rb_word *w,
                     const float *bias)
{
    float sums[MOST / PANEL * LANES * PANEL] = {0};

    pack(list);
    for (int64_t j = 0; j < s->n; j += LANES) {
        const __mmask16 mask = s->n - j < LANES ? (__mmask16)((1u << (s->n - j)) - 1) : 0xffff;

        for (int64_t r = 0; r < LANES && j + r < s->n; r += ROWS)
            go_through(list, s, w, j + r, sums + r * PANEL);
        for (int64_t p = 0, first = 0; p < list->panels; p++)
            for (int v = 0; v < list->vectors[p]; v++, first += LANES)
                write_sixteen(list, sums + p * LANES * PANEL + v * LANES, first, j, mask, bias);
    }
    list->n = 0;
}

/* ---- The kernel ------------------------------------------------------------------------------*/

/* Samples that stay in cache, in whole panels. */
static int64_t most_at_once(int64_t words)
{
    const int64_t cached = PANELS / (int64_t)sizeof(rb_word) / words / PANEL * PANEL;

    return cached < PANEL ? PANEL : cached < MOST ? cached : MOST;
}

/* Of so many: no more than that, and about as many each time. */
static int64_t samples_at_once(int64_t samples, int64_t words)
{
    const int64_t most = most_at_once(words), times = (samples + most - 1) / most;

    return ((samples + times - 1) / times + LANES - 1) / LANES * LANES;
}

static void samples_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                         void *const *const *out, const struct rb_key *keys)
{
    const struct samples *s = (const struct samples *)kernel;
    const rb_word *w = in[0][1];
    const float *bias = s->bias ? in[0][2] : NULL;
    const int64_t at_once = samples_at_once(n * s->m, s->words);
    struct list list = {.words = s->words, .packed = s->cpu->panels.memory};

    (void)keys;
    for (int e = 0; e < n; e++)
        for (int64_t i = 0; i < s->m; i++) {
            list.x[list.n] = (const rb_word *)in[e][0] + i * s->words;
            list.y[list.n] = (float *)out[e][0] + i * s->n;
            if (++list.n == at_once)
                run_list(&list, s, w, bias);
        }
    if (list.n)
        run_list(&list, s, w, bias);
}

static void samples_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    samples_each(kernel, 1, &in, &out, key);
}

static bool suits(const struct rb_matrices *s)
{
    return s->batch == 0 && !s->swap_a && s->swap_b && s->m >= LEAST_SAMPLES &&
           s->m <= (s->n < FEW ? MOST_OF_FEW : MOST_SAMPLES) && s->n >= LEAST_ROWS &&
           s->k >= LEAST_DEPTH && strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

int rb_cpu_samples(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                   bool bias, struct rb_kernel **ret_kernel)
{
    const bool each = s->m <= MOST_SAMPLES, pairs = factors == RB_BF16;
    const int64_t words = rb_words(s->k, pairs);
    const int64_t all = s->m * (each ? RB_KERNEL_EACH : 1);
    struct samples *samples;
    int64_t room, most;

    if (!suits(s) || !rb_cpu_rows_of_words(cpu, factors, s->k))
        return RB_EUNSUPPORTED;
    most = most_at_once(words);
    room = all < most ? (all + LANES - 1) / LANES * LANES : most;
    if (rb_cpu_need(&cpu->panels, (size_t)(room * words) * sizeof(rb_word)))
        return RB_ENOMEM;
    samples = rb_cpu_kernel(sizeof *samples, samples_run);
    samples->base.each = each ? samples_each : NULL;
    samples->base.shared = bias ? 2 : 1;
    samples->cpu = cpu;
    samples->m = s->m;
    samples->n = s->n;
    samples->words = words;
    samples->pairs = pairs;
    samples->bias = bias;
    *ret_kernel = &samples->base;
    return 0;
}

#endif
