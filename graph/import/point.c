/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators. */
#include "graph/import/make.h"
#include "graph/shapes/shapes.h"

#include <string.h>

/* Before opset 7 `axis` said which axes the second input belongs to: those from `axis` on, else the
 * last ones. */
static struct rb_value *aligned(struct rb_import *import, const struct rb_value *a,
                                struct rb_value *b)
{
    int64_t axis = rb_make_int(import, "axis", -1);
    int last = axis < 0 || import->err ? 0 : a->type.rank - (int)axis - b->type.rank;

    for (int i = 0; i < last && b && b->type.rank < a->type.rank; i++)
        b = rb_make_unsqueeze(import, b, b->type.rank);
    return b;
}

int rb_import_pair(struct rb_import *import, struct rb_value **a, struct rb_value **b)
{
    int err = rb_import_need(import, 0, a);

    if (!err)
        err = rb_import_need(import, 1, b);
    if (!err && import->opset < 7)
        *b = aligned(import, *a, *b);
    return err ? err : import->err;
}

/* uint64 is computed as int64, where half of its numbers are negative. */
static struct rb_value *unsigned_unary(struct rb_import *import, struct rb_value *x)
{
    struct rb_value *none;

    if (import->op->op == RB_OP_ABS || import->op->op == RB_OP_RELU)
        return x;
    none = rb_make_two(import, RB_OP_EQUAL, x, rb_make_like(import, x, 0));
    return rb_make_where(import, none, rb_make_like(import, x, 0), rb_make_like(import, x, 1));
}

