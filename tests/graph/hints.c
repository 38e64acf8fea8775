/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are taken for buffers, which only look like buffers in a hint, and which are
 * neither. */
#include "graph/hints.h"
#include "graph/models/models.h"
#include "graph/onnx/model.h"
#include "graph/train.h"
#include "tests/graph/help.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 9, COLUMNS = 6 };

/* y = x + every weight that is added after it. */
struct sum {
    struct rb_writer w;
    const char *y;
    int n;
    const char *const *listed; /* the job's buffers: one pattern, or NULL */
};

static void start(struct sum *sum)
{
    *sum = (struct sum){.y = "x"};
    rb_writer_init(&sum->w, "test", 1);
    rb_writer_input(&sum->w, "x", RB_F32, 3, (int64_t[]){-1, ROWS, COLUMNS});
}

static void add(struct sum *sum, const char *name, int rank, const int64_t *dim,
                const float *contents)
{
    const Onnx__GraphProto *graph = &sum->w.graph;

    rb_writer_weight(&sum->w, name, rank, dim, RB_INIT_NORMAL, 0.1);
    if (contents)
        memcpy(graph->initializer[graph->n_initializer - 1]->raw_data.data, contents,
               graph->initializer[graph->n_initializer - 1]->raw_data.len);
    sum->y = rb_writer_node(&sum->w, "Add", RB_WRITER_NAME(&sum->w, "y%d", sum->n++), sum->y, name,
                            NULL);
}

static struct rb_graph *finish(struct sum *sum)
{
    const struct rb_import_options options = {
        .batch = 2, .train = true, .buffers = sum->listed, .n_buffers = sum->listed != NULL};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    rb_writer_output(&sum->w, sum->y, 3, (int64_t[]){-1, ROWS, COLUMNS});
    if (import_options(&sum->w, &options, &graph, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&sum->w);
    return graph;
}

static const struct rb_value *value_of(const struct rb_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->name && !strcmp(graph->values[i]->name, name))
            return graph->values[i];
    fail_msg("there is no %s", name);
    return NULL;
}

/* All hints, for an exporter of that name; the caller frees them. */
static char *hints(struct rb_graph *graph, const char *producer)
{
    struct rb_buffer out = {0};
    char *own = graph->model->proto->producer_name;

    graph->model->proto->producer_name = (char *)(uintptr_t)producer;
    rb_hint_buffers(graph, &out);
    graph->model->proto->producer_name = own;
    return rb_buffer_take(&out);
}

static void infinities(void **state)
{
    static const int64_t dim[] = {ROWS, COLUMNS};
    float mask[ROWS * COLUMNS] = {0}, lost[COLUMNS] = {0}, large[COLUMNS] = {0, -3e38F};
    struct rb_graph *graph;
    struct sum sum;
    char *text;

    mask[ROWS * COLUMNS - 1] = -INFINITY;
    lost[3] = NAN;
    start(&sum);
    add(&sum, "mask", 2, dim, mask);
    add(&sum, "lost.weight", 1, dim + 1, lost);
    add(&sum, "l.bias", 1, dim + 1, large);
    graph = finish(&sum);
    assert_int_equal(value_of(graph, "mask")->role, RB_VALUE_BUFFER);
    assert_int_equal(value_of(graph, "lost.weight")->role, RB_VALUE_BUFFER);
    assert_int_equal(value_of(graph, "l.bias")->role, RB_VALUE_WEIGHT);
    text = hints(graph, "rubato");
    assert_non_null(
        strstr(text, "not trained, for an infinity or a NaN in it: mask, lost.weight\n"));
    free(text);
    rb_graph_free(graph);
}

/* A name that is long, or means something in a job file, is shortened where it is only read, and
 * written whole, as a pattern, where it is to be pasted; names that the job lists already are not
 * given. */
