/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"
#include "kernels/window.h"

#include <stdlib.h>

/* All three directions are the same triple: y += x w, dx += dy w, dw += dy x. */
void rb_reference_conv(const struct rb_call *call, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    if (rb_reference_blocked(
            call, rb_window_spatial(call, call->op == RB_OP_CONV_GRAD_W ? call->out : &call->in[1]),
            rb_reference_conv, in, out, key))
        return;

    bool forward = call->op == RB_OP_CONV, grad_x = call->op == RB_OP_CONV_GRAD_X;
    const struct rb_tensor_type *x = forward ? &call->in[0] : grad_x ? &call->out[0] : &call->in[1];
    const struct rb_tensor_type *w = forward || grad_x ? &call->in[1] : &call->out[0];
    const struct rb_tensor_type *y = forward ? &call->out[0] : &call->in[0];
    const void *of_x = forward ? in[0] : grad_x ? NULL : in[1];
    const void *of_w = forward || grad_x ? in[1] : NULL, *of_y = forward ? NULL : in[0];
    int64_t n_out = rb_tensor_elements(&call->out[0]);
    int64_t channels = w->dim[0] / rb_call_int(call, "group", 1); /* of y, in a group */
    double *sum = calloc((size_t)n_out + 1, sizeof(*sum));
    struct rb_window k;

    if (!sum || rb_window_read(call, x, w, y, &k, NULL) != 0)
        abort();
    struct rb_tensor_type x5 = {RB_F32, 5, {k.n, x->dim[1], k.in[0], k.in[1], k.in[2]}};
    struct rb_tensor_type w5 = {
        RB_F32, 5, {w->dim[0], w->dim[1], k.kernel[0], k.kernel[1], k.kernel[2]}};
    struct rb_tensor_type y5 = {RB_F32, 5, {k.n, w->dim[0], k.out[0], k.out[1], k.out[2]}};

    for (int64_t i = 0; i < rb_tensor_elements(&y5); i++) {
        int64_t at_y[5], at_w[5], at_x[5];

        rb_reference_index(&y5, i, at_y);
        if (forward && call->n_in > 2 && in[2])
            sum[i] += (double)((const rb_real *)in[2])[at_y[1]];
        for (int64_t j = 0; j < rb_tensor_elements(&w5) / w->dim[0]; j++) {
            bool inside = true;
            int64_t flat_w, flat_x;

            rb_reference_index(&w5, j, at_w);
            at_w[0] = at_y[1];
            at_x[0] = at_y[0];
            at_x[1] = at_y[1] / channels * w->dim[1] + at_w[1];
            for (int a = 0; a < 3; a++) {
                at_x[2 + a] = at_y[2 + a] * k.stride[a] + at_w[2 + a] * k.dilation[a] - k.begin[a];
                inside = inside && at_x[2 + a] >= 0 && at_x[2 + a] < k.in[a];
            }
            if (!inside)
                continue;
            flat_w = rb_reference_flat(&w5, at_w);
            flat_x = rb_reference_flat(&x5, at_x);
            if (forward)
                sum[i] += rb_reference_get(x, of_x, flat_x) * rb_reference_get(w, of_w, flat_w);
            else if (grad_x)
                sum[flat_x] += rb_reference_get(y, of_y, i) * rb_reference_get(w, of_w, flat_w);
            else
                sum[flat_w] += rb_reference_get(y, of_y, i) * rb_reference_get(x, of_x, flat_x);
        }
    }
    for (int64_t i = 0; i < n_out; i++)
        rb_reference_set(&call->out[0], out[0], i, sum[i]);
    free(sum);
}
