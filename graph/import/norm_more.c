/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norms, and norms made of them: groups of channels are the rows of a layer norm,
 * neighbouring channels the window of a pool. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

/* Has the scale one number for each element that is normalized together, and no more? */
static bool is_whole(const struct rb_value *scale, const struct rb_tensor_type *x, int axis)
{
    struct rb_tensor_type type = {.dtype = x->dtype, .rank = x->rank - axis};

    memcpy(type.dim, x->dim + axis, sizeof type.dim[0] * (size_t)type.rank);
    return !scale || rb_tensor_same_shape(&scale->type, &type);
}

/* y times scale, and bias, which are broadcast over it. */
static struct rb_value *spread(struct rb_import *import, struct rb_value *y, struct rb_value *scale,
                               struct rb_value *bias)
{
    struct rb_tensor_type type = y->type;

    y = rb_make_two(import, RB_OP_MUL, y, scale);
    if (bias)
        y = rb_make_two(import, RB_OP_ADD, y, bias);
    if (!import->err && !rb_tensor_same_shape(&y->type, &type))
        rb_make_bad(import, "scale or bias does not broadcast to x");
    return y;
}

int rb_import_op_layer_norm(struct rb_import *import)
{
    int64_t axis = -1, stash = 1;
    float epsilon = 1e-5F;
    struct rb_graph_attribute attributes[2];
    struct rb_value *in[3], *outs[3], *scale, *bias;
    unsigned want = 1;
    bool whole;
    int err = rb_import_need(import, 0, &in[0]);

    if (!err)
        err = rb_import_need(import, 1, &in[1]);
    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err)
        err = rb_import_axis(import, axis, in[0]->type.rank, &axis);
    if (!err)
        err = rb_import_float(import, "epsilon", &epsilon);
    if (!err)
        err = rb_import_int(import, "stash_type", &stash);
    if (!err && stash != 1)
        err = RB_IMPORT_NO(import, "stash_type %" PRId64 "; float32 is supported", stash);
    if (err)
        return err;
    in[2] = rb_import_in(import, 2);
    attributes[0] = rb_attr_ints("axis", &axis, 1);
    attributes[1] = rb_attr_float("epsilon", &epsilon);
    for (int i = 1; i < 3; i++)
        want |= rb_import_wants(import, i) ? 1u << i : 0;
    scale = in[1];
    bias = in[2];
    whole = is_whole(scale, &in[0]->type, (int)axis) && is_whole(bias, &in[0]->type, (int)axis);
    if (!whole) {
        in[1] = rb_make_expand(import, rb_make_number(import, RB_F32, 1),
                               in[0]->type.rank - (int)axis, in[0]->type.dim + axis);
        in[2] = NULL;
        err = import->err;
    }
    if (!err)
        err = rb_import_emit_many(import, RB_OP_LAYER_NORM, 3, in, 2, attributes, want, NULL, outs);
    if (!err && !whole) {
        outs[0] = spread(import, outs[0], scale, bias);
        err = import->err;
    }
    for (int i = 0; !err && i < 3; i++)
        if (want >> i & 1u)
            err = rb_import_bind(import, i, outs[i]);
    return err;
}

/* (x - mean) / sqrt(variance + epsilon) of each of `rows` rows. */
static struct rb_value *normal_rows(struct rb_import *import, struct rb_value *x, int64_t rows,
                                    float epsilon)
{
    struct rb_graph_attribute attributes[2];
    struct rb_value *in[2] = {NULL}, *y = NULL;
    const int64_t axis = 1;
    int64_t columns;

    if (import->err)
        return NULL;
    columns = rows ? rb_tensor_elements(&x->type) / rows : 0;
    in[0] = rb_make_reshape(import, x, 2, (int64_t[]){rows, columns});
    in[1] = rb_make_expand(import, rb_make_number(import, RB_F32, 1), 1, &columns);
    attributes[0] = rb_attr_ints("axis", &axis, 1);
    attributes[1] = rb_attr_float("epsilon", &epsilon);
    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_LAYER_NORM, 2, in, 2, attributes, NULL, &y);
    return rb_make_reshape(import, y, x->type.rank, x->type.dim);
}

/* One number a channel, to stand beside N C spatial; `repeat`: each stands for so many channels. */
static struct rb_value *by_channel(struct rb_import *import, struct rb_value *v, int64_t channels,
                                   int rank)
{
    int64_t dim[RB_MAX_RANK] = {channels}, n;

    if (import->err || !v)
        return NULL;
    n = v->type.rank == 1 ? v->type.dim[0] : 0;
    if (n < 1 || channels % n)
        return rb_make_bad(import, "scale and bias must be one number for each channel");
    if (n != channels) {
        v = rb_make_reshape(import, v, 2, (int64_t[]){n, 1});
        v = rb_make_expand(import, v, 2, (int64_t[]){n, channels / n});
    }
    for (int i = 1; i < rank - 1; i++)
        dim[i] = 1;
    return rb_make_reshape(import, v, rank - 1, dim);
}

static struct rb_value *scaled(struct rb_import *import, struct rb_value *y)
{
    struct rb_value *scale = rb_make_need(import, 1), *bias = rb_make_need(import, 2);