static void names(void **state)
{
    static const int64_t dim[] = {ROWS, COLUMNS};
    static const char letters[] =
        "\xd0\xb6\xd0\xb6\xd0\xb6\xd0\xb6\xd0\xb6\xd0\xb6\xd0\xb6\xd0\xb6";
    float mask[ROWS * COLUMNS] = {0};
    char name[128], room[80], *text, *listed;
    const char *const buffers[] = {"mask"};
    struct rb_graph *graph;
    struct sum sum;

    (void)state;
    assert_string_equal(rb_onnx_quote("a\xff\xc3 \x01z\xe2\x82", room), "a?? ?z??");
    snprintf(name, sizeof name, "l%s%s%s%s%s.mask[0]", letters, letters, letters, letters, letters);
    rb_onnx_quote(name, room);
    assert_int_equal(strlen(room), 1 + 2 * 37 + 3); /* 76 would end within a letter */
    mask[1] = mask[5] = -1e9F;
    start(&sum);
    add(&sum, name, 2, dim, mask);
    graph = finish(&sum);
    text = hints(graph, "pytorch");
    assert_non_null(strstr(text, room));
    listed = strstr(text, "spec.model.buffers: [");
    assert_non_null(listed);
    assert_null(strstr(listed, "..."));
    assert_non_null(strstr(listed, "??.mask?0?]"));
    free(text);
    rb_graph_free(graph);

    mask[1] = -INFINITY;
    start(&sum);
    sum.listed = buffers;
    add(&sum, "mask", 2, dim, mask);
    graph = finish(&sum);
    text = hints(graph, "rubato");
    assert_true(!text || !*text);
    free(text);
    rb_graph_free(graph);
}

/* Contents count, and names; a layer's weight is a weight, whatever constants it starts from. */
static void looks(void **state)
{
    static const int64_t dim[] = {ROWS, COLUMNS}, turned[] = {ROWS, 1}, one[] = {1};
    float waves[ROWS * COLUMNS], mask[ROWS * COLUMNS] = {0}, bits[ROWS * COLUMNS], slopes[ROWS];
    float ones[COLUMNS];
    struct rb_graph *graph;
    struct sum sum;
    char *text;

    for (int i = 0; i < ROWS; i++) {
        slopes[i] = -0.5F * (float)i;
        for (int j = 0; j < COLUMNS; j++) {
            double x = i * pow(10, -j / 2.0);

            waves[i * COLUMNS + j] = (float)(j % 2 ? cos(x) : sin(x));
            mask[i * COLUMNS + j] = j > i ? -1e9F : 0;
            bits[i * COLUMNS + j] = j > i;
            ones[j] = 1;
        }
    }
    start(&sum);
    add(&sum, "pos.weight", 2, dim, waves);
    add(&sum, "causal", 2, dim, mask);
    add(&sum, "allowed", 2, dim, bits);
    add(&sum, "slopes", 2, turned, slopes);
    add(&sum, "temperature", 0, NULL, NULL);
    add(&sum, "std", 1, dim + 1, NULL);
    add(&sum, "model.final_logits_bias", 1, dim + 1, NULL); /* of BART and its kin */
    add(&sum, "fc.weight", 2, dim, bits);
    add(&sum, "gamma", 1, dim + 1, ones);
    add(&sum, "logit_scale", 1, one, NULL);
    add(&sum, "scale", 0, NULL, NULL);
    add(&sum, "cls_token", 1, dim + 1, NULL);
    add(&sum, "lstm.weight_ih_l0", 2, dim, NULL);
    add(&sum, "mine", 2, dim, NULL);
    graph = finish(&sum);
    text = hints(graph, "rubato");
    assert_string_equal(
        text,
        "trained, though it looks like a buffer: pos.weight (sines or cosines), causal (zeros and "
        "large negative numbers), allowed (zeros and ones), slopes (numbers in even steps), "
        "temperature (one number), std (by its name) and 2 more; where it is one, say "
        "spec.model.buffers: [pos.weight, causal, allowed, slopes, temperature, std, ...]\n");
    free(text);
    text = hints(graph, "pytorch");
    assert_non_null(strstr(text, "weight or bias by its name: mine; where"));
    free(text);
    for (int i = 0; i < graph->n_values; i++)
        assert_int_not_equal(graph->values[i]->role, RB_VALUE_BUFFER);
    rb_graph_free(graph);
}

