/* SPDX-License-Identifier: Apache-2.0 */
/* Movement: elements change their places. */
#include "graph/fold.h"
#include "graph/import/import.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

int rb_import_op_transpose(struct rb_import *import)
{
    const int64_t *given = NULL;
    int64_t perm[RB_MAX_RANK];
    struct rb_graph_attribute attribute;
    struct rb_value *x, *out = NULL;
    bool moves = false;
    int n = 0;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_ints(import, "perm", &given, &n);
    if (!err && given && n != x->type.rank)
        err = RB_IMPORT_BAD(import, "perm has %d entries, the input %d axes", n, x->type.rank);
    if (err)
        return err;
    for (int i = 0; i < x->type.rank; i++) {
        perm[i] = given ? given[i] : x->type.rank - 1 - i;
        moves |= perm[i] != i;
    }
    if (!moves)
        return rb_import_bind(import, 0, x);
    attribute = rb_attr_ints("perm", perm, x->type.rank);
    err = rb_import_emit(import, RB_OP_TRANSPOSE, 1, &x, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

bool rb_import_is_one_number(struct rb_value *x)
{
    size_t size = rb_dtype_size(x->type.dtype);
    size_t bytes = (size_t)rb_tensor_elements(&x->type) * size;

    return rb_import_ask(x) && bytes &&
           !memcmp(x->data, (const char *)x->data + size, bytes - size);
}

/* PyTorch writes the first state of a recurrent layer as zeros of the batch that it was exported
 * with, and expands them to the batch that comes: where all elements are one number, any size will
 * do. */
static bool expand_number(struct rb_value **x, const int64_t *dim, int rank, struct rb_graph *graph,
                          struct rb_tensor_type *ret)
{
    struct rb_tensor_type type = {.dtype = (*x)->type.dtype, .rank = rank};
    int skip = rank - (*x)->type.rank;

    if (skip < 0 || !rb_import_is_one_number(*x))
        return false;
    for (int i = 0; i < rank; i++)
        type.dim[i] = dim[i] == 1 && i >= skip ? (*x)->type.dim[i - skip] : dim[i];
    *ret = type;
    type.rank = 0;
    *x = rb_graph_value(graph, RB_VALUE_CONST, (*x)->name, &type, (*x)->data);
    return true;
}

int rb_import_op_expand(struct rb_import *import)
{
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];
    struct rb_tensor_type type, asked = {0};
    struct rb_value *x, *out = NULL;
    const int64_t *dim;
    int rank;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_known_ints(import, 1, "shape", &dim, &rank);
    if (!err && rank > RB_MAX_RANK)
        err = RB_IMPORT_NO(import, "%d axes; the most is %d", rank, RB_MAX_RANK);
    if (err)
        return err;
    type = x->type;
    if (!rb_shapes_broadcast_dims(type.dim, &type.rank, dim, rank) &&
        !expand_number(&x, dim, rank, import->graph, &type)) {
        asked = (struct rb_tensor_type){.dtype = x->type.dtype, .rank = rank};
        memcpy(asked.dim, dim, sizeof(*dim) * (size_t)rank);
        return RB_IMPORT_BAD(import, "the input, %s, does not broadcast to %s",
                             rb_tensor_text(&x->type, have), rb_tensor_text(&asked, want));
    }
    if (rb_tensor_same(&type, &x->type))
        return rb_import_bind(import, 0, x);
    err = rb_import_emit(import, RB_OP_EXPAND, 1, &x, 0, NULL, &type, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* Parts without elements are left out; a list of shapes often has some. */
int rb_import_op_concat(struct rb_import *import)
{
    int n_in = (int)import->node->n_input, n = 0;
    struct rb_value **in = RB_ARENA_NEW(&import->graph->arena, struct rb_value *, n_in);
    struct rb_graph_attribute attribute;
    struct rb_value *out = NULL;
    int64_t axis = 0;
    int err = n_in ? 0 : RB_IMPORT_BAD(import, "no inputs");

    for (int i = 0; !err && i < n_in; i++) {
        err = rb_import_need(import, i, &in[n]);
        n += !err && (rb_tensor_elements(&in[n]->type) || (i == n_in - 1 && !n));
    }
    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err)
        err = rb_import_axis(import, axis, in[0]->type.rank, &axis);
    if (!err && n == 1)
        return rb_import_bind(import, 0, in[0]);
    attribute = rb_attr_ints("axis", &axis, 1);
    if (!err)
        err = rb_import_emit(import, RB_OP_CONCAT, n, in, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* Sizes: given, or as equal as possible (the last one smaller from opset 18 on). */
static int split_sizes(struct rb_import *import, int64_t size, int64_t *sizes, int n)
{
    const int64_t *given = NULL;
    int64_t parts = n, each;
    int n_given = 0;
    int err = import->opset >= 13 ? rb_import_known_ints(import, 1, "split", &given, &n_given)
                                  : rb_import_ints(import, "split", &given, &n_given);

    if (!err && import->opset >= 18)
        err = rb_import_int(import, "num_outputs", &parts);
    if (err)
        return err;
    if (given && n_given != n)
        return RB_IMPORT_BAD(import, "%d sizes for %d outputs", n_given, n);
    if (given) {
        memcpy(sizes, given, sizeof sizes[0] * (size_t)n);
        return 0;
    }
    if (parts != n || (size % n && import->opset < 18))
        return RB_IMPORT_BAD(import, "%" PRId64 " does not split into %" PRId64, size, parts);
    each = (size + n - 1) / n;
    for (int i = 0; i < n; i++) {
        sizes[i] = size < each ? size : each;
        size -= sizes[i];
    }
    return 0;
}

int rb_import_op_split(struct rb_import *import)
{
    struct rb_tensor_type types[RB_SHAPES_OUTPUTS];
    struct rb_value *x, *outs[RB_SHAPES_OUTPUTS];
    int64_t axis = 0, sizes[RB_SHAPES_OUTPUTS];
    int n = (int)import->node->n_output;
    struct rb_graph_attribute attribute;
    int err = rb_import_need(import, 0, &x);

    if (!err && (n < 1 || n > RB_SHAPES_OUTPUTS))
        err = RB_IMPORT_NO(import, "%d outputs; the most is %d", n, RB_SHAPES_OUTPUTS);
    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err)
        err = rb_import_axis(import, axis, x->type.rank, &axis);
    if (!err)
        err = split_sizes(import, x->type.dim[axis], sizes, n);
    if (err)
        return err;
    if (n == 1)
        return rb_import_bind(import, 0, x);
    for (int i = 0; i < n; i++) {
        types[i] = x->type;
        types[i].dim[axis] = sizes[i];
    }
    attribute = rb_attr_ints("axis", &axis, 1);
    err = rb_import_emit_many(import, RB_OP_SPLIT, 1, &x, 1, &attribute,
                              n == 32 ? UINT32_MAX : (1u << n) - 1, types, outs);
    for (int i = 0; !err && i < n; i++)
        err = rb_import_bind(import, i, outs[i]);
    return err;
}

/* One axis of Slice, by the rules of NumPy. */
static int slice_axis(struct rb_import *import, int64_t size, int64_t start, int64_t end,
                      int64_t step, int64_t *ret_start, int64_t *ret_count)
{
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size, span;

    if (step == 0 || step == INT64_MIN)
        return RB_IMPORT_BAD(import, "a step of %" PRId64, step);
    start = start < 0 ? start + size : start;
    start = start < least ? least : start > most ? most : start;
    end = end < 0 ? (end < -size ? -1 : end + size) : end;
    end = end < least ? least : end > most ? most : end;
    span = step > 0 ? end - start : start - end;
    step = step > 0 ? step : -step;
    *ret_count = span > 0 ? (span - 1) / step + 1 : 0;
    *ret_start = *ret_count ? start : 0;
    return 0;
}

/* Inputs from opset 10 on, attributes before. */
static int slice_list(struct rb_import *import, int i, const char *key, const int64_t **values,
                      int *n)
{
    *values = NULL;
    *n = 0;
    return import->opset >= 10 ? rb_import_known_ints(import, i, key, values, n)
                               : rb_import_ints(import, key, values, n);
}

int rb_import_op_slice(struct rb_import *import)
{
    const int64_t *from, *to, *given_axes, *by;
    int64_t starts[RB_MAX_RANK], steps[RB_MAX_RANK], axes[RB_MAX_RANK];
    int n_from, n_to, n_axes, n_by;
    struct rb_graph_attribute attributes[2];
    bool moves = false;
    struct rb_value *x, *out = NULL;
    struct rb_tensor_type type;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = slice_list(import, 1, "starts", &from, &n_from);
    if (!err)
        err = slice_list(import, 2, "ends", &to, &n_to);
    if (!err)
        err = slice_list(import, 3, "axes", &given_axes, &n_axes);
    if (!err)
        err = slice_list(import, 4, "steps", &by, &n_by);
    if (!err && given_axes)
        err = rb_import_axes(import, 10, 3, x->type.rank, axes, &n_axes);
    if (err)
        return err;
    if (!from || !to || n_from != n_to || n_from > x->type.rank ||
        (given_axes && n_axes != n_from) || (by && n_by != n_from))
        return RB_IMPORT_BAD(import, "starts, ends, axes and steps differ in length");
    type = x->type;
    for (int i = 0; i < type.rank; i++) {
        starts[i] = 0;
        steps[i] = 1;
    }
    for (int i = 0; !err && i < n_from; i++) {
        int64_t axis = given_axes ? axes[i] : i;

        steps[axis] = by ? by[i] : 1;
        moves |= steps[axis] != 1;
        err = slice_axis(import, x->type.dim[axis], from[i], to[i], steps[axis], &starts[axis],
                         &type.dim[axis]);
    }
    if (err)
        return err;
    if (rb_tensor_same(&type, &x->type) && !moves)
        return rb_import_bind(import, 0, x);
    attributes[0] = rb_attr_ints("starts", starts, type.rank);
    attributes[1] = rb_attr_ints("steps", steps, type.rank);
    err = rb_import_emit(import, RB_OP_SLICE, 1, &x, 2, attributes, &type, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* With positions that do not depend on the data, a table that is too short would give NaNs without
 * a reason.  (Constants gathered from constants are checked where they are folded.) */
static int check_rows(struct rb_import *import, const struct rb_value *table,
                      const struct rb_value *indices, int64_t axis)
{
    int64_t rows = table->type.dim[axis], n = rb_tensor_elements(&indices->type);

    if (!rb_fold_known(indices) || rb_fold_known(table))
        return 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rb_fold_integer(indices, i);

        if (row < -rows || row >= rows)
            return RB_IMPORT_BAD(import,
                                 "index %" PRId64 " is outside axis %" PRId64
                                 " of '%s', which has %" PRId64
                                 ": as where samples are longer than a "
                                 "table of positions",
                                 row, axis, table->name, rows);
    }
    return 0;
}

int rb_import_op_gather(struct rb_import *import)
{
    int64_t axis = 0, padding = rb_onnx_padding(import->model, import->node);
    struct rb_graph_attribute attributes[2];
    struct rb_value *in[2], *out = NULL;
    int err = rb_import_need(import, 0, &in[0]);

    if (!err)
        err = rb_import_need(import, 1, &in[1]);
    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err)
        err = rb_import_axis(import, axis, in[0]->type.rank, &axis);
    if (!err)
        err = check_rows(import, in[0], in[1], axis);
    attributes[0] = rb_attr_ints("axis", &axis, 1);
    attributes[1] = rb_attr_ints("padding", &padding, 1);
    if (!err)
        err = rb_import_emit(import, RB_OP_GATHER, 2, in, padding < 0 ? 1 : 2, attributes, NULL,
                             &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_trilu(struct rb_import *import)
{
    struct rb_graph_attribute attributes[2];
    int64_t upper = 1, k = 0, rows, columns;
    struct rb_value *x, *out = NULL;
    const int64_t *given;
    int n;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_int(import, "upper", &upper);
    if (!err)
        err = rb_import_known_ints(import, 1, "k", &given, &n);
    if (!err && x->type.rank < 2)
        err = RB_IMPORT_BAD(import, "two axes are needed");
    if (err)
        return err;
    if (given && n == 1)
        k = given[0];
    /* Beyond the corners every diagonal is the same. */
    rows = x->type.dim[x->type.rank - 2];
    columns = x->type.dim[x->type.rank - 1];
    k = k < -rows ? -rows : k > columns ? columns : k;
    upper = upper != 0;
    attributes[0] = rb_attr_ints("upper", &upper, 1);
    attributes[1] = rb_attr_ints("k", &k, 1);
    err = rb_import_emit(import, RB_OP_TRILU, 1, &x, 2, attributes, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}
