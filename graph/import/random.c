/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are drawn anew for each microbatch, all made of uniform ones.  They depend on the
 * job's seed, the step, the microbatch and the node, so that devices agree on them; a seed in the
 * file is ignored. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* `most` times uniform numbers of [0, 1). */
static struct rb_value *draw(struct rb_import *import, const struct rb_tensor_type *shape,
                             double most)
{
    struct rb_value *x = rb_make_number(import, RB_F32, most), *out = NULL;
    struct rb_tensor_type type = *shape;

    type.dtype = RB_F32;
    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_UNIFORM, 1, &x, 0, NULL, &type, &out);
    return import->err ? NULL : out;
}

/* Box and Muller's: sqrt(-2 log u) cos v, with u of (0, 1] and v an angle. */
static struct rb_value *draw_normal(struct rb_import *import, const struct rb_tensor_type *shape)
{
    struct rb_value *u = draw(import, shape, 1), *v = draw(import, shape, 2 * M_PI);

    u = rb_make_plus(import, rb_make_times(import, u, -1), 1);
    u = rb_make_times(import, rb_make_one(import, RB_OP_LOG, u), -2);
    return rb_make_two(import, RB_OP_MUL, rb_make_one(import, RB_OP_SQRT, u),
                       rb_make_one(import, RB_OP_COS, v));
}

/* The shape of input 0, or that of the attribute. */
static bool find_shape(struct rb_import *import, bool like, struct rb_tensor_type *ret)
{
    const int64_t *dim = NULL;
    struct rb_value *x = like ? rb_make_need(import, 0) : NULL;
    int rank = 0;

    if (!import->err && import->options->given)
        rb_make_no(import, "what it gives is drawn anew, and no file can say what that is");
    if (!like && !import->err)
        import->err = rb_import_ints(import, "shape", &dim, &rank);
    if (!import->err && rank > RB_MAX_RANK)
        rb_make_no(import, "%d axes; the most is %d", rank, RB_MAX_RANK);
    if (import->err)
        return false;
    *ret = (struct rb_tensor_type){.dtype = RB_F32, .rank = rank};
    if (x)
        *ret = x->type;
    else if (rank)
        memcpy(ret->dim, dim, sizeof(*dim) * (size_t)rank);
    return true;
}

/* Bind the result, of the type in the attribute `dtype`. */
static int bind_drawn(struct rb_import *import, struct rb_value *y, enum rb_dtype otherwise)
{
    int64_t type = rb_make_int(import, "dtype", (int64_t)otherwise);

    if (!import->err && (type < 1 || type > 64 || !rb_dtype_size((enum rb_dtype)type)))
        rb_make_no(import, "element type %" PRId64, type);
    return rb_make_bind(import, 0, rb_make_cast(import, y, (enum rb_dtype)type));
}

int rb_import_op_random(struct rb_import *import)
{
    bool like = strstr(import->op->name, "Like") != NULL;
    float low = rb_make_float(import, "low", 0), high = rb_make_float(import, "high", 1);
    float mean = rb_make_float(import, "mean", 0), scale = rb_make_float(import, "scale", 1);
    struct rb_tensor_type shape;
    struct rb_value *y;

    if (!find_shape(import, like, &shape))
        return import->err;
    if (strstr(import->op->name, "Normal"))
        y = rb_make_plus(import, rb_make_times(import, draw_normal(import, &shape), (double)scale),
                         (double)mean);
    else
        y = rb_make_plus(import, draw(import, &shape, (double)high - (double)low), (double)low);
    return bind_drawn(import, y, like ? shape.dtype : RB_F32);
}

/* 1 where a number of [0, 1) is below the input. */
int rb_import_op_bernoulli(struct rb_import *import)
{
    struct rb_value *p = rb_make_need(import, 0), *y;
    struct rb_tensor_type shape;

    if (!find_shape(import, true, &shape))
        return import->err;
    y = rb_make_two(import, RB_OP_LESS, draw(import, &shape, 1), rb_make_cast(import, p, RB_F32));
    return bind_drawn(import, y, shape.dtype);
}
