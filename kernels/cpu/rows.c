/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/rows.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A tile: rows of x times rows of w, 24 registers of sums, 4 and 1 of factors. */
enum { ROWS = 4, WEIGHTS = 6, LANES = 16 };

/* More rows than this are a product that pays for packing its factors. */
enum { MOST_ROWS = 64, LEAST_ROWS = 1, LEAST_DEPTH = 64, LEAST_WEIGHTS = 8 };

struct rows {
    struct rb_kernel base;
    int64_t m, n, k;
    bool bias;
};

#if defined(__x86_64__)

#define EACH_WEIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5)

/* Sums of four vectors' lanes: pairs, pairs of pairs, then the quarters. */
RB_WIDE static RB_INLINE __m128 join(__m512 a, __m512 b, __m512 c, __m512 d)
{
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));

    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* ret[w][r] = row r of x times row w.  Meanwhile lines from `ahead` on are fetched, two a step. */
RB_WIDE static RB_INLINE void multiply(const float *const x[ROWS], const float *const w[WEIGHTS],
                                       int64_t k, const float *ahead, const float *end,
                                       float ret[WEIGHTS][ROWS])
{
    __m512 c[WEIGHTS][ROWS];
    int64_t at = 0;

#define CLEAR(j) c[j][0] = c[j][1] = c[j][2] = c[j][3] = _mm512_setzero_ps();
#define ADD(j, w_)                                                                                 \
    {                                                                                              \
        const __m512 v_ = w_;                                                                      \
        c[j][0] = _mm512_fmadd_ps(v_, x0, c[j][0]);                                                \
        c[j][1] = _mm512_fmadd_ps(v_, x1, c[j][1]);                                                \
        c[j][2] = _mm512_fmadd_ps(v_, x2, c[j][2]);                                                \
        c[j][3] = _mm512_fmadd_ps(v_, x3, c[j][3]);                                                \
    }
#define WHOLE(j) ADD(j, _mm512_loadu_ps(w[j] + at))
#define PART(j)  ADD(j, _mm512_maskz_loadu_ps(mask, w[j] + at))
    EACH_WEIGHT(CLEAR)
    for (; at + LANES <= k; at += LANES) {
        const __m512 x0 = _mm512_loadu_ps(x[0] + at), x1 = _mm512_loadu_ps(x[1] + at);
        const __m512 x2 = _mm512_loadu_ps(x[2] + at), x3 = _mm512_loadu_ps(x[3] + at);

        EACH_WEIGHT(WHOLE)
        if (ahead < end) {
            __builtin_prefetch(ahead, 0, 2);
            __builtin_prefetch(ahead + LANES, 0, 2);
            ahead += 2 * LANES;
        }
    }
    if (at < k) {
        const __mmask16 mask = (__mmask16)((1u << (k - at)) - 1);
        const __m512 x0 = _mm512_maskz_loadu_ps(mask, x[0] + at);
        const __m512 x1 = _mm512_maskz_loadu_ps(mask, x[1] + at);
        const __m512 x2 = _mm512_maskz_loadu_ps(mask, x[2] + at);
        const __m512 x3 = _mm512_maskz_loadu_ps(mask, x[3] + at);

        EACH_WEIGHT(PART)
    }
#define JOIN(j) _mm_storeu_ps(ret[j], join(c[j][0], c[j][1], c[j][2], c[j][3]));
    EACH_WEIGHT(JOIN)
#undef CLEAR
#undef ADD
#undef WHOLE
#undef PART
#undef JOIN
}

/* All rows of x of one run times a few weights, and what is fetched meanwhile. */
RB_WIDE static void few_weights(const struct rows *rows, const float *x, const float *w, int64_t j,
                                const float *bias, const float *ahead, const float *end, float *y)
{
    const float *weights[WEIGHTS];

    for (int64_t c = 0; c < WEIGHTS; c++) /* behind the last row it is the last once more */
        weights[c] = w + (j + c < rows->n ? j + c : rows->n - 1) * rows->k;
    for (int64_t i = 0; i < rows->m; i += ROWS) {
        const float *samples[ROWS];
        float tile[WEIGHTS][ROWS];

        for (int64_t r = 0; r < ROWS; r++)
            samples[r] = x + (i + r < rows->m ? i + r : rows->m - 1) * rows->k;
        multiply(samples, weights, rows->k, ahead, end, tile);
        ahead += rows->k / LANES * 2 * LANES;
        for (int64_t c = 0; c < WEIGHTS && j + c < rows->n; c++)
            for (int64_t r = 0; r < ROWS && i + r < rows->m; r++)
                y[(i + r) * rows->n + j + c] = tile[c][r] + (bias ? bias[j + c] : 0);
    }
}

/* Weights are gone through once: each few of them times all rows of x, which stay in cache. */
static void rows_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                      void *const *const *out, const struct rb_key *keys)
{
    const struct rows *rows = (const struct rows *)kernel;
    const float *w = in[0][1], *bias = rows->bias ? in[0][2] : NULL;
    const float *end = w + rows->n * rows->k;

    (void)keys;
    for (int64_t j = 0; j < rows->n; j += WEIGHTS)
        for (int e = 0; e < n; e++)
            few_weights(rows, in[e][0], w, j, bias, e ? end : w + (j + WEIGHTS) * rows->k, end,
                        out[e][0]);
}

static void rows_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    rows_each(kernel, 1, &in, &out, key);
}

static bool suits(const struct rb_matrices *s)
{
    return s->batch == 0 && !s->swap_a && s->swap_b && s->m >= LEAST_ROWS && s->m <= MOST_ROWS &&
           s->n >= LEAST_WEIGHTS && s->k >= LEAST_DEPTH && strncmp(rb_dnnl_isa(), "avx512", 6) == 0;
}

int rb_cpu_rows(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel)
{
    struct rows *rows;

    (void)cpu;
    if (factors != RB_F32 || !suits(s))
        return RB_EUNSUPPORTED;
    rows = rb_cpu_kernel(sizeof *rows, rows_run);
    rows->base.each = rows_each;
    rows->base.shared = bias ? 2 : 1;
    rows->m = s->m;
    rows->n = s->n;
    rows->k = s->k;
    rows->bias = bias;
    *ret_kernel = &rows->base;
    return 0;
}

#endif
