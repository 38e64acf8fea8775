/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of single elements: sums in double, in index order, and their gradients in float. */
#include "kernels/cpu/loss.h"

#include "kernels/cpu/math.h"

unsigned rb_cpu_loss_wanted(const struct rb_call *call)
{
    unsigned wanted = 0;

    for (int i = 0; i < call->n_out; i++)
        wanted |= (unsigned)rb_call_has_out(call, i) << i;
    return wanted;
}

/* One element of this type, or absent. */
static bool is_one(const struct rb_tensor_type *type, enum rb_dtype dtype)
{
    return type->dtype == RB_NONE || (type->dtype == dtype && rb_tensor_elements(type) == 1);
}

int rb_cpu_loss_check_sums(const struct rb_call *call, int n, struct rb_why *why)
{
    if (!rb_call_has_out(call, 0) || !is_one(rb_call_out(call, 0), RB_F64))
        return rb_call_refuse(call, RB_EINVAL, why, "the loss must be one float64");
    for (int i = 1; i < n; i++)
        if (!is_one(rb_call_out(call, i), RB_I64))
            return rb_call_refuse(call, RB_EINVAL, why, "output %d must be one int64", i);
    return 0;
}

/* A loss in which every element has a loss of its own. */
struct simple {
    struct rb_kernel base;
    int64_t n;
    unsigned wanted;
};

static void mse_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                    const struct rb_key *key)
{
    const struct simple *s = (const struct simple *)kernel;
    const float *y = in[0], *t = in[1];
    double loss = 0;

    (void)key;
    for (int64_t i = 0; i < s->n; i++) {
        double d = (double)y[i] - (double)t[i];

        loss += d * d;
    }
    *(double *)out[0] = loss;
    if (s->wanted & 2)
        *(int64_t *)out[1] = s->n;
}

RB_CLONES static void mse_grad(const float *restrict y, const float *restrict t, float *restrict dy,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dy[i] = 2.0f * (y[i] - t[i]);
}

static void mse_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    (void)key;
    mse_grad(in[0], in[1], out[0], ((const struct simple *)kernel)->n);
}

/* max(x, 0) - x t + log(1 + e^-|x|) */
static void bce_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                    const struct rb_key *key)
{
    const struct simple *s = (const struct simple *)kernel;
    const float *x = in[0], *t = in[1];
    int64_t correct = 0;
    double loss = 0;

    (void)key;
    for (int64_t i = 0; i < s->n; i++) {
        double v = (double)x[i];

        loss += (v <= 0 ? 0 : v) - v * (double)t[i] + log1p(exp(-fabs(v)));
        correct += (x[i] > 0) == (t[i] > 0.5f);
    }
    *(double *)out[0] = loss;
    if (s->wanted & 2)
        *(int64_t *)out[1] = s->n;
    if (s->wanted & 4)
        *(int64_t *)out[2] = correct;
}

RB_CLONES static void bce_grad(const float *restrict x, const float *restrict t, float *restrict dx,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = rb_sigmoidf(x[i]) - t[i];
}

static void bce_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    (void)key;
    bce_grad(in[0], in[1], out[0], ((const struct simple *)kernel)->n);
}

static void graph_loss_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct simple *s = (const struct simple *)kernel;

    (void)key;
    *(double *)out[0] = (double)*(const float *)in[0] * (double)s->n;
    if (s->wanted & 2)
        *(int64_t *)out[1] = s->n;
}

static int simple_new(const struct rb_call *call, rb_cpu_run *run, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    const struct rb_tensor_type *y = rb_call_in(call, 0);
    struct simple *simple;

    if (y->dtype != RB_F32 || !rb_tensor_same(y, rb_call_in(call, 1)))
        return rb_call_refuse(call, RB_EINVAL, why, "two float32 inputs of one shape are needed");
    simple = rb_cpu_kernel(sizeof(*simple), run);
    simple->n = rb_tensor_elements(y);
    simple->wanted = rb_cpu_loss_wanted(call);
    *ret_kernel = &simple->base;
    return 0;
}

static int simple_grad_new(const struct rb_call *call, rb_cpu_run *run,
                           struct rb_kernel **ret_kernel, struct rb_why *why)
{
    if (!rb_tensor_same(rb_call_in(call, 0), rb_call_out(call, 0)))
        return rb_call_refuse(call, RB_EINVAL, why, "the output must be typed as the first input");
    return simple_new(call, run, ret_kernel, why);
}

int rb_cpu_mse(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
               struct rb_why *why)
{
    int err = rb_cpu_loss_check_sums(call, 2, why);

    (void)cpu;
    return err ? err : simple_new(call, mse_run, ret_kernel, why);
}

int rb_cpu_mse_grad(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    (void)cpu;
    return simple_grad_new(call, mse_grad_run, ret_kernel, why);
}

int rb_cpu_bce(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
               struct rb_why *why)
{
    int err = rb_cpu_loss_check_sums(call, 3, why);

    (void)cpu;
    return err ? err : simple_new(call, bce_run, ret_kernel, why);
}

int rb_cpu_bce_grad(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    (void)cpu;
    return simple_grad_new(call, bce_grad_run, ret_kernel, why);
}

int rb_cpu_graph_loss(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    struct simple *simple;
    int err = rb_cpu_loss_check_sums(call, 2, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_call_has_in(call, 0) || !is_one(&call->in[0], RB_F32))
        return rb_call_refuse(call, RB_EINVAL, why, "the mean loss must be one float32");
    simple = rb_cpu_kernel(sizeof(*simple), graph_loss_run);
    simple->n = rb_call_int(call, "samples", 1);
    simple->wanted = rb_cpu_loss_wanted(call);
    *ret_kernel = &simple->base;
    return 0;
}
