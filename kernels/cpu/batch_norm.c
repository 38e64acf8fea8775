/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation over all axes but the second: channel by channel.
 *
 * A channel is `n` runs of `inner` elements.  Runs are summed in lanes and their sums in double, in
 * index order.  Where there are no spatial axes (inner 1) the few elements are summed in double. */
#include "kernels/cpu/batch_norm.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"
#include "proto/blocked.h"

#include <stdlib.h>

/* Where the runs of a channel are: run i starts at i * step. */
struct channel {
    int64_t runs, step, length;
};

static struct channel channel_of(const struct rb_batch_norm *b)
{
    return (struct channel){b->n, b->c * b->inner, b->inner};
}

/* One element in each run: the sum of (x - shift) y, or of (x - shift)^2 without a y. */
static double strided_sum(const float *x, const float *y, struct channel ch, float shift)
{
    double lane[4] = {0};

    for (int64_t i = 0; i < ch.runs; i++)
        lane[i % 4] += ((double)x[i * ch.step] - (double)shift) *
                       (y ? (double)y[i * ch.step] : (double)x[i * ch.step] - (double)shift);
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

RB_CLONES static double channel_sum(const float *x, struct channel ch)
{
    double sum = 0;

    for (int64_t i = 0; i < ch.runs; i++)
        sum += (double)(ch.length == 1 ? x[i * ch.step] : rb_sum(x + i * ch.step, ch.length));
    return sum;
}

RB_CLONES static double channel_squares(const float *x, struct channel ch, float mean)
{
    double sum = 0;

    if (ch.length == 1)
        return strided_sum(x, NULL, ch, mean);
    for (int64_t i = 0; i < ch.runs; i++)
        sum += (double)rb_squares(x + i * ch.step, ch.length, mean);
    return sum;
}

/* Sum of dy (x - mean). */
RB_CLONES static double channel_products(const float *dy, const float *x, struct channel ch,
                                         float mean)
{
    double sum = 0;

    if (ch.length == 1)
        return strided_sum(x, dy, ch, mean);
    for (int64_t i = 0; i < ch.runs; i++)
        sum += (double)rb_products(dy + i * ch.step, x + i * ch.step, ch.length, mean);
    return sum;
}

/* y = (x - shift) * scale + bias */
RB_CLONES static void channel_scale(const float *restrict x, float *restrict y, struct channel ch,
                                    float shift, float scale, float bias)
{
    for (int64_t i = 0; i < ch.runs; i++)
        for (int64_t k = 0; k < ch.length; k++)
            y[i * ch.step + k] = (x[i * ch.step + k] - shift) * scale + bias;
}

/* dx = (dy - mean_dy - (x - mean) slope) * scale */
RB_CLONES static void channel_grad(const float *restrict dy, const float *restrict x,
                                   float *restrict dx, struct channel ch, float mean_dy, float mean,
                                   float slope, float scale)
{
    for (int64_t i = 0; i < ch.runs; i++)
        for (int64_t k = 0; k < ch.length; k++) {
            int64_t at = i * ch.step + k;

            dx[at] = (dy[at] - mean_dy - (x[at] - mean) * slope) * scale;
        }
}

static void plain_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    const float *scale = in[1], *bias = in[2];
    struct channel ch = channel_of(b);
    double count = (double)(b->n * b->inner);

    (void)key;
    for (int64_t c = 0; c < b->c; c++) {
        const float *x = (const float *)in[0] + c * b->inner;
        float mean = (float)(channel_sum(x, ch) / count);
        float variance = (float)(channel_squares(x, ch, mean) / count);
        float deviation = 1.0f / sqrtf(variance + b->epsilon);

        channel_scale(x, (float *)out[0] + c * b->inner, ch, mean, deviation * scale[c], bias[c]);
        if (b->wanted & 2)
            ((float *)out[1])[c] = mean;
        if (b->wanted & 4)
            ((float *)out[2])[c] = variance;
        if (b->wanted & 8)
            ((float *)out[3])[c] = deviation;
    }
}

static void plain_eval_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    const float *scale = in[1], *bias = in[2], *mean = in[3], *variance = in[4];

    (void)key;
    for (int64_t c = 0; c < b->c; c++)
        channel_scale((const float *)in[0] + c * b->inner, (float *)out[0] + c * b->inner,
                      channel_of(b), mean[c], 1.0f / sqrtf(variance[c] + b->epsilon) * scale[c],
                      bias[c]);
}

