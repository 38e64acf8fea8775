/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/outer.h"

#include "base/prefetch.h"
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/fixed.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/outer_pack.h"

#include <string.h>

enum { ROWS = RB_OUTER_ROWS, COLUMNS = RB_OUTER_COLUMNS, HALF = COLUMNS / 2 };

/* Deeper sums are large products, which oneDNN cuts up in all directions: of pairs, which are
 * multiplied twice as fast, it does so soon. */
enum { DEEPEST = 512, DEEPEST_OF_PAIRS = 192, LEAST_ROWS = 8, LEAST_COLUMNS = 16 };

/* Several at once, at most: as many as have their strips in the place of the deepest one, and their
 * panels (bytes) in cache.  Of more words so much is computed that the sums' memory is little. */
enum { TOGETHER = RB_KERNEL_EACH, DEEPEST_EACH = 128, MOST_PANELS = 1 << 20 };

struct outer {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    bool pairs; /* of bfloat16 */
    int64_t m, n, k;
    int64_t step;   /* from row to row of c */
    int64_t words;  /* along k */
    int64_t panels; /* words of all of a run's */
    int together;   /* of the runs that are given at once */
};

#if defined(__x86_64__)

/* For each row of a tile: written out, so that rows are registers. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

/* Where a tile goes: so many rows and columns of it are there, the columns as masks. */
struct place {
    int64_t at, step; /* elements: the tile's first one, from row to row */
    int rows, columns;
    __mmask16 left, right;
};

RB_DOTS static RB_INLINE void multiply(__m512 c[ROWS][2], const rb_word *strip,
                                       const rb_word *panel, int64_t words, bool pairs)
{
#define CLEAR(r) c[r][0] = c[r][1] = _mm512_setzero_ps();
#define STEP(r)                                                                                    \
    {                                                                                              \
        const __m512 a_ = _mm512_set1_ps(strip[r]);                                                \
        c[r][0] = rb_add_product(c[r][0], a_, left, pairs);                                        \
        c[r][1] = rb_add_product(c[r][1], a_, right, pairs);                                       \
    }
    EACH_ROW(CLEAR)
    for (int64_t k = 0; k < words; k++, strip += ROWS, panel += COLUMNS) {
        const __m512 left = _mm512_loadu_ps(panel), right = _mm512_loadu_ps(panel + HALF);

        EACH_ROW(STEP)
    }
#undef CLEAR
#undef STEP
}

RB_WIDE static RB_INLINE void store(const __m512 c[ROWS][2], float *to, const struct place *place)
{
#define STORE(r)                                                                                   \
    if (r < place->rows) {                                                                         \
        _mm512_mask_storeu_ps(to + r * place->step, place->left, c[r][0]);                         \
        _mm512_mask_storeu_ps(to + r * place->step + HALF, place->right, c[r][1]);                 \
    }
    EACH_ROW(STORE)
#undef STORE
}

/* By lane, bits of the largest |g * weight| of a tile. */
RB_WIDE static RB_INLINE __m512i largest_of(const __m512 c[ROWS][2], const struct place *place,
                                            bool whole)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    const __m512i left_size = whole ? size : _mm512_maskz_mov_epi32(place->left, size);
    const __m512i right_size = whole ? size : _mm512_maskz_mov_epi32(place->right, size);
    __m512i left = _mm512_setzero_si512(), right = left;

#define LARGER(r)                                                                                  \
    if (whole || r < place->rows) {                                                                \
        left = _mm512_max_epu32(left, _mm512_and_epi32(left_size, _mm512_castps_si512(c[r][0])));  \
        right =                                                                                    \
            _mm512_max_epu32(right, _mm512_and_epi32(right_size, _mm512_castps_si512(c[r][1])));   \
    }
    EACH_ROW(LARGER)
#undef LARGER
    return _mm512_max_epu32(left, right);
}

/* What a tile's summands are added to, and where that goes: its first element, from row to row. */
struct sums {
    const int32_t *from;
    int32_t *to;
    int64_t from_step, to_step;
};

