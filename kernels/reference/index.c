/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

static double combine(int64_t reduction, double a, double b)
{
    switch (reduction) {
    case RB_SCATTER_ADD:
        return a + b;
    case RB_SCATTER_MUL:
        return a * b;
    case RB_SCATTER_MAX:
        return a != a || a > b ? a : b;
    case RB_SCATTER_MIN:
        return a != a || a < b ? a : b;
    default:
        return b;
    }
}

void rb_reference_index_elements(const struct rb_call *call, const void *const *in,
                                 void *const *out, const struct rb_key *key)
{
    const struct rb_tensor_type *x = &call->in[0], *indices = &call->in[1];
    int axis = (int)rb_call_int(call, "axis", 0);
    int64_t reduction = rb_call_int(call, "reduction", RB_SCATTER_SET), at[RB_MAX_RANK];
    bool scatter = call->op == RB_OP_SCATTER;

    (void)key;
    for (int64_t i = 0; scatter && i < rb_tensor_elements(x); i++)
        rb_reference_set(x, out[0], i, rb_reference_get(x, in[0], i));
    for (int64_t i = 0; i < rb_tensor_elements(indices); i++) {
        int64_t k;

        rb_reference_index(indices, i, at);
        at[axis] = (int64_t)rb_reference_get(indices, in[1], i);
        at[axis] += at[axis] < 0 ? x->dim[axis] : 0;
        k = at[axis] < 0 || at[axis] >= x->dim[axis] ? -1 : rb_reference_flat(x, at);
        if (k < 0 && scatter)
            continue;
        if (k < 0)
            rb_reference_set(&call->out[0], out[0], i,
                             rb_dtype_is_real(x->dtype) ? (double)NAN : 0);
        else if (scatter)
            rb_reference_set(x, out[0], k,
                             combine(reduction, rb_reference_get(x, out[0], k),
                                     rb_reference_get(&call->in[2], in[2], i)));
        else
            rb_reference_set(&call->out[0], out[0], i, rb_reference_get(x, in[0], k));
    }
}
