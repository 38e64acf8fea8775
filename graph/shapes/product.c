/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and convolutions. */
#include "graph/shapes/shapes.h"

#include <inttypes.h>

static int check_bias(struct rb_shapes *shapes, int64_t size)
{
    const struct rb_tensor_type *bias;

    if (shapes->node->n_in < 3 || !shapes->node->in[2])
        return 0;
    bias = &shapes->node->in[2]->type;
    if (bias->dtype != RB_F32 || bias->rank != 1 || bias->dim[0] != size)
        return rb_why_set(shapes->why, RB_EINVAL, "the bias is not float32[%" PRId64 "]", size);
    return 0;
}

int rb_shapes_matmul(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *a = rb_shapes_in(shapes, 0), *b = rb_shapes_in(shapes, 1);
    struct rb_tensor_type *out = &shapes->out[0];
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];
    bool trans_a = rb_node_int(shapes->node, "transA", 0);
    bool trans_b = rb_node_int(shapes->node, "transB", 0);
    int err = rb_shapes_want_f32(shapes, 0);
    int leading;

    if (!err)
        err = rb_shapes_want_f32(shapes, 1);
    if (err)
        return err;
    if (a->rank < 2 || b->rank < 2 ||
        a->dim[a->rank - (trans_a ? 2 : 1)] != b->dim[b->rank - (trans_b ? 1 : 2)])
        return rb_why_set(shapes->why, RB_EINVAL, "%s%s times %s%s: the inner axes differ",
                          rb_tensor_text(a, text_a), trans_a ? " transposed" : "",
                          rb_tensor_text(b, text_b), trans_b ? " transposed" : "");
    *out = *a;
    leading = a->rank - 2;
    if (!rb_shapes_broadcast_dims(out->dim, &leading, b->dim, b->rank - 2))
        return rb_why_set(shapes->why, RB_EINVAL, "the leading axes of %s and %s do not broadcast",
                          rb_tensor_text(a, text_a), rb_tensor_text(b, text_b));
    out->rank = leading + 2;
    out->dim[leading] = a->dim[a->rank - (trans_a ? 1 : 2)];
    out->dim[leading + 1] = b->dim[b->rank - (trans_b ? 2 : 1)];
    return check_bias(shapes, out->dim[leading + 1]);
}

/* q, k and v are inputs from `first` on; ret_y, ret_l: the types of the result and of its
 * logarithms. */
static int attended(struct rb_shapes *shapes, int first, struct rb_tensor_type *ret_y,
                    struct rb_tensor_type *ret_l)
{
    const struct rb_tensor_type *q = rb_shapes_in(shapes, first);
    const struct rb_tensor_type *k = rb_shapes_in(shapes, first + 1);
    const struct rb_tensor_type *v = rb_shapes_in(shapes, first + 2);
    float ratio = rb_node_float(shapes->node, "ratio", 0);
    int rank = q ? q->rank : 0;
    bool fit = q && k && v && rank >= 2 && k->rank == rank && v->rank == rank;

    for (int i = 0; fit && i < rank - 2; i++)
        fit = k->dim[i] == q->dim[i] && v->dim[i] == q->dim[i];
    for (int i = first; fit && i < first + 3; i++)
        fit = !rb_shapes_want_f32(shapes, i);
    if (!fit || k->dim[rank - 1] != q->dim[rank - 1] || v->dim[rank - 2] != k->dim[rank - 2] ||
        !(ratio >= 0 && ratio < 1) ||
        (rb_node_int(shapes->node, "causal", 0) && k->dim[rank - 2] != q->dim[rank - 2]))
        return rb_why_set(shapes->why, RB_EINVAL, "queries, keys and values do not fit");
    *ret_y = *ret_l = *q;
    ret_y->dim[rank - 1] = v->dim[rank - 1];
    ret_l->dim[rank - 1] = 1;
    return 0;
}

int rb_shapes_attention(struct rb_shapes *shapes)
{
    return attended(shapes, 0, &shapes->out[0], &shapes->out[1]);
}

int rb_shapes_attention_grad(struct rb_shapes *shapes)
{
    struct rb_tensor_type y, l;
    int err = attended(shapes, 1, &y, &l);

    for (int i = 0; !err && i < 6; i++)
        err = rb_shapes_want_f32(shapes, i);
    if (err)
        return err;
    if (!rb_tensor_same(&shapes->node->in[0]->type, &y) ||
        !rb_tensor_same(&shapes->node->in[4]->type, &y) ||
        !rb_tensor_same(&shapes->node->in[5]->type, &l))
        return rb_why_set(shapes->why, RB_EINVAL, "dy, y or the logarithms do not fit");
    for (int i = 0; i < 3; i++)
        shapes->out[i] = shapes->node->in[1 + i]->type;
    return 0;
}

