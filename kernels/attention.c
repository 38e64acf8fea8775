/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention.h"

#include <math.h>
#include <string.h>

static bool is_stack(const struct rb_tensor_type *type, const struct rb_tensor_type *like,
                     enum rb_dtype dtype)
{
    if (type->dtype != dtype || type->rank != like->rank)
        return false;
    return memcmp(type->dim, like->dim, sizeof(*type->dim) * (size_t)(like->rank - 2)) == 0;
}

static int read_numbers(const struct rb_call *call, struct rb_attention *s, struct rb_why *why)
{
    double ratio = (double)rb_call_float(call, "ratio", 0), least;

    if (!(ratio >= 0 && ratio < 1))
        return rb_call_refuse(call, RB_EINVAL, why, "the ratio must be in 0..1");
    least = nearbyint(ratio * 4294967296.0);
    s->scale = rb_call_float(call, "scale", 1);
    s->causal = rb_call_int(call, "causal", 0) != 0;
    s->drops = least > 0 && least < 4294967296.0;
    s->least = s->drops ? (uint32_t)least : 0;
    s->factor = s->drops ? (float)(1 / (1 - ratio)) : 1;
    s->id = call->op == RB_OP_ATTENTION ? call->id : (uint32_t)rb_call_int(call, "key", call->id);
    if (s->causal && s->queries != s->keys)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "where later keys are hidden there are as many as queries");
    return 0;
}

/* y and its gradient are shaped as queries of values; l is a number a row. */
static bool fits(const struct rb_tensor_type *y, const struct rb_tensor_type *q, int64_t width)
{
    return y->rank == q->rank && y->dim[y->rank - 1] == width &&
           memcmp(y->dim, q->dim, sizeof(*y->dim) * (size_t)(y->rank - 1)) == 0;
}

static bool is_like(const struct rb_tensor_type *made, const struct rb_tensor_type *of)
{
    return made->dtype == RB_NONE || rb_tensor_same_shape(made, of);
}

int rb_attention_read(const struct rb_call *call, struct rb_attention *ret, struct rb_why *why)
{
    bool forward = call->op == RB_OP_ATTENTION;
    int first = forward ? 0 : 1, needed = forward ? 3 : 6;
    const struct rb_tensor_type *q, *k, *v, *y, *l;
    struct rb_attention s = {.batch = 1};
    int rank;

    for (int i = 0; i < needed; i++)
        if (!rb_call_has_in(call, i))
            return rb_call_refuse(call, RB_EINVAL, why, "%d inputs are needed", needed);
    q = &call->in[first];
    k = &call->in[first + 1];
    v = &call->in[first + 2];
    y = forward ? rb_call_out(call, 0) : &call->in[4];
    l = forward ? rb_call_out(call, 1) : &call->in[5];
    rank = q->rank;
    if (q->dtype != RB_F32 && q->dtype != RB_BF16)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the inputs must be float32 or bfloat16");
    if (rank < 2 || !is_stack(k, q, q->dtype) || !is_stack(v, q, q->dtype) ||
        k->dim[rank - 1] != q->dim[rank - 1] || v->dim[rank - 2] != k->dim[rank - 2])
        return rb_call_refuse(call, RB_EINVAL, why, "queries, keys and values do not fit");
    for (int i = 0; i < rank - 2; i++)
        s.batch *= q->dim[i];
    s.queries = q->dim[rank - 2];
    s.keys = k->dim[rank - 2];
    s.depth = q->dim[rank - 1];
    s.width = v->dim[rank - 1];
    if (!forward && (call->in[0].dtype != q->dtype || y->dtype != q->dtype))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the inputs must be of one type");
    if (!fits(y, q, s.width) || (!forward && !fits(&call->in[0], q, s.width)))
        return rb_call_refuse(call, RB_EINVAL, why, "the result is not a row of values a query");
    if (l->dtype != RB_NONE && (l->dtype != RB_F32 || rb_tensor_elements(l) != s.batch * s.queries))
        return rb_call_refuse(call, RB_EINVAL, why, "the logarithms are not a float32 a query");
    if (!forward && (!is_like(rb_call_out(call, 0), q) || !is_like(rb_call_out(call, 1), k) ||
                     !is_like(rb_call_out(call, 2), v)))
        return rb_call_refuse(call, RB_EINVAL, why, "a gradient is not shaped as what it is of");
    *ret = s;
    return read_numbers(call, ret, why);
}
