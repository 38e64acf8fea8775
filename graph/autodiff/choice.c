/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of operators that choose elements: the largest, the k largest, those with an index; of
 * running sums; and of the gradient operators that import uses forward. */
#include "graph/autodiff/autodiff.h"

#include "base/arena.h"
#include "graph/fold.h"

#include <stdlib.h>

static struct rb_value *where(struct rb_diff *diff, struct rb_value *c, struct rb_value *a,
                              struct rb_value *b)
{
    return rb_diff_make(diff, RB_OP_WHERE, NULL, 3, (struct rb_value *[]){c, a, b}, 0, NULL);
}

/* All of dy to the operand that was chosen, half to each where both are equal. */
void rb_diff_extreme(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *zero = rb_diff_number(diff, dy[0], 0), *equal, *shared;

    equal = rb_diff_two(diff, RB_OP_EQUAL, node->in[0], node->in[1]);
    shared = where(diff, equal, rb_diff_scale(diff, dy[0], 0.5), zero);
    for (int i = 0; i < 2; i++)
        if (rb_diff_wants(diff, node, i)) {
            struct rb_value *own = node->in[i], *other = node->in[1 - i], *mine;

            mine =
                rb_diff_two(diff, node->op == RB_OP_MAX ? RB_OP_GREATER : RB_OP_LESS, own, other);
            rb_diff_give(diff, node, i,
                         rb_diff_sum_to(diff, where(diff, mine, dy[0], shared), &own->type));
        }
}

/* The remainder moves with the dividend. */
void rb_diff_mod(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    if (rb_diff_wants(diff, node, 1))
        rb_diff_refuse(diff, node, "its divisor depends on weights");
    else
        rb_diff_give(diff, node, 0, rb_diff_sum_to(diff, dy[0], &node->in[0]->type));
}

/* dy shared equally among all elements that are as large as the largest. */
void rb_diff_reduce_max(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    const struct rb_graph_attribute *axes = rb_node_attribute(node, "axes");
    struct rb_value *x = node->in[0], *chosen, *count, *share;
    struct rb_tensor_type kept = x->type;

    for (int i = 0; axes && i < axes->n_ints; i++)
        kept.dim[axes->ints[i]] = 1;
    chosen = rb_diff_two(diff, RB_OP_EQUAL, x, rb_diff_reshape(diff, node->out[0], &kept));
    chosen = rb_diff_make(diff, RB_OP_CAST, &x->type, 1, &chosen, 0, NULL);
    count = rb_diff_make(diff, RB_OP_REDUCE_SUM, &kept, 1, &chosen, node->n_attributes,
                         node->attributes);
    share = rb_diff_two(diff, RB_OP_DIV, rb_diff_reshape(diff, dy[0], &kept), count);
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, chosen, share));
}

static struct rb_value *gathered(struct rb_diff *diff, struct rb_value *dy,
                                 struct rb_value *indices, const struct rb_node *node)
{
    int64_t axis = rb_node_int(node, "axis", 0);
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    return rb_diff_make(diff, RB_OP_GATHER_ELEMENTS, NULL, 2, (struct rb_value *[]){dy, indices}, 1,
                        &attribute);
}

static struct rb_value *scattered(struct rb_diff *diff, struct rb_value *x,
                                  struct rb_value *indices, struct rb_value *updates,
                                  const struct rb_node *node, enum rb_scatter how)
{
    int64_t axis = rb_node_int(node, "axis", 0), reduction = how;
    struct rb_graph_attribute attributes[] = {rb_attr_ints("axis", &axis, 1),
                                              rb_attr_ints("reduction", &reduction, 1)};

    return rb_diff_make(diff, RB_OP_SCATTER, NULL, 3, (struct rb_value *[]){x, indices, updates}, 2,
                        attributes);
}

static struct rb_value *zeros(struct rb_diff *diff, const struct rb_value *like,
                              const struct rb_tensor_type *type)
{
    return rb_diff_expand(diff, rb_diff_number(diff, like, 0), type);
}

void rb_diff_gather_elements(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *x = node->in[0];

    rb_diff_give(
        diff, node, 0,
        scattered(diff, zeros(diff, x, &x->type), node->in[1], dy[0], node, RB_SCATTER_ADD));
}

/* 1 where a is b, else 0. */
static struct rb_value *alike(struct rb_diff *diff, struct rb_value *a, struct rb_value *b)
{
    struct rb_value *equal = rb_diff_two(diff, RB_OP_EQUAL, a, b);

    return equal ? rb_diff_make(diff, RB_OP_CAST, &a->type, 1, &equal, 0, NULL) : NULL;
}

/* dy shared equally among all operands that are equal to the result, the largest (or smallest). */
static void scatter_extreme(struct rb_diff *diff, struct rb_node *node, struct rb_value *dy)
{
    struct rb_value *x = node->in[0], *indices = node->in[1], *updates = node->in[2];
    struct rb_value *y = node->out[0], *kept = alike(diff, x, y), *taken, *share;

    taken = alike(diff, updates, gathered(diff, y, indices, node));
    share = rb_diff_two(diff, RB_OP_DIV, dy,
                        scattered(diff, kept, indices, taken, node, RB_SCATTER_ADD));
    if (rb_diff_wants(diff, node, 0))
        rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, kept, share));
    if (rb_diff_wants(diff, node, 2))
        rb_diff_give(diff, node, 2,
                     rb_diff_two(diff, RB_OP_MUL, taken, gathered(diff, share, indices, node)));
}

