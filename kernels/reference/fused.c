/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include "kernels/fused.h"

/* Step k on one element: v has the inputs, and behind them what the steps before it made. */
static double step(const struct rb_fused *fused, int k, const double *v)
{
    const struct rb_fused_step *step = &fused->step[k];
    const int64_t tanh_form = step->tanh_form;
    const struct rb_attribute attribute = {"tanh", &tanh_form, 1, NULL, 0};
    const struct rb_tensor_type type = {.dtype = step->dtype};
    const struct rb_call call = {
        .op = step->op, .n_out = 1, .out = &type, .attributes = &attribute, .n_attributes = 1};
    double from[RB_FUSED_SOURCES] = {0}, made;

    for (int i = 0; i < step->n; i++)
        from[i] = v[step->from[i]];
    made = rb_reference_value(&call, from);
    return step->dtype == RB_BF16 ? (double)rb_dtype_bfloat(rb_dtype_to_bfloat((float)made)) : made;
}

void rb_reference_fused(const struct rb_call *call, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct rb_tensor_type *y = &call->out[0];
    struct rb_fused fused;
    struct rb_why why;
    int64_t index[RB_MAX_RANK];

    (void)key;
    if (rb_fused_read(call, &fused, &why))
        return;
    for (int64_t i = 0; i < rb_tensor_elements(y); i++) {
        double v[RB_FUSED_INPUTS + RB_FUSED_STEPS];

        rb_reference_index(y, i, index);
        for (int k = 0; k < fused.n_in; k++)
            v[k] = rb_reference_get(&call->in[k], in[k],
                                    rb_reference_broadcast(&call->in[k], index, y->rank));
        for (int k = 0; k < fused.n; k++)
            v[fused.n_in + k] = step(&fused, k, v);
        rb_reference_set(y, out[0], i, v[fused.n_in + fused.n - 1]);
    }
}
