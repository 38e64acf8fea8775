/* SPDX-License-Identifier: Apache-2.0 */
/* A loss inside the model, taken apart: the class of each row is picked by comparing its label with
 * all classes, which needs no operator that a model without a loss would not use.  A label that is
 * no class makes the loss NaN, as in the losses that are not part of a model. */
#include "graph/import/import.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_CLASSES = 1 << 24 }; /* their numbers become a constant of the graph */

struct own_loss {
    struct rb_value *scores;    /* N C ...: logarithms of probabilities */
    struct rb_value *from;      /* the model's own value of the labels */
    struct rb_value *labels;    /* N ..., int64; soft: N C ..., float */
    struct rb_value *is_class;  /* N C ..., bool: this is the row's class */
    struct rb_value *rows;      /* N ...: what each row loses */
    struct rb_value *factor;    /* N ...: how much it counts; NULL: 1 */
    struct rb_tensor_type type; /* of rows */
    bool soft;                  /* labels are probabilities of all classes */
};

static int read_inputs(struct rb_import *import, struct own_loss *loss)
{
    struct rb_graph *graph = import->graph;
    char text_s[RB_TENSOR_TEXT], text_l[RB_TENSOR_TEXT];
    int err = rb_import_need(import, 0, &loss->scores);
    const struct rb_tensor_type *type;
    struct rb_value *given;

    if (!err)
        err = rb_import_need(import, 1, &loss->labels);
    if (err)
        return err;
    loss->from = given = loss->labels;
    type = &loss->scores->type;
    if (type->rank >= 2) {
        loss->type = (struct rb_tensor_type){.dtype = RB_F32, .rank = type->rank - 1};
        loss->type.dim[0] = type->dim[0];
        memcpy(loss->type.dim + 1, type->dim + 2, sizeof type->dim[0] * (size_t)(type->rank - 2));
    }
    loss->soft = import->op->op == RB_OP_LOG_SOFTMAX && type->rank >= 2 &&
                 loss->labels->type.dtype == RB_F32 &&
                 rb_tensor_same_shape(type, &loss->labels->type);
    if (!loss->soft && (type->rank < 2 || !rb_tensor_same_shape(&loss->type, &loss->labels->type)))
        return RB_IMPORT_BAD(import, "scores %s do not fit labels %s", rb_tensor_text(type, text_s),
                             rb_tensor_text(&loss->labels->type, text_l));
    if (type->dim[1] > MOST_CLASSES)
        return RB_IMPORT_NO(import, "%" PRId64 " classes; the most is %d", type->dim[1],
                            MOST_CLASSES);
    if (rb_graph_made_by(given, RB_OP_CAST)) /* integers of another type are cast as they come in */
        given = given->maker->in[0];
    if (given->role == RB_VALUE_INPUT && given != graph->features && !given->named &&
        !graph->targets && !import->options->given)
        graph->targets = given;
    if (!loss->soft && !graph->own_labels.value)
        graph->own_labels = (struct rb_own_labels){.value = loss->labels, .classes = type->dim[1]};
    return loss->soft ? 0 : rb_import_cast(import, loss->labels, RB_I64, &loss->labels);
}

/* Compare each label with all classes. */
static int compare(struct rb_import *import, struct own_loss *loss)
{
    int64_t n = loss->scores->type.dim[1], dim[RB_MAX_RANK], classes_dim[RB_MAX_RANK];
    int64_t *numbers = RB_ARENA_NEW(&import->graph->arena, int64_t, n);
    int rank = loss->scores->type.rank;
    struct rb_value *labels, *classes;
    int err;

    for (int64_t i = 0; i < n; i++)
        numbers[i] = i;
    for (int i = 0; i < rank; i++) {
        dim[i] = i == 1 ? 1 : loss->scores->type.dim[i];
        classes_dim[i] = i == 1 ? n : 1;
    }
    classes = rb_graph_int64s(import->graph, import->name, numbers, (int)n);
    err = rb_import_reshape(import, classes, rank, classes_dim, &classes);
    if (!err)
        err = rb_import_reshape(import, loss->labels, rank, dim, &labels);
    return err ? err : rb_import_binary(import, RB_OP_EQUAL, labels, classes, &loss->is_class);
}