static void plain_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct rb_batch_norm *b = (const struct rb_batch_norm *)kernel;
    const float *scale = in[2], *mean = in[3], *deviation = in[4];
    struct channel ch = channel_of(b);
    double count = (double)(b->n * b->inner);

    (void)key;
    for (int64_t c = 0; c < b->c; c++) {
        const float *dy = (const float *)in[0] + c * b->inner;
        const float *x = (const float *)in[1] + c * b->inner;
        double sum = channel_sum(dy, ch);
        double products = channel_products(dy, x, ch, mean[c]), inverse = (double)deviation[c];

        if (b->wanted & 1)
            channel_grad(dy, x, (float *)out[0] + c * b->inner, ch, (float)(sum / count), mean[c],
                         (float)(products / count * inverse * inverse), scale[c] * deviation[c]);
        if (b->wanted & 2)
            ((float *)out[1])[c] = (float)(products * inverse);
        if (b->wanted & 4)
            ((float *)out[2])[c] = (float)sum;
    }
}

/* Which kernel: of plain activations, and of those in blocks of channels. */
struct runs {
    rb_cpu_run *plain, *blocked;
};

/* Is the last axis one of blocks?  Then the other inputs have the channels of all blocks. */
static bool is_blocked(const struct rb_call *call, int n_in)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0);

    return x->rank >= 4 && x->dim[x->rank - 1] == RB_BLOCK &&
           rb_tensor_elements(rb_call_in(call, n_in - 1)) == x->dim[1] * RB_BLOCK;
}

/* Activations come first, all of one type; the first output may be rounded.  All the others have an
 * element a channel. */
static int batch_norm_new(const struct rb_call *call, int n_in, int large_in, struct runs runs,
                          struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0);
    bool fits = x->dtype != RB_NONE && x->rank >= 2 && rb_call_has_in(call, n_in - 1);
    bool blocked = fits && is_blocked(call, n_in);
    int64_t channels = blocked ? x->dim[1] * RB_BLOCK : x->dim[1];
    struct rb_batch_norm *b;
    unsigned wanted = 0;
    int err = rb_call_rounded(call, why);

    if (err)
        return err;
    for (int i = 0; fits && i < n_in; i++) {
        const struct rb_tensor_type *type = rb_call_in(call, i);

        fits = type->dtype != RB_NONE &&
               (i < large_in ? rb_tensor_same(type, x) : rb_tensor_elements(type) == channels);
    }
    for (int i = 0; fits && i < call->n_out; i++) {
        const struct rb_tensor_type *type = &call->out[i];

        if (type->dtype == RB_NONE)
            continue;
        wanted |= 1u << i;
        fits = i == 0 ? rb_tensor_same_shape(type, x) : rb_tensor_elements(type) == channels;
    }
    if (!fits || (call->op != RB_OP_BATCH_NORM_GRAD && !(wanted & 1)))
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not fit together");
    b = rb_cpu_kernel(sizeof(*b), blocked ? runs.blocked : runs.plain);
    b->n = x->dim[0];
    b->c = channels;
    b->inner = rb_call_split_at(x, 1).inner / (blocked ? RB_BLOCK : 1);
    b->epsilon = rb_call_float(call, "epsilon", 1e-5f);
    b->wanted = wanted;
    b->rounds = call->out[0].dtype == RB_BF16;
    *ret_kernel = &b->base;
    return 0;
}

int rb_cpu_batch_norm(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    int err = rb_call_only(call, RB_F32, why);

    (void)cpu;
    return err ? err
               : batch_norm_new(call, 3, 1, (struct runs){plain_run, rb_batch_norm_blocked},
                                ret_kernel, why);
}

int rb_cpu_batch_norm_eval(struct rb_cpu *cpu, const struct rb_call *call,
                           struct rb_kernel **ret_kernel, struct rb_why *why)
{
    int err = rb_call_only(call, RB_F32, why);

    (void)cpu;
    return err ? err
               : batch_norm_new(call, 5, 1,
                                (struct runs){plain_eval_run, rb_batch_norm_eval_blocked},
                                ret_kernel, why);
}

int rb_cpu_batch_norm_grad(struct rb_cpu *cpu, const struct rb_call *call,
                           struct rb_kernel **ret_kernel, struct rb_why *why)
{
    if (rb_call_out(call, 0)->dtype == RB_BF16 && !is_blocked(call, 5))
        return rb_cpu_widened(cpu, call, rb_cpu_batch_norm_grad, ret_kernel, why);
    return batch_norm_new(call, 5, 2, (struct runs){plain_grad_run, rb_batch_norm_grad_blocked},
                          ret_kernel, why);
}
