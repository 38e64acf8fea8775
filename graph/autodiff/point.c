/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the elementwise operators.  Inputs may have been broadcast, so gradients are summed
 * to the input's shape. */
#include "graph/autodiff/autodiff.h"

#include <math.h>

static void give(struct rb_diff *diff, struct rb_node *node, int slot, struct rb_value *gradient)
{
    rb_diff_give(diff, node, slot, rb_diff_sum_to(diff, gradient, &node->in[slot]->type));
}

void rb_diff_add(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    for (int i = 0; i < 2; i++)
        if (rb_diff_wants(diff, node, i))
            give(diff, node, i, dy[0]);
}

void rb_diff_sub(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    if (rb_diff_wants(diff, node, 0))
        give(diff, node, 0, dy[0]);
    if (rb_diff_wants(diff, node, 1)) {
        /* Summed first: fewer elements to negate. */
        struct rb_value *sum = rb_diff_sum_to(diff, dy[0], &node->in[1]->type);

        rb_diff_give(diff, node, 1, rb_diff_one(diff, RB_OP_NEG, sum));
    }
}

void rb_diff_mul(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    for (int i = 0; i < 2; i++)
        if (rb_diff_wants(diff, node, i))
            give(diff, node, i, rb_diff_two(diff, RB_OP_MUL, dy[0], node->in[1 - i]));
}

void rb_diff_div(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *b = node->in[1];

    if (rb_diff_wants(diff, node, 0))
        give(diff, node, 0, rb_diff_two(diff, RB_OP_DIV, dy[0], b));
    if (rb_diff_wants(diff, node, 1)) { /* -dy y / b */
        struct rb_value *part = rb_diff_two(diff, RB_OP_MUL, dy[0], node->out[0]);

        part = rb_diff_two(diff, RB_OP_DIV, part, b);
        part = rb_diff_sum_to(diff, part, &b->type);
        rb_diff_give(diff, node, 1, rb_diff_one(diff, RB_OP_NEG, part));
    }
}

/* x^(p-1), written without a power where a constant p needs none.  Where p is 0 it is x^0: the
 * slope there is 0 even if x is 0, and p times x^0 gives that. */
static struct rb_value *lower_power(struct rb_diff *diff, struct rb_value *x,
                                    struct rb_value *exponent)
{
    struct rb_graph *graph = diff->graph;
    int64_t n = rb_tensor_elements(&exponent->type);
    const float *p = exponent->data;
    float *less;

    if (exponent->role != RB_VALUE_CONST || exponent->type.dtype != RB_F32) {
        struct rb_value *in[3] = {
            rb_diff_two(diff, RB_OP_EQUAL, exponent, rb_diff_number(diff, exponent, 0)), exponent,
            rb_diff_two(diff, RB_OP_SUB, exponent, rb_diff_number(diff, exponent, 1))};

        return rb_diff_two(diff, RB_OP_POW, x,
                           rb_diff_make(diff, RB_OP_WHERE, NULL, 3, in, 0, NULL));
    }
    if (n == 1 && p[0] == 2.0f)
        return x;
    less = rb_arena_alloc(&graph->arena, sizeof(*less) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        less[i] = p[i] == 0.0f ? 0.0f : p[i] - 1.0f;
    return rb_diff_two(diff, RB_OP_POW, x,
                       rb_graph_value(graph, RB_VALUE_CONST, NULL, &exponent->type, less));
}

void rb_diff_pow(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *x = node->in[0], *p = node->in[1], *slope;

    if (rb_diff_wants(diff, node, 0)) {
        slope = rb_diff_two(diff, RB_OP_MUL, lower_power(diff, x, p), p);
        give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, dy[0], slope));
    }
    if (rb_diff_wants(diff, node, 1)) { /* dy y log x; 0 where x is 0 and y is finite */
        struct rb_value *none = rb_diff_two(diff, RB_OP_EQUAL, x, rb_diff_number(diff, x, 0));
        struct rb_value *safe[3] = {none, rb_diff_number(diff, x, 1), x};
        struct rb_value *pole[3] = {rb_diff_two(diff, RB_OP_LESS, p, rb_diff_number(diff, p, 0)), x,
                                    rb_diff_make(diff, RB_OP_WHERE, NULL, 3, safe, 0, NULL)};

        slope = rb_diff_make(diff, RB_OP_WHERE, NULL, 3, pole, 0, NULL);
        slope = rb_diff_two(diff, RB_OP_MUL, node->out[0], rb_diff_one(diff, RB_OP_LOG, slope));
        give(diff, node, 1, rb_diff_two(diff, RB_OP_MUL, dy[0], slope));
    }
}

void rb_diff_where(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *zero = rb_diff_number(diff, dy[0], 0);

    for (int i = 1; i < 3; i++)
        if (rb_diff_wants(diff, node, i)) {
            struct rb_value *in[] = {node->in[0], i == 1 ? dy[0] : zero, i == 1 ? zero : dy[0]};

            give(diff, node, i, rb_diff_make(diff, RB_OP_WHERE, NULL, 3, in, 0, NULL));
        }
}

void rb_diff_neg(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_one(diff, RB_OP_NEG, dy[0]));
}

void rb_diff_abs(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *sign = rb_diff_one(diff, RB_OP_SIGN, node->in[0]);

    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, dy[0], sign));
}

/* A step function: the gradient is zero, so none is handed on. */
void rb_diff_sign(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    (void)diff, (void)node, (void)dy;
}

void rb_diff_exp(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, dy[0], node->out[0]));
}

void rb_diff_log(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_DIV, dy[0], node->in[0]));
}

void rb_diff_sqrt(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *half = rb_diff_scale(diff, dy[0], 0.5);

    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_DIV, half, node->out[0]));
}

void rb_diff_reciprocal(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *y = node->out[0];
    struct rb_value *part = rb_diff_two(diff, RB_OP_MUL, dy[0], rb_diff_two(diff, RB_OP_MUL, y, y));

    rb_diff_give(diff, node, 0, rb_diff_one(diff, RB_OP_NEG, part));
}

void rb_diff_tanh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_TANH_GRAD, dy[0], node->out[0]));
}

void rb_diff_sigmoid(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_SIGMOID_GRAD, dy[0], node->out[0]));
}

void rb_diff_erf(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_ERF_GRAD, dy[0], node->in[0]));
}

void rb_diff_relu(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_RELU_GRAD, dy[0], node->out[0]));
}

void rb_diff_gelu(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *in[] = {dy[0], node->in[0]};

    rb_diff_give(
        diff, node, 0,
        rb_diff_make(diff, RB_OP_GELU_GRAD, NULL, 2, in, node->n_attributes, node->attributes));
}

void rb_diff_cast(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *x = node->in[0];

    if (dy[0]->type.dtype == x->type.dtype)
        rb_diff_give(diff, node, 0, dy[0]);
    else
        rb_diff_give(diff, node, 0, rb_diff_make(diff, RB_OP_CAST, &x->type, 1, dy, 0, NULL));
}
