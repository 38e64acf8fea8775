/* SPDX-License-Identifier: Apache-2.0 */
/* What a model holds, in words, and whether it can be trained: a report as JSON, and its page. */
#include "base/arena.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "graph/advice.h"
#include "plan/compile/compile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The report ---- */

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

static void report_outputs(json_t *report, const struct rb_graph *graph, bool any_batch)
{
    json_t *outputs = json_array();

    for (int i = 0; i < graph->n_outputs; i++) {
        struct rb_tensor_type type = graph->outputs[i]->type;

        if (any_batch && type.rank > 0 && type.dim[0] == graph->batch)
            type.dim[0] = -1;
        json_array_append_new(outputs, type_report(graph->outputs[i]->name, &type));
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

static int64_t report_operators(json_t *report, const struct rb_graph *graph, enum rb_op counted)
{
    json_t *operators = json_object();
    int64_t n = 0;

    for (unsigned op = 1; op < RB_OP_COUNT; op++) {
        int64_t uses = 0;

        for (int i = 0; i < graph->n_nodes; i++)
            uses += graph->nodes[i]->op == op;
        if (uses)
            json_object_set_new(operators, rb_op_info(op)->name, json_integer(uses));
        if (op == counted)
            n = uses;
    }
    json_object_set_new(report, "operators", operators);
    return n;
}

static void report_notes(json_t *report, const struct rb_graph *graph,
                         const struct rb_onnx_info *info)
{
    int64_t dropouts = report_operators(report, graph, RB_OP_DROPOUT);
    int64_t norms = report_operators(report, graph, RB_OP_BATCH_NORM);
    json_t *notes = json_array();

    if (dropouts)
        json_array_append_new(notes, json_string("dropout acts while training; its masks depend on "
                                                 "seed, step and microbatch alone"));
    if (norms)
        json_array_append_new(notes, json_string("batch normalization takes its statistics from "
                                                 "each microbatch: set train.microBatch with it in "
                                                 "mind"));
    if (info->fixed_batch > 0)
        json_array_append_new(notes, json_string("exported for one batch size only: every "
                                                 "microbatch must have it"));
    json_object_set_new(report, "notes", notes);
}

static bool takes_batch(const struct rb_onnx *onnx, int64_t batch)
{
    const struct rb_import_options options = {.train = true, .batch = batch};
    struct rb_graph *graph = NULL;
    struct rb_why why;

    if (rb_onnx_import(onnx, &options, &graph, &why))
        return false;
    rb_graph_free(graph);
    return true;
}

/* Does the model only know the batch that it was exported with, whatever it says of its axes? */
static bool is_baked_in(const struct rb_onnx *onnx, bool takes_one)
{
    static const int64_t usual[] = {2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128};

    if (takes_one)
        return !takes_batch(onnx, 3);
    for (size_t i = 0; i < RB_COUNT(usual); i++)
        if (takes_batch(onnx, usual[i]))
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

    for (int i = 0; i < n; i++)
        add_mistake(mistakes, advice[i].mistake, advice[i].remedy);
    if (baked_in)
        add_mistake(mistakes,
                    "the first axis is free by its name, but the size of the example batch is "
                    "written somewhere inside: x.view(32, ...) or int(x.shape[0]) in the module",
                    "x.shape[0] used as it is, or -1, in the module");
    if (json_array_size(mistakes))
        json_object_set_new(report, "export", json_string(rb_advice_call(onnx, &arena)));
    json_object_set_new(report, "mistakes", mistakes);
    rb_arena_done(&arena);
}

/* 0 where the model can be trained; else why not, with as much of the report as there is. */
static int check(const char *path, json_t *report, struct rb_why *why)
{
    struct rb_import_options options = {.train = true};
    struct rb_onnx_info info = {0};
    struct rb_graph *graph = NULL;
    struct rb_onnx *onnx = NULL;
    int err = rb_onnx_open(path, 0, &onnx, why);

    json_object_set_new(report, "file", json_string(path));
    if (!err)
        err = rb_onnx_info(onnx, &info, why);
    if (!err) {
        report_info(report, &info);
        options.batch = info.input_type.rank > 0 && info.input_type.dim[0] < 0 ? 1 : 0;
        err = rb_onnx_import(onnx, &options, &graph, why);
    }
    if (!err) {
        report_outputs(report, graph, info.fixed_batch <= 0);
        report_values(report, graph);
        report_notes(report, graph, &info);
        err = rb_compile_trainable(path, why);
    }
    if (json_object_get(report, "opset"))
        report_mistakes(report, onnx, options.batch == 1 && is_baked_in(onnx, graph != NULL));
    json_object_set_new(report, "trainable", json_boolean(!err));
    if (err)
        json_object_set_new(report, "reason", json_string(why->text));
    rb_graph_free(graph);
    rb_onnx_close(onnx);
    return err;
}

/* ---- The page ---- */

static char *type_text(const json_t *report)
{
    const json_t *shape = json_object_get(report, "shape"), *dim;
    struct rb_buffer text = {0};
    size_t i;

    rb_buffer_format(&text, "%s: %s[", rb_value_text(report, "name", "?"),
                     rb_value_text(report, "type", "?"));
    json_array_foreach(shape, i, dim)
    {
        rb_buffer_text(&text, i ? ", " : "");
        if (json_is_integer(dim))
            rb_buffer_format(&text, "%" PRId64, (int64_t)json_integer_value(dim));
        else
            rb_buffer_text(&text, json_string_value(dim));
    }
    rb_buffer_text(&text, "]");
    return rb_buffer_take(&text);
}

static void add_types(struct rb_table *page, const char *name, const json_t *list)
{
    const json_t *type;
    size_t i;

    json_array_foreach(list, i, type)
    {
        RB_CLEANUP(rb_freep) char *text = type_text(type);

        rb_page_add(page, i ? "" : name, "%s", text);
    }
}

static void add_graph(struct rb_table *page, const json_t *report)
{
    const json_t *operators = json_object_get(report, "operators"), *count, *note;
    const json_t *notes = json_object_get(report, "notes");
    struct rb_buffer text = {0};
    char human[RB_HUMAN_SIZE];
    const char *name;
    size_t i;

    add_types(page, "outputs", json_object_get(report, "outputs"));
    rb_page_add(page, "parameters", "%s (%" PRId64 ") in %" PRId64 " tensors",
                rb_human_count(rb_value_real(report, "parameters", 0), human),
                rb_value_integer(report, "parameters", 0), rb_value_count(report, "trained"));
    json_object_foreach((json_t *)operators, name, count)
    {
        rb_buffer_format(&text, "%s%" PRId64 " %s", text.size ? ", " : "",
                         (int64_t)json_integer_value(count), name);
    }
    rb_page_add(page, "operators", "%s", text.data ? text.data : "none");
    rb_buffer_done(&text);
    add_types(page, "will be trained", json_object_get(report, "trained"));
    add_types(page, "buffers", json_object_get(report, "buffers"));
    json_array_foreach(notes, i, note)
    {
        rb_page_add(page, i ? "" : "notes", "%s", json_string_value(note));
    }
}

static void add_mistakes(struct rb_table *page, const json_t *report)
{
    const json_t *mistakes = json_object_get(report, "mistakes"), *one;
    size_t i;

    json_array_foreach(mistakes, i, one)
    {
        rb_page_add(page, i ? "" : "exported", "%s", rb_value_text(one, "mistake", "?"));
        rb_page_add(page, "", "-> %s", rb_value_text(one, "remedy", "?"));
    }
    if (json_object_get(report, "export"))
        rb_page_add(page, "export it with", "%s", rb_value_text(report, "export", "?"));
}

static void print_page(const struct rb_session *session, const json_t *report)
{
    RB_CLEANUP(rb_freep) char *input = type_text(json_object_get(report, "input"));
    int64_t batch = rb_value_integer(report, "batch", 0);
    struct rb_table page = RB_PAGE;

    rb_page_add(&page, "model", "%s", rb_value_text(report, "file", "?"));
    rb_page_add(&page, "made by", "%s, opset %" PRId64 ", IR %" PRId64,
                rb_value_text(report, "producer", "an unnamed exporter"),
                rb_value_integer(report, "opset", 0), rb_value_integer(report, "irVersion", 0));
    rb_page_add(&page, "holds", "%" PRId64 " nodes, %" PRId64 " initializers",
                rb_value_integer(report, "nodes", 0), rb_value_integer(report, "initializers", 0));
    rb_page_add(&page, "input", "%s", input);
    if (batch)
        rb_page_add(&page, "batch", "%" PRId64 " samples, no other", batch);
    else
        rb_page_add(&page, "batch", "any");
    if (json_object_get(report, "operators"))
        add_graph(&page, report);
    add_mistakes(&page, report);
    rb_page_add(&page, "trainable", "%s",
                rb_value_true(report, "trainable") ? "yes" : rb_value_text(report, "reason", "no"));
    rb_page_print(session, &page);
}

int rb_model_check(struct rb_session *session, const struct rb_arguments *arguments)
{
    json_t *report = json_object();
    struct rb_why why = {0};
    int err = check(arguments->word[0], report, &why), code = RB_EXIT_DONE;

    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, report);
    else if (json_object_get(report, "opset"))
        print_page(session, report);
    json_decref(report);
    if (err) {
        code = rb_session_fail(session, err, &why);
        code = code == RB_EXIT_NOT_FOUND ? code : RB_EXIT_REFUSED;
    }
    return code;
}