    if (import->err)
        return NULL;
    scale = by_channel(import, scale, y->type.dim[1], y->type.rank);
    bias = by_channel(import, bias, y->type.dim[1], y->type.rank);
    return rb_make_two(import, RB_OP_ADD, rb_make_two(import, RB_OP_MUL, y, scale), bias);
}

int rb_import_op_instance_norm(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    float epsilon = rb_make_float(import, "epsilon", 1e-5F);

    if (!import->err && x->type.rank < 3)
        rb_make_bad(import, "the input has no spatial axes");
    x = normal_rows(import, x, x && !import->err ? x->type.dim[0] * x->type.dim[1] : 1, epsilon);
    return rb_make_bind(import, 0, scaled(import, x));
}

int rb_import_op_group_norm(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    int64_t groups = rb_make_int(import, "num_groups", 0);
    float epsilon = rb_make_float(import, "epsilon", 1e-5F);

    if (!import->err && (x->type.rank < 2 || groups < 1 || x->type.dim[1] % groups))
        rb_make_bad(import, "%" PRId64 " groups do not divide the channels", groups);
    x = normal_rows(import, x, import->err ? 1 : x->type.dim[0] * groups, epsilon);
    return rb_make_bind(import, 0, scaled(import, x));
}

int rb_import_op_mean_variance(struct rb_import *import)
{
    static const int64_t usual[] = {0, 2, 3};
    struct rb_value *x = rb_make_need(import, 0), *centred, *deviation;
    const int64_t *given = usual;
    int64_t axes[RB_MAX_RANK];
    int n = 3;

    if (!import->err)
        import->err = rb_import_ints(import, "axes", &given, &n);
    if (!import->err && n > x->type.rank)
        rb_make_bad(import, "%d axes of a tensor of %d", n, x->type.rank);
    for (int i = 0; !import->err && i < n; i++)
        import->err = rb_import_axis(import, given[i], x->type.rank, &axes[i]);
    centred = rb_make_two(import, RB_OP_SUB, x,
                          rb_make_reduce(import, RB_OP_REDUCE_MEAN, x, axes, n, true));
    deviation = rb_make_reduce(import, RB_OP_REDUCE_MEAN,
                               rb_make_two(import, RB_OP_MUL, centred, centred), axes, n, true);
    deviation = rb_make_one(import, RB_OP_SQRT, deviation);
    return rb_make_bind(
        import, 0, rb_make_two(import, RB_OP_DIV, centred, rb_make_plus(import, deviation, 1e-9)));
}

/* x / (bias + alpha times the mean of the squares of `size` neighbouring channels) to the beta; the
 * mean is a pool over the channels, zeros counted. */
int rb_import_op_lrn(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *squares, *mean = NULL;
    double alpha = (double)rb_make_float(import, "alpha", 1e-4F);
    double beta = (double)rb_make_float(import, "beta", 0.75F);
    double bias = (double)rb_make_float(import, "bias", 1);
    int64_t size = rb_make_int(import, "size", 1), plane = 1;
    int64_t kernel[] = {size, 1}, strides[] = {1, 1}, pads[] = {(size - 1) / 2, 0, size / 2, 0},
            no = 0, yes = 1;
    struct rb_graph_attribute attributes[] = {
        rb_attr_ints("kernel", kernel, 2), rb_attr_ints("strides", strides, 2),
        rb_attr_ints("pads", pads, 4), rb_attr_ints("ceil", &no, 1),
        rb_attr_ints("countPad", &yes, 1)};

    if (!import->err && (x->type.rank < 3 || size < 1 || size > 1 << 20))
        rb_make_bad(import, "size %" PRId64 ", %d axes", size, x->type.rank);
    if (import->err)
        return import->err;
    for (int i = 2; i < x->type.rank; i++)
        plane *= x->type.dim[i];
    squares = rb_make_two(import, RB_OP_MUL, x, x);
    squares =
        rb_make_reshape(import, squares, 4, (int64_t[]){x->type.dim[0], 1, x->type.dim[1], plane});
    if (!import->err)
        import->err =
            rb_import_emit(import, RB_OP_AVERAGE_POOL, 1, &squares, 5, attributes, NULL, &mean);
    mean = rb_make_reshape(import, mean, x->type.rank, x->type.dim);
    mean = rb_make_plus(import, rb_make_times(import, mean, alpha), bias);
    mean = rb_make_two(import, RB_OP_POW, mean, rb_make_number(import, RB_F32, beta));
    return rb_make_bind(import, 0, rb_make_two(import, RB_OP_DIV, x, mean));
}

/* x scale / sqrt(mean of squares + epsilon), over the axes from `axis` on. */
int rb_import_op_rms_norm(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *scale = rb_make_need(import, 1), *root;
    double epsilon = (double)rb_make_float(import, "epsilon", 1e-5F);
    int axis = rb_make_axis(import, "axis", -1, x ? x->type.rank : 1), n = 0;
    int64_t axes[RB_MAX_RANK];

    for (int i = axis; x && i < x->type.rank; i++)
        axes[n++] = i;
    root = rb_make_reduce(import, RB_OP_REDUCE_MEAN, rb_make_two(import, RB_OP_MUL, x, x), axes, n,
                          true);
    root = rb_make_one(import, RB_OP_SQRT, rb_make_plus(import, root, epsilon));
    x = rb_make_two(import, RB_OP_DIV, x, root);
    return rb_make_bind(import, 0, rb_make_two(import, RB_OP_MUL, x, scale));
}
