/* SPDX-License-Identifier: Apache-2.0 */
/* Each exporter mistake is found in a model that has it, and in none of the generated models. */
#include "tests/graph/help.h"

#include "base/buffer.h"
#include "graph/advice.h"
#include "graph/models/models.h"
#include "graph/models/writer.h"
#include "graph/onnx/model.h"

static char newer[] = "pytorch", version[] = "2.15.0";

static void start(struct rb_writer *w, int64_t batch)
{
    rb_writer_init(w, "mistakes", 1);
    rb_writer_input(w, "x", RB_F32, 4, (int64_t[]){batch, 2, 4, 4});
}

static const char *weight(struct rb_writer *w, const char *name)
{
    return rb_writer_weight(w, name, 4, (int64_t[]){3, 2, 1, 1}, RB_INIT_ONE, 0);
}

static struct rb_onnx *finish(struct rb_writer *w, const char *output)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_onnx *model = NULL;
    struct rb_why why = {0};

    rb_writer_output(w, output, 0, NULL);
    if (rb_writer_finish(w, &onnx, &why) || rb_onnx_open_bytes(onnx.data, onnx.size, &model, &why))
        fail_msg("%s", why.text);
    rb_writer_done(w);
    return model;
}

/* Exactly this advice, in this order; NULL ends the list.  A scale that was merged harms. */
static void expect(struct rb_onnx *model, const char *call, ...)
{
    struct rb_advice advice[RB_ADVICE_MOST];
    struct rb_arena arena = {0};
    int n = rb_advice_find(model, &arena, advice), i = 0;
    va_list list;

    va_start(list, call);
    for (const char *part = va_arg(list, const char *); part; part = va_arg(list, const char *)) {
        if (i >= n || !strstr(advice[i].mistake, part))
            fail_msg("'%s' is not found, but '%s'", part, i < n ? advice[i].mistake : "nothing");
        i++;
    }
    va_end(list);
    if (i < n)
        fail_msg("found too: %s", advice[i].mistake);
    for (i = 0; i < n; i++)
        assert_int_equal(advice[i].call, strncmp(advice[i].remedy, "a module that ", 14) != 0);
    for (i = 0; i < n; i++)
        assert_true(advice[i].harms || !strstr(advice[i].mistake, "were merged with others"));
    if (!strstr(rb_advice_call(model, &arena), call))
        fail_msg("%s", rb_advice_call(model, &arena));
    rb_arena_done(&arena);
    if (model->proto->producer_name == newer)
        model->proto->producer_name = NULL;
    if (model->proto->producer_version == version)
        model->proto->producer_version = NULL;
    rb_onnx_close(model);
}

static void folded_norms(void **state)
{
    struct rb_writer w;
    const char *y;

    start(&w, -1);
    y = rb_writer_node(&w, "Conv", "y", "x", weight(&w, "onnx::Conv_7"),
                       rb_writer_weight(&w, "onnx::Conv_8", 1, (int64_t[]){3}, RB_INIT_ZERO, 0),
                       NULL);
    expect(finish(&w, y), "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False",
           "evaluation mode: the batch normalization", "2 of 2 weights lost their names", NULL);
}

/* The dropout of scaled_dot_product_attention is exported without a mode, a module's dropout with
 * one. */
static void dropouts_without_a_mode(void **state)
{
    for (int beside = 0; beside < 2; beside++) {
        struct rb_writer w;
        const char *y, *ratio;

        start(&w, -1);
        ratio = rb_writer_constant_float(&w, "ratio", 0.1F);
        y = rb_writer_node(&w, "Conv", "c", "x", weight(&w, "conv.weight"), NULL);
        y = rb_writer_node(&w, "Dropout", "d", y, ratio, NULL);
        if (beside)
            y = rb_writer_dropout(&w, "y", y, 0.1);
        expect(finish(&w, y), "", beside ? NULL : "1 dropout is switched off", NULL);
    }
}

static void one_batch(void **state)
{
    struct rb_writer w;
    const char *y;

    start(&w, 5);
    y = rb_writer_node(&w, "Conv", "y", "x", weight(&w, "conv.weight"), NULL);
    expect(finish(&w, y), "dynamic_axes={\"x\": {0: \"batch\"}}", "batches of 5 only", NULL);
}

static void half_weights(void **state)
{
    struct rb_writer w;
    const char *y;

    start(&w, -1);
    y = rb_writer_node(&w, "Cast", "y", weight(&w, "w"), NULL);
    w.graph.initializer[0]->data_type = RB_F16;
    w.graph.initializer[0]->raw_data.len /= 2;
    expect(finish(&w, y), "", "half floats", NULL);
}