/* Some summand is beyond the limit, or no number: row by row, as if the tile had been in memory. */
static __attribute__((noinline)) void add_clamped(const float *tile, const struct rb_fixed *into,
                                                  const struct sums *sums,
                                                  const struct place *place)
{
    for (int r = 0; r < place->rows; r++) {
        int32_t *to = sums->to + r * sums->to_step;

        if (sums->from != sums->to && !into->fresh)
            memcpy(to, sums->from + r * sums->from_step, (size_t)place->columns * sizeof *to);
        rb_cpu_fixed_add(NULL, to, tile + r * COLUMNS, (size_t)place->columns, into->fresh, 1,
                         into->exponent, into->limit, into->largest, into->overflow);
    }
}

/* Scale, round to nearest even, add; `fresh`: onto nothing. */
RB_WIDE static RB_INLINE void add_inside(const __m512 c[ROWS][2], const struct sums *sums,
                                         const struct place *place, __m512 scale, bool fresh,
                                         bool whole)
{
    const int32_t *from = sums->from;
    int32_t *to = sums->to;

#define ADD(r, half_, mask_, g_)                                                                   \
    {                                                                                              \
        const __mmask16 m_ = whole ? 0xffff : mask_;                                               \
        __m512i old_ = fresh ? _mm512_setzero_si512()                                              \
                             : _mm512_maskz_loadu_epi32(m_, from + r * sums->from_step + half_);   \
        _mm512_mask_storeu_epi32(                                                                  \
            to + r * sums->to_step + half_, m_,                                                    \
            _mm512_add_epi32(old_, _mm512_cvtps_epi32(_mm512_mul_ps(g_, scale))));                 \
    }
#define ADD_ROW(r)                                                                                 \
    if (whole || r < place->rows) {                                                                \
        ADD(r, 0, place->left, c[r][0])                                                            \
        ADD(r, HALF, place->right, c[r][1])                                                        \
    }
    EACH_ROW(ADD_ROW)
#undef ADD_ROW
#undef ADD
}

/* Returns the largest by lane, which is not yet in into->largest. */
RB_WIDE static RB_INLINE __m512i add(__m512 c[ROWS][2], const struct rb_fixed *into,
                                     const struct sums *sums, const struct place *place,
                                     const struct rb_fixed_quick *quick, bool fresh, bool whole)
{
    __m512i largest;

#define WEIGH(r)                                                                                   \
    c[r][0] = _mm512_mul_ps(c[r][0], weight);                                                      \
    c[r][1] = _mm512_mul_ps(c[r][1], weight);
    if (quick->weight != 1) {
        const __m512 weight = _mm512_set1_ps(quick->weight);

        EACH_ROW(WEIGH)
    }
#undef WEIGH
    largest = largest_of(c, place, whole);
    if (__builtin_expect(!_mm512_cmpgt_epi32_mask(largest, _mm512_set1_epi32(quick->bound)),
                         true)) {
        add_inside(c, sums, place, _mm512_set1_ps(quick->scale), fresh, whole);
    } else {
        const struct place all = {0, COLUMNS, place->rows, COLUMNS, 0xffff, 0xffff};
        float tile[ROWS * COLUMNS];

        store(c, tile, &all);
        add_clamped(tile, into, sums, place);
    }
    return largest;
}

/* The lines of c that the next tile will want. */
static RB_INLINE void fetch(const void *c, int64_t at, int64_t step)
{
#define FETCH(r)                                                                                   \
    rb_prefetch_write((const float *)c + at + r * step);                                           \
    rb_prefetch_write((const float *)c + at + r * step + HALF);
    EACH_ROW(FETCH)
#undef FETCH
}

/* Where tiles go: into c, or added to sums, the first run's perhaps onto nothing. */
enum what { STORE, ADD, SET };

/* Runs that go the same way: of each the factors, and of sums what each is told. */
struct runs {
    int n;
    const void *a[TOGETHER], *b[TOGETHER];
    float *c;
    const struct rb_fixed *into;
    struct rb_fixed_quick quick[TOGETHER];
    __m512i largest[TOGETHER]; /* by lane */
};

