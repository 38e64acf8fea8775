/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and log-softmax along one axis, and their gradients.
 *
 * Along the last axis a row is contiguous and summed in lanes.  Along another one, up to 64
 * neighbouring columns go together, each summed from the first element to the last. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/math.h"

#include <stdlib.h>

enum { COLUMNS = 64 };

struct softmax {
    struct rb_kernel base;
    struct rb_call_split at;
    bool logarithm;
    float *row; /* a row that is to be rounded; NULL: the output is float32 */
};

/* How much of a row is left without what is masked at its end (keys behind a query), 32 elements at
 * a time.  Something is left in any case. */
static RB_INLINE int64_t seen_of(const float *x, int64_t n)
{
    const uint32_t masked = 0xff800000u; /* -infinity */

    while (n > RB_LANES && rb_float_bits(x[n - 1]) == masked) {
        uint32_t differs = 0;

        for (int l = 0; l < RB_LANES; l++)
            differs |= rb_float_bits(x[n - RB_LANES + l]) ^ masked;
        if (differs)
            break;
        n -= RB_LANES;
    }
    return n;
}

/* y = e^(x - most), and its sum.  Where there is a NaN the sum is one, whatever `most` is. */
static RB_INLINE float powers_of(const float *restrict x, float *restrict y, int64_t n, float most)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = rb_exp_belowf(x[i] - most);
    return rb_sum(y, n);
}

RB_CLONES static void softmax_rows(const float *restrict x, float *restrict y, int64_t rows,
                                   int64_t n)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        int64_t seen = seen_of(x, n);
        float scale = 1.0f / powers_of(x, y, seen, rb_most(x, seen));

        for (int64_t i = 0; i < seen; i++)
            y[i] *= scale;
        for (int64_t i = seen; i < n; i++)
            y[i] = 0.0f * scale; /* a NaN makes the whole row NaN */
    }
}

RB_CLONES static void log_softmax_rows(const float *restrict x, float *restrict y, int64_t rows,
                                       int64_t n)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        float most = rb_most(x, n), shift = rb_logf(powers_of(x, y, n, most));

        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] - most - shift;
    }
}

RB_CLONES static void softmax_columns(const float *restrict x, float *restrict y, int64_t n,
                                      int64_t step, int width, bool logarithm)
{
    float most[COLUMNS], sum[COLUMNS];

    for (int j = 0; j < width; j++) {
        most[j] = -INFINITY;
        sum[j] = 0;
    }
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            most[j] = rb_larger(most[j], x[i * step + j]);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++) {
            float e = rb_exp_belowf(x[i * step + j] - most[j]);

            y[i * step + j] = e;
            sum[j] += e;
        }
    for (int j = 0; j < width; j++)
        sum[j] = logarithm ? rb_logf(sum[j]) : 1.0f / sum[j];
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            y[i * step + j] =
                logarithm ? x[i * step + j] - most[j] - sum[j] : y[i * step + j] * sum[j];
}

static void softmax_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct softmax *s = (const struct softmax *)kernel;
    const float *x = in[0];
    float *y = out[0];

    (void)key;
    for (int64_t r = 0; s->row && r < s->at.outer; r++) {
        (s->logarithm ? log_softmax_rows : softmax_rows)(x + r * s->at.n, s->row, 1, s->at.n);
        rb_cpu_narrow((uint16_t *)out[0] + r * s->at.n, s->row, s->at.n);
    }
    if (s->row)
        return;
    if (s->at.inner == 1) {
        (s->logarithm ? log_softmax_rows : softmax_rows)(x, y, s->at.outer, s->at.n);
        return;
    }
    for (int64_t o = 0; o < s->at.outer; o++)
        for (int64_t c = 0; c < s->at.inner; c += COLUMNS) {
            int64_t at = o * s->at.n * s->at.inner + c, width = s->at.inner - c;

            softmax_columns(x + at, y + at, s->at.n, s->at.inner,
                            width < COLUMNS ? (int)width : COLUMNS, s->logarithm);
        }
}

