/* SPDX-License-Identifier: Apache-2.0 */
/* Repeating, padding, and blocks of space that become channels. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

/* One axis at a time: [outer, 1, axis inner] is broadcast to [outer, repeats, axis inner]. */
int rb_import_op_tile(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    const int64_t *repeats = NULL;
    int n = 0;

    if (!import->err)
        import->err = rb_import_known_ints(import, 1, "repeats", &repeats, &n);
    if (!import->err && n != x->type.rank)
        rb_make_bad(import, "%d repeats for %d axes", n, x->type.rank);
    for (int axis = 0; !import->err && axis < n; axis++) {
        struct rb_tensor_type type = x->type;
        int64_t dim[3] = {1, 1, 1};

        if (repeats[axis] == 1)
            continue;
        if (repeats[axis] < 1)
            return rb_make_no(import, "%" PRId64 " repeats", repeats[axis]), import->err;
        for (int i = 0; i < type.rank; i++)
            dim[i < axis ? 0 : 2] *= type.dim[i];
        x = rb_make_reshape(import, x, 3, dim);
        dim[1] = repeats[axis];
        x = rb_make_expand(import, x, 3, dim);
        if (__builtin_mul_overflow(type.dim[axis], repeats[axis], &type.dim[axis]))
            return rb_make_no(import, "too many repeats"), import->err;
        x = rb_make_reshape(import, x, type.rank, type.dim);
    }
    return rb_make_bind(import, 0, x);
}

/* ---- Pad ---- */

struct padding {
    int64_t begin[RB_MAX_RANK], end[RB_MAX_RANK];
    const char *mode;
    struct rb_value *value; /* NULL: zero */
};

static void read_padding(struct rb_import *import, const struct rb_value *x, struct padding *ret)
{
    const int64_t *pads = NULL, *given = NULL;
    int64_t axes[RB_MAX_RANK];
    float value = rb_make_float(import, "value", 0);
    int n = 0, n_axes = 0;

    ret->mode = "constant";
    if (!import->err)
        import->err = rb_import_text(import, "mode", &ret->mode);
    if (!import->err)
        import->err = import->opset >= 11 ? rb_import_known_ints(import, 1, "pads", &pads, &n)
                                          : rb_import_ints(import, import->opset < 2 ? "paddings" : "pads", &pads,
                                           &n);
    if (!import->err && import->opset >= 18)
        import->err = rb_import_known_ints(import, 3, "axes", &given, &n_axes);
    if (!import->err && given)
        import->err = rb_import_axes(import, 0, 3, x->type.rank, axes, &n_axes);
    if (import->err)
        return;
    n_axes = given ? n_axes : x->type.rank;
    if (n != 2 * n_axes) {
        rb_make_bad(import, "%d pads for %d axes", n, n_axes);
        return;
    }
    for (int i = 0; i < n_axes; i++) {
        ret->begin[given ? axes[i] : i] = pads[i];
        ret->end[given ? axes[i] : i] = pads[n_axes + i];
    }
    if (import->opset >= 11)
        ret->value = rb_import_in(import, 2);
    else if (value != 0)
        ret->value = rb_make_like(import, x, (double)value);
    if (ret->value && rb_fold_known(ret->value) && rb_fold_real(ret->value, 0) == 0)
        ret->value = NULL;
}

/* A negative pad removes elements. */
static struct rb_value *crop(struct rb_import *import, struct rb_value *x, struct padding *padding)
{
    for (int i = 0; !import->err && i < x->type.rank; i++) {
        int64_t from = padding->begin[i] < 0 ? -padding->begin[i] : 0;
        int64_t less = padding->end[i] < 0 ? -padding->end[i] : 0;

        if (!from && !less)
            continue;
        if (from > x->type.dim[i] || less > x->type.dim[i] - from)
            return rb_make_bad(import, "axis %d is padded away", i);
        x = rb_make_slice(import, x, i, from, x->type.dim[i] - from - less, 1);
        padding->begin[i] = from ? 0 : padding->begin[i];
        padding->end[i] = less ? 0 : padding->end[i];
    }
    return x;
}

