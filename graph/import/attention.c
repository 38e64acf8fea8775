/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and RotaryEmbedding of opset 23. */
#include "graph/import/make.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* [batch, steps, heads * each] as [batch, heads, steps, each]; with four axes x has that form
 * already. */
static struct rb_value *heads_of(struct rb_import *import, struct rb_value *x, int64_t heads)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    int64_t *d;

    if (import->err || x->type.rank == 4)
        return x;
    d = x->type.dim;
    if (x->type.rank != 3 || heads < 1 || d[2] % heads)
        return rb_make_bad(import, "%" PRId64 " heads do not divide an input of %d axes", heads,
                           x->type.rank);
    x = rb_make_reshape(import, x, 4, (int64_t[]){d[0], d[1], heads, d[2] / heads});
    return rb_make_transpose(import, x, swap);
}

/* Each head of keys and values serves several heads of queries. */
static struct rb_value *repeated(struct rb_import *import, struct rb_value *x, int64_t heads)
{
    int64_t d[5];

    if (import->err || x->type.dim[1] == heads)
        return x;
    if (!x->type.dim[1] || heads % x->type.dim[1])
        return rb_make_bad(import, "%" PRId64 " heads of keys for %" PRId64 " of queries",
                           x->type.dim[1], heads);
    d[0] = x->type.dim[0];
    d[1] = x->type.dim[1];
    d[2] = heads / x->type.dim[1];
    d[3] = x->type.dim[2];
    d[4] = x->type.dim[3];
    x = rb_make_expand(import, rb_make_unsqueeze(import, x, 2), 5, d);
    return rb_make_reshape(import, x, 4, (int64_t[]){d[0], heads, d[3], d[4]});
}

/* Past keys or values come first. */
static struct rb_value *behind(struct rb_import *import, struct rb_value *past, struct rb_value *x)
{
    struct rb_value *both[] = {past, x};

    if (import->err || !past)
        return x;
    if (past->type.rank != 4)
        return rb_make_bad(import, "keys and values of the past must have four axes");
    return rb_make_concat(import, 2, 2, both);
}

/* Scores, softly limited to the cap. */
static struct rb_value *capped(struct rb_import *import, struct rb_value *scores, float cap)
{
    if (!(cap > 0))
        return scores;
    scores = rb_make_one(import, RB_OP_TANH, rb_make_times(import, scores, 1 / (double)cap));
    return rb_make_times(import, scores, (double)cap);
}

/* Scores where a query may look, minus infinity elsewhere; a mask of numbers is added.  `past` keys
 * precede the first query. */
static struct rb_value *masked(struct rb_import *import, struct rb_value *scores,
                               struct rb_value *mask, bool causal, int64_t past)
{
    struct rb_value *never = rb_make_number(import, RB_F32, -INFINITY), *row, *column;

    if (import->err)
        return NULL;
    if (causal) {
        row = rb_make_unsqueeze(import, rb_make_count(import, scores->type.dim[2]), 1);
        column = rb_make_count(import, scores->type.dim[3]);
        column = past ? rb_make_plus(import, column, -(double)past) : column;
        scores = rb_make_where(import, rb_make_two(import, RB_OP_LESS, row, column), never, scores);
    }
    if (!mask)
        return scores;
    if (mask->type.dtype == RB_BOOL)
        return rb_make_where(import, mask, scores, never);
    return rb_make_two(import, RB_OP_ADD, scores, mask);
}

int rb_import_op_attention(struct rb_import *import)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    struct rb_value *q = rb_make_need(import, 0), *k = rb_make_need(import, 1);
    struct rb_value *v = rb_make_need(import, 2), *mask = rb_import_in(import, 3), *y;
    int64_t heads = rb_make_int(import, "q_num_heads", 0);
    int64_t own = rb_make_int(import, "kv_num_heads", 0);
    bool causal = rb_make_int(import, "is_causal", 0) != 0, flat = q && q->type.rank == 3;
    float scale = rb_make_float(import, "scale", 0), cap = rb_make_float(import, "softcap", 0);
    struct rb_value *past[] = {rb_import_in(import, 4), rb_import_in(import, 5)}, *scores;

    q = heads_of(import, q, heads);
    k = heads_of(import, k, own);
    v = heads_of(import, v, own);
    if (!import->err && (q->type.rank != 4 || k->type.rank != 4 || v->type.rank != 4))
        rb_make_bad(import, "queries, keys and values must have three or four axes");
    k = behind(import, past[0], k);
    v = behind(import, past[1], v);
    if (import->err)
        return import->err;
    rb_make_bind(import, 1, k);
    rb_make_bind(import, 2, v);
    k = repeated(import, k, q->type.dim[1]);
    v = repeated(import, v, q->type.dim[1]);
    scores = rb_make_times(import, rb_make_matmul(import, q, k, true),
                           scale != 0 ? (double)scale : 1 / sqrt((double)q->type.dim[3]));
    if (!rb_make_int(import, "qk_matmul_output_mode", 0))
        rb_make_bind(import, 3, scores);
    y = masked(import, capped(import, scores, cap), mask, causal,
               past[0] ? past[0]->type.dim[2] : 0);
    y = rb_make_with(import, RB_OP_SOFTMAX, 1, &y, "axis", 3);
    y = rb_make_matmul(import, y, v, false);
    if (flat && !import->err) {
        int64_t *d = y->type.dim;

        y = rb_make_reshape(import, rb_make_transpose(import, y, swap), 3,
                            (int64_t[]){d[0], d[2], d[1] * d[3]});
    }
    return rb_make_bind(import, 0, y);
}

