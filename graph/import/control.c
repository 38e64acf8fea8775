/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow and lists that are known at import: branches of an If, sequences of tensors. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>
#include <string.h>

/* ---- If: the branch that is taken stands where the If stood ---- */

static int add_initializers(struct rb_import *import, const Onnx__GraphProto *branch)
{
    for (size_t i = 0; i < branch->n_initializer; i++) {
        const Onnx__TensorProto *tensor = branch->initializer[i];
        struct rb_tensor_type type;
        const void *data;
        int err =
            rb_onnx_tensor(import->model, tensor, &import->graph->arena, &type, &data, import->why);

        if (err)
            return err;
        if (!tensor->name ||
            !rb_names_add(&import->values, tensor->name,
                          rb_graph_value(import->graph, RB_VALUE_CONST, tensor->name, &type, data)))
            return RB_IMPORT_BAD(import, "a branch has an initializer without a name of its own");
    }
    return 0;
}

int rb_import_inside(struct rb_import *import, const Onnx__GraphProto *branch)
{
    struct rb_import outer = *import;
    int err = add_initializers(import, branch);

    for (size_t i = 0; !err && i < branch->n_node; i++)
        err = rb_import_node(import, branch->node[i]);
    import->node = outer.node;
    import->op = outer.op;
    import->name = outer.name;
    import->narrow = import->wide = RB_NONE;
    return err;
}

static int take_branch(struct rb_import *import, const Onnx__GraphProto *branch)
{
    int err = rb_import_inside(import, branch);

    if (err)
        return err;
    if (branch->n_output != import->node->n_output)
        return RB_IMPORT_BAD(import, "the branch has %zu outputs, the If %zu", branch->n_output,
                             import->node->n_output);
    for (size_t i = 0; !err && i < branch->n_output; i++) {
        const char *name = branch->output[i]->name ? branch->output[i]->name : "";
        struct rb_value *value = rb_names_get(&import->values, name);
        const struct rb_sequence *sequence = rb_names_get(&import->sequences, name);

        if (value)
            err = rb_import_bind(import, (int)i, value);
        else if (sequence)
            err = rb_import_bind_sequence(import, (int)i, sequence);
        else
            err = RB_IMPORT_BAD(import, "output %zu of the branch is made by no node", i);
    }
    return err;
}

int rb_import_op_if(struct rb_import *import)
{
    struct rb_value *condition = rb_make_need(import, 0);
    const Onnx__AttributeProto *branch;
    const char *key;

    if (import->err)
        return import->err;
    if (!rb_import_ask(condition) || rb_tensor_elements(&condition->type) != 1)
        return RB_IMPORT_NO(import, "its condition is computed from the data; only one that is "
                                    "known when the model is imported is supported");
    key = rb_fold_integer(condition, 0) ? "then_branch" : "else_branch";
    branch = rb_import_attribute(import, key);
    if (!branch || !branch->g)
        return RB_IMPORT_BAD(import, "it has no %s", key);
    return take_branch(import, branch->g);
}

/* ---- Sequences ---- */

static struct rb_sequence *new_sequence(struct rb_import *import, int room)
{
    struct rb_sequence *sequence = RB_ARENA_NEW(&import->graph->arena, struct rb_sequence, 1);

    sequence->items = RB_ARENA_NEW(&import->graph->arena, struct rb_value *, room + 1);
    return sequence;
}

static const struct rb_sequence *need_sequence(struct rb_import *import, int i)
{
    const char *name = (size_t)i < import->node->n_input ? import->node->input[i] : NULL;
    const struct rb_sequence *sequence = name ? rb_names_get(&import->sequences, name) : NULL;

    return sequence ? sequence : rb_make_no(import, "input %d is no sequence known now", i);
}

int rb_import_op_sequence_construct(struct rb_import *import)
{
    int n = (int)import->node->n_input;
    struct rb_sequence *sequence = new_sequence(import, n);

    for (int i = 0; i < n; i++)
        sequence->items[sequence->n++] = rb_make_need(import, i);
    return import->err ? import->err : rb_import_bind_sequence(import, 0, sequence);
}

int rb_import_op_sequence_empty(struct rb_import *import)
{
    return rb_import_bind_sequence(import, 0, new_sequence(import, 0));
}

/* A place in a sequence, from the end where negative; `after`: the end is a place too. */
static int place(struct rb_import *import, int input, int n, bool after, int otherwise)
{
    const int64_t *given = NULL;
    int count = 0;
    int64_t at = otherwise;

    if (!import->err)
        import->err = rb_import_known_ints(import, input, "position", &given, &count);
    if (import->err)
        return 0;
    if (given)
        at = count == 1 ? given[0] : INT64_MAX;
    at = at < 0 ? at + n : at;
    if (at < 0 || at >= n + after) {
        rb_make_bad(import, "there is no place %" PRId64 " in a sequence of %d",
                    given && count == 1 ? given[0] : at, n);
        return 0;
    }
    return (int)at;
}

int rb_import_op_sequence_at(struct rb_import *import)
{
    const struct rb_sequence *from = need_sequence(import, 0);
    int at = from ? place(import, 1, from->n, false, -1) : 0;

    return import->err ? import->err : rb_make_bind(import, 0, from->items[at]);
}

