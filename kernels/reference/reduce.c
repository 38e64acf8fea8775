/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

static bool is_reduced(const struct rb_call *call, int axis)
{
    const struct rb_attribute *axes = rb_call_attribute(call, "axes");

    for (int i = 0; axes && i < axes->n_ints; i++)
        if (axes->ints[i] == axis)
            return true;
    return !axes;
}

void rb_reference_reduce(const struct rb_call *call, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    int64_t n = rb_tensor_elements(y), index[RB_MAX_RANK], count = 1;
    double *sum = calloc((size_t)n + 1, sizeof(*sum)), *most = calloc((size_t)n + 1, sizeof(*most));
    struct rb_tensor_type kept = *x;

    (void)key;
    if (!sum || !most)
        abort();
    for (int a = 0; a < x->rank; a++)
        if (is_reduced(call, a)) {
            count *= kept.dim[a];
            kept.dim[a] = 1;
        }
    for (int64_t o = 0; o < n; o++)
        most[o] = -INFINITY;
    for (int64_t i = 0; i < rb_tensor_elements(x); i++) {
        double v = rb_reference_get(x, in[0], i);
        int64_t o;

        rb_reference_index(x, i, index);
        o = rb_reference_broadcast(&kept, index, x->rank);
        sum[o] += v;
        most[o] = v > most[o] || v != v ? v : most[o];
    }
    for (int64_t o = 0; o < n; o++) {
        if (call->op == RB_OP_REDUCE_MEAN)
            sum[o] /= (double)count;
        rb_reference_set(y, out[0], o, call->op == RB_OP_REDUCE_MAX ? most[o] : sum[o]);
    }
    free(sum);
    free(most);
}
