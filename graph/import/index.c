/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing elements by their indices. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

int rb_import_op_gather_elements(struct rb_import *import)
{
    struct rb_value *in[2] = {rb_make_need(import, 0), rb_make_need(import, 1)};
    int axis = rb_make_axis(import, "axis", 0, in[0] ? in[0]->type.rank : 1);

    return rb_make_bind(import, 0,
                        rb_make_with(import, RB_OP_GATHER_ELEMENTS, 2, in, "axis", axis));
}

static struct rb_value *scatter(struct rb_import *import, struct rb_value *x,
                                struct rb_value *indices, struct rb_value *updates, int64_t axis)
{
    static const char *const names[RB_SCATTER_COUNT] = {[RB_SCATTER_SET] = "none",
                                                        [RB_SCATTER_ADD] = "add",
                                                        [RB_SCATTER_MUL] = "mul",
                                                        [RB_SCATTER_MAX] = "max",
                                                        [RB_SCATTER_MIN] = "min"};
    struct rb_value *in[3] = {x, indices, updates}, *y = NULL;
    bool ordered;
    struct rb_graph_attribute attributes[2];
    const char *text = "none";
    int64_t reduction = RB_SCATTER_SET;

    if (!import->err)
        import->err = rb_import_text(import, "reduction", &text);
    while (reduction < RB_SCATTER_COUNT && strcmp(names[reduction], text) != 0)
        reduction++;
    if (reduction == RB_SCATTER_COUNT)
        rb_make_no(import, "reduction is not none, add, mul, max or min");
    attributes[0] = rb_attr_ints("axis", &axis, 1);
    attributes[1] = rb_attr_ints("reduction", &reduction, 1);
    ordered = reduction == RB_SCATTER_MAX || reduction == RB_SCATTER_MIN;
    for (int i = 0; ordered && i < 3; i += 2)
        in[i] = rb_make_turned(import, in[i]);
    if (!import->err)
        import->err = rb_import_emit(import, RB_OP_SCATTER, 3, in, 2, attributes, NULL, &y);
    return ordered ? rb_make_turned(import, y) : y;
}

int rb_import_op_scatter_elements(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    int axis = rb_make_axis(import, "axis", 0, x ? x->type.rank : 1);

    return rb_make_bind(import, 0,
                        scatter(import, x, rb_make_need(import, 1), rb_make_need(import, 2), axis));
}

/* The last axis of `indices` names a place along `n` axes of sizes `dim`: returns the place's
 * number when these are one axis.  An index beyond either end of its axis gives a number beyond all
 * places, so that it stays outside. */
static struct rb_value *number_of(struct rb_import *import, struct rb_value *indices,
                                  const int64_t *dim, int n)
{
    const double beyond = 0x1p56;
    struct rb_value *sizes, *steps, *zero, *outside;
    int64_t step[RB_MAX_RANK], last;

    if (import->err)
        return NULL;
    for (int i = n - 1; i >= 0; i--)
        step[i] = i == n - 1 ? 1 : step[i + 1] * dim[i + 1];
    last = indices->type.rank - 1;
    sizes = rb_graph_int64s(import->graph, NULL, dim, n);
    steps = rb_graph_int64s(import->graph, NULL, step, n);
    indices = rb_make_cast(import, indices, RB_I64);
    zero = rb_make_number(import, RB_I64, 0);
    outside = rb_make_number(import, RB_I64, beyond);
    indices = rb_make_where(import, rb_make_two(import, RB_OP_LESS, indices, zero),
                            rb_make_two(import, RB_OP_ADD, indices, sizes), indices);
    steps = rb_make_where(import, rb_make_two(import, RB_OP_LESS, indices, sizes),
                          rb_make_two(import, RB_OP_MUL, indices, steps), outside);
    indices = rb_make_where(import, rb_make_two(import, RB_OP_LESS, indices, zero), outside, steps);
    return rb_make_reduce(import, RB_OP_REDUCE_SUM, indices, &last, 1, false);
}

static int64_t product(const int64_t *dim, int n)
{
    int64_t size = 1;

    for (int i = 0; i < n; i++)
        size *= dim[i];
    return size;
}

/* How many axes the indices name, checked. */
static int named_axes(struct rb_import *import, const struct rb_value *x,
                      const struct rb_value *indices, int64_t batch)
{
    int64_t n = 0;

    if (import->err)
        return 0;
    if (indices->type.rank < 1 || batch < 0 || batch >= indices->type.rank ||
        batch >= x->type.rank ||
        memcmp(x->type.dim, indices->type.dim, sizeof x->type.dim[0] * (size_t)batch) != 0)
        rb_make_bad(import, "the indices do not fit with %" PRId64 " axes of batch", batch);
    else
        n = indices->type.dim[indices->type.rank - 1];
    if (!import->err && (n < 1 || n > x->type.rank - batch))
        rb_make_bad(import, "indices of %" PRId64 " axes into a tensor of %d", n, x->type.rank);
    return (int)n;
}

/* [batch, named axes, rest]: batch and named axes become one, along which rows are gathered. */
int rb_import_op_gather_nd(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *indices = rb_make_need(import, 1), *rows;
    int64_t batch = rb_make_int(import, "batch_dims", 0), dim[RB_MAX_RANK] = {0}, inside;
    int n = named_axes(import, x, indices, batch), rank = 0;
    const struct rb_tensor_type *type;

    if (import->err)
        return import->err;
    type = &x->type;
    inside = product(type->dim + batch, n);
    rows = number_of(import, indices, type->dim + batch, n);
    if (batch && !import->err) {
        struct rb_value *first = rb_make_count(import, product(type->dim, (int)batch));

        for (int i = 0; i < rows->type.rank; i++)
            dim[i] = i < batch ? type->dim[i] : 1;
        first = rb_make_reshape(import, first, rows->type.rank, dim);
        rows = rb_make_two(import, RB_OP_ADD, rows, rb_make_times(import, first, (double)inside));
    }
    dim[rank++] = product(type->dim, (int)batch) * inside;
    for (int i = (int)batch + n; i < type->rank; i++)
        dim[rank++] = type->dim[i];
    return rb_make_bind(import, 0,
                        rb_make_gather(import, rb_make_reshape(import, x, rank, dim), rows, 0));
}

/* Rows of [named axes, rest] are written. */
int rb_import_op_scatter_nd(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *indices = rb_make_need(import, 1);
    struct rb_value *updates = rb_make_need(import, 2), *rows, *y;
    int n = named_axes(import, x, indices, 0);
    int64_t dim[2], count, width;

    if (import->err)
        return import->err;
    width = product(x->type.dim + n, x->type.rank - n);
    rows = number_of(import, indices, x->type.dim, n);
    count = rows ? rb_tensor_elements(&rows->type) : 0;
    if (!import->err && rb_tensor_elements(&updates->type) != count * width)
        return RB_IMPORT_BAD(import, "%" PRId64 " updates for %" PRId64 " places",
                             rb_tensor_elements(&updates->type), count * width);
    dim[0] = count;
    dim[1] = 1;
    rows = rb_make_reshape(import, rows, 2, dim);
    dim[1] = width;
    rows = rb_make_expand(import, rows, 2, dim);
    updates = rb_make_reshape(import, updates, 2, dim);
    dim[0] = product(x->type.dim, n);
    y = scatter(import, rb_make_reshape(import, x, 2, dim), rows, updates, 0);
    return rb_make_bind(import, 0, rb_make_reshape(import, y, x->type.rank, x->type.dim));
}
