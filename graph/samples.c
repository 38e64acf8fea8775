/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/samples.h"

#include "base/arena.h"

static const struct rb_samples none = {RB_SAMPLES_NONE, 0}, mixed = {RB_SAMPLES_MIXED, 0};

/* A node whose outputs are judged, and what is known of all values so far. */
struct view {
    const struct rb_node *node;
    const struct rb_samples *all;
    int64_t batch;
};

static const struct rb_tensor_type *in_type(const struct view *view, int i)
{
    return &view->node->in[i]->type;
}

static struct rb_samples in_samples(const struct view *view, int i)
{
    return i < view->node->n_in && view->node->in[i] ? view->all[view->node->in[i]->id] : none;
}

/* ---- Axes ---- */

static int64_t step_of(const struct rb_tensor_type *type, int axis)
{
    int64_t step = 1;

    for (int i = axis + 1; i < type->rank; i++)
        step *= type->dim[i];
    return step;
}

/* The axis along which samples are counted, perhaps merged with other axes inside or outside them;
 * -1: there is none, for example where the batch was cut into two axes. */
static int axis_of(const struct view *view, int i)
{
    const struct rb_tensor_type *type = in_type(view, i);
    int64_t inner = in_samples(view, i).inner;

    for (int axis = 0; axis < type->rank; axis++) {
        int64_t step = step_of(type, axis);

        if (step <= inner && inner % step == 0 && inner * view->batch <= step * type->dim[axis])
            return axis;
    }
    return -1;
}

/* The samples of y by input i, whose axis of samples is axis `to` of y. */
static struct rb_samples put(const struct view *view, int i, const struct rb_tensor_type *y, int to)
{
    struct rb_samples from = in_samples(view, i);
    int axis = axis_of(view, i);

    if (from.kind != RB_SAMPLES_APART)
        return from;
    if (axis < 0 || to < 0 || to >= y->rank || y->dim[to] != in_type(view, i)->dim[axis])
        return mixed;
    from.inner = from.inner / step_of(in_type(view, i), axis) * step_of(y, to);
    return from;
}

/* The same, where the axes of input i come `shift` places later in y. */
static struct rb_samples shifted(const struct view *view, int i, const struct rb_tensor_type *y,
                                 int shift)
{
    struct rb_samples from = in_samples(view, i);

    if (from.kind != RB_SAMPLES_APART || rb_tensor_same_shape(in_type(view, i), y))
        return from;
    return put(view, i, y, axis_of(view, i) + shift);
}

static struct rb_samples both(struct rb_samples a, struct rb_samples b)
{
    if (a.kind == RB_SAMPLES_NONE)
        return b;
    if (b.kind == RB_SAMPLES_NONE)
        return a;
    return a.kind == RB_SAMPLES_APART && b.kind == RB_SAMPLES_APART && a.inner == b.inner ? a
                                                                                          : mixed;
}

/* All inputs are broadcast to y, or cut out of each other, and axes keep their places. */
static struct rb_samples aligned(const struct view *view, const struct rb_tensor_type *y)
{
    struct rb_samples all = none;

    for (int i = 0; i < view->node->n_in; i++)
        if (view->node->in[i])
            all = both(all, shifted(view, i, y, y->rank - in_type(view, i)->rank));
    return all;
}

/* The same for a node that works along an axis, which must not be that of the samples. */
static struct rb_samples along(const struct view *view, const struct rb_tensor_type *y, int axis)
{
    for (int i = 0; i < view->node->n_in; i++)
        if (in_samples(view, i).kind == RB_SAMPLES_APART &&
            (axis_of(view, i) < 0 || axis_of(view, i) == axis))
            return mixed;
    return aligned(view, y);
}

/* A slice of x; negative steps would make its samples change places. */
static struct rb_samples sliced(const struct view *view, const struct rb_tensor_type *y)
{
    const struct rb_graph_attribute *steps = rb_node_attribute(view->node, "steps");
    int axis = axis_of(view, 0);

    if (axis < 0 || !steps || axis >= steps->n_ints || steps->ints[axis] != 1)
        return mixed;
    return aligned(view, y);
}

/* The samples are along one of the first `most` axes of the first input, and the other inputs
 * depend on none. */
static struct rb_samples leading(const struct view *view, const struct rb_tensor_type *y, int most)
{
    for (int i = 1; i < view->node->n_in; i++)
        if (in_samples(view, i).kind != RB_SAMPLES_NONE)
            return mixed;
    return axis_of(view, 0) < 0 || axis_of(view, 0) >= most ? mixed : shifted(view, 0, y, 0);
}

/* ---- Operators ---- */

static struct rb_samples reduced(const struct view *view, const struct rb_tensor_type *y)
{
    const struct rb_graph_attribute *axes = rb_node_attribute(view->node, "axes");
    int axis = axis_of(view, 0), before = 0;

    if (!axes)
        axes = rb_node_attribute(view->node, "axis");
    if (axis < 0 || !axes)
        return mixed;
    for (int i = 0; i < axes->n_ints; i++) {
        if (axes->ints[i] == axis)
            return mixed;
        before += axes->ints[i] < axis;
    }
    return put(view, 0, y, y->rank == in_type(view, 0)->rank ? axis : axis - before);
}

