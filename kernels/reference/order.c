/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

/* How many elements of the line come before element j? */
static int64_t rank_of(const struct rb_call *call, const void *x, int64_t first, int64_t step,
                       int64_t n, int64_t j)
{
    bool smallest = rb_call_int(call, "smallest", 0), last = rb_call_int(call, "last", 0);
    double own = rb_reference_get(&call->in[0], x, first + j * step);
    int64_t rank = 0;

    for (int64_t i = 0; i < n; i++) {
        double other = rb_reference_get(&call->in[0], x, first + i * step);

        if (other == own)
            rank += last ? i > j : i < j;
        else
            rank += smallest ? other < own : other > own;
    }
    return rank;
}

static void running_sum(const struct rb_call *call, const void *x, void *y, int64_t first,
                        int64_t step, int64_t n, int64_t j)
{
    bool exclusive = rb_call_int(call, "exclusive", 0), reverse = rb_call_int(call, "reverse", 0);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        if (reverse ? i > j || (i == j && !exclusive) : i < j || (i == j && !exclusive))
            sum += rb_reference_get(&call->in[0], x, first + i * step);
    rb_reference_set(&call->out[0], y, first + j * step, sum);
}

void rb_reference_order(const struct rb_call *call, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct rb_tensor_type *x = &call->in[0];
    int axis = (int)rb_call_int(call, "axis", 0);
    struct rb_call_split at = rb_call_split_at(x, axis);

    (void)key;
    for (int64_t o = 0; o < at.outer; o++)
        for (int64_t i = 0; i < at.inner; i++)
            for (int64_t j = 0; j < at.n; j++) {
                int64_t first = o * at.n * at.inner + i, rank, k, to;

                if (call->op == RB_OP_CUM_SUM) {
                    running_sum(call, in[0], out[0], first, at.inner, at.n, j);
                    continue;
                }
                rank = rank_of(call, in[0], first, at.inner, at.n, j);
                if (call->op == RB_OP_ARG_MAX) {
                    if (rank == 0)
                        rb_reference_set(&call->out[0], out[0], o * at.inner + i, (double)j);
                    continue;
                }
                k = call->out[out[0] ? 0 : 1].dim[axis];
                to = (o * k + rank) * at.inner + i;
                if (rank < k && out[0])
                    rb_reference_set(&call->out[0], out[0], to,
                                     rb_reference_get(x, in[0], first + j * at.inner));
                if (rank < k && call->n_out > 1 && out[1])
                    rb_reference_set(&call->out[1], out[1], to, (double)j);
            }
}