int rb_import_op_sequence_insert(struct rb_import *import)
{
    const struct rb_sequence *from = need_sequence(import, 0);
    struct rb_value *item = rb_make_need(import, 1);
    struct rb_sequence *sequence = new_sequence(import, from ? from->n + 1 : 1);
    int at = from ? place(import, 2, from->n, true, from->n) : 0;

    if (import->err)
        return import->err;
    for (int i = 0; i <= from->n; i++)
        sequence->items[i] = i < at ? from->items[i] : i == at ? item : from->items[i - 1];
    sequence->n = from->n + 1;
    return rb_import_bind_sequence(import, 0, sequence);
}

int rb_import_op_sequence_erase(struct rb_import *import)
{
    const struct rb_sequence *from = need_sequence(import, 0);
    struct rb_sequence *sequence = new_sequence(import, from ? from->n : 1);
    int at = from ? place(import, 1, from->n, false, -1) : 0;

    if (import->err)
        return import->err;
    for (int i = 0; i < from->n; i++)
        if (i != at)
            sequence->items[sequence->n++] = from->items[i];
    return rb_import_bind_sequence(import, 0, sequence);
}

int rb_import_op_sequence_length(struct rb_import *import)
{
    const struct rb_sequence *from = need_sequence(import, 0);

    return rb_make_bind(import, 0, rb_make_number(import, RB_I64, from ? (double)from->n : 0));
}

/* Sizes of the parts: as given, all of one given size but for the last, or 1. */
static int part_sizes(struct rb_import *import, int64_t size, const int64_t **ret_sizes)
{
    enum { MOST = 1 << 16 };
    struct rb_value *split = rb_import_in(import, 1);
    const int64_t *given = NULL;
    int64_t each = 1, *sizes;
    int n = 0;

    if (split && !import->err)
        import->err = rb_import_known_ints(import, 1, "split", &given, &n);
    if (!import->err && given && split->type.rank == 1) {
        *ret_sizes = given;
        return n;
    }
    if (given)
        each = n == 1 ? given[0] : 0;
    if (!import->err && (each < 1 || size / each > MOST))
        rb_make_no(import, "%" PRId64 " in parts of %" PRId64, size, each);
    if (import->err)
        return 0;
    n = (int)((size + each - 1) / each);
    sizes = RB_ARENA_NEW(&import->graph->arena, int64_t, n);
    for (int i = 0; i < n; i++)
        sizes[i] = i + 1 < n ? each : size - i * each;
    *ret_sizes = sizes;
    return n;
}

int rb_import_op_split_to_sequence(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    int axis = rb_make_axis(import, "axis", 0, x ? x->type.rank : 1);
    bool keep = rb_make_int(import, "keepdims", 1) || rb_import_in(import, 1);
    const int64_t *sizes = NULL;
    int n = import->err ? 0 : part_sizes(import, x->type.dim[axis], &sizes);
    struct rb_sequence *sequence = new_sequence(import, n);
    int64_t start = 0;

    for (int i = 0; !import->err && i < n; i++) {
        struct rb_value *part = rb_make_slice(import, x, axis, start, sizes[i], 1);

        sequence->items[sequence->n++] = keep ? part : rb_make_squeeze(import, part, axis);
        start += sizes[i];
    }
    if (!import->err && start != x->type.dim[axis])
        rb_make_bad(import, "the parts have %" PRId64 " along the axis, the input %" PRId64, start,
                    x->type.dim[axis]);
    return import->err ? import->err : rb_import_bind_sequence(import, 0, sequence);
}

int rb_import_op_concat_from_sequence(struct rb_import *import)
{
    const struct rb_sequence *from = need_sequence(import, 0);
    bool fresh = rb_make_int(import, "new_axis", 0) != 0;
    struct rb_value **items;
    int axis;

    if (!import->err && !from->n)
        rb_make_bad(import, "the sequence is empty");
    if (import->err)
        return import->err;
    axis = rb_make_axis(import, "axis", 0, from->items[0]->type.rank + fresh);
    items = RB_ARENA_NEW(&import->graph->arena, struct rb_value *, from->n);
    for (int i = 0; i < from->n; i++)
        items[i] = fresh ? rb_make_unsqueeze(import, from->items[i], axis) : from->items[i];
    return rb_make_bind(import, 0,
                        import->err ? NULL : rb_make_concat(import, axis, from->n, items));
}

/* The Identity that a detach() left. */
static int detach(struct rb_import *import)
{
    struct rb_value *x, *out = NULL;
    int err = rb_import_need(import, 0, &x);

    if (!err && (x->role == RB_VALUE_CONST || x->type.dtype != RB_F32))
        return rb_import_bind(import, 0, x);
    if (!err)
        err = rb_import_emit(import, RB_OP_DETACH, 1, &x, 0, NULL, NULL, &out);
    return err ? err : rb_import_bind(import, 0, out);
}

int rb_import_op_identity(struct rb_import *import)
{
    const char *name = import->node->n_input ? import->node->input[0] : "";
    const struct rb_sequence *sequence = rb_names_get(&import->sequences, name ? name : "");

    if (sequence)
        return rb_import_bind_sequence(import, 0, sequence);
    if (rb_onnx_detaches(import->model, import->node))
        return detach(import);
    return rb_make_bind(import, 0, rb_make_need(import, 0));
}