/* A tile of run e.  Runs in between hand it on in `between`: where it belongs its rows may be so
 * far apart that processors take one for another. */
RB_DOTS static RB_INLINE void one_tile(struct runs *runs, int e, const rb_word *strip,
                                       const rb_word *panel, const struct outer *outer,
                                       const struct place *place, int32_t *between, bool pairs,
                                       enum what what)
{
    struct sums sums = {between, between, COLUMNS, COLUMNS};
    __m512 tile[ROWS][2];
    __m512i most;

    multiply(tile, strip, panel, outer->words, pairs);
    if (what == STORE) {
        store(tile, runs->c + place->at, place);
        return;
    }
    if (e == 0) {
        sums.from = runs->into->sum + place->at;
        sums.from_step = place->step;
    }
    if (e + 1 == runs->n) {
        sums.to = runs->into->sum + place->at;
        sums.to_step = place->step;
    }
    if (place->rows == ROWS && place->columns == COLUMNS)
        most = add(tile, &runs->into[e], &sums, place, &runs->quick[e], what == SET, true);
    else
        most = add(tile, &runs->into[e], &sums, place, &runs->quick[e], what == SET, false);
    runs->largest[e] = _mm512_max_epu32(runs->largest[e], most);
}

/* Tiles along `rows` rows of c from i on, each of them for all runs. */
RB_DOTS static RB_INLINE void one_strip(const struct outer *outer, struct runs *runs, int64_t i,
                                        int rows, const rb_word *strips, bool pairs, enum what what)
{
    const void *to = what == STORE ? (const void *)runs->c : (const void *)runs->into->sum;
    const rb_word *panel = outer->cpu->panels.memory;
    __attribute__((aligned(64))) int32_t between[ROWS * COLUMNS];

    for (int64_t j = 0; j < outer->n; j += COLUMNS, panel += COLUMNS * outer->words) {
        int columns = (int)(outer->n - j < COLUMNS ? outer->n - j : COLUMNS);
        uint32_t mask = (uint32_t)((1ull << columns) - 1);
        struct place place = {i * outer->step + j,      outer->step, rows, columns, (__mmask16)mask,
                              (__mmask16)(mask >> HALF)};

        fetch(to, place.at + COLUMNS, outer->step);
        one_tile(runs, 0, strips, panel, outer, &place, between, pairs, what);
        for (int e = 1; what != STORE && e < runs->n; e++)
            one_tile(runs, e, strips + e * ROWS * outer->words, panel + e * outer->panels, outer,
                     &place, between, pairs, ADD);
    }
}

/* Strip after strip. */
RB_DOTS static RB_INLINE void go_through(const struct outer *outer, struct runs *runs, bool pairs,
                                         enum what what)
{
    rb_word strips[ROWS * DEEPEST];

    for (int e = 0; e < runs->n; e++) {
        const struct rb_outer_factor b = {runs->b[e], pairs, outer->k, outer->n};

        rb_outer_panels(&b, (rb_word *)outer->cpu->panels.memory + e * outer->panels);
    }
    for (int64_t i = 0; i < outer->m; i += ROWS) {
        int rows = (int)(outer->m - i < ROWS ? outer->m - i : ROWS);

        for (int e = 0; e < runs->n; e++) {
            const struct rb_outer_factor a = {runs->a[e], pairs, outer->k, outer->m};

            rb_outer_strip(&a, i, rows, strips + e * ROWS * outer->words);
        }
        one_strip(outer, runs, i, rows, strips, pairs, what);
    }
}

/* Functions of their own: compilers keep a tile in registers there. */
typedef void goer(const struct outer *outer, struct runs *runs);

#define GOER(name, pairs, what)                                                                    \
    RB_DOTS static void name(const struct outer *outer, struct runs *runs)                         \
    {                                                                                              \
        go_through(outer, runs, pairs, what);                                                      \
    }
GOER(store_floats, false, STORE)
GOER(add_floats, false, ADD)
GOER(set_floats, false, SET)
GOER(store_pairs, true, STORE)
GOER(add_pairs, true, ADD)
GOER(set_pairs, true, SET)
#undef GOER

