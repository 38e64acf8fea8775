/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

static void copy(const struct rb_tensor_type *to_type, void *to, int64_t to_at,
                 const struct rb_tensor_type *from_type, const void *from, int64_t from_at)
{
    rb_reference_set(to_type, to, to_at, rb_reference_get(from_type, from, from_at));
}

/* Part i of a whole begins behind the parts before it. */
static void parts(const struct rb_call *call, const void *const *in, void *const *out)
{
    bool split = call->op == RB_OP_SPLIT;
    const struct rb_tensor_type *whole = split ? call->in : call->out;
    const struct rb_tensor_type *part = split ? call->out : call->in;
    int axis = (int)rb_call_int(call, "axis", 0), n = split ? call->n_out : call->n_in;
    int64_t begin = 0, index[RB_MAX_RANK];

    for (int k = 0; k < n; k++) {
        for (int64_t i = 0; i < rb_tensor_elements(&part[k]); i++) {
            int64_t at;

            rb_reference_index(&part[k], i, index);
            index[axis] += begin;
            at = rb_reference_flat(whole, index);
            if (split)
                copy(&part[k], out[k], i, whole, in[0], at);
            else
                copy(whole, out[0], at, &part[k], in[k], i);
        }
        begin += part[k].dim[axis];
    }
}

static void slice(const struct rb_call *call, const void *in, void *out)
{
    bool grad = call->op == RB_OP_SLICE_GRAD;
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    const struct rb_tensor_type *whole = grad ? y : x, *cut = grad ? x : y;
    const struct rb_attribute *starts = rb_call_attribute(call, "starts");
    const struct rb_attribute *steps = rb_call_attribute(call, "steps");
    int64_t index[RB_MAX_RANK];

    if (grad)
        rb_reference_fill(y, out, 0);
    for (int64_t i = 0; i < rb_tensor_elements(cut); i++) {
        int64_t at;

        rb_reference_index(cut, i, index);
        for (int k = 0; k < cut->rank; k++)
            index[k] = (starts ? starts->ints[k] : 0) + index[k] * (steps ? steps->ints[k] : 1);
        at = rb_reference_flat(whole, index);
        if (grad)
            copy(y, out, at, x, in, i);
        else
            copy(y, out, i, x, in, at);
    }
}

/* The element of the input that goes to `index` of the output; -1: a zero goes there. */
static int64_t source(const struct rb_call *call, int64_t i, const int64_t *index)
{
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    int64_t from[RB_MAX_RANK], k = rb_call_int(call, "k", 0);

    switch (call->op) {
    case RB_OP_TRANSPOSE:
        for (int a = 0; a < y->rank; a++)
            from[rb_call_attribute(call, "perm")->ints[a]] = index[a];
        return rb_reference_flat(x, from);
    case RB_OP_EXPAND:
        return rb_reference_broadcast(x, index, y->rank);
    case RB_OP_TRILU:
        if (rb_call_int(call, "upper", 1))
            return index[y->rank - 1] - index[y->rank - 2] >= k ? i : -1;
        return index[y->rank - 1] - index[y->rank - 2] <= k ? i : -1;
    default:
        return i;
    }
}

void rb_reference_move(const struct rb_call *call, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    const struct rb_tensor_type *y = &call->out[0];
    int64_t index[RB_MAX_RANK];

    (void)key;
    if (call->op == RB_OP_CONCAT || call->op == RB_OP_SPLIT) {
        parts(call, in, out);
        return;
    }
    if (call->op == RB_OP_SLICE || call->op == RB_OP_SLICE_GRAD) {
        slice(call, in[0], out[0]);
        return;
    }
    for (int64_t i = 0; i < rb_tensor_elements(y); i++) {
        int64_t from;

        rb_reference_index(y, i, index);
        from = source(call, i, index);
        if (from < 0)
            rb_reference_set(y, out[0], i, 0);
        else
            copy(y, out[0], i, &call->in[0], in[0], from);
    }
}
