/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products and convolutions. */
#include "graph/fold.h"
#include "graph/import/import.h"

#include <string.h>

/* Where x is a transpose of its last two axes, returns the original: the product reads it
 * transposed. */
static struct rb_value *untransposed(struct rb_value *x, int64_t *trans)
{
    const struct rb_node *maker = x->role == RB_VALUE_TEMP ? x->maker : NULL;
    const struct rb_graph_attribute *perm;
    int rank = x->type.rank;

    if (!maker || maker->op != RB_OP_TRANSPOSE)
        return x;
    perm = rb_node_attribute(maker, "perm");
    for (int i = 0; i < rank - 2; i++)
        if (perm->ints[i] != i)
            return x;
    if (perm->ints[rank - 1] != rank - 2)
        return x;
    *trans = !*trans;
    return maker->in[0];
}

static int product(struct rb_import *import, struct rb_value *const *in, int n_in, int64_t trans_a,
                   int64_t trans_b, struct rb_value **ret_out)
{
    struct rb_value *read[3] = {in[0], in[1], n_in > 2 ? in[2] : NULL};
    struct rb_graph_attribute attributes[2];
    int n = 0;

    for (int i = 0; i < 2; i++)
        if (read[i]->type.rank >= 2)
            read[i] = untransposed(read[i], i ? &trans_b : &trans_a);
    if (trans_a)
        attributes[n++] = rb_attr_ints("transA", &trans_a, 1);
    if (trans_b)
        attributes[n++] = rb_attr_ints("transB", &trans_b, 1);
    return rb_import_emit(import, RB_OP_MATMUL, n_in, read, n, attributes, NULL, ret_out);
}

/* A vector is a row on the left and a column on the right; the added axis is then removed. */
int rb_import_op_matmul(struct rb_import *import)
{
    struct rb_value *in[2], *out;
    bool row, column;
    int64_t dim[RB_MAX_RANK];
    int rank;
    int err = rb_import_need(import, 0, &in[0]);

    if (!err)
        err = rb_import_need(import, 1, &in[1]);
    if (err)
        return err;
    row = in[0]->type.rank == 1;
    column = in[1]->type.rank == 1;
    if (row)
        err = rb_import_reshape(import, in[0], 2, (int64_t[]){1, in[0]->type.dim[0]}, &in[0]);
    if (!err && column)
        err = rb_import_reshape(import, in[1], 2, (int64_t[]){in[1]->type.dim[0], 1}, &in[1]);
    if (!err)
        err = product(import, in, 2, 0, 0, &out);
    if (!err && (row || column)) {
        rank = out->type.rank - 2;
        memcpy(dim, out->type.dim, sizeof dim[0] * (size_t)rank);
        if (!row)
            dim[rank++] = out->type.dim[out->type.rank - 2];
        if (!column)
            dim[rank++] = out->type.dim[out->type.rank - 1];
        err = rb_import_reshape(import, out, rank, dim, &out);
    }
    return err ? err : rb_import_bind(import, 0, out);
}

static int scaled(struct rb_import *import, struct rb_value *x, float factor,
                  struct rb_value **ret_out)
{
    if (factor == 1) {
        *ret_out = x;
        return 0;
    }
    return rb_import_binary(import, RB_OP_MUL, x, rb_graph_scalar(import->graph, factor), ret_out);
}

/* Is it one number a column, as the product's own bias input takes? */
static bool is_row(const struct rb_value *c, int64_t columns)
{
    return c->type.rank >= 1 && c->type.dim[c->type.rank - 1] == columns &&
           rb_tensor_elements(&c->type) == columns;
}

/* alpha A B + beta C */
int rb_import_op_gemm(struct rb_import *import)
{
    int64_t trans_a = 0, trans_b = 0, columns;
    float alpha = 1, beta = 1;
    struct rb_value *in[3], *out;
    bool bias;
    int err = rb_import_need(import, 0, &in[0]);

    if (!err)
        err = rb_import_need(import, 1, &in[1]);
    if (!err)
        err = rb_import_int(import, "transA", &trans_a);
    if (!err)
        err = rb_import_int(import, "transB", &trans_b);
    if (!err)
        err = rb_import_float(import, "alpha", &alpha);
    if (!err)
        err = rb_import_float(import, "beta", &beta);
    if (!err && (in[0]->type.rank != 2 || in[1]->type.rank != 2))
        err = RB_IMPORT_BAD(import, "A and B must have two axes, they have %d and %d",
                            in[0]->type.rank, in[1]->type.rank);
    if (err)
        return err;
    trans_a = trans_a != 0;
    trans_b = trans_b != 0;
    columns = in[1]->type.dim[trans_b ? 0 : 1];
    in[2] = beta != 0 ? rb_import_in(import, 2) : NULL;
    if (in[2])
        err = scaled(import, in[2], beta, &in[2]);
    bias = !err && in[2] && alpha == 1 && is_row(in[2], columns);
    if (bias)
        err = rb_import_reshape(import, in[2], 1, &columns, &in[2]);
    if (!err)
        err = product(import, in, bias ? 3 : 2, trans_a, trans_b, &out);
    if (!err)
        err = scaled(import, out, alpha, &out);
    if (!err && in[2] && !bias)
        err = rb_import_binary(import, RB_OP_ADD, out, in[2], &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* dynamo=True writes a Conv3d without a bias with a bias of zeros [channels, 2]: not the shape of a
 * bias, and it adds nothing. */
static bool adds_nothing(struct rb_value *bias)
{
    if (bias->maker && bias->maker->op == RB_OP_EXPAND)
        bias = bias->maker->in[0];
    if (!rb_import_ask(bias))
        return false;
    for (int64_t i = 0; i < rb_tensor_elements(&bias->type); i++)
        if (rb_fold_real(bias, i) != 0)
            return false;
    return true;
}

int rb_import_op_conv(struct rb_import *import)
{
    struct rb_graph_attribute attributes[4];
    struct rb_import_window window;
    const int64_t *kernel = NULL;
    int64_t group = 1;
    struct rb_value *in[3] = {0}, *out;
    int n = 0;
    int err = rb_import_need(import, 0, &in[0]);

    if (!err)
        err = rb_import_need(import, 1, &in[1]);
    if (!err)
        err = rb_import_ints(import, "kernel_shape", &kernel, &n);
    if (!err)
        err = rb_import_int(import, "group", &group);
    if (err)
        return err;
    in[2] = rb_import_in(import, 2);
    if (in[2] && in[2]->type.rank != 1 && adds_nothing(in[2]))
        in[2] = NULL;
    if (in[1]->type.rank != in[0]->type.rank || in[0]->type.rank < 3)
        return RB_IMPORT_BAD(import, "x has %d axes and w has %d", in[0]->type.rank,
                             in[1]->type.rank);
    if (kernel && (n != in[1]->type.rank - 2 ||
                   memcmp(kernel, in[1]->type.dim + 2, sizeof kernel[0] * (size_t)n)))
        return RB_IMPORT_BAD(import, "kernel_shape is not that of w");
    err = rb_import_window(import, in[0], in[1]->type.dim + 2, &window);
    if (err)
        return err;
    attributes[0] = rb_attr_ints("strides", window.strides, window.n);
    attributes[1] = rb_attr_ints("pads", window.pads, 2 * window.n);
    attributes[2] = rb_attr_ints("dilations", window.dilations, window.n);
    attributes[3] = rb_attr_ints("group", &group, 1);
    err = rb_import_emit(import, RB_OP_CONV, 3, in, 4, attributes, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}