/* softmax: dx = y (dy - sum dy y).  log-softmax: dx = dy - e^y sum dy. */
RB_CLONES static void grad_rows(const float *restrict dy, const float *restrict y,
                                float *restrict dx, int64_t rows, int64_t n, bool logarithm)
{
    for (int64_t r = 0; r < rows; r++, dy += n, y += n, dx += n) {
        if (logarithm) {
            float sum = rb_sum(dy, n);

            for (int64_t i = 0; i < n; i++)
                dx[i] = dy[i] - rb_expf(y[i]) * sum;
        } else {
            float sum = rb_dot(dy, y, n);

            for (int64_t i = 0; i < n; i++)
                dx[i] = y[i] * (dy[i] - sum);
        }
    }
}

RB_CLONES static void grad_columns(const float *restrict dy, const float *restrict y,
                                   float *restrict dx, int64_t n, int64_t step, int width,
                                   bool logarithm)
{
    float sum[COLUMNS] = {0};

    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++)
            sum[j] += logarithm ? dy[i * step + j] : dy[i * step + j] * y[i * step + j];
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < width; j++) {
            int64_t k = i * step + j;

            dx[k] = logarithm ? dy[k] - rb_expf(y[k]) * sum[j] : y[k] * (dy[k] - sum[j]);
        }
}

static void softmax_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    const struct softmax *s = (const struct softmax *)kernel;
    const float *dy = in[0], *y = in[1];
    float *dx = out[0];

    (void)key;
    for (int64_t r = 0; s->row && r < s->at.outer; r++) {
        grad_rows(dy + r * s->at.n, y + r * s->at.n, s->row, 1, s->at.n, s->logarithm);
        rb_cpu_narrow((uint16_t *)out[0] + r * s->at.n, s->row, s->at.n);
    }
    if (s->row)
        return;
    if (s->at.inner == 1) {
        grad_rows(dy, y, dx, s->at.outer, s->at.n, s->logarithm);
        return;
    }
    for (int64_t o = 0; o < s->at.outer; o++)
        for (int64_t c = 0; c < s->at.inner; c += COLUMNS) {
            int64_t at = o * s->at.n * s->at.inner + c, width = s->at.inner - c;

            grad_columns(dy + at, y + at, dx + at, s->at.n, s->at.inner,
                         width < COLUMNS ? (int)width : COLUMNS, s->logarithm);
        }
}

static void softmax_free(struct rb_kernel *kernel)
{
    free(((struct softmax *)kernel)->row);
    free(kernel);
}

static int softmax_new(struct rb_cpu *cpu, const struct rb_call *call, int n_in,
                       rb_cpu_prepare *self, rb_cpu_run *run, struct rb_kernel **ret_kernel,
                       struct rb_why *why)
{
    struct softmax *softmax;
    struct rb_call_split at;
    bool narrow = rb_call_out(call, 0)->dtype == RB_BF16;
    int axis, err = rb_call_rounded(call, why);

    if (err)
        return err;
    for (int i = 0; i < n_in; i++)
        if (!rb_call_has_in(call, i) || !rb_tensor_same_shape(&call->in[i], rb_call_out(call, 0)))
            return rb_call_refuse(call, RB_EINVAL, why, "inputs and output must have one shape");
    err = rb_call_axis(call, "axis", call->in[0].rank, &axis, why);
    if (err)
        return err;
    at = rb_call_split_at(&call->in[0], axis);
    if (narrow && at.inner != 1)
        return rb_cpu_widened(cpu, call, self, ret_kernel, why);
    softmax = rb_cpu_kernel(sizeof(*softmax), run);
    softmax->base.free = softmax_free;
    softmax->at = at;
    softmax->logarithm = call->op == RB_OP_LOG_SOFTMAX || call->op == RB_OP_LOG_SOFTMAX_GRAD;
    if (narrow)
        softmax->row = rb_cpu_scratch((size_t)at.n * sizeof(float));
    if (narrow && !softmax->row) {
        softmax_free(&softmax->base);
        return rb_call_refuse(call, RB_ENOMEM, why, "no memory for a row");
    }
    *ret_kernel = &softmax->base;
    return 0;
}

int rb_cpu_softmax(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    return softmax_new(cpu, call, 1, rb_cpu_softmax, softmax_run, ret_kernel, why);
}

int rb_cpu_softmax_grad(struct rb_cpu *cpu, const struct rb_call *call,
                        struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return softmax_new(cpu, call, 2, rb_cpu_softmax_grad, softmax_grad_run, ret_kernel, why);
}