/* Do indices that are known name a place twice? */
static bool repeats(const struct rb_node *node)
{
    const struct rb_tensor_type *x = &node->in[0]->type, *type = &node->in[1]->type;
    int64_t axis = rb_node_int(node, "axis", 0), n = rb_tensor_elements(type);
    bool twice = false, *taken;

    if (!rb_fold_known(node->in[1]))
        return false;
    taken = rb_alloc(sizeof *taken * (size_t)(rb_tensor_elements(x) + 1));
    for (int64_t i = 0; i < n && !twice; i++) {
        int64_t at = rb_fold_integer(node->in[1], i), place = 0, stride = 1, rest = i;

        for (int a = x->rank - 1; a >= 0; a--) {
            int64_t coordinate = rest % type->dim[a];

            if (a == axis)
                coordinate = at < 0 ? at + x->dim[a] : at;
            rest /= type->dim[a];
            place += coordinate * stride;
            stride *= x->dim[a];
        }
        twice = place >= 0 && place < stride && taken[place];
        if (place >= 0 && place < stride)
            taken[place] = true;
    }
    free(taken);
    return twice;
}

/* Where updates went, x has no influence any more; with a sum it has.  Where several updates fell
 * on one place without a sum, the last one counted, but ONNX leaves that undefined. */
void rb_diff_scatter(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    int64_t reduction = rb_node_int(node, "reduction", RB_SCATTER_SET);
    struct rb_value *updates = node->in[2];

    if (reduction == RB_SCATTER_MAX || reduction == RB_SCATTER_MIN) {
        scatter_extreme(diff, node, dy[0]);
        return;
    }
    if (reduction != RB_SCATTER_SET && reduction != RB_SCATTER_ADD) {
        rb_diff_refuse(diff, node, "its reduction is mul");
        return;
    }
    if (reduction == RB_SCATTER_SET && rb_diff_wants(diff, node, 2) && repeats(node)) {
        rb_diff_refuse(diff, node,
                       "several updates fall on one place, and none is said to stay (PyTorch "
                       "exports the mean of scatter_reduce so: write a sum, divided by counts)");
        return;
    }
    if (rb_diff_wants(diff, node, 0))
        rb_diff_give(diff, node, 0,
                     reduction == RB_SCATTER_ADD
                         ? dy[0]
                         : scattered(diff, dy[0], node->in[1], zeros(diff, updates, &updates->type),
                                     node, RB_SCATTER_SET));
    if (rb_diff_wants(diff, node, 2))
        rb_diff_give(diff, node, 2, gathered(diff, dy[0], node->in[1], node));
}

void rb_diff_top_k(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_tensor_type places = node->out[0] ? node->out[0]->type : node->out[1]->type;
    struct rb_value *x = node->in[0];

    if (!dy[0])
        return;
    places.dtype = RB_I64;
    rb_diff_give(diff, node, 0,
                 scattered(diff, zeros(diff, x, &x->type), rb_diff_output(diff, node, 1, &places),
                           dy[0], node, RB_SCATTER_ADD));
}

/* The running sum from the other end. */
void rb_diff_cum_sum(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    int64_t axis = rb_node_int(node, "axis", 0), exclusive = rb_node_int(node, "exclusive", 0);
    int64_t reverse = !rb_node_int(node, "reverse", 0);
    struct rb_graph_attribute attributes[] = {rb_attr_ints("axis", &axis, 1),
                                              rb_attr_ints("exclusive", &exclusive, 1),
                                              rb_attr_ints("reverse", &reverse, 1)};

    rb_diff_give(diff, node, 0, rb_diff_make(diff, RB_OP_CUM_SUM, NULL, 1, dy, 3, attributes));
}

/* Padding: the part that was put among zeros is cut out again. */
void rb_diff_slice_grad(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0,
                 rb_diff_make(diff, RB_OP_SLICE, &node->in[0]->type, 1, dy, node->n_attributes,
                              node->attributes));
}

/* A transposed convolution: dx is the convolution of dy, dw that of a convolution whose input is dy
 * and whose output had the gradient x. */
void rb_diff_conv_grad_x(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *x = node->in[0], *w = node->in[1];

    if (rb_diff_wants(diff, node, 0))
        rb_diff_give(diff, node, 0,
                     rb_diff_make(diff, RB_OP_CONV, NULL, 2, (struct rb_value *[]){dy[0], w},
                                  node->n_attributes, node->attributes));
    if (rb_diff_wants(diff, node, 1))
        rb_diff_give(diff, node, 1,
                     rb_diff_make(diff, RB_OP_CONV_GRAD_W, &w->type, 2,
                                  (struct rb_value *[]){x, dy[0]}, node->n_attributes,
                                  node->attributes));
}
