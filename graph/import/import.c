/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/import/import.h"

#include "graph/import/tidy.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

/* ---- Initializers ---- */

static bool matches(const char *const *globs, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!fnmatch(globs[i], name, 0))
            return true;
    return false;
}

bool rb_import_freezes(const struct rb_import *import, const char *name)
{
    return name && matches(import->options->freeze, import->options->n_freeze, name);
}

/* Could the tensor have been a weight?  Only F32 is trained. */
static bool is_other_float(const struct rb_tensor_type *type)
{
    return type->rank > 0 &&
           (type->dtype == RB_F16 || type->dtype == RB_BF16 || type->dtype == RB_F64);
}

static int add_initializer(struct rb_import *import, const Onnx__TensorProto *tensor)
{
    const struct rb_import_options *options = import->options;
    struct rb_tensor_type type;
    struct rb_value *value;
    const void *data;
    enum rb_onnx_kind kind;
    bool weight;
    int err =
        rb_onnx_tensor(import->model, tensor, &import->graph->arena, &type, &data, import->why);

    if (err)
        return err;
    kind = rb_onnx_kind(import->model, tensor->name);
    if (kind == RB_ONNX_UNMARKED && rb_onnx_was_constant(tensor->name, type.rank))
        kind = RB_ONNX_CONSTANT;
    weight = type.dtype == RB_F32 && (kind == RB_ONNX_UNMARKED || kind == RB_ONNX_PARAMETER) &&
             !matches(options->buffers, options->n_buffers, tensor->name);
    import->graph->other_floats += is_other_float(&type) && kind != RB_ONNX_CONSTANT;
    value = rb_graph_value(import->graph,
                           weight                     ? RB_VALUE_WEIGHT
                           : kind == RB_ONNX_CONSTANT ? RB_VALUE_CONST
                                                      : RB_VALUE_BUFFER,
                           tensor->name, &type, data);
    value->frozen = weight && rb_import_freezes(import, tensor->name);
    if (!rb_names_add(&import->values, tensor->name, value))
        return RB_IMPORT_BAD(import, "another value has that name");
    return 0;
}

/* Parameters that an optimizing exporter has merged or computed with cannot be trained as the
 * module's. */
static int check_lost(struct rb_import *import)
{
    const char *example = NULL;
    int n = import->options->train ? rb_onnx_lost(import->model, &example) : 0;
    char room[80];

    if (!n)
        return 0;
    return RB_IMPORT_NO(import,
                        "%d of the module's parameters were replaced ('%s' ...): the exporter has "
                        "merged those that were equal, or computed something from them; export it "
                        "with optimize=False (rubatoctl model check prints the call)",
                        n, rb_onnx_quote(example, room));
}

static int add_initializers(struct rb_import *import, const struct rb_names *needed)
{
    const Onnx__GraphProto *graph = import->model->proto->graph;
    char room[80];

    for (size_t i = 0; i < graph->n_initializer; i++) {
        int err;

        if (!rb_names_get(needed, graph->initializer[i]->name))
            continue;
        err = add_initializer(import, graph->initializer[i]);
        if (err)
            return rb_why_add(import->why, err, "initializer '%s'",
                              rb_onnx_quote(graph->initializer[i]->name, room));
    }
    return 0;
}

/* ---- Nodes ---- */

static bool makes_needed(const Onnx__NodeProto *node, const struct rb_names *needed)
{
    for (size_t i = 0; i < node->n_output; i++)
        if (node->output[i] && node->output[i][0] && rb_names_get(needed, node->output[i]))
            return true;
    return false;
}

static void need(struct rb_names *needed, const char *name)
{
    static char yes;

    if (name && name[0])
        rb_names_add(needed, name, &yes);
}

/* A branch reads names of the graph around it.  (Nesting was limited when the file was read.) */
static void need_inputs(const Onnx__NodeProto *node, struct rb_names *needed)
{
    for (size_t j = 0; j < node->n_input; j++)
        need(needed, node->input[j]);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__GraphProto *branch = node->attribute[i]->g;

        for (size_t j = 0; branch && j < branch->n_node; j++)
            need_inputs(branch->node[j], needed);
        for (size_t j = 0; branch && j < branch->n_output; j++)
            need(needed, branch->output[j]->name);
    }
}

/* The names that the outputs depend on; nodes stand in an order that can be run. */
static void find_needed(const Onnx__GraphProto *graph, struct rb_names *needed)
{
    for (size_t i = 0; i < graph->n_output; i++)
        need(needed, graph->output[i]->name);
    for (size_t i = graph->n_node; i-- > 0;)
        if (makes_needed(graph->node[i], needed))
            need_inputs(graph->node[i], needed);
}

static int check_inputs(struct rb_import *import)
{
    char room[80];

    for (size_t i = 0; i < import->node->n_input; i++) {
        const char *name = import->node->input[i];

        if (name && name[0] && !rb_names_get(&import->values, name) &&
            !rb_names_get(&import->sequences, name) && !rb_import_left_out(import, name))
            return RB_IMPORT_BAD(import,
                                 "input %zu ('%s') is made by no node before this one: it is "
                                 "missing, not supported as an output, or part of a cycle",
                                 i, rb_onnx_quote(name, room));
    }
    return 0;
}

