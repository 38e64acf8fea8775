/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

/* An input as a stack of matrices: a vector is one row (a) or one column (b). */
static struct rb_tensor_type as_matrix(const struct rb_tensor_type *type, bool column)
{
    struct rb_tensor_type matrix = *type;

    if (type->rank == 1) {
        matrix.rank = 2;
        matrix.dim[0] = column ? type->dim[0] : 1;
        matrix.dim[1] = column ? 1 : type->dim[0];
    }
    return matrix;
}

static double element(const struct rb_tensor_type *type, const void *data, const int64_t *batch,
                      int n_batch, int64_t row, int64_t column, bool swap)
{
    struct rb_tensor_type stack = *type;
    int64_t at, rows = type->dim[type->rank - 2], columns = type->dim[type->rank - 1];

    stack.rank -= 2;
    at = rb_reference_broadcast(&stack, batch, n_batch);
    at = at * rows * columns + (swap ? column * columns + row : row * columns + column);
    return rb_reference_get(type, data, at);
}

void rb_reference_matmul(const struct rb_call *call, const void *const *in, void *const *out,
                         const struct rb_key *key)
{
    struct rb_tensor_type a = as_matrix(&call->in[0], false), b = as_matrix(&call->in[1], true);
    bool swap_a = rb_call_int(call, "transA", 0) && call->in[0].rank > 1;
    bool swap_b = rb_call_int(call, "transB", 0) && call->in[1].rank > 1;
    bool relu = rb_call_int(call, "relu", 0);
    int64_t m = a.dim[a.rank - (swap_a ? 1 : 2)], k = a.dim[a.rank - (swap_a ? 2 : 1)];
    int64_t n = b.dim[b.rank - (swap_b ? 2 : 1)], index[RB_MAX_RANK] = {0};
    struct rb_tensor_type batch = {RB_F32, 0, {0}};
    int shift;

    (void)key;
    batch.rank = (a.rank > b.rank ? a.rank : b.rank) - 2;
    for (int i = 0; i < batch.rank; i++) {
        shift = i - batch.rank;
        int64_t of_a = a.rank - 2 + shift >= 0 ? a.dim[a.rank - 2 + shift] : 1;
        int64_t of_b = b.rank - 2 + shift >= 0 ? b.dim[b.rank - 2 + shift] : 1;

        batch.dim[i] = of_a == 1 ? of_b : of_a;
    }
    for (int64_t s = 0; s < rb_tensor_elements(&batch); s++) {
        rb_reference_index(&batch, s, index);
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) {
                double sum = call->n_in > 2 && in[2] ? (double)((const rb_real *)in[2])[c] : 0;

                for (int64_t i = 0; i < k; i++)
                    sum += element(&a, in[0], index, batch.rank, r, i, swap_a) *
                           element(&b, in[1], index, batch.rank, i, c, swap_b);
                if (relu && sum <= 0)
                    sum = 0;
                rb_reference_set(&call->out[0], out[0], (s * m + r) * n + c, sum);
            }
    }
}
