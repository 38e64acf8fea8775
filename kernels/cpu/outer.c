/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/outer.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/outer_tile.h"

#include <string.h>

enum { ROWS = RB_OUTER_ROWS, COLUMNS = RB_OUTER_COLUMNS };

/* Deeper sums are large products, which oneDNN cuts up in all directions: with pairs, which are
 * multiplied twice as fast, that pays sooner. */
enum { DEEPEST = 512, DEEPEST_OF_PAIRS = 192, LEAST_ROWS = 8, LEAST_COLUMNS = 16 };

/* How many runs go together at most: as many as have room for their strips where those of the
 * deepest run fit, and for their panels (bytes) in cache.  Of deeper runs so much is computed that
 * the sums' memory counts for little. */
enum { TOGETHER = RB_KERNEL_EACH, DEEPEST_EACH = 128, MOST_PANELS = 1 << 20 };

struct outer {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    bool pairs; /* of bfloat16 */
    int64_t m, n, k;
    int64_t step;   /* from row to row of c */
    int64_t words;  /* along k */
    int64_t panels; /* words of all panels of a run */
    int together;   /* how many of the runs that are given at once */
};

#if defined(__x86_64__)

/* Where tiles go: into c, or added to sums; SET: the first run's onto nothing. */
enum what { STORE, ADD, SET };

/* Runs that go together: the factors of each, and for sums what each is told. */
struct runs {
    int n;
    const void *a[TOGETHER], *b[TOGETHER];
    float *c;
    const struct rb_fixed *into;
    struct rb_fixed_quick quick[TOGETHER];
    __m512i largest[TOGETHER]; /* by lane */
};

/* A tile of run e.  Between the first run and the last its sums are handed on in `between`: where
 * they belong, rows may be so far apart that processors take one for another. */
RB_DOTS static RB_INLINE void one_tile(struct runs *runs, int e, const rb_word *strip,
                                       const rb_word *panel, const struct outer *outer,
                                       const struct rb_outer_place *place, int32_t *between,
                                       bool pairs, enum what what)
{
    struct rb_outer_sums sums = {between, between, COLUMNS, COLUMNS};
    __m512 tile[ROWS][2];
    __m512i most;

    rb_outer_multiply(tile, strip, panel, outer->words, pairs);
    if (what == STORE) {
        rb_outer_store(tile, runs->c + place->at, place);
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
        most = rb_outer_add(tile, &runs->into[e], &sums, place, &runs->quick[e], what == SET, true);
    else
        most =
            rb_outer_add(tile, &runs->into[e], &sums, place, &runs->quick[e], what == SET, false);
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
        struct rb_outer_place place = {i * outer->step + j,
                                       outer->step,
                                       rows,
                                       columns,
                                       (__mmask16)mask,
                                       (__mmask16)(mask >> RB_OUTER_HALF)};

        rb_outer_fetch(to, place.at + COLUMNS, outer->step);
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

/* Runs behind the first add to what the first has left. */
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
