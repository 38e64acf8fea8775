/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, and the places of the largest. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct reduction {
    struct rb_value *x;
    int64_t axes[RB_MAX_RANK];
    int n;
    bool keep;
};

/* Axes became an input with opset 13 (ReduceSum) or 18 (the others).  No axes means all of them,
 * unless noop_with_empty_axes is set: then n is 0. */
static void read(struct rb_import *import, int64_t since, struct reduction *ret)
{
    bool noop = rb_make_int(import, "noop_with_empty_axes", 0) != 0;

    ret->x = rb_make_need(import, 0);
    ret->keep = rb_make_int(import, "keepdims", 1) != 0;
    if (!import->err)
        import->err = rb_import_axes(import, since, 1, ret->x->type.rank, ret->axes, &ret->n);
    if (import->err || ret->n || noop)
        return;
    ret->n = ret->x->type.rank;
    for (int i = 0; i < ret->n; i++)
        ret->axes[i] = i;
}

static struct rb_value *reduce(struct rb_import *import, enum rb_op op, struct rb_value *x,
                               const struct reduction *r)
{
    return rb_make_reduce(import, op, x, r->axes, r->n, r->keep);
}

int rb_import_op_reduce(struct rb_import *import)
{
    struct reduction r = {0};

    read(import, import->op->op == RB_OP_REDUCE_SUM ? 13 : 18, &r);
    return rb_make_bind(import, 0, r.n ? reduce(import, import->op->op, r.x, &r) : r.x);
}

/* x in reverse order: -x, for integers -1 - x, because the least integer is its own negative. */
static struct rb_value *opposite(struct rb_import *import, struct rb_value *x)
{
    if (!x || rb_dtype_is_real(x->type.dtype))
        return rb_make_one(import, RB_OP_NEG, x);
    return rb_make_two(import, RB_OP_SUB, rb_make_like(import, x, -1), x);
}

int rb_import_op_reduce_extreme(struct rb_import *import)
{
    bool least = !strcmp(import->op->name, "ReduceMin");
    struct reduction r = {0};
    struct rb_value *y;

    read(import, 18, &r);
    if (!r.n)
        return rb_make_bind(import, 0, r.x);
    y = rb_make_turned(import, r.x);
    y = least ? opposite(import, y) : y;
    y = reduce(import, RB_OP_REDUCE_MAX, y, &r);
    y = least ? opposite(import, y) : y;
    return rb_make_bind(import, 0, rb_make_turned(import, y));
}

int rb_import_op_reduce_l1(struct rb_import *import)
{
    struct reduction r = {0};
    struct rb_value *size;

    read(import, 18, &r);
    size = import->narrow == RB_U64 ? r.x : rb_make_one(import, RB_OP_ABS, r.x);
    return rb_make_bind(import, 0, reduce(import, RB_OP_REDUCE_SUM, size, &r));
}

int rb_import_op_reduce_sum_square(struct rb_import *import)
{
    struct reduction r = {0};

    read(import, 18, &r);
    return rb_make_bind(
        import, 0, reduce(import, RB_OP_REDUCE_SUM, rb_make_two(import, RB_OP_MUL, r.x, r.x), &r));
}

/* A length of 0 has the gradient 0, and not 0 times the infinite slope of the root. */
int rb_import_op_reduce_l2(struct rb_import *import)
{
    struct reduction r = {0};
    struct rb_value *sum, *none, *safe;

    read(import, 18, &r);
    sum = reduce(import, RB_OP_REDUCE_SUM, rb_make_two(import, RB_OP_MUL, r.x, r.x), &r);
    none = rb_make_two(import, RB_OP_EQUAL, sum, rb_make_like(import, sum, 0));
    safe = rb_make_where(import, none, rb_make_like(import, sum, 1), sum);
    return rb_make_bind(import, 0,
                        rb_make_where(import, none, rb_make_like(import, sum, 0),
                                      rb_make_one(import, RB_OP_SQRT, safe)));
}

int rb_import_op_reduce_log_sum(struct rb_import *import)
{
    struct reduction r = {0};

    read(import, 18, &r);
    return rb_make_bind(import, 0,
                        rb_make_one(import, RB_OP_LOG, reduce(import, RB_OP_REDUCE_SUM, r.x, &r)));
}

/* The largest element is subtracted first, so that no exponential overflows; an infinite one is
 * not, because the difference of two infinities would be NaN. */
