/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

void rb_reference_gather(const struct rb_call *call, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    bool grad = call->op == RB_OP_GATHER_GRAD;
    const struct rb_tensor_type *x = grad ? &call->out[0] : &call->in[0];
    const struct rb_tensor_type *y = grad ? &call->in[0] : &call->out[0];
    const struct rb_tensor_type *indices = &call->in[1];
    int axis = (int)rb_call_int(call, "axis", 0);
    int64_t padding = rb_call_int(call, "padding", -1);
    int64_t at[RB_MAX_RANK], from[RB_MAX_RANK];

    (void)key;
    if (grad)
        rb_reference_fill(x, out[0], 0);
    for (int64_t i = 0; i < rb_tensor_elements(y); i++) {
        int64_t row, k;

        rb_reference_index(y, i, at);
        row = (int64_t)rb_reference_get(indices, in[1], rb_reference_flat(indices, at + axis));
        for (int a = 0; a < x->rank; a++)
            from[a] = a < axis ? at[a] : a == axis ? row : at[a + indices->rank - 1];
        from[axis] += row < 0 ? x->dim[axis] : 0;
        if (from[axis] < 0 || from[axis] >= x->dim[axis]) {
            if (!grad)
                rb_reference_set(y, out[0], i, rb_dtype_is_real(y->dtype) ? (double)NAN : 0);
            continue;
        }
        k = rb_reference_flat(x, from);
        if (grad && from[axis] != padding)
            rb_reference_set(x, out[0], k,
                             rb_reference_get(x, out[0], k) + rb_reference_get(y, in[0], i));
        if (!grad)
            rb_reference_set(y, out[0], i, rb_reference_get(x, in[0], k));
    }
}