static void detached(void **state)
{
    static const char *const ends[][2] = {{"x", "d"}, {"d", "x"}, {"d", "w"}};

    for (size_t i = 0; i < RB_COUNT(ends); i++) {
        struct rb_writer w;
        const char *y;

        start(&w, -1);
        rb_writer_weight(&w, "w", 4, (int64_t[]){1, 2, 4, 4}, RB_INIT_ONE, 0);
        rb_writer_node(&w, "Round", "r", "x", NULL);
        rb_writer_node(&w, "Sub", "d", "r", "x", NULL);
        y = rb_writer_node(&w, "Add", "y", ends[i][0], ends[i][1], NULL);
        expect(finish(&w, y), "", i < 2 ? "'y' is x + (y - x)" : NULL, NULL);
    }
}

static void other_domains(void **state)
{
    struct rb_writer w;
    const char *y;

    start(&w, -1);
    y = rb_writer_node(&w, "ATen", "y", "x", weight(&w, "w"), NULL);
    w.graph.node[0]->domain = rb_arena_string(&w.arena, "org.pytorch.aten");
    expect(finish(&w, y), "", "the domain 'org.pytorch.aten'", NULL);
}

static void loss_inside(void **state)
{
    struct rb_writer w;
    const char *y;

    start(&w, -1);
    y = rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "y", "x", weight(&w, "w"), NULL);
    expect(finish(&w, y), "", "the loss is part of the model", NULL);
}

static void no_weights(void **state)
{
    struct rb_onnx *model;
    struct rb_writer w;
    const char *y;

    start(&w, -1);
    rb_writer_input(&w, "w1", RB_F32, 2, (int64_t[]){3, 4});
    rb_writer_input(&w, "w2", RB_F32, 2, (int64_t[]){3, 4});
    y = rb_writer_node(&w, "MatMul", "y", "x", "w1", NULL);
    model = finish(&w, y);
    model->opset = 11;
    expect(model, "", "2 inputs stand where they should be", "opset 11 is old", NULL);
}

/* A norm of the module whose name the node has. */
static const char *norm(struct rb_writer *w, const char *module, const char *x, const char *weight)
{
    const char *y = rb_writer_node(w, "Mul", RB_WRITER_NAME(w, "%s.y", module), x, weight, NULL);

    w->graph.node[w->graph.n_node - 1]->name = RB_WRITER_NAME(w, "/%s/LayerNormalization", module);
    return y;
}

static const char *vector(struct rb_writer *w, const char *name)
{
    return rb_writer_weight(w, name, 1, (int64_t[]){4}, RB_INIT_ONE, 0);
}

static const char training[] = "training=torch.onnx.TrainingMode.TRAINING";

static void merged_norms(void **state)
{
    struct rb_writer w;
    const char *weight, *y;

    start(&w, -1);
    weight = vector(&w, "blocks.0.n.weight");
    y = norm(&w, "blocks/blocks.0/n", "x", weight);
    expect(finish(&w, norm(&w, "blocks/blocks.1/n", y, weight)), training,
           "1 of the module's parameters were merged with others (/blocks/blocks.1/n/"
           "LayerNormalization reads blocks.0.n.weight)",
           NULL);

    start(&w, -1);
    y = norm(&w, "n", "x", vector(&w, "n.weight"));
    rb_writer_node(&w, "Identity", "n2.weight", "n.weight", NULL);
    expect(finish(&w, norm(&w, "n2", y, "n2.weight")), training,
           "were merged with others (n2.weight is n.weight)", NULL);
}

/* A module that is called again, a module that gives its weights to another inside it, and a table
 * that is also an output layer. */