/* Pairs of numbers (a, b), rotated: (a cos - b sin, a sin + b cos). */
static struct rb_value *turned(struct rb_import *import, struct rb_value *x, struct rb_value *cos,
                               struct rb_value *sin, bool interleaved)
{
    struct rb_value *a, *b, *part[2];
    int64_t half, dim[RB_MAX_RANK];

    if (import->err)
        return NULL;
    half = x->type.dim[3] / 2;
    memcpy(dim, x->type.dim, sizeof dim);
    a = rb_make_slice(import, x, 3, 0, half, interleaved ? 2 : 1);
    b = rb_make_slice(import, x, 3, interleaved ? 1 : half, half, interleaved ? 2 : 1);
    part[0] = rb_make_two(import, RB_OP_SUB, rb_make_two(import, RB_OP_MUL, a, cos),
                          rb_make_two(import, RB_OP_MUL, b, sin));
    part[1] = rb_make_two(import, RB_OP_ADD, rb_make_two(import, RB_OP_MUL, a, sin),
                          rb_make_two(import, RB_OP_MUL, b, cos));
    if (!interleaved)
        return import->err ? NULL : rb_make_concat(import, 3, 2, part);
    for (int i = 0; i < 2; i++)
        part[i] = rb_make_unsqueeze(import, part[i], 4);
    return import->err ? NULL : rb_make_reshape(import, rb_make_concat(import, 4, 2, part), 4, dim);
}

/* The rows of a table of angles: [batch, steps, 1, half]. */
static struct rb_value *angles(struct rb_import *import, int i)
{
    struct rb_value *table = rb_make_need(import, i), *places = rb_import_in(import, 3);

    if (places)
        table = rb_make_gather(import, table, places, 0);
    if (!import->err && table->type.rank != 3)
        rb_make_bad(import, "input %d does not have the axes of a table of angles", i);
    return rb_make_unsqueeze(import, table, 2);
}

int rb_import_op_rotary(struct rb_import *import)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    struct rb_value *x = rb_make_need(import, 0), *cos, *sin, *part[2], *y;
    int64_t heads = rb_make_int(import, "num_heads", 0), width, each, before[RB_MAX_RANK];
    bool interleaved = rb_make_int(import, "interleaved", 0) != 0, flat = x && x->type.rank == 3;
    int rank = x ? x->type.rank : 0;

    if (!import->err && rank != 4 && (rank != 3 || heads < 1 || x->type.dim[2] % heads))
        rb_make_bad(import, "%d axes, %" PRId64 " heads", rank, heads);
    if (import->err)
        return import->err;
    memcpy(before, x->type.dim, sizeof before);
    y = flat ? rb_make_reshape(import, x, 4,
                               (int64_t[]){before[0], before[1], heads, before[2] / heads})
             : rb_make_transpose(import, x, swap);
    if (import->err)
        return import->err;
    each = y->type.dim[3];
    width = rb_make_int(import, "rotary_embedding_dim", 0);
    width = width ? width : each;
    if (width < 2 || width % 2 || width > each)
        return RB_IMPORT_BAD(import, "%" PRId64 " of %" PRId64 " numbers are turned", width, each);
    cos = angles(import, 1);
    sin = angles(import, 2);
    part[0] = turned(import, rb_make_slice(import, y, 3, 0, width, 1), cos, sin, interleaved);
    part[1] = width < each ? rb_make_slice(import, y, 3, width, each - width, 1) : NULL;
    y = import->err ? NULL : rb_make_concat(import, 3, width < each ? 2 : 1, part);
    y = flat ? rb_make_reshape(import, y, 3, before) : rb_make_transpose(import, y, swap);
    return rb_make_bind(import, 0, y);
}
