/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/fused.h"

static bool is_real(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_BF16;
}

static enum rb_dtype type_of(const struct rb_call *call, const struct rb_fused *fused, int source)
{
    return source < fused->n_in ? call->in[source].dtype : fused->step[source - fused->n_in].dtype;
}

/* Conditions are the first source of Where; a Cast takes anything. */
static bool types_fit(const struct rb_call *call, const struct rb_fused *fused,
                      const struct rb_fused_step *step)
{
    bool compares = step->op == RB_OP_EQUAL || step->op == RB_OP_LESS || step->op == RB_OP_GREATER;

    for (int i = 0; i < step->n; i++) {
        enum rb_dtype dtype = type_of(call, fused, step->from[i]);

        if (step->op == RB_OP_CAST)
            continue;
        if (step->op == RB_OP_WHERE && i == 0 ? dtype != RB_BOOL : !is_real(dtype))
            return false;
    }
    return compares ? step->dtype == RB_BOOL : is_real(step->dtype);
}

static bool read_step(const struct rb_call *call, struct rb_fused *fused, int k,
                      const int64_t *fields)
{
    struct rb_fused_step *step = &fused->step[k];
    int n = fields[0] < 0 || fields[0] >= RB_OP_COUNT ? 0 : rb_fused_sources((unsigned)fields[0]);

    if (n == 0 || fields[1] < 0 || fields[1] > RB_BF16)
        return false;
    *step = (struct rb_fused_step){.op = (enum rb_op)fields[0],
                                   .dtype = (enum rb_dtype)fields[1],
                                   .tanh_form = fields[2] != 0,
                                   .n = n};
    for (int i = 0; i < RB_FUSED_SOURCES; i++) {
        int64_t from = fields[3 + i];

        if (i < n ? from < 0 || from >= fused->n_in + k : from != -1)
            return false;
        step->from[i] = (int)from;
    }
    return types_fit(call, fused, step);
}

int rb_fused_read(const struct rb_call *call, struct rb_fused *ret, struct rb_why *why)
{
    const struct rb_attribute *steps = rb_call_attribute(call, "steps");
    int n = steps ? steps->n_ints / RB_FUSED_FIELDS : 0;
    struct rb_fused fused = {.n_in = call->n_in, .n = n};

    if (n < 1 || n > RB_FUSED_STEPS || steps->n_ints != n * RB_FUSED_FIELDS)
        return rb_call_refuse(call, RB_EINVAL, why, "1 to %d steps of %d numbers are needed",
                              RB_FUSED_STEPS, RB_FUSED_FIELDS);
    if (call->n_in < 1 || call->n_in > RB_FUSED_INPUTS || call->n_out != 1)
        return rb_call_refuse(call, RB_EINVAL, why, "1 to %d inputs and an output are needed",
                              RB_FUSED_INPUTS);
    for (int i = 0; i < call->n_in; i++)
        if (!is_real(call->in[i].dtype) && call->in[i].dtype != RB_BOOL)
            return rb_call_refuse(call, RB_EINVAL, why, "input %d is of no type that is taken", i);
    for (int k = 0; k < n; k++)
        if (!read_step(call, &fused, k, &steps->ints[k * RB_FUSED_FIELDS]))
            return rb_call_refuse(call, RB_EINVAL, why, "step %d cannot be", k);
    if (fused.step[n - 1].dtype != call->out[0].dtype)
        return rb_call_refuse(call, RB_EINVAL, why, "the last step does not make the output");
    *ret = fused;
    return 0;
}
