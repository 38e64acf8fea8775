/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and norms. */
#include "graph/shapes/shapes.h"

#include <inttypes.h>

/* Without a given type the reduced axes stay as 1; a given one may keep or drop them. */
int rb_shapes_reduce(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    const struct rb_graph_attribute *axes = rb_node_attribute(shapes->node, "axes");
    struct rb_tensor_type kept = *x, dropped = {.dtype = x->dtype};
    unsigned seen = 0;

    if (!axes)
        return rb_why_set(shapes->why, RB_EINVAL, "axes are missing");
    for (int i = 0; i < axes->n_ints; i++) {
        int64_t axis = axes->ints[i];

        if (axis < 0 || axis >= x->rank || seen >> axis & 1u)
            return rb_why_set(shapes->why, RB_EINVAL, "axis %" PRId64 " of %d, or twice", axis,
                              x->rank);
        seen |= 1u << axis;
        kept.dim[axis] = 1;
    }
    for (int i = 0; i < x->rank; i++)
        if (!(seen >> i & 1u))
            dropped.dim[dropped.rank++] = x->dim[i];
    if (shapes->given && !rb_tensor_same(shapes->given, &kept) &&
        !rb_tensor_same(shapes->given, &dropped))
        return rb_why_set(shapes->why, RB_EINVAL, "the given shape is not that of the reduction");
    shapes->out[0] = shapes->given ? *shapes->given : kept;
    return 0;
}

/* The axes from `axis` on are those of scale (and bias); statistics keep them as 1. */
static int layer(struct rb_shapes *shapes, const struct rb_tensor_type *x, int first_scale,
                 int n_scale, struct rb_tensor_type *ret_row)
{
    char text_x[RB_TENSOR_TEXT], text_s[RB_TENSOR_TEXT];
    struct rb_tensor_type normal = {.dtype = RB_F32};
    int axis;
    int err = rb_shapes_axis(shapes, x->rank, &axis);

    if (err)
        return err;
    *ret_row = *x;
    for (int i = axis; i < x->rank; i++) {
        normal.dim[normal.rank++] = x->dim[i];
        ret_row->dim[i] = 1;
    }
    for (int i = first_scale; i < first_scale + n_scale && i < shapes->node->n_in; i++)
        if (shapes->node->in[i] && !rb_tensor_same(&shapes->node->in[i]->type, &normal))
            return rb_why_set(shapes->why, RB_EUNSUPPORTED, "x is %s, scale or bias %s",
                              rb_tensor_text(x, text_x),
                              rb_tensor_text(&shapes->node->in[i]->type, text_s));
    return 0;
}

int rb_shapes_layer_norm(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    int err = rb_shapes_want_f32(shapes, 0);

    if (!err)
        err = rb_shapes_want_f32(shapes, 1);
    if (!err)
        err = layer(shapes, x, 1, 2, &shapes->out[1]);
    shapes->out[0] = *x;
    shapes->out[2] = shapes->out[1];
    return err;
}

int rb_shapes_layer_norm_grad(struct rb_shapes *shapes)
{
    struct rb_tensor_type row;
    int err = rb_shapes_want_same(shapes, 0, 1);

    for (int i = 2; !err && i < 5; i++)
        err = rb_shapes_want_f32(shapes, i);
    if (!err)
        err = layer(shapes, &shapes->node->in[1]->type, 2, 1, &row);
    if (err)
        return err;
    for (int i = 3; i < 5; i++)
        if (rb_tensor_elements(&shapes->node->in[i]->type) != rb_tensor_elements(&row))
            return rb_why_set(shapes->why, RB_EINVAL, "input %d is not one number a row", i);
    shapes->out[0] = shapes->node->in[1]->type;
    shapes->out[1] = shapes->out[2] = shapes->node->in[2]->type;
    return 0;
}

/* Inputs [first, first + n) are one number a channel of x. */
static int channels(struct rb_shapes *shapes, const struct rb_tensor_type *x, int first, int n)
{
    if (x->rank < 2 || x->dtype != RB_F32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED, "x must be float32 with a channel axis");
    for (int i = first; i < first + n; i++) {
        const struct rb_tensor_type *type = rb_shapes_in(shapes, i);

        if (!type)
            return RB_EINVAL;
        if (type->dtype != RB_F32 || type->rank != 1 || type->dim[0] != x->dim[1])
            return rb_why_set(shapes->why, RB_EINVAL,
                              "input %d is not float32[%" PRId64 "], one a channel", i, x->dim[1]);
    }
    return 0;
}

int rb_shapes_batch_norm(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    int err = channels(shapes, x, 1, 2);

    if (err)
        return err;
    shapes->out[0] = *x;
    for (int i = 1; i < 4; i++)
        shapes->out[i] = shapes->node->in[1]->type;
    return 0;
}

int rb_shapes_batch_norm_eval(struct rb_shapes *shapes)
{
    shapes->out[0] = shapes->node->in[0]->type;
    return channels(shapes, &shapes->node->in[0]->type, 1, 4);
}

int rb_shapes_batch_norm_grad(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_same(shapes, 0, 1);

    if (!err)
        err = channels(shapes, &shapes->node->in[1]->type, 2, 3);
    if (err)
        return err;
    shapes->out[0] = shapes->node->in[1]->type;
    shapes->out[1] = shapes->out[2] = shapes->node->in[2]->type;
    return 0;
}
