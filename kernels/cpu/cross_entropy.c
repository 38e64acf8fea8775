/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy: a sum in double, in index order, and its gradient in float.
 *
 * The log-sum-exp of a row is kept in double: logits may share an offset beside which a float32 has
 * no digits left for the logarithm.
 *
 * A class number that is none (and not the ignored one) makes the loss and its gradients NaN: a
 * kernel cannot fail, and so the step is seen to be non-finite. */
#include "kernels/cpu/loss.h"

#include "kernels/cpu/math.h"

#include <stdlib.h>

struct cross_entropy {
    struct rb_kernel base;
    struct rb_call_split at;
    enum rb_dtype targets;
    int64_t ignore;
    float smoothing;
    unsigned wanted;   /* bit i: output i is there */
    float *row, *work; /* `at.n` elements each; the row is copied where it is not contiguous */
};

static int64_t target_at(const void *targets, enum rb_dtype dtype, int64_t i)
{
    if (dtype == RB_I64)
        return ((const int64_t *)targets)[i];
    return dtype == RB_I32 ? ((const int32_t *)targets)[i] : ((const uint8_t *)targets)[i];
}

/* log of the sum of e^x; `ret_most` is the largest x, or NaN if any x is one. */
RB_CLONES static double row_log_sum(const float *restrict x, float *restrict work, int64_t n,
                                    float *ret_most)
{
    float most = rb_most(x, n), sum;

    for (int64_t i = 0; i < n; i++)
        work[i] = rb_exp_belowf(x[i] - most);
    sum = rb_sum(work, n);
    *ret_most = sum == sum ? most : NAN;
    return (double)most + (double)rb_logf(sum);
}

/* The sum of x - most: small numbers, whatever offset the logits share. */
RB_CLONES static float row_sum(const float *restrict x, float *restrict work, int64_t n, float most)
{
    for (int64_t i = 0; i < n; i++)
        work[i] = x[i] - most;
    return rb_sum(work, n);
}

/* In floats: the float nearest to `lse` is subtracted first, then the rest of `lse`.  The
 * difference is never above 0. */
RB_CLONES static void row_grad(const float *restrict x, float *restrict dx, int64_t n, double lse,
                               float share)
{
    float nearest = (float)lse, rest = (float)(lse - (double)nearest);

    for (int64_t i = 0; i < n; i++)
        dx[i] = rb_exp_belowf((x[i] - nearest) - rest) - share;
}

static void gather_row(const float *x, float *row, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = x[i * step];
}

/* Is `target` the first of the largest? */
static bool is_first_largest(const float *x, int64_t target, float most)
{
    if (x[target] != most)
        return false;
    for (int64_t i = 0; i < target; i++)
        if (x[i] == most)
            return false;
    return true;
}

static double row_loss(const struct cross_entropy *ce, const float *x, int64_t target, double lse,
                       float most)
{
    int64_t n = ce->at.n;
    double loss = lse - (double)x[target];

    if (ce->smoothing == 0.0f)
        return loss;
    return (1.0 - (double)ce->smoothing) * loss +
           (double)ce->smoothing *
               (lse - (double)most - (double)row_sum(x, ce->work, n, most) / (double)n);
}

static void cross_entropy_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                              const struct rb_key *key)
{
    const struct cross_entropy *ce = (const struct cross_entropy *)kernel;
    int64_t n = ce->at.n, inner = ce->at.inner, valid = 0, correct = 0;
    double loss = 0;

    (void)key;
    for (int64_t r = 0; r < ce->at.outer * inner; r++) {
        const float *x = (const float *)in[0] + r / inner * n * inner + r % inner;
        int64_t target = target_at(in[1], ce->targets, r);
        double lse;
        float most;

        if (inner != 1) {
            gather_row(x, ce->row, n, inner);
            x = ce->row;
        }
        lse = row_log_sum(x, ce->work, n, &most);
        if (ce->wanted & 8)
            ((double *)out[3])[r] = lse;
        if (target == ce->ignore)
            continue;
        valid++;
        if (target < 0 || target >= n) {
            loss += (double)NAN;
            continue;
        }
        loss += row_loss(ce, x, target, lse, most);
        correct += is_first_largest(x, target, most);
    }
    *(double *)out[0] = loss;
    if (ce->wanted & 2)
        *(int64_t *)out[1] = valid;
    if (ce->wanted & 4)
        *(int64_t *)out[2] = correct;
}