int rb_import_op_reduce_log_sum_exp(struct rb_import *import)
{
    struct reduction r = {0}, inner;
    struct rb_value *most, *size, *finite, *sum;

    read(import, 18, &r);
    inner = r;
    inner.keep = true;
    most = reduce(import, RB_OP_REDUCE_MAX, r.x, &inner);
    size = rb_make_one(import, RB_OP_ABS, most);
    finite = rb_make_two(import, RB_OP_LESS, size, rb_make_like(import, most, INFINITY));
    most = rb_make_where(import, finite, most, rb_make_like(import, most, 0));
    sum = rb_make_one(import, RB_OP_EXP, rb_make_two(import, RB_OP_SUB, r.x, most));
    sum = rb_make_one(import, RB_OP_LOG, reduce(import, RB_OP_REDUCE_SUM, sum, &inner));
    sum = rb_make_two(import, RB_OP_ADD, sum, most);
    if (import->err)
        return import->err;
    if (!r.keep) {
        int64_t dim[RB_MAX_RANK];
        int rank = 0;
        unsigned drop = 0;

        for (int i = 0; i < r.n; i++)
            drop |= 1u << r.axes[i];
        for (int i = 0; i < sum->type.rank; i++)
            if (!(drop >> i & 1u))
                dim[rank++] = sum->type.dim[i];
        sum = rb_make_reshape(import, sum, rank, dim);
    }
    return rb_make_bind(import, 0, sum);
}

/* Half of the axis times the other half, until one element is left: each product has its own
 * gradient, so zeros do no harm. */
static struct rb_value *product(struct rb_import *import, struct rb_value *x, int axis)
{
    while (!import->err && x->type.dim[axis] > 1) {
        int64_t n = x->type.dim[axis], half = n / 2;
        struct rb_value *halves[2];

        halves[0] = rb_make_two(import, RB_OP_MUL, rb_make_slice(import, x, axis, 0, half, 1),
                                rb_make_slice(import, x, axis, half, half, 1));
        halves[1] = n % 2 ? rb_make_slice(import, x, axis, n - 1, 1, 1) : NULL;
        x = rb_make_concat(import, axis, n % 2 ? 2 : 1, halves);
    }
    return x;
}

int rb_import_op_reduce_prod(struct rb_import *import)
{
    struct reduction r = {0};
    struct rb_value *y;
    int64_t dim[RB_MAX_RANK];
    unsigned drop = 0;
    int rank = 0;

    read(import, 18, &r);
    if (import->err)
        return import->err;
    y = r.x;
    for (int i = 0; i < r.n; i++) {
        y = product(import, y, (int)r.axes[i]);
        drop |= 1u << r.axes[i];
    }
    for (int i = 0; i < r.x->type.rank; i++)
        if (r.keep || !(drop >> i & 1u))
            dim[rank++] = drop >> i & 1u ? 1 : r.x->type.dim[i];
    return rb_make_bind(import, 0, rb_make_reshape(import, y, rank, dim));
}

int rb_import_op_arg(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *y = NULL;
    int64_t axis = rb_make_axis(import, "axis", 0, x ? x->type.rank : 1);
    int64_t keep = rb_make_int(import, "keepdims", 1);
    int64_t last = rb_make_int(import, "select_last_index", 0) != 0;
    int64_t smallest = !strcmp(import->op->name, "ArgMin");
    struct rb_graph_attribute attributes[3] = {rb_attr_ints("axis", &axis, 1),
                                               rb_attr_ints("smallest", &smallest, 1),
                                               rb_attr_ints("last", &last, 1)};

    x = rb_make_turned(import, x);
    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_ARG_MAX, 1, &x, 3, attributes, NULL, &y);
    return rb_make_bind_places(import, 0, keep ? y : rb_make_squeeze(import, y, (int)axis));
}

/* k was an attribute before opset 10.  The result is sorted even where it need not be. */
int rb_import_op_top_k(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *outs[2] = {NULL};
    int64_t axis = rb_make_axis(import, "axis", -1, x ? x->type.rank : 1);
    int64_t smallest = !rb_make_int(import, "largest", 1), k = rb_make_int(import, "k", -1);
    struct rb_graph_attribute attributes[2] = {rb_attr_ints("axis", &axis, 1),
                                               rb_attr_ints("smallest", &smallest, 1)};
    struct rb_tensor_type type;
    const int64_t *given = NULL;
    int n = 0;

    if (!import->err && import->opset >= 10)
        import->err = rb_import_known_ints(import, 1, "k", &given, &n);
    if (given)
        k = n == 1 ? given[0] : -1;
    if (!import->err && (k < 0 || k > x->type.dim[axis]))
        rb_make_bad(import, "%" PRId64 " of %" PRId64, k, x->type.dim[axis]);
    if (import->err)
        return import->err;
    type = x->type;
    type.dim[axis] = k;
    x = rb_make_turned(import, x);
    if (!import->err)
        import->err =
            rb_import_emit_many(import, RB_OP_TOP_K, 1, &x, 2, attributes, 3, &type, outs);
    rb_make_bind(import, 0, rb_make_turned(import, outs[0]));
    return rb_make_bind_places(import, 1, outs[1]);
}
