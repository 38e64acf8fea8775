/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators and operators that keep a type: broadcasting, casts, rows, dropout. */
#include "graph/shapes/shapes.h"

/* Broadcast inputs [first, n_in) into out[0], whose element type is that of the first of them. */
static int broadcast(struct rb_shapes *shapes, int first, int count)
{
    struct rb_tensor_type *out = &shapes->out[0];
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];

    for (int i = first; i < first + count; i++) {
        const struct rb_tensor_type *in = rb_shapes_in(shapes, i);
        struct rb_tensor_type before = *out;

        if (!in)
            return RB_EINVAL;
        if (i == first) {
            *out = *in;
            continue;
        }
        if (in->dtype != out->dtype)
            return rb_why_set(shapes->why, RB_EINVAL, "inputs of different types: %s and %s",
                              rb_tensor_text(out, text_a), rb_tensor_text(in, text_b));
        if (!rb_shapes_broadcast_dims(out->dim, &out->rank, in->dim, in->rank))
            return rb_why_set(shapes->why, RB_EINVAL, "shapes %s and %s do not broadcast",
                              rb_tensor_text(&before, text_a), rb_tensor_text(in, text_b));
    }
    return 0;
}

int rb_shapes_point(struct rb_shapes *shapes)
{
    int err = broadcast(shapes, 0, 2);

    if (!err && shapes->out[0].dtype == RB_BOOL)
        return rb_why_set(shapes->why, RB_EINVAL, "no arithmetic on bool");
    return err;
}

/* To the given shape. */
int rb_shapes_fused(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_given(shapes);
    struct rb_tensor_type out = {0};
    char text[RB_TENSOR_TEXT];

    if (err)
        return err;
    out = *shapes->given;
    for (int i = 0; i < shapes->node->n_in; i++) {
        const struct rb_tensor_type *in = rb_shapes_in(shapes, i);

        if (!in)
            return RB_EINVAL;
        if (!rb_shapes_broadcast_dims(out.dim, &out.rank, in->dim, in->rank) ||
            !rb_tensor_same(&out, shapes->given))
            return rb_why_set(shapes->why, RB_EINVAL, "an input %s does not broadcast",
                              rb_tensor_text(in, text));
    }
    shapes->out[0] = out;
    return 0;
}

int rb_shapes_compare(struct rb_shapes *shapes)
{
    int err = broadcast(shapes, 0, 2);

    if (!err && shapes->out[0].dtype == RB_BOOL && shapes->node->op != RB_OP_EQUAL)
        return rb_why_set(shapes->why, RB_EINVAL, "bool has no order");
    shapes->out[0].dtype = RB_BOOL;
    return err;
}

int rb_shapes_where(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *condition = rb_shapes_in(shapes, 0);
    struct rb_tensor_type *out = &shapes->out[0];
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];
    int err = broadcast(shapes, 1, 2);
    struct rb_tensor_type before = *out;

    if (err)
        return err;
    if (condition->dtype != RB_BOOL)
        return rb_why_set(shapes->why, RB_EINVAL, "the condition is %s, not bool",
                          rb_dtype_text(condition->dtype));
    if (!rb_shapes_broadcast_dims(out->dim, &out->rank, condition->dim, condition->rank))
        return rb_why_set(shapes->why, RB_EINVAL, "shapes %s and %s do not broadcast",
                          rb_tensor_text(condition, text_a), rb_tensor_text(&before, text_b));
    return 0;
}

static bool takes_integers(enum rb_op op)
{
    return op == RB_OP_NEG || op == RB_OP_ABS || op == RB_OP_SIGN || op == RB_OP_RELU;
}

int rb_shapes_unary(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = rb_shapes_in(shapes, 0);

    shapes->out[0] = *x;
    if (x->dtype == RB_BOOL)
        return rb_why_set(shapes->why, RB_EINVAL, "no arithmetic on bool");
    if (!rb_dtype_is_real(x->dtype) && !takes_integers(shapes->node->op))
        return rb_why_set(shapes->why, RB_EUNSUPPORTED,
                          "the input is %s; float32 or float64 is needed", rb_dtype_text(x->dtype));
    return 0;
}

int rb_shapes_unary_grad(struct rb_shapes *shapes)
{
    shapes->out[0] = shapes->node->in[0]->type;
    return rb_shapes_want_same(shapes, 0, 1);
}

int rb_shapes_cast(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_given(shapes);

    if (err)
        return err;
    shapes->out[0] = shapes->node->in[0]->type;
    shapes->out[0].dtype = shapes->given->dtype;
    return 0;
}

int rb_shapes_row(struct rb_shapes *shapes)
{
    int axis;
    int err = rb_shapes_axis(shapes, shapes->node->in[0]->type.rank, &axis);

    shapes->out[0] = shapes->node->in[0]->type;
    return err ? err : rb_shapes_want_f32(shapes, 0);
}

int rb_shapes_row_grad(struct rb_shapes *shapes)
{
    int err = rb_shapes_row(shapes);

    return err ? err : rb_shapes_want_same(shapes, 0, 1);
}

int rb_shapes_dropout(struct rb_shapes *shapes)
{
    float ratio = rb_node_float(shapes->node, "ratio", -1);

    shapes->out[0] = shapes->node->in[0]->type;
    if (!(ratio >= 0 && ratio < 1))
        return rb_why_set(shapes->why, RB_EINVAL, "ratio %g is not within [0, 1)", (double)ratio);
    return rb_shapes_want_f32(shapes, 0);
}

int rb_shapes_uniform(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_given(shapes);

    if (!err)
        err = rb_shapes_want_f32(shapes, 0);
    if (err)
        return err;
    if (rb_tensor_elements(&shapes->node->in[0]->type) != 1)
        return rb_why_set(shapes->why, RB_EINVAL, "the input must be one number");
    shapes->out[0] = *shapes->given;
    shapes->out[0].dtype = RB_F32;
    return 0;
}