static goer *const goers[2][3] = {{store_floats, add_floats, set_floats},
                                  {store_pairs, add_pairs, set_pairs}};

static void outer_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct outer *outer = (const struct outer *)kernel;
    struct runs runs = {.n = 1, .a = {in[0]}, .b = {in[1]}, .c = out[0]};

    (void)key;
    goers[outer->pairs][STORE](outer, &runs);
}

/* Runs behind the first are onto what that has left. */
RB_WIDE static void sum_together(struct rb_kernel *kernel, int n, const void *const *const *in,
                                 const struct rb_fixed *into)
{
    const struct outer *outer = (const struct outer *)kernel;
    struct runs runs = {.n = n, .into = into};

    for (int e = 0; e < n; e++) {
        runs.a[e] = in[e][0];
        runs.b[e] = in[e][1];
        runs.quick[e] = rb_fixed_quick(&into[e]);
    }
    goers[outer->pairs][into->fresh ? SET : ADD](outer, &runs);
    for (int e = 0; e < n; e++) {
        uint32_t largest = _mm512_reduce_max_epu32(runs.largest[e]);

        if (largest > *into[e].largest)
            *into[e].largest = largest;
    }
}

static void outer_sum_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                           const struct rb_fixed *into)
{
    const int together = ((const struct outer *)kernel)->together;

    for (int e = 0; e < n; e += together)
        sum_together(kernel, n - e < together ? n - e : together, in + e, into + e);
}

static void outer_sum(struct rb_kernel *kernel, const void *const *in, const struct rb_fixed *into)
{
    sum_together(kernel, 1, &in, into);
}

static bool suits(const struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors)
{
    const bool pairs = factors == RB_BF16;

    return s->batch == 0 && s->swap_a && !s->swap_b && s->k > 0 &&
           s->k <= (pairs ? DEEPEST_OF_PAIRS : DEEPEST) && s->m >= LEAST_ROWS &&
           s->n >= LEAST_COLUMNS &&
           (pairs ? rb_cpu_dots(cpu) : strncmp(rb_dnnl_isa(), "avx512", 6) == 0);
}

static int how_many_together(int64_t words, size_t panels)
{
    const int64_t strips = DEEPEST / words, cached = (int64_t)(MOST_PANELS / panels);
    const int64_t most = strips < cached ? strips : cached;

    return most < 1 || words > DEEPEST_EACH ? 1 : most < TOGETHER ? (int)most : TOGETHER;
}

int rb_cpu_outer_part(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                      int64_t step, struct rb_kernel **ret_kernel)
{
    const int64_t words = rb_words(s->k, factors == RB_BF16);
    const int64_t panels = (s->n + COLUMNS - 1) / COLUMNS * COLUMNS * words;
    struct outer *outer;
    size_t bytes;
    int together;

    if (!suits(cpu, s, factors))
        return RB_EUNSUPPORTED;
    bytes = (size_t)panels * sizeof(rb_word);
    together = how_many_together(words, bytes);
    if (rb_cpu_need(&cpu->panels, (size_t)together * bytes))
        return RB_ENOMEM;
    outer = rb_cpu_kernel(sizeof *outer, outer_run);
    outer->base.sum = outer_sum;
    outer->base.sum_each = together > 1 ? outer_sum_each : NULL;
    outer->cpu = cpu;
    outer->pairs = factors == RB_BF16;
    outer->m = s->m;
    outer->n = s->n;
    outer->k = s->k;
    outer->step = step;
    outer->words = words;
    outer->panels = panels;
    outer->together = together;
    *ret_kernel = &outer->base;
    return 0;
}

#else

int rb_cpu_outer_part(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                      int64_t step, struct rb_kernel **ret_kernel)
{
    (void)cpu;
    (void)s;
    (void)factors;
    (void)step;
    (void)ret_kernel;
    return RB_EUNSUPPORTED;
}

#endif

int rb_cpu_outer(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                 struct rb_kernel **ret_kernel)
{
    return bias ? RB_EUNSUPPORTED : rb_cpu_outer_part(cpu, s, factors, s->n, ret_kernel);
}
