/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, softmax, norms, dropout: the operators that differ between training and evaluation
 * are here. */
#include "graph/fold.h"
#include "graph/import/make.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

/* Before opset 13 softmax saw a matrix: all axes from `axis` on were one. */
int rb_import_op_softmax(struct rb_import *import)
{
    bool matrix = import->opset < 13;
    int64_t axis = matrix ? 1 : -1, dim[2] = {1, 1};
    struct rb_graph_attribute attribute;
    struct rb_tensor_type type;
    struct rb_value *x, *out;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = rb_import_int(import, "axis", &axis);
    if (!err)
        err = rb_import_axis(import, axis, x->type.rank, &axis);
    if (err)
        return err;
    type = x->type;
    matrix = matrix && axis != type.rank - 1;
    if (matrix) {
        for (int i = 0; i < type.rank; i++)
            dim[i >= axis] *= type.dim[i];
        axis = 1;
        err = rb_import_reshape(import, x, 2, dim, &x);
    }
    attribute = rb_attr_ints("axis", &axis, 1);
    if (!err)
        err = rb_import_emit(import, import->op->op, 1, &x, 1, &attribute, NULL, &out);
    if (!err && matrix)
        err = rb_import_reshape(import, out, type.rank, type.dim, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* A running statistic is state of its own kind, whatever it is in the file. */
static int make_statistic(struct rb_import *import, struct rb_value *value, float momentum)
{
    char room[80];

    if (value->statistic && value->momentum == momentum && !value->update)
        return 0;
    if (value->statistic)
        return RB_IMPORT_NO(import,
                            "'%s' is the statistic of another node already: of a module that is "
                            "called twice, or of several whose equal ones the exporter made one "
                            "in evaluation mode (rubatoctl model check prints the call that keeps "
                            "them apart)",
                            rb_onnx_quote(value->name, room));
    if (!value->data || (value->role != RB_VALUE_WEIGHT && value->role != RB_VALUE_BUFFER))
        return RB_IMPORT_NO(import, "mean and variance must be initializers, or both computed");
    value->role = RB_VALUE_BUFFER;
    value->frozen = false;
    value->statistic = true;
    value->momentum = momentum;
    return 0;
}

static int batch_norm_train(struct rb_import *import, struct rb_value *const *in, float epsilon,
                            float momentum)
{
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);
    struct rb_value *outs[4];
    int err = make_statistic(import, in[3], momentum);

    if (!err)
        err = make_statistic(import, in[4], momentum);
    if (!err)
        err = rb_import_emit_many(import, RB_OP_BATCH_NORM, 3, in, 1, &attribute, 7, NULL, outs);
    if (err)
        return err;
    in[3]->update = outs[1];
    in[4]->update = outs[2];
    return rb_import_bind(import, 0, outs[0]);
}

/* frozen: the running statistics are plain buffers. */
static int batch_norm_eval(struct rb_import *import, struct rb_value *const *in, float epsilon,
                           float momentum, bool frozen)
{
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);
    struct rb_value *out;
    int err = 0;

    for (int i = 3; !err && i < 5; i++) {
        if (in[i]->role != RB_VALUE_WEIGHT && in[i]->role != RB_VALUE_BUFFER)
            continue;
        in[i]->role = RB_VALUE_BUFFER;
        in[i]->frozen = frozen;
        if (!frozen)
            err = make_statistic(import, in[i], momentum);
    }
    if (!err)
        err = rb_import_emit(import, RB_OP_BATCH_NORM_EVAL, 5, in, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

/* Statistics of the batch at hand, which are outputs and not kept. */
static int batch_norm_as_said(struct rb_import *import, struct rb_value *const *in, float epsilon,
                              float momentum)
{
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);
    struct rb_value *outs[4];
    int err = rb_import_emit_many(import, RB_OP_BATCH_NORM, 3, in, 1, &attribute, 7, NULL, outs);

    if (err)
        return err;
    rb_make_bind(import, 0, outs[0]);
    for (int i = 1; i < 3; i++)
        rb_make_bind(import, i,
                     rb_make_two(import, RB_OP_ADD,
                                 rb_make_times(import, in[2 + i], (double)momentum),
                                 rb_make_times(import, outs[i], (double)(1 - momentum))));
    return import->err;
}

/* Are the running statistics frozen by their names?  Scale and bias are weights like others:
 * whether these are trained does not matter to the statistics. */
static int find_frozen(struct rb_import *import, struct rb_value *const *in, bool *ret_frozen)
{
    bool mean = rb_import_freezes(import, in[3]->name);
    char a[80], b[80];

    *ret_frozen = mean;
    if (mean == rb_import_freezes(import, in[4]->name))
        return 0;
    return RB_IMPORT_BAD(import, "freeze has one of '%s' and '%s', which are frozen together",
                         rb_onnx_quote(in[3]->name, a), rb_onnx_quote(in[4]->name, b));
}

/* Are mean and variance made by nodes of the model?  Then they belong to no run of batches: a
 * convolution's weights are standardized like that.  They are used as they are, and training_mode=1
 * means that x has the same mean and variance. */
static bool are_computed(struct rb_value *const *in)
{
    for (int i = 3; i < 5; i++) {
        const struct rb_value *value = in[i];

        while (value->maker && value->maker->op == RB_OP_CAST) /* from half floats in the file */
            value = value->maker->in[0];
        if (!value->maker)
            return false;
    }
    return true;
}

/* Before opset 14 five outputs meant training.  PyTorch still writes that for an instance
 * normalization with running statistics: a batch norm of as many channels as all samples have
 * together. */
static bool says_training(const struct rb_import *import)
{
    return import->options->train && import->node->n_output == 5;
}

/* The use of the graph decides the mode, not the file (exporters write either): statistics of the
 * microbatch in training, running statistics in evaluation and where they are frozen. */
int rb_import_op_batch_norm(struct rb_import *import)
{
    float epsilon = 1e-5F, momentum = 0.9F;
    struct rb_value *in[5];
    bool frozen = false;
    int err = 0;

    for (int i = 0; !err && i < 5; i++)
        err = rb_import_need(import, i, &in[i]);
    if (!err)
        err = rb_import_float(import, "epsilon", &epsilon);
    if (!err)
        err = rb_import_float(import, "momentum", &momentum);
    if (!err && !(momentum >= 0 && momentum <= 1))
        err = RB_IMPORT_BAD(import, "momentum %g is not within [0, 1]", (double)momentum);
    if (!err)
        err = find_frozen(import, in, &frozen);
    if (err)
        return err;
    if ((import->options->given || are_computed(in)) &&
        (rb_make_int(import, "training_mode", 0) || says_training(import)))
        return batch_norm_as_said(import, in, epsilon, momentum);
    if (import->options->train && !frozen && !are_computed(in))
        return batch_norm_train(import, in, epsilon, momentum);
    return batch_norm_eval(import, in, epsilon, momentum, frozen);
}

static int dropout_ratio(struct rb_import *import, float *ratio)
{
    struct rb_value *mode = import->opset >= 12 ? rb_import_in(import, 2) : NULL;
    int err = import->opset >= 12 ? rb_import_known_float(import, 1, "ratio", ratio)
                                  : rb_import_float(import, "ratio", ratio);

    if (!err && mode && !rb_import_ask(mode))
        err = RB_IMPORT_NO(import, "training_mode must be known when the model is imported");
    if (!err && import->options->given && mode && rb_fold_integer(mode, 0) && *ratio > 0)
        err = RB_IMPORT_NO(import, "what it drops is drawn anew, and no file can say what that is");
    if (!err && (!(*ratio >= 0) || *ratio >= 1))
        err = RB_IMPORT_BAD(import, "ratio %g is not within [0, 1)", (double)*ratio);
    if (!err && mode && rb_tensor_elements(&mode->type) == 1 && !rb_fold_integer(mode, 0))
        *ratio = 0; /* by the model this one never drops anything */
    return err;
}

/* A mask that keeps everything. */
static int bind_full_mask(struct rb_import *import, const struct rb_value *x)
{
    struct rb_tensor_type type = {.dtype = RB_BOOL};
    static const uint8_t yes = 1;
    struct rb_value *one, *out;
    int err;

    if (!rb_import_wants(import, 1))
        return 0;
    one = rb_graph_value(import->graph, RB_VALUE_CONST, import->name, &type, &yes);
    type = x->type;
    type.dtype = RB_BOOL;
    err = rb_import_emit(import, RB_OP_EXPAND, 1, &one, 0, NULL, &type, &out);
    return err ? err : rb_import_bind(import, 1, out);
}

int rb_import_op_dropout(struct rb_import *import)
{
    float ratio = 0.5F;
    struct rb_graph_attribute attribute = rb_attr_float("ratio", &ratio);
    struct rb_value *x, *out;
    int err = rb_import_need(import, 0, &x);

    if (!err)
        err = dropout_ratio(import, &ratio);
    if (err)
        return err;
    if (!import->options->train || ratio == 0) {
        err = bind_full_mask(import, x);
        return err ? err : rb_import_bind(import, 0, x);
    }
    err = rb_import_emit(import, RB_OP_DROPOUT, 1, &x, 1, &attribute, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}
