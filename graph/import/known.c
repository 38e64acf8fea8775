/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with results known at import: constants, shapes, ranges. */
#include "graph/fold.h"
#include "graph/import/import.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int bind_constant(struct rb_import *import, const struct rb_tensor_type *type,
                         const void *data)
{
    return rb_import_bind(import, 0,
                          rb_graph_value(import->graph, RB_VALUE_CONST, import->name, type, data));
}

static int constant_tensor(struct rb_import *import, const Onnx__TensorProto *tensor)
{
    struct rb_tensor_type type;
    const void *data;
    int err = tensor ? rb_onnx_tensor(import->model, tensor, &import->graph->arena, &type, &data,
                                      import->why)
                     : RB_IMPORT_BAD(import, "attribute 'value' is no tensor");

    return err ? err : bind_constant(import, &type, data);
}

int rb_import_op_constant(struct rb_import *import)
{
    struct rb_tensor_type type = {.dtype = RB_I64};
    const Onnx__AttributeProto *a;
    static const int64_t nothing;
    const char *key;

    if (import->node->n_attribute != 1 || !import->node->attribute[0]->name)
        return RB_IMPORT_BAD(import, "exactly one attribute is needed");
    key = import->node->attribute[0]->name;
    a = rb_import_attribute(import, key);
    if (!a)
        return RB_IMPORT_BAD(import, "the function was called without its value");
    if (!strcmp(key, "value"))
        return constant_tensor(import, a->t);
    if (!strcmp(key, "value_int"))
        return bind_constant(import, &type, &a->i);
    if (!strcmp(key, "value_float")) {
        type.dtype = RB_F32;
        return bind_constant(import, &type, &a->f);
    }
    type.rank = 1;
    if (!strcmp(key, "value_ints")) { /* no integers: the shape of a scalar */
        type.dim[0] = (int64_t)a->n_ints;
        return bind_constant(import, &type, a->n_ints ? (const void *)a->ints : &nothing);
    }
    if (!strcmp(key, "value_floats")) {
        type.dtype = RB_F32;
        type.dim[0] = (int64_t)a->n_floats;
        return bind_constant(import, &type, a->n_floats ? (const void *)a->floats : &nothing);
    }
    return RB_IMPORT_NO(import, "a constant that is neither a tensor nor numbers");
}