static void sharing_on_purpose(void **state)
{
    struct rb_writer w;
    const char *weight, *y;

    start(&w, -1);
    weight = vector(&w, "b.0.weight");
    y = norm(&w, "b/b.0", "x", weight);
    y = norm(&w, "b/b.0_1", y, weight);
    weight = vector(&w, "scale");
    y = norm(&w, "first", y, weight);
    y = norm(&w, "second", y, weight);
    weight = vector(&w, "c.scale");
    y = norm(&w, "c", y, weight);
    expect(finish(&w, norm(&w, "c/inside", y, weight)), "", NULL);

    start(&w, -1);
    weight = rb_writer_weight(&w, "e.weight", 2, (int64_t[]){4, 4}, RB_INIT_NORMAL, 1);
    rb_writer_node(&w, "Gather", "rows", weight, "x", NULL);
    w.graph.node[0]->name = RB_WRITER_NAME(&w, "/e/Gather");
    rb_writer_node(&w, "Gather", "others", weight, "x", NULL);
    w.graph.node[1]->name = RB_WRITER_NAME(&w, "/decoder/e/Gather");
    rb_writer_node(&w, "Identity", "o.weight", weight, NULL);
    y = rb_writer_node(&w, "Transpose", "turned", weight, NULL);
    w.graph.node[3]->name = RB_WRITER_NAME(&w, "/o/Transpose");
    expect(finish(&w, y), "", NULL);

    start(&w, -1); /* there and back with one matrix */
    weight = rb_writer_weight(&w, "a.weight", 2, (int64_t[]){4, 4}, RB_INIT_NORMAL, 1);
    y = rb_writer_node(&w, "MatMul", "there", "x", weight, NULL);
    w.graph.node[0]->name = RB_WRITER_NAME(&w, "/a/MatMul");
    y = rb_writer_node(&w, "Gemm", "back", y, weight, NULL);
    w.graph.node[1]->name = RB_WRITER_NAME(&w, "/b/Gemm");
    expect(finish(&w, y), "", NULL);
}

/* As many variables as inputs; dynamo=False from torch 2.5 on, which the advice says where the
 * version of torch is not known. */
static void the_call(void **state)
{
    struct rb_onnx *model;
    struct rb_writer w;

    start(&w, 5);
    rb_writer_input(&w, "a mask", RB_F32, 2, (int64_t[]){-1, -1});
    w.graph.input[1]->type->tensor_type->shape->dim[1]->dim_param = RB_WRITER_NAME(&w, "time");
    model = finish(&w, rb_writer_node(&w, "Mul", "y", "x", weight(&w, "w"), NULL));
    expect(model,
           "torch.onnx.export(model.train(), (x, x1), \"model.onnx\", opset_version=17, "
           "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, "
           "input_names=[\"x\", \"a mask\"], dynamic_axes={\"x\": {0: \"batch\"}, \"a mask\": {0: "
           "\"batch\", 1: \"time\"}}) # from torch 2.5 on with dynamo=False",
           "batches of 5 only", NULL);
    start(&w, 5);
    rb_writer_input(&w, "\"]); import os #", RB_F32, 2, (int64_t[]){-1, 4});
    model = finish(&w, rb_writer_node(&w, "Mul", "y", "x", weight(&w, "w"), NULL));
    expect(model, "input_names=[\"x\", \"x1\"]", "batches of 5 only", NULL);
    start(&w, 5);
    model = finish(&w, rb_writer_node(&w, "Mul", "y", "x", weight(&w, "w"), NULL));
    model->proto->producer_version = version;
    expect(model, "(x,), \"model.onnx\", dynamo=False, opset", "batches of 5 only", NULL);
}

static void new_exporter(void **state)
{
    struct rb_onnx *model;
    struct rb_writer w;
    const char *y;

    start(&w, 5);
    y = rb_writer_node(&w, "Conv", "y", "x", weight(&w, "342"), NULL);
    model = finish(&w, y);
    model->proto->ir_version = 10;
    free(model->proto->producer_name);
    model->proto->producer_name = newer;
    expect(model, "dynamo=True, optimize=False", "1 of 1 weights lost", "batches of 5 only", NULL);
}

static void generated_models_are_fine(void **state)
{
    static const char *const kinds[] = {"mlp", "cnn"};

    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
        struct rb_onnx *model = NULL;
        struct rb_why why = {0};

        if (rb_models_new(kinds[i], NULL, 0, &onnx, &why) ||
            rb_onnx_open_bytes(onnx.data, onnx.size, &model, &why))
            fail_msg("%s", why.text);
        expect(model, "", NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropouts_without_a_mode),
        cmocka_unit_test(folded_norms),
        cmocka_unit_test(one_batch),
        cmocka_unit_test(half_weights),
        cmocka_unit_test(detached),
        cmocka_unit_test(other_domains),
        cmocka_unit_test(loss_inside),
        cmocka_unit_test(no_weights),
        cmocka_unit_test(merged_norms),
        cmocka_unit_test(sharing_on_purpose),
        cmocka_unit_test(the_call),
        cmocka_unit_test(new_exporter),
        cmocka_unit_test(generated_models_are_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
