/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/matrices.h"

/* Batch sizes of one input, filled up with 1 in front. */
static void batch_sizes(const struct rb_tensor_type *type, int batch, int64_t *ret)
{
    int own = type->rank > 2 ? type->rank - 2 : 0;

    for (int i = 0; i < batch; i++)
        ret[i] = i < batch - own ? 1 : type->dim[i - (batch - own)];
}

int rb_matrices_read(const struct rb_call *call, struct rb_matrices *s, struct rb_why *why)
{
    const struct rb_tensor_type *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    struct rb_tensor_type expected = {RB_F32, 0, {0}};
    int64_t k_of_b;
    int a_own = a->rank > 2 ? a->rank - 2 : 0, b_own = b->rank > 2 ? b->rank - 2 : 0;

    if (a->rank < 1 || b->rank < 1)
        return rb_call_refuse(call, RB_EINVAL, why, "scalars cannot be multiplied as matrices");
    s->swap_a = rb_call_int(call, "transA", 0) != 0 && a->rank > 1;
    s->swap_b = rb_call_int(call, "transB", 0) != 0 && b->rank > 1;
    s->m = a->rank == 1 ? 1 : a->dim[a->rank - (s->swap_a ? 1 : 2)];
    s->k = a->dim[a->rank - (s->swap_a ? 2 : 1)];
    k_of_b = b->rank == 1 ? b->dim[0] : b->dim[b->rank - (s->swap_b ? 1 : 2)];
    s->n = b->rank == 1 ? 1 : b->dim[b->rank - (s->swap_b ? 2 : 1)];
    if (s->k != k_of_b)
        return rb_call_refuse(call, RB_EINVAL, why, "the inner sizes %lld and %lld differ",
                              (long long)s->k, (long long)k_of_b);
    s->batch = a_own > b_own ? a_own : b_own;
    batch_sizes(a, s->batch, s->a);
    batch_sizes(b, s->batch, s->b);
    for (int i = 0; i < s->batch; i++) {
        if (s->a[i] != s->b[i] && s->a[i] != 1 && s->b[i] != 1)
            return rb_call_refuse(call, RB_EINVAL, why, "the leading axes do not broadcast");
        s->c[i] = s->a[i] == 1 ? s->b[i] : s->a[i];
        expected.dim[expected.rank++] = s->c[i];
    }
    if (a->rank > 1)
        expected.dim[expected.rank++] = s->m;
    if (b->rank > 1)
        expected.dim[expected.rank++] = s->n;
    if (!rb_tensor_same_shape(y, &expected))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another shape");
    return 0;
}

void rb_matrices_merge(struct rb_matrices *s)
{
    int n = 0;

    for (int i = 0; i < s->batch; i++) {
        if (s->c[i] == 1)
            continue;
        if (n > 0 && (s->a[n - 1] == 1) == (s->a[i] == 1) && (s->b[n - 1] == 1) == (s->b[i] == 1)) {
            s->a[n - 1] *= s->a[i];
            s->b[n - 1] *= s->b[i];
            s->c[n - 1] *= s->c[i];
            continue;
        }
        s->a[n] = s->a[i];
        s->b[n] = s->b[i];
        s->c[n] = s->c[i];
        n++;
    }
    s->batch = n;
    if (n == 1 && s->b[0] == 1 && !s->swap_a) { /* one matrix b: the rows of a are one stack */
        s->m *= s->a[0];
        s->batch = 0;
    }
}
