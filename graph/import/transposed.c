/* SPDX-License-Identifier: Apache-2.0 */
/* ConvTranspose: what the gradient of a convolution does to its input. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

struct transposed {
    struct rb_import_window window;
    int64_t group;
    const int64_t *more, *shape; /* output_padding, output_shape; NULL: absent */
    const char *auto_pad;
};

static void read(struct rb_import *import, const struct rb_value *x, const struct rb_value *w,
                 struct transposed *ret)
{
    const int64_t *kernel = NULL;
    int n = 0, spatial;

    ret->group = rb_make_int(import, "group", 1);
    ret->auto_pad = "NOTSET";
    if (!import->err && (x->type.rank < 3 || w->type.rank != x->type.rank))
        rb_make_bad(import, "x has %d axes and w has %d", x->type.rank, w->type.rank);
    if (import->err)
        return;
    spatial = x->type.rank - 2;
    import->err = rb_import_ints(import, "kernel_shape", &kernel, &n);
    if (!import->err && kernel &&
        (n != spatial || memcmp(kernel, w->type.dim + 2, sizeof kernel[0] * (size_t)n) != 0))
        rb_make_bad(import, "kernel_shape is not that of w");
    if (!import->err)
        import->err = rb_import_text(import, "auto_pad", &ret->auto_pad);
    if (!import->err)
        import->err = rb_import_window(import, x, w->type.dim + 2, &ret->window);
    n = spatial;
    if (!import->err)
        import->err = rb_import_ints(import, "output_padding", &ret->more, &n);
    if (!import->err && n != spatial)
        rb_make_bad(import, "output_padding has %d integers, %d are needed", n, spatial);
    if (!import->err)
        import->err = rb_import_ints(import, "output_shape", &ret->shape, &n);
    if (!import->err && ret->shape && n == spatial + 2)
        ret->shape += 2; /* some files count the batch and the channels too */
    else if (!import->err && ret->shape && n != spatial)
        rb_make_bad(import, "output_shape has %d integers, %d are needed", n, spatial);
}

/* The size of axis i of the output; pads that follow from it are filled in. */
static int64_t output_size(struct rb_import *import, struct transposed *t, int64_t size, int i)
{
    struct rb_import_window *w = &t->window;
    bool same = !strncmp(t->auto_pad, "SAME", 4);
    int64_t more = t->more ? t->more[i] : 0, *begin = &w->pads[i], *end = &w->pads[w->n + i];
    int64_t full, want, total;

    if (more < 0 || more > 1 << 24 || size > INT64_C(1) << 36) {
        rb_make_bad(import, "output_padding %" PRId64, more);
        return 1;
    }
    full = w->strides[i] * (size - 1) + more + (w->kernel[i] - 1) * w->dilations[i] + 1;
    if (!t->shape && !same)
        return full - *begin - *end;
    want = t->shape ? t->shape[i] : size * w->strides[i];
    total = full - want > 0 ? full - want : 0;
    *begin = !strcmp(t->auto_pad, "SAME_UPPER") ? total / 2 : total - total / 2;
    *end = total - *begin;
    return want;
}

int rb_import_op_conv_transpose(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *w = rb_make_need(import, 1);
    struct rb_value *bias = rb_import_in(import, 2), *y = NULL;
    struct rb_graph_attribute attributes[4];
    struct transposed t = {0};
    struct rb_tensor_type type;

    read(import, x, w, &t);
    if (!import->err && (t.group < 1 || t.group > w->type.dim[0]))
        rb_make_bad(import, "group %" PRId64, t.group);
    if (import->err)
        return import->err;
    type = x->type;
    type.dim[1] = w->type.dim[1] * t.group;
    for (int i = 0; i < t.window.n; i++)
        type.dim[2 + i] = output_size(import, &t, x->type.dim[2 + i], i);
    attributes[0] = rb_attr_ints("strides", t.window.strides, t.window.n);
    attributes[1] = rb_attr_ints("pads", t.window.pads, 2 * t.window.n);
    attributes[2] = rb_attr_ints("dilations", t.window.dilations, t.window.n);
    attributes[3] = rb_attr_ints("group", &t.group, 1);
    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_CONV_GRAD_X, 2, (struct rb_value *[]){x, w}, 4,
                                     attributes, &type, &y);
    if (bias && !import->err) {
        int64_t dim[RB_MAX_RANK] = {bias->type.dim[0], 1, 1, 1};

        y = rb_make_two(import, RB_OP_ADD, y, rb_make_reshape(import, bias, type.rank - 1, dim));
    }
    return rb_make_bind(import, 0, y);
}
