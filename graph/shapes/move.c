/* SPDX-License-Identifier: Apache-2.0 */
/* Views and movement: only the places of elements change. */
#include "graph/shapes/shapes.h"

#include <inttypes.h>

int rb_shapes_reshape(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];
    int err = rb_shapes_want_given(shapes);

    if (err)
        return err;
    if (rb_tensor_elements(x) != rb_tensor_elements(shapes->given) ||
        x->dtype != shapes->given->dtype)
        return rb_why_set(shapes->why, RB_EINVAL, "%s cannot become %s", rb_tensor_text(x, text_a),
                          rb_tensor_text(shapes->given, text_b));
    shapes->out[0] = *shapes->given;
    return 0;
}

int rb_shapes_transpose(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    const int64_t *perm = rb_shapes_ints(shapes, "perm", x->rank);
    unsigned seen = 0;

    if (!perm)
        return RB_EINVAL;
    shapes->out[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        if (perm[i] < 0 || perm[i] >= x->rank || seen >> perm[i] & 1u)
            return rb_why_set(shapes->why, RB_EINVAL, "perm is no permutation of %d axes", x->rank);
        seen |= 1u << perm[i];
        shapes->out[0].dim[i] = x->dim[perm[i]];
    }
    return 0;
}

int rb_shapes_expand(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    struct rb_tensor_type out = *x;
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];
    int err = rb_shapes_want_given(shapes);

    if (err)
        return err;
    if (!rb_shapes_broadcast_dims(out.dim, &out.rank, shapes->given->dim, shapes->given->rank) ||
        !rb_tensor_same(&out, shapes->given))
        return rb_why_set(shapes->why, RB_EINVAL, "%s cannot be expanded to %s",
                          rb_tensor_text(x, text_a), rb_tensor_text(shapes->given, text_b));
    shapes->out[0] = out;
    return 0;
}

int rb_shapes_concat(struct rb_shapes *shapes)
{
    struct rb_tensor_type *out = &shapes->out[0];
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];
    int axis;
    int err = rb_shapes_axis(shapes, shapes->node->in[0]->type.rank, &axis);

    if (err)
        return err;
    *out = shapes->node->in[0]->type;
    for (int i = 1; i < shapes->node->n_in; i++) {
        const struct rb_tensor_type *in = rb_shapes_in(shapes, i);
        struct rb_tensor_type like = *out;

        if (!in)
            return RB_EINVAL;
        like.dim[axis] = in->rank == out->rank ? in->dim[axis] : 0;
        if (!rb_tensor_same(in, &like))
            return rb_why_set(shapes->why, RB_EINVAL, "%s and %s do not join along axis %d",
                              rb_tensor_text(out, text_a), rb_tensor_text(in, text_b), axis);
        if (__builtin_add_overflow(out->dim[axis], in->dim[axis], &out->dim[axis]))
            return rb_why_set(shapes->why, RB_ELIMIT, "the result is too large");
    }
    return 0;
}

int rb_shapes_split(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *x = &shapes->node->in[0]->type;
    int64_t total = 0;
    int axis;
    int err = rb_shapes_axis(shapes, x->rank, &axis);

    if (!err)
        err = rb_shapes_want_given(shapes);
    for (int i = 0; !err && i < shapes->node->n_out; i++) {
        struct rb_tensor_type like = *x;

        err = rb_shapes_check(&shapes->given[i], shapes->why);
        if (err)
            break;
        like.dim[axis] = shapes->given[i].rank == x->rank ? shapes->given[i].dim[axis] : 0;
        if (!rb_tensor_same(&shapes->given[i], &like))
            err = rb_why_set(shapes->why, RB_EINVAL, "part %d differs beside axis %d", i, axis);
        total += like.dim[axis];
        shapes->out[i] = like;
    }
    if (!err && total != x->dim[axis])
        err = rb_why_set(shapes->why, RB_EINVAL,
                         "the parts have %" PRId64 " along axis %d, the input %" PRId64, total,
                         axis, x->dim[axis]);
    return err;
}

