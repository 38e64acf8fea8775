/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that name elements by their positions along an axis. */
#include "graph/shapes/shapes.h"

#include <inttypes.h>

/* Indices of x's rank, within it on every axis but `axis`. */
static int check_indices(struct rb_shapes *shapes, const struct rb_tensor_type *x)
{
    const struct rb_tensor_type *indices = rb_shapes_in(shapes, 1);
    char text_x[RB_TENSOR_TEXT], text_i[RB_TENSOR_TEXT];
    bool fits = indices && indices->rank == x->rank;
    int axis;
    int err = rb_shapes_axis(shapes, x->rank, &axis);

    if (err || !indices)
        return err ? err : RB_EINVAL;
    for (int i = 0; fits && i < x->rank; i++)
        fits = i == axis || indices->dim[i] <= x->dim[i];
    if (!fits)
        return rb_why_set(shapes->why, RB_EINVAL, "%s has no elements %s along axis %d",
                          rb_tensor_text(x, text_x), rb_tensor_text(indices, text_i), axis);
    if (indices->dtype != RB_I64 && indices->dtype != RB_I32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED, "indices are %s; int64 or int32 is needed",
                          rb_dtype_text(indices->dtype));
    return 0;
}

int rb_shapes_gather_elements(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    int err = check_indices(shapes, x);

    if (err)
        return err;
    shapes->out[0] = shapes->node->in[1]->type;
    shapes->out[0].dtype = x->dtype;
    return 0;
}

int rb_shapes_scatter(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type, *updates;
    int64_t reduction = rb_node_int(shapes->node, "reduction", RB_SCATTER_SET);
    int err = check_indices(shapes, x);

    if (!err)
        err = rb_shapes_want_same(shapes, 1, 2);
    if (err)
        return err;
    updates = &shapes->node->in[2]->type;
    if (updates->dtype != x->dtype)
        return rb_why_set(shapes->why, RB_EINVAL, "updates are %s, the tensor is %s",
                          rb_dtype_text(updates->dtype), rb_dtype_text(x->dtype));
    if (reduction < 0 || reduction >= RB_SCATTER_COUNT)
        return rb_why_set(shapes->why, RB_EINVAL, "there is no reduction %" PRId64, reduction);
    shapes->out[0] = *x;
    return 0;
}

int rb_shapes_arg_max(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    struct rb_tensor_type kept = *x, dropped = {.dtype = RB_I64};
    int axis;
    int err = rb_shapes_axis(shapes, x->rank, &axis);

    if (err)
        return err;
    if (!x->dim[axis])
        return rb_why_set(shapes->why, RB_EINVAL, "axis %d has no elements", axis);
    kept.dtype = RB_I64;
    kept.dim[axis] = 1;
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            dropped.dim[dropped.rank++] = x->dim[i];
    if (shapes->given && !rb_tensor_same(shapes->given, &kept) &&
        !rb_tensor_same(shapes->given, &dropped))
        return rb_why_set(shapes->why, RB_EINVAL, "the given shape is not that of the result");
    shapes->out[0] = shapes->given ? *shapes->given : kept;
    return 0;
}

int rb_shapes_cum_sum(struct rb_shapes *shapes)
{
    int axis;

    shapes->out[0] = shapes->node->in[0]->type;
    return rb_shapes_axis(shapes, shapes->out[0].rank, &axis);
}

int rb_shapes_top_k(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    struct rb_tensor_type like = *x;
    int axis;
    int err = rb_shapes_axis(shapes, x->rank, &axis);

    if (!err)
        err = rb_shapes_want_given(shapes);
    if (err)
        return err;
    like.dim[axis] = shapes->given->rank == x->rank ? shapes->given->dim[axis] : 0;
    if (!rb_tensor_same(&like, shapes->given) || like.dim[axis] > x->dim[axis])
        return rb_why_set(shapes->why, RB_EINVAL, "%" PRId64 " of %" PRId64 " along axis %d",
                          like.dim[axis], x->dim[axis], axis);
    shapes->out[0] = shapes->out[1] = like;
    shapes->out[1].dtype = RB_I64;
    return 0;
}
