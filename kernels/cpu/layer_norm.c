/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation: over the axes from `axis` on, a row at a time.
 *
 * The gradients of scale and bias are sums over rows: 32 rows are summed into a partial sum, and
 * the partial sums are summed, which is more exact than one long sum. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>

enum { BLOCK = 32 };

struct layer_norm {
    struct rb_kernel base;
    int64_t rows, n;
    float epsilon;
    bool bias, mean, deviation; /* which optional tensors are there */
    bool dx, dscale, dbias;
    bool narrow; /* y is bfloat16 */
    float *part; /* gradients: two rows of partial sums; a row of y that is to be rounded */
};

RB_CLONES static void row_forward(const float *restrict x, const float *restrict scale,
                                  const float *restrict bias, float *restrict y, int64_t n,
                                  float epsilon, float *ret_mean, float *ret_deviation)
{
    float mean = rb_sum(x, n) / (float)n;
    float deviation = 1.0f / sqrtf(rb_squares(x, n, mean) / (float)n + epsilon);

    if (bias)
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * deviation * scale[i] + bias[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * deviation * scale[i];
    *ret_mean = mean;
    *ret_deviation = deviation;
}

static void layer_norm_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct layer_norm *l = (const struct layer_norm *)kernel;

    (void)key;
    for (int64_t r = 0; r < l->rows; r++) {
        float mean, deviation, *y = l->narrow ? l->part : (float *)out[0] + r * l->n;

        row_forward((const float *)in[0] + r * l->n, in[1], l->bias ? in[2] : NULL, y, l->n,
                    l->epsilon, &mean, &deviation);
        if (l->narrow)
            rb_cpu_narrow((uint16_t *)out[0] + r * l->n, y, l->n);
        if (l->mean)
            ((float *)out[1])[r] = mean;
        if (l->deviation)
            ((float *)out[2])[r] = deviation;
    }
}

/* With g = dy scale and h = (x - mean) / deviation: dx = (g - mean(g) - h mean(g h)) / deviation.
 * The means in one pass, all else in another: to make g and h twice is quicker than to keep them.
 */
RB_CLONES static void row_backward(const float *restrict dy, const float *restrict x,
                                   const float *restrict scale, float *restrict dx,
                                   float *restrict dscale, float *restrict dbias, int64_t n,
                                   float mean, float deviation)
{
    float sum_g[RB_LANES] = {0}, sum_gh[RB_LANES] = {0}, mean_g, mean_gh;
    int64_t at = 0;

#define ADD(i)                                                                                     \
    const float g = dy[i] * scale[i];                                                              \
    sum_g[l] += g;                                                                                 \
    sum_gh[l] += g * ((x[i] - mean) * deviation);
    for (; at + RB_LANES <= n; at += RB_LANES)
        for (int l = 0; l < RB_LANES; l++) {
            ADD(at + l)
        }
    for (int l = 0; at + l < n; l++) {
        ADD(at + l)
    }
#undef ADD
    mean_g = rb_join_sum(sum_g) / (float)n;
    mean_gh = rb_join_sum(sum_gh) / (float)n;
    for (int64_t i = 0; i < n; i++) {
        const float h = (x[i] - mean) * deviation;

        dx[i] = (dy[i] * scale[i] - mean_g - h * mean_gh) * deviation;
        dscale[i] += dy[i] * h;
        dbias[i] += dy[i];
    }
}

/* The same without dx. */
RB_CLONES static void row_sums(const float *restrict dy, const float *restrict x,
                               float *restrict dscale, float *restrict dbias, int64_t n, float mean,
                               float deviation)
{
    for (int64_t i = 0; i < n; i++) {
        dscale[i] += dy[i] * ((x[i] - mean) * deviation);
        dbias[i] += dy[i];
    }
}

RB_CLONES static void add_and_clear(float *restrict to, float *restrict part, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += part[i];
        part[i] = 0;
    }
}

static void clear(float *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof(float));
}

