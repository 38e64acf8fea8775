/* SPDX-License-Identifier: Apache-2.0 */
/* What a model contains, in words, and whether it can be trained, as a report in JSON. */
#include "base/arena.h"
#include "base/buffer.h"
#include "ctl/model_page.h"
#include "ctl/verbs.h"
#include "graph/advice.h"
#include "graph/hints.h"
#include "graph/train.h"
#include "plan/compile/compile.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static json_t *type_report(const char *name, const struct rb_tensor_type *type)
{
    json_t *shape = json_array(), *report = json_object();

    for (int axis = 0; axis < type->rank; axis++)
        json_array_append_new(shape, type->dim[axis] < 0 ? json_string("any")
                                                         : json_integer(type->dim[axis]));
    json_object_set_new(report, "name", json_string(name ? name : ""));
    json_object_set_new(report, "type", json_string(rb_dtype_text(type->dtype)));
    json_object_set_new(report, "shape", shape);
    return report;
}

static void report_inputs(json_t *report, const struct rb_onnx *onnx)
{
    json_t *inputs = json_array();
    struct rb_tensor_type type;

    for (int i = 0; i < rb_onnx_inputs(onnx); i++)
        if (!rb_onnx_input_declared(onnx, i, &type, NULL))
            json_array_append_new(inputs, type_report(rb_onnx_input_name(onnx, i), &type));
    json_object_set_new(report, "inputs", inputs);
}

static void report_info(json_t *report, const struct rb_onnx_info *info)
{
    json_object_set_new(report, "producer", json_string(info->producer ? info->producer : ""));
    json_object_set_new(report, "irVersion", json_integer(info->ir_version));
    json_object_set_new(report, "opset", json_integer(info->opset));
    json_object_set_new(report, "nodes", json_integer(info->n_nodes));
    json_object_set_new(report, "initializers", json_integer(info->n_initializers));
    json_object_set_new(report, "input", type_report(info->input, &info->input_type));
    json_object_set_new(report, "batch",
                        info->fixed_batch > 0 ? json_integer(info->fixed_batch)
                                              : json_string("any"));
}

static void report_outputs(json_t *report, const struct rb_onnx *onnx, const struct rb_graph *graph,
                           bool any_batch)
{
    json_t *outputs = json_array();

    for (int i = 0; i < graph->n_outputs; i++) {
        struct rb_tensor_type type = graph->outputs[i]->type;

        if (any_batch && type.rank > 0 && type.dim[0] == graph->batch)
            type.dim[0] = -1;
        json_array_append_new(outputs, type_report(rb_onnx_output_name(onnx, i), &type));
    }
    json_object_set_new(report, "outputs", outputs);
}

static void report_values(json_t *report, const struct rb_graph *graph)
{
    json_t *trained = json_array(), *buffers = json_array();
    int64_t parameters = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];

        if (value->role == RB_VALUE_WEIGHT && !value->frozen) {
            json_array_append_new(trained, type_report(value->name, &value->type));
            parameters += rb_tensor_elements(&value->type);
        } else if (value->role == RB_VALUE_WEIGHT || value->role == RB_VALUE_BUFFER) {
            json_array_append_new(buffers, type_report(value->name, &value->type));
        }
    }
    json_object_set_new(report, "parameters", json_integer(parameters));
    json_object_set_new(report, "trained", trained);
    json_object_set_new(report, "buffers", buffers);
}

static int64_t uses_of(const struct rb_graph *graph, enum rb_op op)
{
    int64_t uses = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        uses += graph->nodes[i]->op == op;
    return uses;
}

/* The file's operators, in the order in which they first appear. */
static void report_operators(json_t *report, const struct rb_onnx *onnx, int n_nodes)
{
    json_t *operators = json_object();

    for (int i = 0; i < n_nodes; i++) {
        char room[80];
        const char *op = rb_onnx_quote(rb_onnx_node_op(onnx, i), room);
        json_int_t uses = json_integer_value(json_object_get(operators, op));

        json_object_set_new(operators, op, json_integer(uses + 1));
    }
    json_object_set_new(report, "operators", operators);
}

/* A model whose first output is one number makes its own loss. */
static bool has_own_loss(const struct rb_graph *graph)
{
    const struct rb_value *first = graph->n_outputs ? graph->outputs[0] : NULL;

    return first &&
           (first->type.rank == 0 || (rb_tensor_elements(&first->type) == 1 && graph->batch != 1));
}

