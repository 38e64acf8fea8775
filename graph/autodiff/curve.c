/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of curves: dy times the slope, written in x or in y, whichever is shorter. */
#include "graph/autodiff/autodiff.h"

/* Hand on dy times the slope; `over`: divided by its inverse. */
static void times(struct rb_diff *diff, struct rb_node *node, struct rb_value *dy,
                  struct rb_value *slope)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, dy, slope));
}

static void over(struct rb_diff *diff, struct rb_node *node, struct rb_value *dy,
                 struct rb_value *inverse)
{
    rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_DIV, dy, inverse));
}

static struct rb_value *negative(struct rb_diff *diff, struct rb_value *x)
{
    return rb_diff_one(diff, RB_OP_NEG, x);
}

/* a x x + b */
static struct rb_value *square(struct rb_diff *diff, struct rb_value *x, double a, double b)
{
    struct rb_value *y = rb_diff_scale(diff, rb_diff_two(diff, RB_OP_MUL, x, x), a);

    return rb_diff_two(diff, RB_OP_ADD, y, rb_diff_number(diff, x, b));
}

static struct rb_value *root(struct rb_diff *diff, struct rb_value *x)
{
    return rb_diff_one(diff, RB_OP_SQRT, x);
}

/* The slope is computed from x and not as y + 1, which has lost its digits where y is near -1. */
void rb_diff_expm1(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], rb_diff_one(diff, RB_OP_EXP, node->in[0]));
}

void rb_diff_sin(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], rb_diff_one(diff, RB_OP_COS, node->in[0]));
}

void rb_diff_cos(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], negative(diff, rb_diff_one(diff, RB_OP_SIN, node->in[0])));
}

void rb_diff_tan(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], square(diff, node->out[0], 1, 1));
}

void rb_diff_asin(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], root(diff, square(diff, node->in[0], -1, 1)));
}

void rb_diff_acos(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], negative(diff, root(diff, square(diff, node->in[0], -1, 1))));
}

void rb_diff_atan(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], square(diff, node->in[0], 1, 1));
}

void rb_diff_sinh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], rb_diff_one(diff, RB_OP_COSH, node->in[0]));
}

void rb_diff_cosh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], rb_diff_one(diff, RB_OP_SINH, node->in[0]));
}

void rb_diff_asinh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], root(diff, square(diff, node->in[0], 1, 1)));
}

void rb_diff_acosh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], root(diff, square(diff, node->in[0], 1, -1)));
}

void rb_diff_atanh(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    over(diff, node, dy[0], square(diff, node->in[0], -1, 1));
}

void rb_diff_softplus(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    times(diff, node, dy[0], rb_diff_one(diff, RB_OP_SIGMOID, node->in[0]));
}