int rb_import_op_unary(struct rb_import *import)
{
    enum rb_op op = import->op->op;
    struct rb_value *x, *out = NULL;
    int err = rb_import_need(import, 0, &x);

    if (!err && import->narrow == RB_U64 &&
        (op == RB_OP_ABS || op == RB_OP_RELU || op == RB_OP_SIGN))
        return rb_make_bind(import, 0, unsigned_unary(import, x));
    if (!err)
        err = rb_import_unary(import, import->op->op, x, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_binary(struct rb_import *import)
{
    struct rb_value *a, *b, *out = NULL;
    int err = rb_import_pair(import, &a, &b);

    if (!err)
        err = rb_import_binary(import, import->op->op, a, b, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

static struct rb_value *compare(struct rb_import *import, struct rb_value *a, struct rb_value *b)
{
    return rb_make_two(import, import->op->op, rb_make_turned(import, a),
                       rb_make_turned(import, b));
}

int rb_import_op_compare(struct rb_import *import)
{
    struct rb_value *a, *b;
    int err = rb_import_pair(import, &a, &b);

    return err ? err : rb_make_bind(import, 0, compare(import, a, b));
}

/* And is a product, Or a sum, of zeros and ones. */
static int logic(struct rb_import *import, enum rb_op op, struct rb_value *a, struct rb_value *b,
                 struct rb_value **ret_out)
{
    struct rb_value *out;
    int err = 0;

    if (a->type.dtype != RB_BOOL || b->type.dtype != RB_BOOL)
        err = RB_IMPORT_BAD(import, "the inputs are not bool");
    if (!err)
        err = rb_import_cast(import, a, RB_F32, &a);
    if (!err)
        err = rb_import_cast(import, b, RB_F32, &b);
    if (!err)
        err = rb_import_binary(import, op, a, b, &out);
    return err ? err : rb_import_cast(import, out, RB_BOOL, ret_out);
}

/* a >= b is a > b or a == b (and not the opposite of a < b: NaN is neither). */
int rb_import_op_or_equal(struct rb_import *import)
{
    struct rb_value *a, *b, *beyond, *equal, *out = NULL;
    int err = rb_import_pair(import, &a, &b);

    if (err)
        return err;
    beyond = compare(import, a, b);
    equal = rb_make_two(import, RB_OP_EQUAL, a, b);
    err = import->err;
    if (!err)
        err = logic(import, RB_OP_ADD, beyond, equal, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_logic(struct rb_import *import)
{
    struct rb_value *a, *b, *out = NULL;
    int err = rb_import_pair(import, &a, &b);

    if (!err)
        err = logic(import, import->op->op, a, b, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* Bounds were attributes before opset 11. */
static struct rb_value *bound(struct rb_import *import, int i, const char *key,
                              const struct rb_value *x)
{
    float value;

    if (import->opset >= 11)
        return rb_import_in(import, i);
    value = rb_make_float(import, key, 0);
    return rb_import_attribute(import, key) ? rb_make_like(import, x, (double)value) : NULL;
}

/* The test is whether the bound is beyond x, not whether x is beyond the bound.  A NaN then stays a
 * NaN, which the vote sees, and the gradient passes where x is the bound, as with torch.clamp. */
static struct rb_value *bounded(struct rb_import *import, enum rb_op beyond, struct rb_value *bound,
                                struct rb_value *x)
{
    if (!bound)
        return x;
    bound = rb_make_turned(import, bound);
    return rb_make_where(import, rb_make_two(import, beyond, bound, x), bound, x);
}

int rb_import_op_clip(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    struct rb_value *low = bound(import, 1, "min", x), *high = bound(import, 2, "max", x);

    x = bounded(import, RB_OP_GREATER, low, rb_make_turned(import, x));
    x = bounded(import, RB_OP_LESS, high, x);
    return rb_make_bind(import, 0, rb_make_turned(import, x));
}

int rb_import_op_gelu(struct rb_import *import)
{
    struct rb_value *x, *out = NULL;
    const char *approximate = "none";
    int64_t tanh = 0;
    struct rb_graph_attribute attribute = rb_attr_ints("tanh", &tanh, 1);
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_text(import, "approximate", &approximate);
    tanh = !strcmp(approximate, "tanh");
    if (!err && !tanh && strcmp(approximate, "none"))
        err = RB_IMPORT_NO(import, "approximate is neither none nor tanh");
    if (!err)
        err = rb_import_emit(import, RB_OP_GELU, 1, &x, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* Does the mask have the first axes of x, where it would need the last ones? */
static bool is_of_first_axes(const struct rb_tensor_type *mask, const struct rb_tensor_type *x)
{
    int64_t dim[RB_MAX_RANK];
    int rank = x->rank;

    memcpy(dim, x->dim, sizeof dim);
    return mask->rank && mask->rank < x->rank &&
           !memcmp(mask->dim, x->dim, sizeof(*dim) * (size_t)mask->rank) &&
           !rb_shapes_broadcast_dims(dim, &rank, mask->dim, mask->rank);
}

/* PyTorch's older exporter writes x[mask] = y as a Where with the mask unchanged. */
static int check_mask(struct rb_import *import, struct rb_value *const *in)
{
    char mask[RB_TENSOR_TEXT], x[RB_TENSOR_TEXT];

    for (int i = 1; i < 3; i++)
        if (is_of_first_axes(&in[0]->type, &in[i]->type))
            return RB_IMPORT_BAD(import,
                                 "the mask, %s, has the first axes of %s, but goes with the last "
                                 "ones: in place of x[mask] = y write "
                                 "x.masked_fill(mask.unsqueeze(-1), y)",
                                 rb_tensor_text(&in[0]->type, mask),
                                 rb_tensor_text(&in[i]->type, x));
    return 0;
}

int rb_import_op_where(struct rb_import *import)
{
    struct rb_value *in[3], *out = NULL;
    int err = 0;

    for (int i = 0; !err && i < 3; i++)
        err = rb_import_need(import, i, &in[i]);
    if (!err)
        err = check_mask(import, in);
    if (!err)
        err = rb_import_emit(import, RB_OP_WHERE, 3, in, 0, NULL, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_cast(struct rb_import *import)
{
    struct rb_value *x, *out = NULL;
    int64_t to = 0;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_int(import, "to", &to);
    if (!err && (to < 1 || to > 64 || !rb_dtype_size((enum rb_dtype)to)))
        err = RB_IMPORT_NO(import, "cast to element type %lld", (long long)to);
    if (!err)
        err = rb_import_cast(import, x, (enum rb_dtype)to, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_cast_like(struct rb_import *import)
{
    struct rb_value *like = rb_make_need(import, 1);

    return rb_make_bind(
        import, 0,
        rb_make_cast(import, rb_make_need(import, 0), like ? like->type.dtype : RB_NONE));
}