/* For each row, the element of `from` at the row's class. */
static int pick(struct rb_import *import, const struct own_loss *loss, struct rb_value *from,
                struct rb_value **ret)
{
    struct rb_graph_attribute axes = rb_attr_ints("axes", (int64_t[]){1}, 1);
    struct rb_value *in[3] = {loss->is_class, from, rb_graph_scalar(import->graph, 0)}, *picked;
    int err = rb_import_emit(import, RB_OP_WHERE, 3, in, 0, NULL, NULL, &picked);

    return err ? err
               : rb_import_emit(import, RB_OP_REDUCE_SUM, 1, &picked, 1, &axes, &loss->type, ret);
}

/* The loss of a row whose label is below `least` or above `most` is NaN. */
static int mark_strays(struct rb_import *import, struct own_loss *loss, int64_t least, int64_t most)
{
    struct rb_value *ends[] = {rb_graph_int64s(import->graph, import->name, &least, 1),
                               rb_graph_int64s(import->graph, import->name, &most, 1)};
    int err = 0;

    for (int i = 0; !err && i < 2; i++) {
        struct rb_value *in[3] = {NULL, rb_graph_scalar(import->graph, NAN), loss->rows};

        err =
            rb_import_binary(import, i ? RB_OP_GREATER : RB_OP_LESS, loss->labels, ends[i], &in[0]);
        if (!err)
            err = rb_import_emit(import, RB_OP_WHERE, 3, in, 0, NULL, NULL, &loss->rows);
    }
    return err;
}

/* Class weights are data: no framework has a gradient for them.  A tensor that the model also reads
 * elsewhere keeps its role. */
static void hold(struct rb_import *import, struct rb_value *weights)
{
    const Onnx__GraphProto *graph = import->model->proto->graph;
    int uses = 0;

    if (weights->role != RB_VALUE_WEIGHT || import->call)
        return;
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t j = 0; j < graph->node[i]->n_input; j++)
            uses += graph->node[i]->input[j] && !strcmp(graph->node[i]->input[j], weights->name);
    if (uses > 1)
        return;
    weights->role = RB_VALUE_BUFFER;
    weights->frozen = false;
}

/* Class weights that broadcast over the scores; NULL: there are none. */
static int class_weights(struct rb_import *import, const struct own_loss *loss,
                         struct rb_value **ret)
{
    struct rb_value *weights = rb_import_in(import, 2);
    int64_t dim[RB_MAX_RANK];
    int rank = loss->scores->type.rank;

    *ret = NULL;
    if (!weights)
        return 0;
    hold(import, weights);
    for (int i = 0; i < rank; i++)
        dim[i] = i == 1 ? loss->scores->type.dim[1] : 1;
    return rb_import_reshape(import, weights, rank, dim, ret);
}

/* PyTorch's cross_entropy takes probabilities too, and exports them as they are.  Each row counts
 * for one, whatever its classes weigh. */
static int mix(struct rb_import *import, struct own_loss *loss)
{
    struct rb_graph_attribute axes = rb_attr_ints("axes", (int64_t[]){1}, 1);
    struct rb_value *weights, *mixed;
    int err = class_weights(import, loss, &weights);

    if (!err)
        err = rb_import_binary(import, RB_OP_MUL, loss->labels, loss->scores, &mixed);
    if (!err && weights)
        err = rb_import_binary(import, RB_OP_MUL, mixed, weights, &mixed);
    return err ? err
               : rb_import_emit(import, RB_OP_REDUCE_SUM, 1, &mixed, 1, &axes, &loss->type,
                                &loss->rows);
}

