/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling. */
#include "graph/import/make.h"

static int pool_window(struct rb_import *import, struct rb_value **ret_x,
                       struct rb_import_window *ret_window)
{
    const int64_t *kernel = NULL;
    int n = 0;
    int err = rb_import_need(import, 0, ret_x);

    if (!err)
        err = rb_import_ints(import, "kernel_shape", &kernel, &n);
    if (!err && (!kernel || n < 1 || (*ret_x)->type.rank != n + 2))
        err = RB_IMPORT_BAD(import, "kernel_shape has %d entries, the input %d axes", n,
                            (*ret_x)->type.rank);
    return err ? err : rb_import_window(import, *ret_x, kernel, ret_window);
}

/* Positions in a plane as positions in the whole tensor; storage_order=1: the elements of the first
 * spatial axis lie together. */
static struct rb_value *places(struct rb_import *import, const struct rb_value *x,
                               struct rb_value *in_plane)
{
    int64_t dim[RB_MAX_RANK] = {x->type.dim[0], x->type.dim[1], 1, 1, 1}, plane = 1, w, h;
    struct rb_value *planes, *places, *column;

    for (int i = 2; i < x->type.rank; i++)
        plane *= x->type.dim[i];
    places = rb_make_cast(import, in_plane, RB_I64);
    if (rb_make_int(import, "storage_order", 0)) {
        if (x->type.rank != 4)
            return rb_make_no(import, "storage_order with %d spatial axes", x->type.rank - 2);
        h = x->type.dim[2];
        w = x->type.dim[3];
        column = rb_make_two(import, RB_OP_MOD, places, rb_make_number(import, RB_I64, (double)w));
        places = rb_make_two(import, RB_OP_DIV, places, rb_make_number(import, RB_I64, (double)w));
        places = rb_make_two(import, RB_OP_ADD, places, rb_make_times(import, column, (double)h));
    }
    planes = rb_make_count(import, x->type.dim[0] * x->type.dim[1]);
    planes = rb_make_times(import, planes, (double)plane);
    planes = rb_make_reshape(import, planes, x->type.rank, dim);
    return rb_make_two(import, RB_OP_ADD, places, planes);
}

int rb_import_op_max_pool(struct rb_import *import)
{
    struct rb_graph_attribute attributes[5];
    struct rb_import_window window;
    int64_t ceil = 0;
    struct rb_value *x, *out[2];
    enum rb_dtype type;
    unsigned want;
    int err = pool_window(import, &x, &window);

    if (!err)
        err = rb_import_int(import, "ceil_mode", &ceil);
    if (err)
        return err;
    ceil = ceil != 0;
    attributes[0] = rb_attr_ints("kernel", window.kernel, window.n);
    attributes[1] = rb_attr_ints("strides", window.strides, window.n);
    attributes[2] = rb_attr_ints("pads", window.pads, 2 * window.n);
    attributes[3] = rb_attr_ints("dilations", window.dilations, window.n);
    attributes[4] = rb_attr_ints("ceil", &ceil, 1);
    type = x->type.dtype;
    if (type == RB_U8 || type == RB_I8)
        x = rb_make_cast(import, x, RB_F32);
    if (import->err)
        return import->err;
    want = rb_import_wants(import, 1) ? 3 : 1;
    err = rb_import_emit_many(import, RB_OP_MAX_POOL, 1, &x, 5, attributes, want, NULL, out);
    if (!err)
        err = rb_make_bind(import, 0, rb_make_cast(import, out[0], type));
    return err || want == 1 ? err : rb_make_bind(import, 1, places(import, x, out[1]));
}

int rb_import_op_average_pool(struct rb_import *import)
{
    struct rb_graph_attribute attributes[5];
    struct rb_import_window window;
    int64_t ceil = 0, count_pad = 0;
    struct rb_value *x, *out;
    int err = pool_window(import, &x, &window);

    if (!err)
        err = rb_import_int(import, "ceil_mode", &ceil);
    if (!err)
        err = rb_import_int(import, "count_include_pad", &count_pad);
    for (int i = 0; !err && i < window.n; i++)
        if (window.dilations[i] != 1)
            err = RB_IMPORT_NO(import, "dilations");
    if (err)
        return err;
    ceil = ceil != 0;
    count_pad = count_pad != 0;
    attributes[0] = rb_attr_ints("kernel", window.kernel, window.n);
    attributes[1] = rb_attr_ints("strides", window.strides, window.n);
    attributes[2] = rb_attr_ints("pads", window.pads, 2 * window.n);
    attributes[3] = rb_attr_ints("ceil", &ceil, 1);
    attributes[4] = rb_attr_ints("countPad", &count_pad, 1);
    err = rb_import_emit(import, RB_OP_AVERAGE_POOL, 1, &x, 5, attributes, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* A window as large as the plane: a reduction that keeps its axes as 1. */
int rb_import_op_global_pool(struct rb_import *import)
{
    struct rb_graph_attribute attribute;
    int64_t axes[RB_MAX_RANK];
    struct rb_value *x, *out;
    int n = 0;
    int err = rb_import_need(import, 0, &x);

    if (!err && x->type.rank < 3)
        err = RB_IMPORT_BAD(import, "the input has no spatial axes");
    if (err)
        return err;
    for (int i = 2; i < x->type.rank; i++)
        axes[n++] = i;
    attribute = rb_attr_ints("axes", axes, n);
    err = rb_import_emit(import, import->op->op, 1, &x, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}