/* One number expanded: folded where it is small. */
int rb_import_op_constant_of_shape(struct rb_import *import)
{
    const Onnx__AttributeProto *a = rb_import_attribute(import, "value");
    struct rb_tensor_type type = {.dtype = RB_F32};
    static const float zero;
    const void *data = &zero;
    struct rb_value *one, *out;
    const int64_t *dim;
    int rank;
    int err = rb_import_known_ints(import, 0, "shape", &dim, &rank);

    if (!err && rank > RB_MAX_RANK)
        err = RB_IMPORT_NO(import, "%d axes; the most is %d", rank, RB_MAX_RANK);
    if (!err && a && !a->t)
        err = RB_IMPORT_BAD(import, "attribute 'value' is no tensor");
    if (!err && a)
        err = rb_onnx_tensor(import->model, a->t, &import->graph->arena, &type, &data, import->why);
    if (!err && rb_tensor_elements(&type) != 1)
        err = RB_IMPORT_BAD(import, "attribute 'value' is not one number");
    if (err)
        return err;
    type.rank = 0;
    one = rb_graph_value(import->graph, RB_VALUE_CONST, import->name, &type, data);
    type.rank = rank;
    for (int i = 0; i < rank; i++)
        type.dim[i] = dim[i];
    err = rb_import_emit(import, RB_OP_EXPAND, 1, &one, 0, NULL, &type, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_shape(struct rb_import *import)
{
    int64_t start = 0, end = RB_MAX_RANK, rank;
    struct rb_value *x;
    int err = rb_import_need(import, 0, &x);

    if (!err && import->opset >= 15)
        err = rb_import_int(import, "start", &start);
    if (!err && import->opset >= 15)
        err = rb_import_int(import, "end", &end);
    if (err)
        return err;
    rank = x->type.rank;
    start = start < 0 ? start + rank : start;
    start = start < 0 ? 0 : start > rank ? rank : start;
    end = end < 0 ? end + rank : end;
    end = end < start ? start : end > rank ? rank : end;
    return rb_import_bind(
        import, 0,
        rb_graph_int64s(import->graph, import->name, x->type.dim + start, (int)(end - start)));
}

int rb_import_op_size(struct rb_import *import)
{
    struct rb_tensor_type type = {.dtype = RB_I64};
    struct rb_value *x;
    int64_t elements;
    int err = rb_import_need(import, 0, &x);

    if (err)
        return err;
    elements = rb_tensor_elements(&x->type);
    return bind_constant(import, &type,
                         rb_arena_copy(&import->graph->arena, &elements, sizeof elements));
}

static bool is_zero(const struct rb_value *x, int64_t i)
{
    return rb_dtype_is_real(x->type.dtype) ? rb_fold_real(x, i) == 0 : rb_fold_integer(x, i) == 0;
}

/* A column for each element that is not 0, with its coordinates. */
int rb_import_op_non_zero(struct rb_import *import)
{
    struct rb_tensor_type type = {.dtype = RB_I64, .rank = 2};
    struct rb_value *x;
    int64_t n, *places, count = 0;
    int err = rb_import_need(import, 0, &x);

    if (err)
        return err;
    if (!rb_import_ask(x))
        return rb_import_unknown(import);
    n = rb_tensor_elements(&x->type);
    for (int64_t i = 0; i < n; i++)
        type.dim[1] += !is_zero(x, i);
    type.dim[0] = x->type.rank;
    places = RB_ARENA_NEW(&import->graph->arena, int64_t, type.dim[0] * type.dim[1] + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;

        if (is_zero(x, i))
            continue;
        for (int axis = x->type.rank - 1; axis >= 0; axis--) {
            places[axis * type.dim[1] + count] = rest % x->type.dim[axis];
            rest /= x->type.dim[axis];
        }
        count++;
    }
    return bind_constant(import, &type, places);
}

/* start, start + delta, ... below limit: ceil((limit - start) / delta) of them. */
static int count_range(struct rb_import *import, struct rb_value *const *in, int64_t *ret)
{
    const double most = 1 << 24;
    double start = rb_fold_real(in[0], 0), limit = rb_fold_real(in[1], 0);
    double delta = rb_fold_real(in[2], 0), count = ceil((limit - start) / delta);

    if (!(count == count) || count > most)
        return RB_IMPORT_NO(import, "a range of %g numbers", count);
    *ret = count > 0 ? (int64_t)count : 0;
    return 0;
}

int rb_import_op_range(struct rb_import *import)
{
    struct rb_tensor_type type = {.rank = 1};
    struct rb_value *in[3];
    int64_t *integers;
    float *reals;
    void *data;
    int err = 0;

    for (int i = 0; !err && i < 3; i++) {
        err = rb_import_need(import, i, &in[i]);
        if (!err && (!rb_import_settle(in[i]) || rb_tensor_elements(&in[i]->type) != 1 ||
                     in[i]->type.dtype != in[0]->type.dtype))
            err = RB_IMPORT_NO(import,
                               "input %d must be one number, known at import, of the type of the "
                               "first",
                               i);
    }
    if (!err)
        err = count_range(import, in, &type.dim[0]);
    if (err)
        return err;
    type.dtype = in[0]->type.dtype;
    if (type.dtype != RB_I64 && type.dtype != RB_I32 && type.dtype != RB_F32)
        return RB_IMPORT_NO(import, "a range of %s", rb_dtype_text(type.dtype));
    data = rb_arena_alloc(&import->graph->arena, (size_t)type.dim[0] * rb_dtype_size(type.dtype));
    integers = data;
    reals = data;
    for (int64_t i = 0; i < type.dim[0]; i++) {
        if (type.dtype == RB_I64)
            integers[i] = (int64_t)((uint64_t)rb_fold_integer(in[0], 0) +
                                    (uint64_t)i * (uint64_t)rb_fold_integer(in[2], 0));
        else if (type.dtype == RB_I32)
            ((int32_t *)data)[i] =
                (int32_t)(rb_fold_integer(in[0], 0) + i * rb_fold_integer(in[2], 0));
        else
            reals[i] = (float)(rb_fold_real(in[0], 0) + (double)i * rb_fold_real(in[2], 0));
    }
    return bind_constant(import, &type, data);
}

/* Sums of cosines over a period, or from end to end. */
int rb_import_op_window(struct rb_import *import)
{
    static const struct {
        const char *op;
        double a, b, c;
    } windows[] = {
        {"HannWindow", 0.5, 0.5, 0},
        {"HammingWindow", 25 / 46.0, 21 / 46.0, 0},
        {"BlackmanWindow", 0.42, 0.5, 0.08},
    };
    struct rb_tensor_type type = {.dtype = RB_F64, .rank = 1};
    int64_t to = RB_F32, periodic = 1;
    const int64_t *size = NULL;
    struct rb_value *value;
    double *numbers, step;
    int n = 0, which = 0;
    int err = rb_import_known_ints(import, 0, "size", &size, &n);

    if (!err)
        err = rb_import_int(import, "output_datatype", &to);
    if (!err)
        err = rb_import_int(import, "periodic", &periodic);
    if (err)
        return err;
    if (n != 1 || size[0] < 1 || size[0] > 1 << 24)
        return RB_IMPORT_BAD(import, "the size is not one number that a window can have");
    if (to < 1 || to > 64 || !rb_dtype_size((enum rb_dtype)to))
        return RB_IMPORT_NO(import, "elements of type %" PRId64, to);
    while (strcmp(windows[which].op, import->op->name) != 0)
        which++;
    type.dim[0] = size[0];
    numbers = RB_ARENA_NEW(&import->graph->arena, double, size[0]);
    step = 2 * acos(-1.0) / (double)(periodic || size[0] == 1 ? size[0] : size[0] - 1);
    for (int64_t i = 0; i < size[0]; i++)
        numbers[i] = windows[which].a - windows[which].b * cos(step * (double)i) +
                     windows[which].c * cos(2 * step * (double)i);
    value = rb_graph_value(import->graph, RB_VALUE_CONST, import->name, &type, numbers);
    err = rb_import_cast(import, value, (enum rb_dtype)to, &value);
    return err ? err : rb_import_bind(import, 0, value);
}
