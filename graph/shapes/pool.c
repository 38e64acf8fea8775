/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: a window over the spatial axes of N C spatial. */
#include "graph/shapes/shapes.h"

#include <inttypes.h>

/* A pool's padding is smaller than its window, or some outputs would have nothing to pool. */
static int check_pads(struct rb_shapes *shapes, const int64_t *kernel, int n)
{
    const int64_t *pads = rb_shapes_ints(shapes, "pads", 2 * n);
    const struct rb_graph_attribute *dilations = rb_node_attribute(shapes->node, "dilations");

    for (int i = 0; i < n; i++) {
        int64_t span = (dilations ? dilations->ints[i] : 1) * (kernel[i] - 1) + 1;

        if (pads[i] >= span || pads[n + i] >= span)
            return rb_why_set(shapes->why, RB_EINVAL,
                              "axis %d: pads %" PRId64 " and %" PRId64
                              " are not smaller than the window of %" PRId64,
                              i + 2, pads[i], pads[n + i], span);
    }
    return 0;
}

static int pooled(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                  struct rb_tensor_type *ret)
{
    char text[RB_TENSOR_TEXT];
    const int64_t *kernel;
    int err;

    if (x->rank < 3 || x->rank > 5 || x->dtype != RB_F32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED,
                          "x is %s; float32 with one to three spatial axes is supported",
                          rb_tensor_text(x, text));
    kernel = rb_shapes_ints(shapes, "kernel", x->rank - 2);
    if (!kernel)
        return RB_EINVAL;
    *ret = *x;
    err = rb_shapes_window(shapes, x, kernel, rb_node_int(shapes->node, "ceil", 0), ret->dim + 2);
    return err ? err : check_pads(shapes, kernel, x->rank - 2);
}

int rb_shapes_max_pool(struct rb_shapes *shapes)
{
    int err = pooled(shapes, &shapes->node->in[0]->type, &shapes->out[0]);

    shapes->out[1] = shapes->out[0];
    shapes->out[1].dtype = RB_I32;
    return err;
}

int rb_shapes_average_pool(struct rb_shapes *shapes)
{
    return pooled(shapes, &shapes->node->in[0]->type, &shapes->out[0]);
}

int rb_shapes_average_pool_grad(struct rb_shapes *shapes)
{
    struct rb_tensor_type y;
    int err = rb_shapes_want_given(shapes);

    if (!err)
        err = pooled(shapes, shapes->given, &y);
    if (!err && !rb_tensor_same(&y, &shapes->node->in[0]->type))
        err = rb_why_set(shapes->why, RB_EINVAL, "dy does not have the shape of the pool");
    if (!err)
        shapes->out[0] = *shapes->given;
    return err;
}

int rb_shapes_max_pool_grad(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_same(shapes, 0, 1);

    if (!err && shapes->node->in[1]->type.dtype != RB_I32)
        err = rb_why_set(shapes->why, RB_EINVAL, "positions must be int32");
    return err ? err : rb_shapes_average_pool_grad(shapes);
}