static struct rb_samples transposed(const struct view *view, const struct rb_tensor_type *y)
{
    const struct rb_graph_attribute *perm = rb_node_attribute(view->node, "perm");
    int to = -1;

    for (int i = 0; perm && i < perm->n_ints; i++)
        if (perm->ints[i] == axis_of(view, 0))
            to = i;
    return put(view, 0, y, to);
}

/* Rows that a sample's indices name count as the sample's own: models that pick the score of a
 * label by hand do this. */
static struct rb_samples gathered(const struct view *view, const struct rb_tensor_type *y)
{
    int axis = (int)rb_node_int(view->node, "axis", 0), from = axis_of(view, 0);
    struct rb_samples named = shifted(view, 1, y, axis);

    if (in_samples(view, 0).kind != RB_SAMPLES_APART)
        return both(in_samples(view, 0), named);
    if (from == axis)
        return named.kind == RB_SAMPLES_APART ? named : mixed;
    return both(named, put(view, 0, y, from < axis ? from : from + in_type(view, 1)->rank - 1));
}

/* Factor i: its rows (or columns) and the axes before them stay; the summed axis does not. */
static struct rb_samples factor(const struct view *view, int i, const struct rb_tensor_type *y)
{
    bool turned = rb_node_int(view->node, i ? "transB" : "transA", 0) != 0;
    int rank = in_type(view, i)->rank, axis = axis_of(view, i), kept = rank - 2 + (turned != !!i);

    if (in_samples(view, i).kind != RB_SAMPLES_APART)
        return in_samples(view, i);
    if (axis < rank - 2)
        return put(view, i, y, axis < 0 ? -1 : axis + y->rank - rank);
    return axis == kept ? put(view, i, y, y->rank - 2 + i) : mixed;
}

static struct rb_samples product(const struct view *view, const struct rb_tensor_type *y)
{
    struct rb_samples bias = none;

    if (view->node->n_in > 2 && view->node->in[2])
        bias = shifted(view, 2, y, y->rank - in_type(view, 2)->rank);
    return both(both(factor(view, 0, y), factor(view, 1, y)), bias);
}

static struct rb_samples made(const struct view *view, int output)
{
    const struct rb_node *node = view->node;
    const struct rb_tensor_type *y = &node->out[output]->type;

    if (rb_op_info(node->op)->kind == RB_KIND_POINT)
        return aligned(view, y);
    switch (node->op) {
    case RB_OP_RESHAPE:
    case RB_OP_DETACH:
    case RB_OP_DROPOUT:
        return in_samples(view, 0);
    case RB_OP_TRANSPOSE:
        return transposed(view, y);
    case RB_OP_EXPAND:
    case RB_OP_CONCAT:
    case RB_OP_SPLIT:
        return aligned(view, y);
    case RB_OP_SLICE:
    case RB_OP_SLICE_GRAD:
        return sliced(view, y);
    case RB_OP_TRILU:
        return leading(view, y, y->rank - 2);
    case RB_OP_GATHER:
        return gathered(view, y);
    case RB_OP_GATHER_ELEMENTS:
    case RB_OP_SCATTER:
    case RB_OP_CUM_SUM:
    case RB_OP_TOP_K:
    case RB_OP_SOFTMAX:
    case RB_OP_LOG_SOFTMAX:
        return along(view, y, (int)rb_node_int(node, "axis", 0));
    case RB_OP_REDUCE_SUM:
    case RB_OP_REDUCE_MEAN:
    case RB_OP_REDUCE_MAX:
    case RB_OP_ARG_MAX:
        return reduced(view, y);
    case RB_OP_MATMUL:
        return product(view, y);
    case RB_OP_CONV:
    case RB_OP_CONV_GRAD_X:
        return leading(view, y, 1);
    case RB_OP_LAYER_NORM:
        return leading(view, y, (int)rb_node_int(node, "axis", 0));
    case RB_OP_BATCH_NORM:
    case RB_OP_BATCH_NORM_EVAL:
        return output ? mixed : leading(view, y, 2);
    case RB_OP_MAX_POOL:
    case RB_OP_AVERAGE_POOL:
        return leading(view, y, 2);
    default:
        return mixed;
    }
}

/* A value that depends on no sample needs no rule, and mixed samples stay mixed. */
static struct rb_samples made_by(const struct view *view, int output)
{
    enum rb_samples_kind most = RB_SAMPLES_NONE;

    for (int i = 0; i < view->node->n_in; i++)
        if (in_samples(view, i).kind > most)
            most = in_samples(view, i).kind;
    if (most == RB_SAMPLES_APART && view->batch > 1)
        return made(view, output);
    return (struct rb_samples){most, 1};
}

struct rb_samples *rb_samples_find(const struct rb_graph *graph)
{
    struct rb_samples *all = rb_alloc(sizeof *all * (size_t)(graph->n_values + 1));

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_tensor_type *type = &graph->values[i]->type;

        if (graph->values[i]->role != RB_VALUE_INPUT)
            continue;
        all[i] = mixed;
        if (type->rank > 0 && type->dim[0] == graph->batch)
            all[i] = (struct rb_samples){RB_SAMPLES_APART, step_of(type, 0)};
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        struct view view = {graph->nodes[i], all, graph->batch};

        for (int j = 0; j < view.node->n_out; j++)
            if (view.node->out[j])
                all[view.node->out[j]->id] = made_by(&view, j);
    }
    return all;
}
