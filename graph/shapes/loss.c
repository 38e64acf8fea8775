/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: sums and counts of one element each. */
#include "graph/shapes/shapes.h"

static const struct rb_tensor_type loss = {.dtype = RB_F64, .rank = 1, .dim = {1}};
static const struct rb_tensor_type count = {.dtype = RB_I64, .rank = 1, .dim = {1}};

/* Targets have the shape of the logits without the axis of the classes. */
static int classified(struct rb_shapes *shapes, struct rb_tensor_type *ret_row)
{
    const struct rb_tensor_type *logits = rb_shapes_in(shapes, 0), *targets;
    char text_l[RB_TENSOR_TEXT], text_t[RB_TENSOR_TEXT];
    int axis;
    int err = rb_shapes_axis(shapes, logits->rank, &axis);

    if (!err)
        err = rb_shapes_want_f32(shapes, 0);
    targets = rb_shapes_in(shapes, 1);
    if (err || !targets)
        return err ? err : RB_EINVAL;
    ret_row->dtype = RB_F64;
    ret_row->rank = 0;
    for (int i = 0; i < logits->rank; i++)
        if (i != axis)
            ret_row->dim[ret_row->rank++] = logits->dim[i];
    if ((targets->dtype != RB_I64 && targets->dtype != RB_I32 && targets->dtype != RB_U8) ||
        !rb_tensor_same_shape(targets, ret_row))
        return rb_why_set(shapes->why, RB_EINVAL,
                          "logits %s do not fit targets %s (int64, int32 or uint8, without the "
                          "axis of the classes)",
                          rb_tensor_text(logits, text_l), rb_tensor_text(targets, text_t));
    return 0;
}

int rb_shapes_cross_entropy(struct rb_shapes *shapes)
{
    int err = classified(shapes, &shapes->out[3]);

    shapes->out[0] = loss;
    shapes->out[1] = shapes->out[2] = count;
    return err;
}

int rb_shapes_cross_entropy_grad(struct rb_shapes *shapes)
{
    struct rb_tensor_type row;
    int err = classified(shapes, &row);

    shapes->out[0] = shapes->node->in[0]->type;
    return err ? err : rb_shapes_want_same(shapes, 1, 2);
}

static int pair(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_f32(shapes, 0);

    if (!err)
        err = rb_shapes_want_f32(shapes, 1);
    return err ? err : rb_shapes_want_same(shapes, 0, 1);
}

int rb_shapes_elementwise_loss(struct rb_shapes *shapes)
{
    shapes->out[0] = loss;
    shapes->out[1] = shapes->out[2] = count;
    return pair(shapes);
}

int rb_shapes_elementwise_loss_grad(struct rb_shapes *shapes)
{
    shapes->out[0] = shapes->node->in[0]->type;
    return pair(shapes);
}

int rb_shapes_graph_loss(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_f32(shapes, 0);

    if (!err && rb_tensor_elements(&shapes->node->in[0]->type) != 1)
        err = rb_why_set(shapes->why, RB_EINVAL, "the loss has more than one element");
    if (!err && !rb_shapes_ints(shapes, "samples", 1))
        err = RB_EINVAL;
    shapes->out[0] = loss;
    shapes->out[1] = count;
    return err;
}
