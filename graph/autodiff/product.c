/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of matrix products and convolutions. */
#include "graph/autodiff/autodiff.h"

static struct rb_value *product(struct rb_diff *diff, struct rb_value *a, bool trans_a,
                                struct rb_value *b, bool trans_b)
{
    const int64_t one = 1;
    struct rb_graph_attribute attributes[2];
    int n = 0;

    if (trans_a)
        attributes[n++] = rb_attr_ints("transA", &one, 1);
    if (trans_b)
        attributes[n++] = rb_attr_ints("transB", &one, 1);
    return rb_diff_make(diff, RB_OP_MATMUL, NULL, 2, (struct rb_value *[]){a, b}, n, attributes);
}

/* x with all axes but the last in one: a view. */
static struct rb_value *rows(struct rb_diff *diff, struct rb_value *x)
{
    struct rb_tensor_type flat = {.dtype = RB_F32, .rank = 2};
    int64_t columns;

    if (diff->err)
        return NULL;
    columns = x->type.dim[x->type.rank - 1];
    flat.dim[0] = 1;
    for (int i = 0; i + 1 < x->type.rank; i++)
        flat.dim[0] *= x->type.dim[i];
    flat.dim[1] = columns;
    return rb_diff_reshape(diff, x, &flat);
}

/* C = op(A) op(B) + bias.  With C' the gradient of C:
 *
 *            A                  B
 *     plain  C' op(B)^T         op(A)^T C'
 *     trans  op(B) C'^T         C'^T op(A)
 *
 * The gradient of a matrix that multiplies all rows of an activation (a weight) sums over the rows
 * in one product of 2-D views, and comes out in the weight's own layout. */
void rb_diff_matmul(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *a = node->in[0], *b = node->in[1], *dc = dy[0], *gradient;
    bool trans_a = rb_node_int(node, "transA", 0), trans_b = rb_node_int(node, "transB", 0);

    if (rb_diff_wants(diff, node, 0)) {
        gradient =
            trans_a ? product(diff, b, trans_b, dc, true) : product(diff, dc, false, b, !trans_b);
        rb_diff_give(diff, node, 0, rb_diff_sum_to(diff, gradient, &a->type));
    }
    if (rb_diff_wants(diff, node, 1)) {
        struct rb_value *rows_a = a, *rows_c = dc;

        if (b->type.rank == 2 && !trans_a) {
            rows_a = rows(diff, a);
            rows_c = rows(diff, dc);
        }
        gradient = trans_b ? product(diff, rows_c, true, rows_a, trans_a)
                           : product(diff, rows_a, !trans_a, rows_c, false);
        rb_diff_give(diff, node, 1, rb_diff_sum_to(diff, gradient, &b->type));
    }
    if (rb_diff_wants(diff, node, 2))
        rb_diff_give(diff, node, 2, rb_diff_sum_to(diff, dc, &node->in[2]->type));
}

/* The bias of a convolution belongs to axis 1: sum over the others. */
static struct rb_value *sum_channels(struct rb_diff *diff, struct rb_value *dy,
                                     const struct rb_tensor_type *type)
{
    struct rb_graph_attribute attribute;
    int64_t axes[RB_MAX_RANK];
    int n = 0;

    for (int i = 0; i < dy->type.rank; i++)
        if (i != 1)
            axes[n++] = i;
    attribute = rb_attr_ints("axes", axes, n);
    return rb_diff_make(diff, RB_OP_REDUCE_SUM, type, 1, &dy, 1, &attribute);
}

void rb_diff_conv(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *x = node->in[0], *w = node->in[1];

    if (rb_diff_wants(diff, node, 0))
        rb_diff_give(diff, node, 0,
                     rb_diff_make(diff, RB_OP_CONV_GRAD_X, &x->type, 2,
                                  (struct rb_value *[]){dy[0], w}, node->n_attributes,
                                  node->attributes));
    if (rb_diff_wants(diff, node, 1))
        rb_diff_give(diff, node, 1,
                     rb_diff_make(diff, RB_OP_CONV_GRAD_W, &w->type, 2,
                                  (struct rb_value *[]){dy[0], x}, node->n_attributes,
                                  node->attributes));
    if (rb_diff_wants(diff, node, 2))
        rb_diff_give(diff, node, 2, sum_channels(diff, dy[0], &node->in[2]->type));
}