/* Apply class weights, and leave out labels that do not count. */
static int weigh(struct rb_import *import, struct own_loss *loss)
{
    struct rb_value *weights, *ignored;
    bool ignores = rb_import_attribute(import, "ignore_index") != NULL;
    int64_t index = 0;
    int err = rb_import_int(import, "ignore_index", &index);

    if (!err)
        err = class_weights(import, loss, &weights);
    if (!err && weights)
        err = pick(import, loss, weights, &loss->factor);
    if (err || !ignores)
        return err;
    if (import->graph->own_labels.value == loss->from) {
        import->graph->own_labels.ignores = true;
        import->graph->own_labels.ignored = index;
    }
    ignored = rb_graph_int64s(import->graph, import->name, &index, 1);
    err = rb_import_binary(import, RB_OP_EQUAL, loss->labels, ignored, &ignored);
    if (!err) /* it may be infinite, and 0 times that is NaN */
        err = rb_import_emit(
            import, RB_OP_WHERE, 3,
            (struct rb_value *[]){ignored, rb_graph_scalar(import->graph, 0), loss->rows}, 0, NULL,
            NULL, &loss->rows);
    if (!err)
        err = rb_import_cast(import, ignored, RB_F32, &ignored);
    if (!err)
        err = rb_import_binary(import, RB_OP_SUB, rb_graph_scalar(import->graph, 1), ignored,
                               &ignored);
    if (err || !loss->factor) {
        loss->factor = err ? NULL : ignored;
        return err;
    }
    return rb_import_binary(import, RB_OP_MUL, loss->factor, ignored, &loss->factor);
}

static int reduce(struct rb_import *import, enum rb_op op, struct rb_value *x,
                  struct rb_value **ret)
{
    static const int64_t all[RB_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct rb_graph_attribute axes = rb_attr_ints("axes", all, x->type.rank);
    struct rb_tensor_type scalar = {.dtype = RB_F32};

    return rb_import_emit(import, op, 1, &x, 1, &axes, &scalar, ret);
}

static int finish(struct rb_import *import, const struct own_loss *loss, const char *reduction,
                  struct rb_value **ret)
{
    struct rb_value *count;
    int err;

    if (!strcmp(reduction, "none")) {
        *ret = loss->rows;
        return 0;
    }
    if (!strcmp(reduction, "sum"))
        return reduce(import, RB_OP_REDUCE_SUM, loss->rows, ret);
    if (strcmp(reduction, "mean") != 0)
        return RB_IMPORT_BAD(import, "reduction is not mean, sum or none");
    if (!loss->factor)
        return reduce(import, RB_OP_REDUCE_MEAN, loss->rows, ret);
    err = reduce(import, RB_OP_REDUCE_SUM, loss->rows, ret);
    if (!err)
        err = reduce(import, RB_OP_REDUCE_SUM, loss->factor, &count);
    return err ? err : rb_import_binary(import, RB_OP_DIV, *ret, count, ret);
}

int rb_import_op_own_loss(struct rb_import *import)
{
    struct rb_graph_attribute axis = rb_attr_ints("axis", (int64_t[]){1}, 1);
    const char *reduction = "mean";
    struct own_loss loss = {0};
    struct rb_value *out;
    int err = read_inputs(import, &loss);

    if (!err)
        err = rb_import_text(import, "reduction", &reduction);
    if (!err && import->op->op == RB_OP_LOG_SOFTMAX)
        err = rb_import_emit(import, RB_OP_LOG_SOFTMAX, 1, &loss.scores, 1, &axis, NULL,
                             &loss.scores);
    if (!err && import->op->op == RB_OP_LOG_SOFTMAX)
        err = rb_import_bind(import, 1, loss.scores);
    if (!err && loss.soft)
        err = mix(import, &loss);
    if (!err && !loss.soft)
        err = compare(import, &loss);
    if (!err && !loss.soft)
        err = pick(import, &loss, loss.scores, &loss.rows);
    if (!err)
        err = rb_import_unary(import, RB_OP_NEG, loss.rows, &loss.rows);
    if (!err && !loss.soft)
        err = mark_strays(import, &loss, 0, loss.scores->type.dim[1] - 1);
    if (!err && !loss.soft)
        err = weigh(import, &loss);
    if (!err && loss.factor)
        err = rb_import_binary(import, RB_OP_MUL, loss.rows, loss.factor, &loss.rows);
    if (!err)
        err = finish(import, &loss, reduction, &out);
    if (err)
        return err;
    if (import->graph->own_labels.value == loss.from && !strcmp(reduction, "mean") &&
        !rb_import_in(import, 2))
        import->graph->own_labels.mean = out;
    return rb_import_bind(import, 0, out);
}