/* The type in which the kernels compute numbers of `dtype`. */
static enum rb_dtype computed_in(enum rb_types types, enum rb_dtype dtype)
{
    bool integers = types == RB_TYPES_NUMBER || types == RB_TYPES_SIGNED;

    if (types == RB_TYPES_ANY)
        return dtype;
    switch (dtype) {
    case RB_F16:
    case RB_BF16:
        return RB_F32;
    case RB_F64:
        return types == RB_TYPES_REAL ? RB_F32 : RB_F64;
    case RB_I8:
    case RB_U8:
    case RB_I16:
    case RB_U16:
        return integers ? RB_I32 : dtype;
    case RB_U32:
    case RB_U64:
        return integers ? RB_I64 : dtype;
    default:
        return dtype;
    }
}

static int widen(struct rb_import *import)
{
    import->err = 0;
    import->narrow = import->wide = RB_NONE;
    for (size_t i = 0; i < import->node->n_input && !import->narrow; i++) {
        const struct rb_value *value = rb_import_in(import, (int)i);
        enum rb_dtype wide = value ? computed_in(import->op->types, value->type.dtype) : RB_NONE;

        if (value && wide != value->type.dtype) {
            import->narrow = value->type.dtype;
            import->wide = wide;
        }
    }
    if (import->narrow == RB_U64 && import->op->types == RB_TYPES_SIGNED)
        return RB_IMPORT_NO(import, "not of uint64");
    return import->err;
}

/* An operator of another domain than ONNX's own: a function of the model, or unknown. */
static int import_other(struct rb_import *import)
{
    const struct rb_onnx_function *function = rb_onnx_function(import->model, import->node);
    int err;

    if (!function)
        return RB_IMPORT_NO(import, "operators of another domain are not supported");
    err = check_inputs(import);
    return err ? err : rb_import_call(import, function);
}

static int import_known(struct rb_import *import)
{
    const char *domain = import->node->domain;
    int err;

    if (domain && domain[0] && strcmp(domain, "ai.onnx") != 0)
        return import_other(import);
    import->op = rb_import_find(import->node->op_type ? import->node->op_type : "");
    if (!import->op)
        return rb_import_unknown(import);
    if (import->opset < import->op->since)
        return RB_IMPORT_NO(import, "this operator came with opset %" PRId64, import->op->since);
    err = check_inputs(import);
    if (err)
        return err;
    err = widen(import);
    if (err)
        return err;
    err = import->op->fn(import);
    return import->err ? import->err : err;
}

int rb_import_node(struct rb_import *import, const Onnx__NodeProto *node)
{
    char name[80], op[80];
    int err;

    import->node = node;
    import->name = node->name && node->name[0]         ? node->name
                   : node->n_output && node->output[0] ? node->output[0]
                                                       : "";
    err = import_known(import);
    if (err)
        return rb_why_add(import->why, err, "node '%s' (%s, opset %" PRId64 ")",
                          rb_onnx_quote(import->name, name), rb_onnx_quote(node->op_type, op),
                          import->opset);
    return 0;
}

static int import_nodes(struct rb_import *import, const struct rb_names *needed)
{
    const Onnx__GraphProto *graph = import->model->proto->graph;
    int err = 0;

    for (size_t i = 0; !err && i < graph->n_node; i++)
        if (makes_needed(graph->node[i], needed))
            err = rb_import_node(import, graph->node[i]);
    return err;
}

static int set_outputs(struct rb_import *import)
{
    const Onnx__GraphProto *from = import->model->proto->graph;
    struct rb_graph *graph = import->graph;
    char room[80];

    if (!from->n_output)
        return RB_IMPORT_BAD(import, "the model has no output");
    graph->outputs = RB_ARENA_NEW(&graph->arena, struct rb_value *, from->n_output);
    for (size_t i = 0; i < from->n_output; i++) {
        const char *name = from->output[i]->name;
        struct rb_value *value = name ? rb_names_get(&import->values, name) : NULL;

        if (!value)
            return RB_IMPORT_BAD(import, "output '%s' is made by no node (or not supported)",
                                 rb_onnx_quote(name, room));
        graph->outputs[graph->n_outputs++] = value;
    }
    return 0;
}

static int import_all(struct rb_import *import, struct rb_names *needed)
{
    int err = check_lost(import);

    if (!err)
        err = rb_import_inputs(import);
    find_needed(import->model->proto->graph, needed);
    if (!err)
        err = add_initializers(import, needed);
    if (!err)
        err = import_nodes(import, needed);
    if (!err)
        err = set_outputs(import);
    if (!err)
        err = rb_import_aliases(import);
    return err ? err : rb_import_tidy(import->graph, import->why);
}

int rb_onnx_import(const struct rb_onnx *model, const struct rb_import_options *options,
                   struct rb_graph **ret_graph, struct rb_why *why)
{
    struct rb_import import = {
        .model = model,
        .options = options,
        .graph = rb_graph_new(),
        .why = why,
        .opset = model->opset,
    };
    struct rb_names needed = {0};
    int err;

    import.graph->model = rb_onnx_borrow((struct rb_onnx *)model);
    import.graph->train = options->train;
    err = import_all(&import, &needed);
    rb_names_done(&needed);
    rb_names_done(&import.values);
    rb_names_done(&import.sequences);
    rb_names_done(&import.symbols);
    if (err) {
        rb_graph_free(import.graph);
        return err;
    }
    *ret_graph = import.graph;
    return 0;
}