/* Whether labels are left out the data say, which only a submit has. */
static void report_own_loss(const struct rb_graph *graph, struct rb_buffer *hints)
{
    enum rb_own_loss loss = rb_own_loss_of(graph, graph->outputs[0]);

    if (loss == RB_OWN_LOSS_OTHER &&
        rb_own_loss_of_all(graph, graph->outputs[0]) == RB_OWN_LOSS_MEAN)
        rb_buffer_text(hints, "the model's own loss leaves ignored labels out of its mean: "
                              "where the data have some, a submit says what that means "
                              "for microbatches\n");
    else
        rb_hint_loss(loss, hints);
}

static void report_hints(json_t *notes, const struct rb_graph *graph)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer hints = {0};

    rb_hint_buffers(graph, &hints);
    if (has_own_loss(graph))
        report_own_loss(graph, &hints);
    rb_reflect_lines(hints.data, notes);
}

/* "axis 3 of 'x', axis 1 of 'y'": axes behind the first without a size in the file. */
static char *free_axes(const struct rb_onnx *onnx)
{
    struct rb_buffer text = {0};
    char room[80];

    for (int i = 0, axis = 0; rb_onnx_next_free(onnx, &i, &axis);)
        rb_buffer_format(&text, "%saxis %d of '%s'", text.size ? ", " : "", axis,
                         rb_onnx_quote(rb_onnx_input_name(onnx, i), room));
    return rb_buffer_take(&text);
}

/* A name in the form for YAML braces: quoted where YAML would read it as something else. */
static void add_name(struct rb_buffer *text, const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    char room[80];
    size_t n;

    name = rb_onnx_quote(name, room);
    n = strspn(name, letters);
    while (name[n] == ':' && name[n + 1] == ':') /* onnx::Add_1 */
        n += 2 + strspn(name + n + 2, letters);
    if (n && n == strlen(name) && name[n - 1] != ':' && strcmp(name, "null") != 0 &&
        strcmp(name, "auto") != 0) {
        rb_buffer_text(text, name);
        return;
    }
    rb_buffer_text(text, "'");
    for (const char *at = name; *at; at++)
        rb_buffer_format(text, *at == '\'' ? "''" : "%c", *at);
    rb_buffer_text(text, "'");
}

/* The keys of the job file for the data of several inputs. */
static char *several_inputs(const struct rb_onnx *onnx, bool own_loss)
{
    struct rb_buffer text = {0};
    char room[80];

    rb_buffer_format(&text,
                     "in the job file path is '%s', and what else there is goes into inputs: [",
                     rb_onnx_quote(rb_onnx_input_name(onnx, 0), room));
    for (int i = 1; i < rb_onnx_inputs(onnx); i++) {
        rb_buffer_text(&text, i > 1 ? ", {name: " : "{name: ");
        add_name(&text, rb_onnx_input_name(onnx, i));
        rb_buffer_text(&text, ", path: FILE}");
    }
    rb_buffer_format(&text, "]%s",
                     own_loss ? "; labels among them may be given as targets instead" : "");
    return rb_buffer_take(&text);
}

static void report_notes(json_t *report, const struct rb_onnx *onnx, const struct rb_graph *graph,
                         const struct rb_onnx_info *info, int64_t free_size)
{
    json_t *notes = json_array();

    if (uses_of(graph, RB_OP_DROPOUT))
        json_array_append_new(notes, json_string("dropout acts while training; its masks depend on "
                                                 "seed, step and microbatch alone"));
    if (uses_of(graph, RB_OP_BATCH_NORM))
        json_array_append_new(notes, json_string("batch normalization takes its statistics from "
                                                 "each microbatch: set train.microBatch with it in "
                                                 "mind"));
    if (info->fixed_batch > 0)
        json_array_append_new(notes, json_string("exported for one batch size only: every "
                                                 "microbatch must have it"));
    if (free_size > 0) {
        RB_CLEANUP(rb_freep) char *axes = free_axes(onnx);
        RB_CLEANUP(rb_freep)
        char *note = rb_format("%s: no size of its own, taken as %" PRId64
                               " here (--seq N: as N); in a job it is that of its data",
                               axes, free_size);

        json_array_append_new(notes, json_string(note));
    }
    if (rb_onnx_inputs(onnx) > 1) {
        RB_CLEANUP(rb_freep) char *note = several_inputs(onnx, has_own_loss(graph));

        json_array_append_new(notes, json_string(note));
    }
    report_hints(notes, graph);
    json_object_set_new(report, "notes", notes);
}