static void cross_entropy_grad_run(struct rb_kernel *kernel, const void *const *in,
                                   void *const *out, const struct rb_key *key)
{
    const struct cross_entropy *ce = (const struct cross_entropy *)kernel;
    int64_t n = ce->at.n, inner = ce->at.inner;
    float share = ce->smoothing / (float)n;

    (void)key;
    for (int64_t r = 0; r < ce->at.outer * inner; r++) {
        int64_t start = r / inner * n * inner + r % inner;
        const float *x = (const float *)in[0] + start;
        float *dx = inner == 1 ? (float *)out[0] + start : ce->work;
        int64_t target = target_at(in[1], ce->targets, r);

        if (inner != 1) {
            gather_row(x, ce->row, n, inner);
            x = ce->row;
        }
        if (target == ce->ignore) {
            memset(dx, 0, (size_t)n * sizeof(float));
        } else if (target < 0 || target >= n) {
            for (int64_t i = 0; i < n; i++)
                dx[i] = NAN;
        } else {
            row_grad(x, dx, n, ((const double *)in[2])[r], share);
            dx[target] -= 1.0f - ce->smoothing;
        }
        for (int64_t i = 0; inner != 1 && i < n; i++)
            ((float *)out[0])[start + i * inner] = dx[i];
    }
}

static void cross_entropy_free(struct rb_kernel *kernel)
{
    struct cross_entropy *ce = (struct cross_entropy *)kernel;

    free(ce->row);
    free(ce->work);
    free(ce);
}

static int cross_entropy_new(const struct rb_call *call, rb_cpu_run *run,
                             struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0), *t = rb_call_in(call, 1);
    struct rb_tensor_type rows = {t->dtype, 0, {0}};
    struct cross_entropy *ce;
    int axis, err = rb_call_axis(call, "axis", x->rank, &axis, why);

    if (err)
        return err;
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            rows.dim[rows.rank++] = x->dim[i];
    if (x->dtype != RB_F32 || (t->dtype != RB_I64 && t->dtype != RB_I32 && t->dtype != RB_U8))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why,
                              "float32 logits and int64, int32 or uint8 targets are needed");
    if (!rb_tensor_same_shape(t, &rows) || x->dim[axis] < 1)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "the targets must have the logits' shape without axis %d", axis);
    ce = rb_cpu_kernel(sizeof(*ce), run);
    ce->base.free = cross_entropy_free;
    ce->at = rb_call_split_at(x, axis);
    ce->targets = t->dtype;
    ce->wanted = rb_cpu_loss_wanted(call);
    ce->ignore = rb_call_int(call, "ignoreIndex", INT64_MIN);
    ce->smoothing = rb_call_float(call, "labelSmoothing", 0.0f);
    ce->row = rb_cpu_scratch((size_t)ce->at.n * sizeof(float));
    ce->work = rb_cpu_scratch((size_t)ce->at.n * sizeof(float));
    if (!ce->row || !ce->work) {
        cross_entropy_free(&ce->base);
        return rb_call_refuse(call, RB_ENOMEM, why, "no memory for a row");
    }
    *ret_kernel = &ce->base;
    return 0;
}

int rb_cpu_cross_entropy(struct rb_cpu *cpu, const struct rb_call *call,
                         struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *lse = rb_call_out(call, 3);
    int err = rb_cpu_loss_check_sums(call, 3, why);

    (void)cpu;
    if (!err && lse->dtype != RB_NONE &&
        (lse->dtype != RB_F64 || !rb_tensor_same_shape(lse, rb_call_in(call, 1))))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "the log-sum-exp must be float64 and shaped as the targets");
    return err ? err : cross_entropy_new(call, cross_entropy_run, ret_kernel, why);
}

int rb_cpu_cross_entropy_grad(struct rb_cpu *cpu, const struct rb_call *call,
                              struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *lse = rb_call_in(call, 2);

    (void)cpu;
    if (!rb_tensor_same(rb_call_in(call, 0), rb_call_out(call, 0)) || lse->dtype != RB_F64 ||
        !rb_tensor_same_shape(lse, rb_call_in(call, 1)))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "the output must be typed as the logits, the log-sum-exp as targets");
    return cross_entropy_new(call, cross_entropy_grad_run, ret_kernel, why);
}
