/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic operators made of simpler ones. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <math.h>
#include <string.h>

/* One operator between all inputs, from the left. */
static struct rb_value *all(struct rb_import *import, enum rb_op op)
{
    struct rb_value *y = rb_make_need(import, 0);

    for (size_t i = 1; !import->err && i < import->node->n_input; i++)
        y = rb_make_two(import, op, y, rb_make_need(import, (int)i));
    return y;
}

int rb_import_op_sum(struct rb_import *import)
{
    return rb_make_bind(import, 0, all(import, RB_OP_ADD));
}

int rb_import_op_mean(struct rb_import *import)
{
    return rb_make_bind(
        import, 0,
        rb_make_times(import, all(import, RB_OP_ADD), 1 / (double)import->node->n_input));
}

int rb_import_op_extreme(struct rb_import *import)
{
    struct rb_value *y = rb_make_turned(import, rb_make_need(import, 0));

    for (size_t i = 1; !import->err && i < import->node->n_input; i++)
        y = rb_make_two(import, import->op->op, y,
                        rb_make_turned(import, rb_make_need(import, (int)i)));
    return rb_make_bind(import, 0, rb_make_turned(import, y));
}

int rb_import_op_mod(struct rb_import *import)
{
    struct rb_value *in[2] = {rb_make_need(import, 0), rb_make_need(import, 1)};
    int64_t fmod = rb_make_int(import, "fmod", 0) != 0;

    return rb_make_bind(import, 0, rb_make_with(import, RB_OP_MOD, 2, in, "fmod", fmod));
}

/* The exponent may have a type of its own.  An integer to a fractional power is computed in
 * double. */
int rb_import_op_pow(struct rb_import *import)
{
    struct rb_value *a, *b, *y;
    enum rb_dtype type;
    int err = rb_import_pair(import, &a, &b);

    if (err)
        return err;
    type = a->type.dtype;
    if (type != RB_F32 && type != RB_F64 && (b->type.dtype == RB_F32 || b->type.dtype == RB_F64)) {
        y = rb_make_two(import, RB_OP_POW, rb_make_cast(import, a, RB_F64),
                        rb_make_cast(import, b, RB_F64));
        return rb_make_bind(import, 0, rb_make_cast(import, y, type));
    }
    return rb_make_bind(import, 0,
                        rb_make_two(import, RB_OP_POW, a, rb_make_cast(import, b, type)));
}

int rb_import_op_xor(struct rb_import *import)
{
    struct rb_value *a, *b;
    int err = rb_import_pair(import, &a, &b);

    if (err)
        return err;
    if (a->type.dtype != RB_BOOL || b->type.dtype != RB_BOOL)
        return RB_IMPORT_BAD(import, "the inputs are not bool");
    return rb_make_bind(import, 0, rb_make_not(import, rb_make_two(import, RB_OP_EQUAL, a, b)));
}

int rb_import_op_not(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);

    if (!import->err && x->type.dtype != RB_BOOL)
        rb_make_bad(import, "the input is not bool");
    return rb_make_bind(import, 0, rb_make_not(import, x));
}

int rb_import_op_is_nan(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);

    return rb_make_bind(import, 0, rb_make_not(import, rb_make_two(import, RB_OP_EQUAL, x, x)));
}

int rb_import_op_is_inf(struct rb_import *import)
{
    bool above = rb_make_int(import, "detect_positive", 1) != 0;
    bool below = rb_make_int(import, "detect_negative", 1) != 0;
    struct rb_value *x = rb_make_need(import, 0), *y;
    struct rb_value *size = NULL;

    if (!import->err && x->type.dtype != RB_F32 && x->type.dtype != RB_F64)
        rb_make_bad(import, "the input is not real");
    size = above && below ? rb_make_one(import, RB_OP_ABS, x) : x;

    y = rb_make_two(import, RB_OP_EQUAL, size,
                    rb_make_like(import, x, below && !above ? -INFINITY : INFINITY));
    if (!above && !below)
        y = rb_make_two(import, RB_OP_LESS, x, rb_make_like(import, x, -INFINITY)); /* false */
    return rb_make_bind(import, 0, y);
}

int rb_import_op_cum_sum(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *y = NULL;
    int64_t exclusive = rb_make_int(import, "exclusive", 0) != 0;
    int64_t reverse = rb_make_int(import, "reverse", 0) != 0, axis = 0;
    struct rb_graph_attribute attributes[3];
    const int64_t *given = NULL;
    int n = 0;

    if (!import->err)
        import->err = rb_import_known_ints(import, 1, "axis", &given, &n);
    if (!import->err && n != 1)
        rb_make_bad(import, "input 1 is not one axis");
    if (!import->err)
        import->err = rb_import_axis(import, given[0], x->type.rank, &axis);
    if (import->err)
        return import->err;
    attributes[0] = rb_attr_ints("axis", &axis, 1);
    attributes[1] = rb_attr_ints("exclusive", &exclusive, 1);
    attributes[2] = rb_attr_ints("reverse", &reverse, 1);
    import->err = rb_import_emit(import, RB_OP_CUM_SUM, 1, &x, 3, attributes, NULL, &y);
    return rb_make_bind(import, 0, y);
}