static bool takes_batch(const struct rb_onnx *onnx, int64_t batch, int64_t free_size)
{
    const struct rb_import_options options = {
        .train = true, .batch = batch, .free_size = free_size};
    struct rb_graph *graph = NULL;
    struct rb_why why;

    if (rb_onnx_import(onnx, &options, &graph, &why))
        return false;
    rb_graph_free(graph);
    return true;
}

/* Does the model take only the batch that it was exported with, whatever its axes declare? */
static bool is_baked_in(const struct rb_onnx *onnx, const struct rb_import_options *bound,
                        bool imported)
{
    static const int64_t usual[] = {2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128};

    if (imported)
        return !takes_batch(onnx, 3, bound->free_size);
    for (size_t i = 0; i < RB_COUNT(usual); i++)
        if (takes_batch(onnx, usual[i], bound->free_size))
            return true;
    return false;
}

static void add_mistake(json_t *mistakes, const char *mistake, const char *remedy)
{
    json_t *one = json_object();

    json_object_set_new(one, "mistake", json_string(mistake));
    json_object_set_new(one, "remedy", json_string(remedy));
    json_array_append_new(mistakes, one);
}

static void report_mistakes(json_t *report, const struct rb_onnx *onnx, bool baked_in)
{
    struct rb_advice advice[RB_ADVICE_MOST];
    json_t *mistakes = json_array();
    struct rb_arena arena = {0};
    int n = rb_advice_find(onnx, &arena, advice);
    bool call = false;

    for (int i = 0; i < n; i++) {
        add_mistake(mistakes, advice[i].mistake, advice[i].remedy);
        call |= advice[i].call;
    }
    if (baked_in)
        add_mistake(mistakes,
                    "the first axis is free by its name, but the size of the example batch is "
                    "written somewhere inside: x.view(32, ...) or int(x.shape[0]) in the module",
                    "x.shape[0] used as it is, or -1, in the module");
    if (call)
        json_object_set_new(report, "export", json_string(rb_advice_call(onnx, &arena)));
    json_object_set_new(report, "mistakes", mistakes);
    rb_arena_done(&arena);
}

/* Binds, imports and describes the model; on failure the report has what was found so far. */
static int look(const struct rb_onnx *onnx, struct rb_import_options *options, json_t *report,
                struct rb_why *why)
{
    struct rb_onnx_info info = {0};
    struct rb_graph *graph = NULL;
    int err = rb_onnx_info(onnx, &info, why);

    if (err)
        return err;
    report_info(report, &info);
    report_inputs(report, onnx);
    err = rb_compile_bind(onnx, options, why);
    if (err)
        return err;
    err = rb_onnx_import(onnx, options, &graph, why);
    report_mistakes(report, onnx, options->batch > 0 && is_baked_in(onnx, options, !err));
    if (err)
        return err;
    report_outputs(report, onnx, graph, info.fixed_batch <= 0);
    report_values(report, graph);
    report_operators(report, onnx, info.n_nodes);
    report_notes(report, onnx, graph, &info, options->free_size);
    rb_graph_free(graph);
    return 0;
}

/* Returns 0 where the model can be trained. */
static int check(const char *path, int64_t free_size, json_t *report, struct rb_why *why)
{
    struct rb_import_options options = {.train = true, .free_size = free_size};
    struct rb_onnx *onnx = NULL;
    int err = rb_onnx_open(path, 0, &onnx, why);

    json_object_set_new(report, "file", json_string(path));
    if (!err)
        err = look(onnx, &options, report, why);
    if (!err)
        err = rb_compile_trainable(onnx, &options, why);
    if (err && free_size == 0 && options.free_size > 0)
        rb_why_add(why, err, "free axes taken as %" PRId64 " (--seq N: as N)", options.free_size);
    json_object_set_new(report, "trainable", json_boolean(!err));
    if (err)
        json_object_set_new(report, "reason", json_string(why->text));
    rb_onnx_close(onnx);
    return err;
}

int rb_model_check(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *asked = rb_arguments_value(arguments, "seq");
    int64_t free_size = 0;
    int err, code = RB_EXIT_DONE;
    struct rb_why why = {0};
    json_t *report;

    if (asked && rb_arguments_count(asked, 1, INT32_MAX, &free_size, &why))
        return rb_session_usage(session, "--seq %s", why.text);
    report = json_object();
    err = check(arguments->word[0], free_size, report, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, report);
    else if (json_object_get(report, "opset"))
        rb_model_page(session, report);
    json_decref(report);
    if (err) {
        code = rb_session_fail(session, err, &why);
        code = code == RB_EXIT_NOT_FOUND ? code : RB_EXIT_REFUSED;
    }
    return code;
}
