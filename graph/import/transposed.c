/* SPDX-License-Identifier: Apache-2.0 */
/* ConvTranspose and Col2Im: the operation by which a convolution's gradient reaches its input. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_WEIGHTS = 1 << 24 };

struct transposed {
    struct rb_import_window window;
    int64_t group;
    const int64_t *more, *shape; /* output_padding, output_shape; NULL: absent */
    const char *auto_pad;
    int64_t
        behind[RB_MAX_RANK]; /* by axis of the output, elements at its end that no window meets */
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
        ret->shape += 2; /* some files include the batch and the channels */
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

    if (size > INT64_C(1) << 36) {
        rb_make_bad(import, "%" PRId64 " elements of an axis", size);
        return 1;
    }
    if (more < 0 || (more > 0 && more >= w->strides[i] && more >= w->dilations[i])) {
        rb_make_bad(import,
                    "output_padding %" PRId64 " is not below the larger of stride %" PRId64
                    " and dilation %" PRId64,
                    more, w->strides[i], w->dilations[i]);
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

/* The gradient of a convolution does not cover output elements that a window would meet only if x
 * had one element more.  They are cut off here, out of the pads first, and appended later. */
static void cut_behind(struct transposed *t, const struct rb_tensor_type *x,
                       struct rb_tensor_type *type)
{
    struct rb_import_window *w = &t->window;

    for (int i = 0; i < w->n; i++) {
        int64_t *end = &w->pads[w->n + i], *size = &type->dim[2 + i], less;
        int64_t met =
            (x->dim[2 + i] - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilations[i] + 1;
        int64_t more = *size + w->pads[i] + *end - met - (w->strides[i] - 1);

        if (more <= 0 || x->dim[2 + i] < 1)
            continue;
        less = more < *end ? more : *end;
        *end -= less;
        t->behind[2 + i] = more - less;
        *size -= more - less;
    }
}

static struct rb_value *put_behind(struct rb_import *import, const struct transposed *t,
                                   struct rb_value *y)
{
    for (int i = 2; !import->err && i < 2 + t->window.n; i++) {
        struct rb_value *in[2] = {y, NULL};
        int64_t dim[RB_MAX_RANK];

        if (t->behind[i] < 1)
            continue;
        memcpy(dim, y->type.dim, sizeof dim);
        dim[i] = t->behind[i];
        in[1] = rb_make_expand(import, rb_make_like(import, y, 0), y->type.rank, dim);
        y = rb_make_concat(import, i, 2, in);
    }
    return y;
}

static struct rb_value *transposed(struct rb_import *import, struct rb_value *x, struct rb_value *w,
                                   const struct rb_import_window *window, int64_t group,
                                   const struct rb_tensor_type *type)
{
    struct rb_graph_attribute attributes[4] = {
        rb_attr_ints("strides", window->strides, window->n),
        rb_attr_ints("pads", window->pads, 2 * window->n),
        rb_attr_ints("dilations", window->dilations, window->n),
        rb_attr_ints("group", &group, 1),
    };
    struct rb_value *y = NULL;

    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_CONV_GRAD_X, 2, (struct rb_value *[]){x, w}, 4,
                                     attributes, type, &y);
    return y;
}

int rb_import_op_conv_transpose(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *w = rb_make_need(import, 1);
    struct rb_value *bias = rb_import_in(import, 2), *y;
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
    cut_behind(&t, &x->type, &type);
    y = put_behind(import, &t, transposed(import, x, w, &t.window, t.group, &type));
    if (bias && !import->err) {
        int64_t dim[RB_MAX_RANK] = {bias->type.dim[0], 1, 1, 1};

        y = rb_make_two(import, RB_OP_ADD, y, rb_make_reshape(import, bias, type.rank - 1, dim));
    }
    return rb_make_bind(import, 0, y);
}

/* Blocks of an image, each a column: every element of a block is a channel of its own, which the
 * window puts into its place. */
static struct rb_value *identity(struct rb_import *import, int64_t channels,
                                 const struct rb_import_window *window, int64_t block)
{
    struct rb_tensor_type type = {
        .dtype = RB_F32, .rank = 2 + window->n, .dim = {channels * block, 1}};
    float *ones;

    if (import->err || channels * block > MOST_WEIGHTS / block)
        return rb_make_no(import, "%" PRId64 " channels in blocks of %" PRId64, channels, block);
    ones = RB_ARENA_NEW(&import->graph->arena, float, channels *block *block);
    for (int i = 0; i < window->n; i++)
        type.dim[2 + i] = window->kernel[i];
    for (int64_t i = 0; i < channels * block; i++)
        ones[i * block + i % block] = 1;
    return rb_graph_value(import->graph, RB_VALUE_CONST, NULL, &type, ones);
}

int rb_import_op_col2im(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *w;
    const int64_t *image = NULL, *blocks = NULL;
    struct rb_import_window window = {0};
    struct rb_tensor_type type = {.dtype = RB_F32}, columns = {.dtype = RB_F32};
    int n_image = 0, n = 0;
    int64_t block = 1;

    if (!import->err)
        import->err = rb_import_known_ints(import, 1, "image_shape", &image, &n_image);
    if (!import->err)
        import->err = rb_import_known_ints(import, 2, "block_shape", &blocks, &n);
    if (!import->err && (x->type.rank != 3 || n < 1 || n != n_image))
        rb_make_bad(import, "columns, image and blocks do not fit together");
    if (!import->err && n > 3)
        rb_make_no(import, "%d spatial axes", n);
    if (import->err)
        return import->err;
    type.rank = columns.rank = 2 + n;
    type.dim[0] = columns.dim[0] = x->type.dim[0];
    for (int i = 0; i < n; i++) {
        if (image[i] < 1 || image[i] > MOST_WEIGHTS)
            return RB_IMPORT_NO(import, "an image of %" PRId64, image[i]);
        type.dim[2 + i] = image[i];
        if (blocks[i] < 1 || blocks[i] > MOST_WEIGHTS / block)
            return RB_IMPORT_NO(import, "a block of %" PRId64, blocks[i]);
        block *= blocks[i];
    }
    type.dim[1] = x->type.dim[1] / block;
    columns.dim[1] = x->type.dim[1];
    import->err = rb_import_window(import, &(struct rb_value){.type = type}, blocks, &window);
    for (int i = 0; !import->err && i < n; i++) {
        int64_t inside = image[i] + window.pads[i] + window.pads[n + i] -
                         window.dilations[i] * (blocks[i] - 1) - 1;

        columns.dim[2 + i] = inside < 0 ? 0 : inside / window.strides[i] + 1;
    }
    if (!import->err && (type.dim[1] * block != x->type.dim[1] ||
                         rb_tensor_elements(&columns) != rb_tensor_elements(&x->type)))
        rb_make_bad(import, "columns, image and blocks do not fit together");
    w = identity(import, type.dim[1], &window, block);
    x = rb_make_reshape(import, x, columns.rank, columns.dim);
    return rb_make_bind(import, 0, transposed(import, x, w, &window, type.dim[1], &type));
}