static void layer_norm_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                                const struct rb_key *key)
{
    const struct layer_norm *l = (const struct layer_norm *)kernel;
    const float *dy = in[0], *x = in[1], *mean = in[3], *deviation = in[4];
    float *dx = out[0], *part_scale = l->part, *part_bias = l->part + l->n;

    (void)key;
    clear(l->part, 2 * l->n);
    if (l->dscale)
        clear(out[1], l->n);
    if (l->dbias)
        clear(out[2], l->n);
    for (int64_t r = 0, at = 0; r < l->rows; r++, at += l->n) {
        if (l->dx)
            row_backward(dy + at, x + at, in[2], dx + at, part_scale, part_bias, l->n, mean[r],
                         deviation[r]);
        else
            row_sums(dy + at, x + at, part_scale, part_bias, l->n, mean[r], deviation[r]);
        if (r % BLOCK != BLOCK - 1 && r != l->rows - 1)
            continue;
        if (l->dscale)
            add_and_clear(out[1], part_scale, l->n);
        if (l->dbias)
            add_and_clear(out[2], part_bias, l->n);
    }
}

static void layer_norm_free(struct rb_kernel *kernel)
{
    free(((struct layer_norm *)kernel)->part);
    free(kernel);
}

static int make_part(const struct rb_call *call, struct layer_norm *l, struct rb_why *why)
{
    l->part = rb_cpu_scratch(2 * (size_t)l->n * sizeof(float));
    if (l->part)
        return 0;
    layer_norm_free(&l->base);
    return rb_call_refuse(call, RB_ENOMEM, why, "no memory for partial sums");
}

/* rows and n of x; scale, bias and statistics must have as many elements. */
static int layer_norm_new(const struct rb_call *call, const struct rb_tensor_type *x,
                          rb_cpu_run *run, struct layer_norm **ret, struct rb_why *why)
{
    struct layer_norm *l;
    int64_t rows = 1, n = 1;
    int axis, err = call->op == RB_OP_LAYER_NORM ? rb_call_rounded(call, why)
                                                 : rb_call_only(call, RB_F32, why);

    err = err ? err : rb_call_axis(call, "axis", x->rank, &axis, why);
    if (err)
        return err;
    for (int i = 0; i < x->rank; i++)
        *(i < axis ? &rows : &n) *= x->dim[i];
    l = rb_cpu_kernel(sizeof(*l), run);
    l->base.free = layer_norm_free;
    l->rows = rows;
    l->n = n;
    l->epsilon = rb_call_float(call, "epsilon", 1e-5f);
    *ret = l;
    return 0;
}

static bool has_elements(const struct rb_tensor_type *type, int64_t n)
{
    return type->dtype != RB_NONE && rb_tensor_elements(type) == n;
}

static bool absent_or(const struct rb_tensor_type *type, int64_t n)
{
    return type->dtype == RB_NONE || rb_tensor_elements(type) == n;
}

int rb_cpu_layer_norm(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0);
    struct layer_norm *l;
    int err = layer_norm_new(call, x, layer_norm_run, &l, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_tensor_same_shape(x, rb_call_out(call, 0)) ||
        !has_elements(rb_call_in(call, 1), l->n) || !absent_or(rb_call_in(call, 2), l->n) ||
        !absent_or(rb_call_out(call, 1), l->rows) || !absent_or(rb_call_out(call, 2), l->rows)) {
        layer_norm_free(&l->base);
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not fit together");
    }
    l->bias = rb_call_has_in(call, 2);
    l->mean = rb_call_has_out(call, 1);
    l->deviation = rb_call_has_out(call, 2);
    l->narrow = rb_call_out(call, 0)->dtype == RB_BF16;
    err = l->narrow ? make_part(call, l, why) : 0;
    if (!err)
        *ret_kernel = &l->base;
    return err;
}

int rb_cpu_layer_norm_grad(struct rb_cpu *cpu, const struct rb_call *call,
                           struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 1), *dx = rb_call_out(call, 0);
    struct layer_norm *l;
    int err = layer_norm_new(call, x, layer_norm_grad_run, &l, why);

    (void)cpu;
    if (err)
        return err;
    l->dx = dx->dtype != RB_NONE;
    l->dscale = rb_call_has_out(call, 1);
    l->dbias = rb_call_has_out(call, 2);
    if (!rb_tensor_same(x, rb_call_in(call, 0)) || (l->dx && !rb_tensor_same(x, dx)) ||
        !has_elements(rb_call_in(call, 2), l->n) || !has_elements(rb_call_in(call, 3), l->rows) ||
        !has_elements(rb_call_in(call, 4), l->rows) || !absent_or(rb_call_out(call, 1), l->n) ||
        !absent_or(rb_call_out(call, 2), l->n)) {
        layer_norm_free(&l->base);
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not fit together");
    }
    err = make_part(call, l, why);
    if (!err)
        *ret_kernel = &l->base;
    return err;
}
