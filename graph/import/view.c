/* SPDX-License-Identifier: Apache-2.0 */
/* Views: the same elements under another shape. */
#include "graph/import/import.h"

#include <inttypes.h>
#include <string.h>

/* The sizes of a Reshape: 0 copies an axis, one -1 takes what is left. */
static int resolve_shape(struct rb_import *import, const struct rb_tensor_type *x, bool allow_zero,
                         int64_t *dim, int rank)
{
    int64_t rest = rb_tensor_elements(x), known = 1;
    int open = -1;

    for (int i = 0; i < rank; i++) {
        if (dim[i] == 0 && !allow_zero) {
            if (i >= x->rank)
                return RB_IMPORT_BAD(import, "shape: a 0 at axis %d, the input has %d axes", i,
                                     x->rank);
            dim[i] = x->dim[i];
        }
        if (dim[i] == -1 && open < 0) {
            open = i;
            continue;
        }
        if (dim[i] < 0)
            return RB_IMPORT_BAD(import, "shape: axis %d has the size %" PRId64, i, dim[i]);
        if (__builtin_mul_overflow(known, dim[i], &known))
            return RB_IMPORT_BAD(import, "shape: too many elements");
    }
    if (open >= 0) {
        if (known == 0 || rest % known)
            return RB_IMPORT_BAD(import,
                                 "%" PRId64 " elements do not divide into %" PRId64
                                 " (was the model exported for another batch size?)",
                                 rest, known);
        dim[open] = rest / known;
    }
    return 0;
}

int rb_import_op_reshape(struct rb_import *import)
{
    int64_t dim[RB_MAX_RANK], allow_zero = 0;
    struct rb_value *x, *out = NULL;
    const int64_t *given;
    int rank;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_known_ints(import, 1, "shape", &given, &rank);
    if (!err && !given)
        err = RB_IMPORT_BAD(import, "input 1 (shape) is missing");
    if (!err && import->opset >= 14)
        err = rb_import_int(import, "allowzero", &allow_zero);
    if (!err && rank > RB_MAX_RANK)
        err = RB_IMPORT_NO(import, "%d axes; the most is %d", rank, RB_MAX_RANK);
    if (err)
        return err;
    memcpy(dim, given, sizeof dim[0] * (size_t)rank);
    err = resolve_shape(import, &x->type, allow_zero, dim, rank);
    if (!err)
        err = rb_import_reshape(import, x, rank, dim, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_flatten(struct rb_import *import)
{
    int64_t axis = 1, dim[2] = {1, 1};
    struct rb_value *x, *out = NULL;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err && axis != x->type.rank)
        err = rb_import_axis(import, axis, x->type.rank, &axis);
    for (int i = 0; !err && i < x->type.rank; i++)
        dim[i >= axis] *= x->type.dim[i];
    if (!err)
        err = rb_import_reshape(import, x, 2, dim, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_squeeze(struct rb_import *import)
{
    int64_t axes[RB_MAX_RANK], dim[RB_MAX_RANK];
    struct rb_value *x, *out = NULL;
    unsigned drop = 0;
    int n = 0, rank = 0;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_axes(import, 13, 1, x->type.rank, axes, &n);
    if (err)
        return err;
    for (int i = 0; i < n; i++) {
        if (x->type.dim[axes[i]] != 1)
            return RB_IMPORT_BAD(import, "axis %" PRId64 " has the size %" PRId64 ", not 1",
                                 axes[i], x->type.dim[axes[i]]);
        drop |= 1u << axes[i];
    }
    for (int i = 0; i < x->type.rank; i++)
        if (n ? !(drop >> i & 1u) : x->type.dim[i] != 1)
            dim[rank++] = x->type.dim[i];
    err = rb_import_reshape(import, x, rank, dim, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_unsqueeze(struct rb_import *import)
{
    int64_t axes[RB_MAX_RANK], dim[RB_MAX_RANK];
    const int64_t *given = NULL;
    struct rb_value *x, *out = NULL;
    unsigned fresh = 0;
    int n = 0, rank, from = 0;
    int err = rb_import_need(import, 0, &x);

    /* The axes are counted in the result, whose rank depends on their number. */
    if (!err)
        err = import->opset >= 13 ? rb_import_known_ints(import, 1, "axes", &given, &n)
                                  : rb_import_ints(import, "axes", &given, &n);
    if (!err && (!given || n > RB_MAX_RANK - x->type.rank))
        err = RB_IMPORT_NO(import, "%d axes more; the most is %d in all", n, RB_MAX_RANK);
    if (!err)
        err = rb_import_axes(import, 13, 1, x->type.rank + n, axes, &n);
    if (err)
        return err;
    rank = x->type.rank + n;
    for (int i = 0; i < n; i++)
        fresh |= 1u << axes[i];
    for (int i = 0; i < rank; i++)
        dim[i] = fresh >> i & 1u ? 1 : x->type.dim[from++];
    err = rb_import_reshape(import, x, rank, dim, &out);
    return err ? err : rb_import_bind(import, 0, out);
}