/* Zeros around x, which is the gradient of a slice. */
static struct rb_value *zeros_around(struct rb_import *import, struct rb_value *x,
                                     const struct padding *padding)
{
    int64_t steps[RB_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct rb_graph_attribute attributes[2];
    struct rb_tensor_type type;
    struct rb_value *y = NULL;

    if (import->err)
        return NULL;
    type = x->type;
    for (int i = 0; i < type.rank; i++)
        if (__builtin_add_overflow(type.dim[i], padding->begin[i], &type.dim[i]) ||
            __builtin_add_overflow(type.dim[i], padding->end[i], &type.dim[i]))
            return rb_make_no(import, "the padding is too large");
    if (rb_tensor_same(&type, &x->type))
        return x;
    attributes[0] = rb_attr_ints("starts", padding->begin, type.rank);
    attributes[1] = rb_attr_ints("steps", steps, type.rank);
    import->err = rb_import_emit(import, RB_OP_SLICE_GRAD, 1, &x, 2, attributes, &type, &y);
    return y;
}

static struct rb_value *numbers_around(struct rb_import *import, struct rb_value *x,
                                       const struct padding *padding)
{
    for (int i = 0; !import->err && i < x->type.rank; i++) {
        struct rb_value *part[3], *one;
        int64_t dim[RB_MAX_RANK];
        int n = 0;

        one = rb_make_reshape(import, padding->value, 0, NULL);
        memcpy(dim, x->type.dim, sizeof dim);
        dim[i] = padding->begin[i];
        if (dim[i])
            part[n++] = rb_make_expand(import, one, x->type.rank, dim);
        part[n++] = x;
        dim[i] = padding->end[i];
        if (dim[i])
            part[n++] = rb_make_expand(import, one, x->type.rank, dim);
        x = rb_make_concat(import, i, n, part);
    }
    return x;
}

/* Where element i of a padded axis comes from: edge repeats the last element, reflect goes back
 * over the others, wrap starts again. */
static int64_t source(const char *mode, int64_t i, int64_t n)
{
    int64_t period = 2 * (n - 1);

    if (!strcmp(mode, "edge"))
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (!strcmp(mode, "wrap"))
        return (i % n + n) % n;
    if (n == 1)
        return 0;
    i = (i % period + period) % period;
    return i < n ? i : period - i;
}

static struct rb_value *elements_around(struct rb_import *import, struct rb_value *x,
                                        const struct padding *padding)
{
    enum { MOST = 1 << 24 };

    for (int i = 0; !import->err && i < x->type.rank; i++) {
        int64_t n = x->type.dim[i], size = n + padding->begin[i] + padding->end[i], *from;

        if (!padding->begin[i] && !padding->end[i])
            continue;
        if (padding->begin[i] > MOST || padding->end[i] > MOST || size > MOST || n < 1)
            return rb_make_no(import, "axis %d is padded from %" PRId64 " to %" PRId64, i, n, size);
        from = RB_ARENA_NEW(&import->graph->arena, int64_t, size);
        for (int64_t j = 0; j < size; j++)
            from[j] = source(padding->mode, j - padding->begin[i], n);
        x = rb_make_gather(import, x, rb_graph_int64s(import->graph, NULL, from, (int)size), i);
    }
    return x;
}

int rb_import_op_pad(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    struct padding padding = {0};

    read_padding(import, x, &padding);
    x = crop(import, x, &padding);
    if (import->err)
        return import->err;
    if (!strcmp(padding.mode, "constant"))
        x = padding.value ? numbers_around(import, x, &padding) : zeros_around(import, x, &padding);
    else if (!strcmp(padding.mode, "edge") || !strcmp(padding.mode, "reflect") ||
             !strcmp(padding.mode, "wrap"))
        x = elements_around(import, x, &padding);
    else
        rb_make_no(import, "mode is not constant, edge, reflect or wrap");
    return rb_make_bind(import, 0, x);
}

/* ---- Blocks ---- */

static int64_t block_of(struct rb_import *import, const struct rb_value *x)
{
    int64_t block = rb_make_int(import, "blocksize", 0);

    if (!import->err && x->type.rank != 4)
        rb_make_bad(import, "four axes are needed");
    if (!import->err && (block < 1 || block > 1 << 20))
        rb_make_bad(import, "a blocksize of %" PRId64, block);
    return block;
}

int rb_import_op_depth_to_space(struct rb_import *import)
{
    static const int64_t depth_first[] = {0, 3, 4, 1, 5, 2}, column_first[] = {0, 1, 4, 2, 5, 3};
    struct rb_value *x = rb_make_need(import, 0);
    int64_t b = block_of(import, x), *d, c;
    const char *mode = "DCR";
    bool crd;

    if (!import->err)
        import->err = rb_import_text(import, "mode", &mode);
    if (import->err)
        return import->err;
    d = x->type.dim;
    crd = !strcmp(mode, "CRD");
    if (d[1] % (b * b))
        return RB_IMPORT_BAD(import, "%" PRId64 " channels in blocks of %" PRId64, d[1], b * b);
    c = d[1] / (b * b);
    x = rb_make_reshape(import, x, 6,
                        crd ? (int64_t[]){d[0], c, b, b, d[2], d[3]}
                            : (int64_t[]){d[0], b, b, c, d[2], d[3]});
    x = rb_make_transpose(import, x, crd ? column_first : depth_first);
    return rb_make_bind(import, 0,
                        rb_make_reshape(import, x, 4, (int64_t[]){d[0], c, d[2] * b, d[3] * b}));
}

int rb_import_op_space_to_depth(struct rb_import *import)
{
    static const int64_t perm[] = {0, 3, 5, 1, 2, 4};
    struct rb_value *x = rb_make_need(import, 0);
    int64_t b = block_of(import, x), *d;

    if (import->err)
        return import->err;
    d = x->type.dim;
    if (d[2] % b || d[3] % b)
        return RB_IMPORT_BAD(import, "%" PRId64 " by %" PRId64 " in blocks of %" PRId64, d[2], d[3],
                             b);
    x = rb_make_reshape(import, x, 6, (int64_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b});
    x = rb_make_transpose(import, x, perm);
    return rb_make_bind(
        import, 0,
        rb_make_reshape(import, x, 4, (int64_t[]){d[0], d[1] * b * b, d[2] / b, d[3] / b}));
}

/* ---- Ones among zeros ---- */

int rb_import_op_one_hot(struct rb_import *import)
{
    struct rb_value *labels = rb_make_need(import, 0), *values = rb_make_need(import, 2), *classes;
    struct rb_value *is_class, *part[2];
    int rank = labels ? labels->type.rank + 1 : 1;
    int axis = rb_make_axis(import, "axis", -1, rank);
    float depth = 0;
    int64_t dim[RB_MAX_RANK + 1];

    if (!import->err)
        import->err = rb_import_known_float(import, 1, "depth", &depth);
    if (!import->err && !(depth >= 1 && depth <= 1 << 24))
        rb_make_no(import, "a depth of %g", (double)depth);
    labels = rb_make_cast(import, labels, RB_I64);
    labels = rb_make_where(
        import, rb_make_two(import, RB_OP_LESS, labels, rb_make_number(import, RB_I64, 0)),
        rb_make_plus(import, labels, (double)depth), labels);
    for (int i = 0; i < rank && i <= RB_MAX_RANK; i++)
        dim[i] = i == axis ? (int64_t)depth : 1;
    classes = rb_make_reshape(import, rb_make_count(import, (int64_t)depth), rank, dim);
    is_class = rb_make_two(import, RB_OP_EQUAL, classes, rb_make_unsqueeze(import, labels, axis));
    for (int i = 0; i < 2; i++)
        part[i] = rb_make_squeeze(import, rb_make_slice(import, values, 0, i, 1, 1), 0);
    return rb_make_bind(import, 0, rb_make_where(import, is_class, part[1], part[0]));
}

int rb_import_op_eye_like(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *row, *column;
    int64_t type = rb_make_int(import, "dtype", x ? (int64_t)x->type.dtype : 0);
    int64_t k = rb_make_int(import, "k", 0);

    if (!import->err && x->type.rank != 2)
        rb_make_bad(import, "two axes are needed");
    if (!import->err && (type < 1 || type > 64 || !rb_dtype_size((enum rb_dtype)type)))
        rb_make_no(import, "element type %" PRId64, type);
    if (import->err)
        return import->err;
    k = k > x->type.dim[1] ? x->type.dim[1] : k < -x->type.dim[0] ? -x->type.dim[0] : k;
    row = rb_make_plus(import, rb_make_count(import, x->type.dim[0]), (double)k);
    row = rb_make_unsqueeze(import, row, 1);
    column = rb_make_count(import, x->type.dim[1]);
    return rb_make_bind(
        import, 0,
        rb_make_cast(import, rb_make_two(import, RB_OP_EQUAL, row, column), (enum rb_dtype)type));
}
