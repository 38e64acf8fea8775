/* SPDX-License-Identifier: Apache-2.0 */
/* torch.export's signature says which initializers of a file are parameters; without it every float
 * may be one. */
#include "graph/advice.h"
#include "graph/onnx/model.h"
#include "graph/train.h"
#include "tests/graph/help.h"

#include <stdio.h>

static uint8_t packed[2][1024];
static ProtobufCMessageUnknownField fields[2];

/* One entry of metadata, as a field that the schema does not have. */
static void add_metadata(ProtobufCMessage *message, int i, unsigned tag, const char *key,
                         const char *value)
{
    Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    size_t size;

    entry.key = (char *)(uintptr_t)key;
    entry.value = (char *)(uintptr_t)value;
    size = onnx__string_string_entry_proto__get_packed_size(&entry);
    assert_in_range(size, 0x80, sizeof packed[i] - 2);
    packed[i][0] = (uint8_t)(size | 0x80);
    packed[i][1] = (uint8_t)(size >> 7);
    onnx__string_string_entry_proto__pack(&entry, packed[i] + 2);
    fields[i] = (ProtobufCMessageUnknownField){tag, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, size + 2,
                                               packed[i]};
    message->n_unknown_fields = 1;
    message->unknown_fields = &fields[i];
}

/* y = (x * w) * (m * c): a parameter, a buffer, and an array that the exporter has made. */
static void start(struct rb_writer *w, const char *signature)
{
    rb_writer_init(w, "test", 1);
    rb_writer_input(w, "x", RB_F32, 2, (int64_t[]){-1, 4});
    rb_writer_output(w, "y", 1, (int64_t[]){-1});
    rb_writer_weight(w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_weight(w, "m", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_weight(w, "c", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_node(w, "Mul", "a", "x", "w", NULL);
    rb_writer_node(w, "Mul", "b", "a", "m", NULL);
    rb_writer_node(w, "Mul", "y", "b", "c", NULL);
    add_metadata(&w->graph.base, 0, 16, "pkg.torch.export.ExportedProgram.graph_signature",
                 signature);
}

static enum rb_role role_of(const struct rb_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->name && !strcmp(graph->values[i]->name, name))
            return graph->values[i]->role;
    fail_msg("there is no %s", name);
    return RB_VALUE_TEMP;
}

static void kinds(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    start(&w, "\n# inputs\np_w: PARAMETER target='w'\nb_m: BUFFER target='m' persistent=True\n"
              "x: USER_INPUT\n\n# outputs\nadd: BUFFER_MUTATION target='m'\ny: USER_OUTPUT\n");
    if (import_batch(&w, 2, &graph, &why))
        fail_msg("%s", why.text);
    assert_int_equal(role_of(graph, "w"), RB_VALUE_WEIGHT);
    assert_int_equal(role_of(graph, "m"), RB_VALUE_BUFFER);
    assert_int_equal(role_of(graph, "c"), RB_VALUE_CONST);
    rb_graph_free(graph);
    rb_writer_done(&w);
}

/* An array that is not in a state_dict is a constant. */
static void constants(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    start(&w, "p_w: PARAMETER target='w'\nb_m: BUFFER target='m' persistent=False\n"
              "c: CONSTANT_TENSOR target='c'\nx: USER_INPUT\n");
    if (import_batch(&w, 2, &graph, &why))
        fail_msg("%s", why.text);
    assert_int_equal(role_of(graph, "m"), RB_VALUE_CONST);
    assert_int_equal(role_of(graph, "c"), RB_VALUE_CONST);
    rb_graph_free(graph);
    rb_writer_done(&w);
}

/* A parameter stays one, even if only a sine is made of it. */
static void parameters_of_sines(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    for (int marked = 0; marked < 2; marked++) {
        start(&w, marked ? "p_w: PARAMETER target='w'\np_c: PARAMETER target='c'\n"
                           "b_m: BUFFER target='m' persistent=True\nx: USER_INPUT\n"
                         : "# no signature of anything, but as long as what stands for one has to "
                           "be, which is 128 "
                           "bytes with its key and all that is around it");
        rb_writer_node(&w, "Cos", "d", "c", NULL);
        w.graph.node[2]->input[1] = rb_arena_string(&w.arena, "d");
        /* in front of the node that reads it */
        {
            Onnx__NodeProto *cosine = w.graph.node[3];

            w.graph.node[3] = w.graph.node[2];
            w.graph.node[2] = cosine;
        }
        assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
        assert_int_equal(role_of(graph, "c"), marked ? RB_VALUE_WEIGHT : RB_VALUE_BUFFER);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

/* The node that reads w was made from this call. */
static void start_called(struct rb_writer *w, const char *call)
{
    start(w, "p_w: PARAMETER target='w'\np_v: PARAMETER target='layers.1.v'\n"
             "p_u: PARAMETER target='layers.0.u'\nb_m: BUFFER target='m' persistent=True\n"
             "b_n: BUFFER target='n' persistent=True\nx: USER_INPUT\n");
    add_metadata(&w->graph.node[0]->base, 1, 9, "pkg.torch.onnx.fx_node", call);
}

#define CALL "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor]"
#define REST "), kwargs = {})                                                              "

static void lost(void **state)
{
    struct rb_import_options options = {.batch = 2};
    struct rb_advice advice[RB_ADVICE_MOST];
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_arena arena = {0};
    struct rb_why why = {0};
    struct rb_writer w;

    start_called(&w, CALL "(args = (%p_v, %p_u, %p_w" REST); /* two that are not in the file */
    expect_refusal(&w, 2, RB_EUNSUPPORTED,
                   "2 of the module's parameters were replaced ('layers.0.u' ...)");
    start_called(&w, CALL "(args = (%x, %b_m" REST); /* it reads w: no array made by the exporter */
    assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
    rb_graph_free(graph);
    w.graph.node[0]->input[1] = rb_arena_string(&w.arena, "c"); /* c is one */
    expect_refusal(&w, 2, RB_EUNSUPPORTED, "1 of the module's parameters were replaced ('m' ...)");
    start_called(&w, CALL "(args = (%x, %p_w, %b_n" REST); /* a buffer that was not needed */
    assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
    rb_graph_free(graph);
    rb_writer_done(&w);
    start_called(&w, CALL "(args = (%x, %b_n" REST); /* w is in its place */
    expect_refusal(&w, 2, RB_EUNSUPPORTED, "1 of the module's parameters were replaced ('n' ...)");
    start_called(&w, CALL "(args = (%x, %p_w" REST); /* others are not used at all */
    assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
    rb_graph_free(graph);
    rb_writer_done(&w);

    start_called(&w, CALL "(args = (%p_v, %p_u, %p_w" REST);
    assert_int_equal(rb_writer_finish(&w, &bytes, &why), 0);
    assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
    assert_int_equal(rb_onnx_import(model, &options, &graph, &why), 0); /* it can be run */
    assert_int_equal(rb_advice_find(model, &arena, advice), 1);
    assert_non_null(strstr(advice[0].mistake, "2 of the module's parameters were replaced"));
    assert_string_equal(advice[0].remedy, "optimize=False");
    rb_graph_free(graph);
    rb_onnx_close(model);
    rb_arena_done(&arena);
    rb_buffer_done(&bytes);
    rb_writer_done(&w);
}

/* Buffers that the module changes, and the model reads: m, but not a batch norm's statistic.  A
 * call with the name of their new value is no call with the old value. */
static void changed(void **state)
{
    struct rb_advice advice[RB_ADVICE_MOST];
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_arena arena = {0};
    struct rb_why why = {0};
    struct rb_writer w;

    for (int statistic = 0; statistic < 2; statistic++) {
        start(&w, "p_w: PARAMETER target='w'\nb_m: BUFFER target='m' persistent=True\n"
                  "b_n: BUFFER target='n' persistent=True\nx: USER_INPUT\n\n# outputs\n"
                  "mul: BUFFER_MUTATION target='m'\nadd: BUFFER_MUTATION target='n'\n");
        add_metadata(&w.graph.node[0]->base, 1, 9, "pkg.torch.onnx.fx_node",
                     CALL "(args = (%x, %p_w, %add" REST);
        if (statistic) {
            rb_writer_node(&w, "BatchNormalization", "z", "a", "w", "w", "m", "m", NULL);
            w.graph.node[1]->input[1] = rb_arena_string(&w.arena, "w");
        }
        assert_int_equal(rb_writer_finish(&w, &bytes, &why), 0);
        assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
        assert_int_equal(rb_advice_find(model, &arena, advice), !statistic);
        if (!statistic)
            assert_non_null(strstr(advice[0].mistake, "1 of the module's buffers ('m' ...) are"));
        rb_onnx_close(model);
        rb_buffer_done(&bytes);
        rb_writer_done(&w);
    }
    rb_arena_done(&arena);
}

static void nonsense(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    start(&w, "PARAMETER target='\n target='\n'' target=\ntarget='w'\n\n\n: BUFFER \n"
              "................................................................................");
    if (import_batch(&w, 2, &graph, &why))
        fail_msg("%s", why.text);
    assert_int_equal(role_of(graph, "c"), RB_VALUE_WEIGHT); /* no signature: all are */
    rb_graph_free(graph);
    rb_writer_done(&w);
}

/* The model with its gradient by mean squared errors.  Ends the writer. */
static struct rb_graph *differentiated(struct rb_writer *w, struct rb_tensor_type targets)
{
    struct rb_loss_options loss = {.type = "mse", .targets = targets};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    if (import_batch(w, 2, &graph, &why) || rb_loss_attach(graph, &loss, &why) ||
        rb_autodiff(graph, &why))
        fail_msg("%s", why.text);
    rb_writer_done(w);
    return graph;
}

/* The padding that the gradient of y = w[x] leaves out where the node was made from a call with
 * these arguments; -1: none. */
static int64_t left_out(const char *arguments)
{
    struct rb_graph *graph;
    struct rb_writer w;
    int64_t padding = -2;
    char call[256];

    snprintf(call, sizeof call,
             "%%embedding : [num_users=1] = call_function[target=torch.ops.aten.embedding.default]"
             "(args = (%s), kwargs = {})                                          ",
             arguments);
    rb_writer_init(&w, "test", 1);
    rb_writer_input(&w, "x", RB_I64, 2, (int64_t[]){-1, 4});
    rb_writer_output(&w, "y", 1, (int64_t[]){-1});
    rb_writer_weight(&w, "w", 2, (int64_t[]){10, 3}, RB_INIT_ONE, 0);
    rb_writer_node(&w, "Gather", "y", "w", "x", NULL);
    add_metadata(&w.graph.node[0]->base, 1, 9, "pkg.torch.onnx.fx_node", call);
    graph = differentiated(&w, (struct rb_tensor_type){.dtype = RB_F32, .rank = 2, .dim = {4, 3}});
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->op == RB_OP_GATHER_GRAD)
            padding = rb_node_int(graph->nodes[i], "padding", -1);
    rb_graph_free(graph);
    return padding;
}

/* The row of an embedding's padding_idx gets no gradient; the ONNX operator cannot say so. */
static void padding(void **state)
{
    assert_int_equal(left_out("%p_w, %x, 7"), 7);
    assert_int_equal(left_out("%p_w, %x, 0, True"), 0);
    assert_int_equal(left_out("%p_w, %x, -1, False, True"), -1);
    assert_int_equal(left_out("%p_w, %x"), -1);
    assert_int_equal(left_out("%p_w, %x, %n"), -1);
    assert_int_equal(left_out(""), -1);
}

/* For y = x * w + Identity(x * v), where the Identity was made from a call of `target`: do
 * gradients reach w and v? */
static void reached(const char *target, bool *ret_w, bool *ret_v)
{
    struct rb_graph *graph;
    struct rb_writer w;
    char call[256];

    snprintf(call, sizeof call,
             "%%d : [num_users=1] = call_function[target=torch.ops.aten.%s](args = (%%mul,), "
             "kwargs = {})                                                                  ",
             target);
    rb_writer_init(&w, "test", 1);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 4});
    rb_writer_output(&w, "y", 1, (int64_t[]){-1});
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_weight(&w, "v", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_node(&w, "Mul", "a", "x", "v", NULL);
    rb_writer_node(&w, "Identity", "d", "a", NULL);
    rb_writer_node(&w, "Mul", "b", "x", "w", NULL);
    rb_writer_node(&w, "Add", "y", "b", "d", NULL);
    add_metadata(&w.graph.node[1]->base, 1, 9, "pkg.torch.onnx.fx_node", call);
    graph = differentiated(&w, (struct rb_tensor_type){.dtype = RB_F32, .rank = 1, .dim = {4}});
    *ret_w = *ret_v = false;
    for (int i = 0; i < graph->n_contributions; i++)
        *(strcmp(graph->contributions[i].variable->name, "w") ? ret_v : ret_w) = true;
    rb_graph_free(graph);
}

/* An Identity that a detach() has left stops gradients, and no other Identity does. */
static void detached(void **state)
{
    bool w, v;

    reached("detach.default", &w, &v);
    assert_true(w && !v);
    reached("alias.default", &w, &v);
    assert_true(w && v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(constants),
        cmocka_unit_test(parameters_of_sines),
        cmocka_unit_test(lost),
        cmocka_unit_test(padding),
        cmocka_unit_test(detached),
        cmocka_unit_test(changed),
        cmocka_unit_test(nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