/* The slice of `whole` that starts and steps describe is `part`, and lies within it. */
static int check_slice(struct rb_shapes *shapes, const struct rb_tensor_type *whole,
                       const struct rb_tensor_type *part)
{
    const int64_t *starts = rb_shapes_ints(shapes, "starts", whole->rank);
    const int64_t *steps = rb_shapes_ints(shapes, "steps", whole->rank);

    if (!starts || !steps)
        return RB_EINVAL;
    if (whole->rank != part->rank || whole->dtype != part->dtype)
        return rb_why_set(shapes->why, RB_EINVAL, "a slice keeps rank and type");
    for (int i = 0; i < whole->rank; i++) {
        int64_t last;

        if (!steps[i])
            return rb_why_set(shapes->why, RB_EINVAL, "the step of axis %d is 0", i);
        if (!part->dim[i])
            continue;
        if (__builtin_mul_overflow(part->dim[i] - 1, steps[i], &last) ||
            __builtin_add_overflow(last, starts[i], &last) || starts[i] < 0 ||
            starts[i] >= whole->dim[i] || last < 0 || last >= whole->dim[i])
            return rb_why_set(shapes->why, RB_EINVAL,
                              "%" PRId64 " elements from %" PRId64 " by %" PRId64
                              " leave axis %d of %" PRId64,
                              part->dim[i], starts[i], steps[i], i, whole->dim[i]);
    }
    return 0;
}

int rb_shapes_slice(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_given(shapes);

    if (!err)
        err = check_slice(shapes, &shapes->node->in[0]->type, shapes->given);
    if (!err)
        shapes->out[0] = *shapes->given;
    return err;
}

int rb_shapes_slice_grad(struct rb_shapes *shapes)
{
    int err = rb_shapes_want_given(shapes);

    if (!err)
        err = check_slice(shapes, shapes->given, &shapes->node->in[0]->type);
    if (!err)
        shapes->out[0] = *shapes->given;
    return err;
}

int rb_shapes_trilu(struct rb_shapes *shapes)
{
    shapes->out[0] = shapes->node->in[0]->type;
    if (shapes->out[0].rank < 2)
        return rb_why_set(shapes->why, RB_EINVAL, "two axes are needed");
    return rb_shapes_ints(shapes, "upper", 1) && rb_shapes_ints(shapes, "k", 1) ? 0 : RB_EINVAL;
}

/* The type that gathering `indices` along `axis` of `x` gives. */
static int gathered(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                    struct rb_tensor_type *ret)
{
    const struct rb_tensor_type *indices = rb_shapes_in(shapes, 1);
    int axis;
    int err = indices ? rb_shapes_axis(shapes, x->rank, &axis) : RB_EINVAL;

    if (err)
        return err;
    if (indices->dtype != RB_I64 && indices->dtype != RB_I32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED, "indices are %s; int64 or int32 is needed",
                          rb_dtype_text(indices->dtype));
    if (x->rank - 1 + indices->rank > RB_MAX_RANK)
        return rb_why_set(shapes->why, RB_EINVAL, "the result has more than %d axes", RB_MAX_RANK);
    ret->dtype = x->dtype;
    ret->rank = 0;
    for (int i = 0; i < axis; i++)
        ret->dim[ret->rank++] = x->dim[i];
    for (int i = 0; i < indices->rank; i++)
        ret->dim[ret->rank++] = indices->dim[i];
    for (int i = axis + 1; i < x->rank; i++)
        ret->dim[ret->rank++] = x->dim[i];
    return 0;
}

int rb_shapes_gather(struct rb_shapes *shapes)
{
    return gathered(shapes, &shapes->node->in[0]->type, &shapes->out[0]);
}

int rb_shapes_gather_grad(struct rb_shapes *shapes)
{
    struct rb_tensor_type dy;
    int err = rb_shapes_want_given(shapes);

    if (!err)
        err = gathered(shapes, shapes->given, &dy);
    if (!err && !rb_tensor_same(&dy, &shapes->node->in[0]->type))
        err = rb_why_set(shapes->why, RB_EINVAL, "dy does not have the shape of the gathered");
    if (!err)
        shapes->out[0] = *shapes->given;
    return err;
}

/* Other filters of the same samples. */
int rb_shapes_exchange(struct rb_shapes *shapes)
{
    const struct rb_tensor_type *given = shapes->given;
    const struct rb_tensor_type *x =
        shapes->node->n_in && shapes->node->in[0] ? &shapes->node->in[0]->type : NULL;
    int err = shapes->node->n_out ? rb_shapes_want_given(shapes) : 0;

    if (!err && x)
        err = rb_shapes_want_f32(shapes, 0);
    if (err || !shapes->node->n_out)
        return err;
    if (given->dtype != RB_F32 || given->rank < 2 || (x && x->rank != given->rank))
        return rb_why_set(shapes->why, RB_EINVAL, "filters are axis 1 of a float32 tensor");
    for (int i = 0; x && i < x->rank; i++)
        if (i != 1 && x->dim[i] != given->dim[i])
            return rb_why_set(shapes->why, RB_EINVAL, "axis %d is %" PRId64 " and %" PRId64, i,
                              x->dim[i], given->dim[i]);
    shapes->out[0] = *given;
    return 0;
}
