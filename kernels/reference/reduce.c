/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

static bool is_reduced(const struct rb_call *call, int axis)
{
    const struct rb_attribute *axes = rb_call_attribute(call, "axes");

    for (int i = 0; axes && i < axes->n_ints; i++)
        if (axes->ints[i] == axis)
            return true;
    return !axes;
}

/* For each output, all inputs are looked at: slow, and hard to get wrong. */
void rb_reference_reduce(const struct rb_call *call, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    struct rb_tensor_type kept = *x;
    int64_t index[RB_MAX_RANK], count = 1;

    (void)key;
    for (int a = 0; a < x->rank; a++)
        if (is_reduced(call, a)) {
            count *= kept.dim[a];
            kept.dim[a] = 1;
        }
    for (int64_t o = 0; o < rb_tensor_elements(y); o++) {
        double sum = 0, most = -INFINITY;

        for (int64_t i = 0; i < rb_tensor_elements(x); i++) {
            double v = rb_reference_get(x, in[0], i);

            rb_reference_index(x, i, index);
            if (rb_reference_broadcast(&kept, index, x->rank) != o)
                continue;
            sum += v;
            most = v > most || v != v ? v : most;
        }
        if (call->op == RB_OP_REDUCE_MEAN)
            sum /= (double)count;
        rb_reference_set(y, out[0], o, call->op == RB_OP_REDUCE_MAX ? most : sum);
    }
}
