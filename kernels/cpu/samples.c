/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/samples.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/wide_panel.h"

#include <string.h>

enum { ROWS = RB_WIDE_ROWS, LANES = RB_WIDE_LANES, PANEL = RB_WIDE_COLUMNS };

/* At most MOST samples are gone through at once, fewer where their panels would take more than
 * PANELS bytes of the second cache. */
enum { MOST = 4 * PANEL, PANELS = 1 << 20 };

/* Fewer samples leave lanes empty.  More, or more than FEW_SAMPLES with a w that stays in cache,
 * pay for packing both factors. */
enum { MOST_SAMPLES = MOST, FEW_SAMPLES = 64, LEAST_SAMPLES = 12 };
enum { LEAST_DEPTH = 64, LEAST_ROWS = 8, LARGE = 1 << 19 };

/* A product with less than FEW rows of w takes so little time that it is not worth the 4 MB of code
 * that oneDNN writes for it. */
enum { FEW = 64, MOST_OF_FEW = 512 };

struct samples {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, n;
    int64_t words; /* along k, and from row to row of w */
    bool pairs, bias;
};

#if defined(__x86_64__)

/* The samples of all runs in one list, and what is made of them. */
struct list {
    int64_t n;
    const rb_word *x[MOST];
    float *y[MOST];
    rb_word *packed;
};

/* Outputs [j, j + n) of all samples, LANES at most and ROWS at least: the second ROWS may overlap
 * the first.  While the first panel is multiplied with the first ROWS, rows of the next LANES are
 * fetched. */
static void some_outputs(const struct list *list, const struct samples *s, const rb_word *w,
                         int64_t j, int64_t n, float *sums)
{
    const int strips = n == ROWS ? 1 : 2;

    for (int i = 0; i < strips; i++) {
        const int64_t r = i * (n - ROWS);
        const rb_word *const first = w + (j + r) * s->words, *panel = list->packed;
        const rb_word *const ahead = i == 0 ? w + (j + LANES) * s->words : first;
        struct rb_wide_strip strip = {.first = first,
                                      .row = s->words,
                                      .step = 1,
                                      .words = s->words,
                                      .ahead = (const char *)ahead};
        struct rb_wide_place place = {sums + r * PANEL, PANEL, false, NULL};

        for (int64_t at = 0; at < list->n; place.to += LANES * PANEL) {
            const int vectors = rb_wide_vectors(list->n - at);

            rb_wide_multiply(&strip, panel, vectors, s->pairs, &place);
            panel += s->words * vectors * LANES;
            at += vectors * LANES;
            strip.ahead = (const char *)first;
        }
    }
}

/* 16 outputs of 16 samples to where they belong. */
RB_WIDE static void write_sixteen(const struct list *list, const float *sums, int64_t first,
                                  int64_t j, __mmask16 mask, const float *bias)
{
    __m512 r[LANES];

    for (int i = 0; i < LANES; i++)
        r[i] = _mm512_loadu_ps(sums + i * PANEL);
    rb_wide_turn_sixteen(r);
    for (int i = 0; i < LANES && first + i < list->n; i++) {
        if (bias)
            r[i] = _mm512_add_ps(r[i], _mm512_maskz_loadu_ps(mask, bias + j));
        _mm512_mask_storeu_ps(list->y[first + i] + j, mask, r[i]);
    }
}

static void run_list(struct list *list, const struct samples *s, const rb_word *w,
                     const float *bias)
{
    float sums[MOST / PANEL * LANES * PANEL];

    rb_wide_turn(list->x, list->n, s->words, list->packed);
    for (int64_t at = 0; at < s->n; at += LANES) { /* the last may overlap those before */
        const int64_t n = s->n < LANES ? s->n : LANES, j = at + n > s->n ? s->n - n : at;
        const __mmask16 mask = n < LANES ? (__mmask16)((1u << n) - 1) : 0xffff;
        const float *panel = sums;

        some_outputs(list, s, w, j, n, sums);
        for (int64_t i = 0; i < list->n; panel += LANES * PANEL)
            for (int v = 0, vectors = rb_wide_vectors(list->n - i); v < vectors; v++, i += LANES)
                write_sixteen(list, panel + v * LANES, i, j, mask, bias);
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

/* How many of `samples` go at once: no more than stay in cache, and about as many each time. */
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
    struct list list = {.packed = s->cpu->panels.memory};

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

/* Pairs of w are words as they lie. */
static bool suits(const struct rb_matrices *s)
{
    const int64_t most = s->n < FEW             ? MOST_OF_FEW
                         : s->n * s->k >= LARGE ? MOST_SAMPLES
                                                : FEW_SAMPLES;

    return s->batch == 0 && !s->swap_a && s->swap_b && s->m >= LEAST_SAMPLES && s->m <= most &&
           s->n >= LEAST_ROWS && s->k >= LEAST_DEPTH && strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

int rb_cpu_samples(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                   bool bias, struct rb_kernel **ret_kernel)
{
    const bool each = s->m <= FEW_SAMPLES, pairs = factors == RB_BF16;
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