int rb_shapes_window(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                     const int64_t *kernel, bool ceil, int64_t *ret_spatial)
{
    enum { MOST = 1 << 24 };
    int n = x->rank - 2;
    const int64_t *strides = rb_shapes_ints(shapes, "strides", n);
    const int64_t *pads = rb_shapes_ints(shapes, "pads", 2 * n);
    const struct rb_graph_attribute *dilations = rb_node_attribute(shapes->node, "dilations");

    if (!strides || !pads)
        return RB_EINVAL;
    if (dilations && dilations->n_ints != n)
        return rb_why_set(shapes->why, RB_EINVAL, "dilations: %d integers are needed", n);
    for (int i = 0; i < n; i++) {
        int64_t dilation = dilations ? dilations->ints[i] : 1;
        int64_t begin = pads[i], end = pads[n + i], stride = strides[i], span, room;

        if (kernel[i] < 1 || kernel[i] > MOST || stride < 1 || stride > MOST || dilation < 1 ||
            dilation > MOST || begin < 0 || begin > MOST || end < 0 || end > MOST)
            return rb_why_set(shapes->why, RB_EINVAL,
                              "axis %d: kernel %" PRId64 ", stride %" PRId64 ", dilation %" PRId64
                              ", pads %" PRId64 " and %" PRId64 " are out of range",
                              i + 2, kernel[i], stride, dilation, begin, end);
        span = dilation * (kernel[i] - 1) + 1;
        room = x->dim[2 + i] + begin + end - span;
        if (room < 0)
            return rb_why_set(shapes->why, RB_EINVAL,
                              "axis %d: a window of %" PRId64 " does not fit %" PRId64, i + 2, span,
                              x->dim[2 + i] + begin + end);
        ret_spatial[i] = (room + (ceil ? stride - 1 : 0)) / stride + 1;
        /* A last window that would start in the end padding does not count. */
        if (ceil && (ret_spatial[i] - 1) * stride >= x->dim[2 + i] + begin)
            ret_spatial[i]--;
    }
    return 0;
}

/* The type of x conv w. */
static int convolved(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                     const struct rb_tensor_type *w, struct rb_tensor_type *ret)
{
    int64_t group = rb_node_int(shapes->node, "group", 1);
    char text_x[RB_TENSOR_TEXT], text_w[RB_TENSOR_TEXT];

    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED,
                          "x %s and w %s; one to three spatial axes are supported",
                          rb_tensor_text(x, text_x), rb_tensor_text(w, text_w));
    if (x->dtype != RB_F32 || w->dtype != RB_F32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED, "x and w must be float32");
    if (group < 1 || x->dim[1] % group || w->dim[0] % group || w->dim[1] != x->dim[1] / group)
        return rb_why_set(shapes->why, RB_EINVAL, "x %s and w %s do not fit with group %" PRId64,
                          rb_tensor_text(x, text_x), rb_tensor_text(w, text_w), group);
    ret->dtype = RB_F32;
    ret->rank = x->rank;
    ret->dim[0] = x->dim[0];
    ret->dim[1] = w->dim[0];
    return rb_shapes_window(shapes, x, w->dim + 2, false, ret->dim + 2);
}

int rb_shapes_conv(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = rb_shapes_in(shapes, 0), *w = rb_shapes_in(shapes, 1);
    int err = x && w ? convolved(shapes, x, w, &shapes->out[0]) : RB_EINVAL;

    return err ? err : check_bias(shapes, w->dim[0]);
}

static int check_dy(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                    const struct rb_tensor_type *w)
{
    struct rb_tensor_type y;
    int err = convolved(shapes, x, w, &y);

    if (!err && !rb_tensor_same(&y, &shapes->node->in[0]->type))
        err = rb_why_set(shapes->why, RB_EINVAL, "dy does not have the shape of the convolution");
    if (!err)
        shapes->out[0] = *shapes->given;
    return err;
}

int rb_shapes_conv_grad_x(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *w = rb_shapes_in(shapes, 1);
    int err = w ? rb_shapes_want_given(shapes) : RB_EINVAL;

    return err ? err : check_dy(shapes, shapes->given, w);
}

int rb_shapes_conv_grad_w(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = rb_shapes_in(shapes, 1);
    int err = x ? rb_shapes_want_given(shapes) : RB_EINVAL;

    return err ? err : check_dy(shapes, x, shapes->given);
}