/* Positions of an image: half of the columns for its lines, half for places within them; also
 * behind a class token.  Other numbers are not recognized as waves. */
static void positions_of_images(void **state)
{
    enum { SIDE = 4, PLACES = SIDE * SIDE, HALF = 4 };
    float waves[(PLACES + 1) * 2 * HALF] = {0};

    for (int i = 0; i < PLACES; i++)
        for (int j = 0; j < 2 * HALF; j++) {
            double x = (j < HALF ? i / SIDE : i % SIDE) * pow(10, -(j % HALF) / 2.0);

            waves[(i + 1) * 2 * HALF + j] = (float)(j % 2 ? cos(x) : sin(x));
        }
    for (int kind = 0; kind < 3; kind++) {
        int64_t dim[] = {PLACES + (kind > 0), 2 * HALF};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        char *text;

        if (kind == 2)
            waves[5 * HALF] += 0.1F;
        rb_writer_init(&w, "test", 1);
        rb_writer_input(&w, "x", RB_F32, 3, (int64_t[]){-1, dim[0], dim[1]});
        rb_writer_weight(&w, "pos_embed", 2, dim, RB_INIT_ZERO, 0);
        memcpy(w.graph.initializer[0]->raw_data.data, waves + (kind ? 0 : 2 * HALF),
               w.graph.initializer[0]->raw_data.len);
        rb_writer_output(&w, rb_writer_node(&w, "Add", "y", "x", "pos_embed", NULL), 1,
                         (int64_t[]){-1});
        assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
        text = hints(graph, "pytorch");
        assert_int_equal(strstr(text, "pos_embed (sines or cosines)") != NULL, kind < 2);
        free(text);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

/* A spectral norm keeps two vectors of length one, by these names; a weight norm keeps none. */
static void spectral_norms(void **state)
{
    static const int64_t dim[] = {ROWS, COLUMNS};
    const float u[COLUMNS] = {0.6F, 0, -0.8F}, other[COLUMNS] = {0.6F, 0, 0.6F};
    struct rb_graph *graph;
    struct sum sum;
    char *text;

    start(&sum);
    add(&sum, "a.parametrizations.weight.0._u", 1, dim + 1, u);
    add(&sum, "b.weight_v", 1, dim + 1, u);
    add(&sum, "c.weight_v", 1, dim + 1, other);
    add(&sum, "d.weight_v", 2, dim, NULL);
    add(&sum, "e.weight", 1, dim + 1, u);
    graph = finish(&sum);
    text = hints(graph, "pytorch");
    assert_string_equal(text, "trained, though it looks like a buffer: "
                              "a.parametrizations.weight.0._u (of a spectral norm), b.weight_v (of "
                              "a spectral norm); where it is one, say spec.model.buffers: "
                              "[a.parametrizations.weight.0._u, b.weight_v]\n");
    free(text);
    rb_graph_free(graph);
}

/* Simplifiers write Constant nodes as initializers, and these are no parameters: a trained exponent
 * would be a NaN where its base is negative. */
static void simplified(void **state)
{
    static const int64_t dim[] = {ROWS, COLUMNS};
    static const struct {
        const char *name;
        int rank;
        bool trained;
    } cases[] = {
        {"/norm/Constant_output_0", 0, false},
        {"/Constant_12_output_0", 2, false},
        {"onnx::Pow_12", 0, false},
        {"345", 0, false},
        {"onnx::MatMul_12", 2, true},
        {"/l/Transpose_output_0", 2, true},
        {"/Constants_output_0", 1, true},
        {"/Constant_output_", 1, true},
        {"Constant_output_0", 0, true},
        {"/Constant_1_output_0.weight", 1, true},
        {"/Constant_1_output_0/weight", 1, true},
        {"logit_scale", 0, true},
    };
    struct rb_graph *graph;
    struct sum sum;

    start(&sum);
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        add(&sum, cases[i].name, cases[i].rank, cases[i].rank == 1 ? dim + 1 : dim, NULL);
    graph = finish(&sum);
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (value_of(graph, cases[i].name)->role !=
            (cases[i].trained ? RB_VALUE_WEIGHT : RB_VALUE_CONST))
            fail_msg("%s", cases[i].name);
    rb_graph_free(graph);
}

static void many(void **state)
{
    struct rb_graph *graph;
    struct sum sum;
    char *text;

    start(&sum);
    for (int i = 0; i < 9; i++)
        add(&sum, RB_WRITER_NAME(&sum.w, "n%d", i), 0, NULL, NULL);
    graph = finish(&sum);
    text = hints(graph, "pytorch");
    assert_non_null(strstr(text, "n5 (one number) and 3 more; where"));
    assert_non_null(strstr(text, "[n0, n1, n2, n3, n4, n5, ...]\n"));
    free(text);
    rb_graph_free(graph);
}

static void generated(void **state)
{
    static const char *const kinds[] = {"gpt", "mlp", "cnn"};

    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        struct rb_import_options options = {.batch = 2, .train = true};
        struct rb_buffer bytes = {0};
        struct rb_onnx *model = NULL;
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        char *text;

        assert_int_equal(rb_models_new(kinds[i], NULL, 0, &bytes, &why), 0);
        assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
        assert_int_equal(rb_onnx_import(model, &options, &graph, &why), 0);
        text = hints(graph, "pytorch");
        assert_string_equal(text, "");
        free(text);
        rb_graph_free(graph);
        rb_onnx_close(model);
        rb_buffer_done(&bytes);
    }
}

/* Class weights are not trained, unless the model reads them elsewhere. */
static void class_weights(void **state)
{
    for (int twice = 0; twice < 2; twice++) {
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        const char *x = "x";

        rb_writer_init(&w, "test", 1);
        rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 4});
        rb_writer_input(&w, "labels", RB_I64, 1, (int64_t[]){-1});
        rb_writer_weight(&w, "classes", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
        rb_writer_weight(&w, "l.bias", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
        x = rb_writer_node(&w, "Add", "a", x, "l.bias", NULL);
        if (twice)
            x = rb_writer_node(&w, "Mul", "m", x, "classes", NULL);
        rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "loss", x, "labels", "classes", NULL);
        rb_writer_output(&w, "loss", 0, NULL);
        if (import_batch(&w, 2, &graph, &why))
            fail_msg("%s", why.text);
        assert_int_equal(value_of(graph, "classes")->role,
                         twice ? RB_VALUE_WEIGHT : RB_VALUE_BUFFER);
        assert_int_equal(rb_own_loss_of(graph, graph->outputs[0]), RB_OWN_LOSS_OTHER);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

static void losses(void **state)
{
    struct rb_buffer out = {0};

    rb_hint_loss(RB_OWN_LOSS_MEAN, &out);
    rb_hint_loss(RB_OWN_LOSS_NONE, &out);
    assert_int_equal(out.size, 0);
    rb_hint_loss(RB_OWN_LOSS_SUM, &out);
    assert_non_null(strstr(out.data, "is a sum"));
    rb_buffer_clear(&out);
    rb_hint_loss(RB_OWN_LOSS_OTHER, &out);
    assert_non_null(strstr(out.data, "ignored targets"));
    rb_buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities), cmocka_unit_test(looks),
        cmocka_unit_test(many),       cmocka_unit_test(names),
        cmocka_unit_test(generated),  cmocka_unit_test(class_weights),
        cmocka_unit_test(losses),     cmocka_unit_test(positions_of_images),
        cmocka_unit_test(simplified), cmocka_unit_test(spectral_norms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
