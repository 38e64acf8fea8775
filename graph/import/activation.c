/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, made of simpler operators.
 *
 * The numbers of a branch must be finite even where it is not taken: a gradient of 0 times an
 * infinity would be NaN.  So an exponential sees only numbers that its branch is for. */
#include "graph/import/make.h"

#include <math.h>

/* `yes` where x is above `bound`, else `no`. */
static struct rb_value *above(struct rb_import *import, struct rb_value *x, double bound,
                              struct rb_value *yes, struct rb_value *no)
{
    struct rb_value *beyond = rb_make_two(import, RB_OP_GREATER, x, rb_make_like(import, x, bound));

    return rb_make_where(import, beyond, yes, no);
}

/* x above 0; alpha (e^(x / scale) - 1) below. */
static struct rb_value *elu(struct rb_import *import, struct rb_value *x, double alpha,
                            double scale)
{
    struct rb_value *below = above(import, x, 0, rb_make_like(import, x, 0), x), *bent;

    bent = rb_make_one(import, RB_OP_EXPM1, rb_make_times(import, below, 1 / scale));
    bent = rb_make_times(import, bent, alpha);
    return above(import, x, 0, x, bent);
}

int rb_import_op_elu(struct rb_import *import)
{
    double alpha = (double)rb_make_float(import, "alpha", 1);

    return rb_make_bind(import, 0, elu(import, rb_make_need(import, 0), alpha, 1));
}

int rb_import_op_celu(struct rb_import *import)
{
    double alpha = (double)rb_make_float(import, "alpha", 1);

    return rb_make_bind(import, 0, elu(import, rb_make_need(import, 0), alpha, alpha));
}

int rb_import_op_selu(struct rb_import *import)
{
    double alpha = (double)rb_make_float(import, "alpha", 1.67326319F);
    double gamma = (double)rb_make_float(import, "gamma", 1.05070102F);
    struct rb_value *y = elu(import, rb_make_need(import, 0), alpha, 1);

    return rb_make_bind(import, 0, rb_make_times(import, y, gamma));
}

int rb_import_op_leaky_relu(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    double alpha = (double)rb_make_float(import, "alpha", 0.01F);

    return rb_make_bind(import, 0, above(import, x, 0, x, rb_make_times(import, x, alpha)));
}

/* Before opset 7 a slope of several numbers was one for each channel. */
int rb_import_op_prelu(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *slope = rb_make_need(import, 1);

    if (import->narrow == RB_U64) /* no number is below 0 */
        return rb_make_bind(import, 0, x);
    if (!import->err && import->opset < 7 && slope->type.rank == 1 && slope->type.dim[0] > 1)
        for (int i = 2; i < x->type.rank; i++)
            slope = rb_make_unsqueeze(import, slope, slope ? slope->type.rank : 0);
    return rb_make_bind(import, 0,
                        above(import, x, 0, x, rb_make_two(import, RB_OP_MUL, x, slope)));
}

int rb_import_op_thresholded_relu(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    double alpha = (double)rb_make_float(import, "alpha", 1);

    return rb_make_bind(import, 0, above(import, x, alpha, x, rb_make_like(import, x, 0)));
}

/* alpha x + beta, kept within 0 and 1; the test is whether a bound is beyond it, so that a NaN
 * stays one. */
static struct rb_value *hard_sigmoid(struct rb_import *import, struct rb_value *x, double alpha,
                                     double beta)
{
    struct rb_value *line = rb_make_plus(import, rb_make_times(import, x, alpha), beta);
    struct rb_value *zero = rb_make_like(import, line, 0), *one = rb_make_like(import, line, 1);

    line = rb_make_where(import, rb_make_two(import, RB_OP_GREATER, zero, line), zero, line);
    return rb_make_where(import, rb_make_two(import, RB_OP_LESS, one, line), one, line);
}

int rb_import_op_hard_sigmoid(struct rb_import *import)
{
    double alpha = (double)rb_make_float(import, "alpha", 0.2F);
    double beta = (double)rb_make_float(import, "beta", 0.5F);

    return rb_make_bind(import, 0, hard_sigmoid(import, rb_make_need(import, 0), alpha, beta));
}

int rb_import_op_hard_swish(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);

    return rb_make_bind(import, 0,
                        rb_make_two(import, RB_OP_MUL, x, hard_sigmoid(import, x, 1.0 / 6, 0.5)));
}

int rb_import_op_softsign(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    struct rb_value *size = rb_make_one(import, RB_OP_ABS, x);

    return rb_make_bind(import, 0,
                        rb_make_two(import, RB_OP_DIV, x, rb_make_plus(import, size, 1)));
}

int rb_import_op_mish(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    struct rb_value *gate = rb_make_one(import, RB_OP_TANH, rb_make_one(import, RB_OP_SOFTPLUS, x));

    return rb_make_bind(import, 0, rb_make_two(import, RB_OP_MUL, x, gate));
}

/* x sigmoid(alpha x) */
int rb_import_op_swish(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *gate;
    double alpha = (double)rb_make_float(import, "alpha", 1);

    gate = rb_make_one(import, RB_OP_SIGMOID, rb_make_times(import, x, alpha));
    return rb_make_bind(import, 0, rb_make_two(import, RB_OP_MUL, x, gate));
}

int rb_import_op_shrink(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *low, *y;
    double lambda = (double)rb_make_float(import, "lambd", 0.5F);
    double bias = (double)rb_make_float(import, "bias", 0);

    low = rb_make_two(import, RB_OP_LESS, x, rb_make_like(import, x, -lambda));
    y = rb_make_where(import, low, rb_make_plus(import, x, bias), rb_make_like(import, x, 0));
    return rb_make_bind(import, 0, above(import, x, lambda, rb_make_plus(import, x, -bias), y));
}

/* 1 at the first maximum of each line, 0 elsewhere.  Before opset 13 all axes from `axis` on were
 * one. */
int rb_import_op_hardmax(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *best, *places, *y;
    int axis = rb_make_axis(import, "axis", import->opset < 13 ? 1 : -1, x ? x->type.rank : 1);
    struct rb_tensor_type type;
    int64_t dim[RB_MAX_RANK];

    if (import->err)
        return import->err;
    type = x->type;
    if (import->opset < 13) {
        dim[0] = dim[1] = 1;
        for (int i = 0; i < type.rank; i++)
            dim[i >= axis] *= type.dim[i];
        x = rb_make_reshape(import, x, 2, dim);
        axis = 1;
    }
    best = rb_make_with(import, RB_OP_ARG_MAX, 1, &x, "axis", axis);
    places = rb_make_count(import, x ? x->type.dim[axis] : 0);
    for (int i = 0; x && i < x->type.rank; i++)
        dim[i] = i == axis ? x->type.dim[i] : 1;
    places = rb_make_reshape(import, places, x ? x->type.rank : 0, dim);
    y = rb_make_cast(import, rb_make_two(import, RB_OP_EQUAL, places, best), type.dtype);
    return rb_make_bind(import, 0, rb_make_reshape(import, y, type.rank, type.dim));
}
