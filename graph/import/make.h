/* SPDX-License-Identifier: Apache-2.0 */
/* Composing: an ONNX operator that is made of other operators is written as an expression of them.
 *
 * functions of operators > [make] > help.c (emit, fold)
 *
 * A helper that fails remembers the first error in the import and returns NULL; with an error set,
 * or a NULL given, it does nothing.  So only the last line of an import function looks. */
#ifndef RB_GRAPH_IMPORT_MAKE_H
#define RB_GRAPH_IMPORT_MAKE_H

#include "graph/import/import.h"

/* Input i; needed: it is an error where it is absent. */
struct rb_value *rb_make_need(struct rb_import *import, int i);
/* Attributes; absent ones are `otherwise`. */
int64_t rb_make_int(struct rb_import *import, const char *key, int64_t otherwise);
float rb_make_float(struct rb_import *import, const char *key, float otherwise);
/* An axis attribute counted from 0. */
int rb_make_axis(struct rb_import *import, const char *key, int64_t otherwise, int rank);
/* Bind output i; the import function's result. */
int rb_make_bind(struct rb_import *import, int i, struct rb_value *value);
/* Bind positions, which are int64 whatever the type of the inputs; call it for the last output. */
int rb_make_bind_places(struct rb_import *import, int i, struct rb_value *places);
/* Remember a refusal: RB_EUNSUPPORTED (no) or RB_EINVAL (bad). */
void *rb_make_no(struct rb_import *import, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *rb_make_bad(struct rb_import *import, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One number, of the type of `like` or of `dtype`. */
struct rb_value *rb_make_like(struct rb_import *import, const struct rb_value *like, double x);
struct rb_value *rb_make_number(struct rb_import *import, enum rb_dtype dtype, double x);
/* 0, 1, ... n-1 as int64 [n]. */
struct rb_value *rb_make_count(struct rb_import *import, int64_t n);

struct rb_value *rb_make_one(struct rb_import *import, enum rb_op op, struct rb_value *x);
struct rb_value *rb_make_two(struct rb_import *import, enum rb_op op, struct rb_value *a,
                             struct rb_value *b);
struct rb_value *rb_make_where(struct rb_import *import, struct rb_value *c, struct rb_value *a,
                               struct rb_value *b);
/* x times a number, and x plus a number: x itself for 1 and for 0. */
struct rb_value *rb_make_times(struct rb_import *import, struct rb_value *x, double factor);
struct rb_value *rb_make_plus(struct rb_import *import, struct rb_value *x, double term);
/* A uint64, which is computed as int64, with its highest bit flipped, so that int64 orders it
 * correctly.  Flipping it again restores it.  Of other types, x itself. */
struct rb_value *rb_make_turned(struct rb_import *import, struct rb_value *x);
struct rb_value *rb_make_not(struct rb_import *import, struct rb_value *x);
struct rb_value *rb_make_cast(struct rb_import *import, struct rb_value *x, enum rb_dtype dtype);
struct rb_value *rb_make_reshape(struct rb_import *import, struct rb_value *x, int rank,
                                 const int64_t *dim);
/* Axis of size 1 put in front of axis `at`. */
struct rb_value *rb_make_unsqueeze(struct rb_import *import, struct rb_value *x, int at);
struct rb_value *rb_make_squeeze(struct rb_import *import, struct rb_value *x, int at);
struct rb_value *rb_make_transpose(struct rb_import *import, struct rb_value *x,
                                   const int64_t *perm);
struct rb_value *rb_make_expand(struct rb_import *import, struct rb_value *x, int rank,
                                const int64_t *dim);
/* `count` elements of one axis from `start` by `step`. */
struct rb_value *rb_make_slice(struct rb_import *import, struct rb_value *x, int axis,
                               int64_t start, int64_t count, int64_t step);
struct rb_value *rb_make_concat(struct rb_import *import, int axis, int n,
                                struct rb_value *const *in);
struct rb_value *rb_make_gather(struct rb_import *import, struct rb_value *x,
                                struct rb_value *indices, int axis);
/* Reduce over `n` axes; the result keeps them as 1 or drops them. */
struct rb_value *rb_make_reduce(struct rb_import *import, enum rb_op op, struct rb_value *x,
                                const int64_t *axes, int n, bool keep);
/* One output, one attribute of one integer or none (key NULL). */
struct rb_value *rb_make_with(struct rb_import *import, enum rb_op op, int n_in,
                              struct rb_value *const *in, const char *key, int64_t value);
struct rb_value *rb_make_matmul(struct rb_import *import, struct rb_value *a, struct rb_value *b,
                                bool trans_b);

#endif
