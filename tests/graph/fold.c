/* SPDX-License-Identifier: Apache-2.0 */
/* Constant folding, alone and within import. */
#include "graph/fold.h"

#include "tests/graph/help.h"

#include <math.h>

static struct rb_value *ints(struct rb_graph *graph, int n, const int64_t *values)
{
    return rb_graph_int64s(graph, NULL, values, n);
}

static struct rb_value *reals(struct rb_graph *graph, int rank, const int64_t *dim,
                              const float *values)
{
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = rank};

    memcpy(type.dim, dim, sizeof dim[0] * (size_t)rank);
    return rb_graph_value(
        graph, RB_VALUE_CONST, NULL, &type,
        rb_arena_copy(&graph->arena, values, sizeof values[0] * (size_t)rb_tensor_elements(&type)));
}

/* Run one operator on constants; the result must be one too. */
static struct rb_value *run(struct rb_graph *graph, enum rb_op op, struct rb_value *a,
                            struct rb_value *b, const struct rb_tensor_type *given)
{
    struct rb_value *in[2] = {a, b};
    struct rb_node *node;
    struct rb_why why = {0};

    if (rb_graph_node(graph, op, "n", b ? 2 : 1, in, 0, NULL, 1, given, &node, &why) ||
        rb_fold_newest(graph, &why))
        fail_msg("%s", why.text);
    assert_int_equal(node->out[0]->role, RB_VALUE_CONST);
    assert_int_equal(graph->n_nodes, 0);
    return node->out[0];
}

static void integers(void **state)
{
    static const struct {
        enum rb_op op;
        int64_t a, b, want;
    } cases[] = {
        {RB_OP_ADD, 7, -9, -2},  {RB_OP_ADD, INT64_MAX, 1, INT64_MIN},
        {RB_OP_SUB, 7, -9, 16},  {RB_OP_MUL, -7, 9, -63},
        {RB_OP_DIV, -7, 2, -3},  {RB_OP_DIV, INT64_MIN, -1, INT64_MIN},
        {RB_OP_POW, -3, 3, -27}, {RB_OP_POW, 2, -1, 0},
        {RB_OP_MOD, -7, 3, 2},   {RB_OP_MOD, 7, -3, -2},
        {RB_OP_MOD, 6, 3, 0},    {RB_OP_MOD, INT64_MIN, -1, 0},
    };
    struct rb_graph *graph = rb_graph_new();

    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const int64_t *got =
            run(graph, cases[i].op, ints(graph, 1, &cases[i].a), ints(graph, 1, &cases[i].b), NULL)
                ->data;

        assert_int_equal(*got, cases[i].want);
    }
    rb_graph_free(graph);
}

static void division_by_zero_is_an_error(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_value *in[2] = {ints(graph, 1, (int64_t[]){1}), ints(graph, 1, (int64_t[]){0})};
    struct rb_why why = {0};

    assert_int_equal(rb_graph_node(graph, RB_OP_DIV, "n", 2, in, 0, NULL, 1, NULL, NULL, &why), 0);
    assert_int_equal(rb_fold(graph, &why), RB_EINVAL);
    assert_string_equal(why.text, "node 'n': division of an integer by zero");
    rb_graph_free(graph);
}

/* Rounded once: what float arithmetic gives. */
static void floats(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    float a = 0.1F, b = 3.0F;
    struct rb_value *x = rb_graph_scalar(graph, a), *y = rb_graph_scalar(graph, b);

    assert_true(*(const float *)run(graph, RB_OP_ADD, x, y, NULL)->data == a + b);
    assert_true(*(const float *)run(graph, RB_OP_MUL, x, y, NULL)->data == a * b);
    assert_true(*(const float *)run(graph, RB_OP_DIV, x, y, NULL)->data == a / b);
    assert_true(*(const float *)run(graph, RB_OP_SQRT, y, NULL, NULL)->data == sqrtf(b));
    assert_true(*(const float *)run(graph, RB_OP_RECIPROCAL, y, NULL, NULL)->data == 1 / b);
    assert_true(*(const float *)run(graph, RB_OP_NEG, x, NULL, NULL)->data == -a);
    assert_true(isnan(
        *(const float *)run(graph, RB_OP_LOG, run(graph, RB_OP_NEG, x, NULL, NULL), NULL, NULL)
             ->data));
    x = rb_graph_scalar(graph, NAN);
    assert_true(isnan(*(const float *)run(graph, RB_OP_RELU, x, NULL, NULL)->data));
    assert_true(isnan(*(const float *)run(graph, RB_OP_SIGN, x, NULL, NULL)->data));
    rb_graph_free(graph);
}

static void broadcasting(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_value *column = reals(graph, 2, (int64_t[]){2, 1}, (float[]){10, 20});
    struct rb_value *row = reals(graph, 1, (int64_t[]){3}, (float[]){1, 2, 3});
    struct rb_value *sum = run(graph, RB_OP_ADD, column, row, NULL);
    struct rb_value *less = run(graph, RB_OP_LESS, column, sum, NULL);

    assert_int_equal(sum->type.rank, 2);
    assert_memory_equal(sum->data, ((float[]){11, 12, 13, 21, 22, 23}), 24);
    assert_int_equal(less->type.dtype, RB_BOOL);
    assert_memory_equal(less->data, ((uint8_t[]){1, 1, 1, 1, 1, 1}), 6);
    rb_graph_free(graph);
}

static void casts(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_value *x = reals(graph, 1, (int64_t[]){5}, (float[]){-1.7F, 0, 2.9F, NAN, 1e30F});
    struct rb_tensor_type type = {.dtype = RB_I64};
    uint16_t halves[3] = {0x3c00, 0xc500, 0x0001};
    struct rb_tensor_type half_type = {.dtype = RB_F16, .rank = 1, .dim = {3}};

    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data,
                        ((int64_t[]){-1, 0, 2, 0, INT64_MAX}), 40);
    type.dtype = RB_BOOL;
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data, ((uint8_t[]){1, 0, 1, 1, 1}),
                        5);
    type.dtype = RB_U64;
    x = reals(graph, 1, (int64_t[]){5}, (float[]){0x1p63F, 3, NAN, 1e30F, -1});
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data,
                        ((uint64_t[]){UINT64_C(1) << 63, 3, 0, UINT64_MAX, UINT64_MAX}), 40);
    type.dtype = RB_F32;
    x = rb_graph_value(graph, RB_VALUE_CONST, NULL, &half_type, halves);
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data, ((float[]){1, -5, 0x1p-24F}),
                        12);
    rb_graph_free(graph);
}

/* Half of them, the large ones, are negative as int64. */
static void large_unsigned(void **state)
{
    static const uint64_t numbers[] = {UINT64_C(1) << 63, UINT64_MAX, (UINT64_C(1) << 55) + 1};
    struct rb_tensor_type type = {.dtype = RB_U64, .rank = 1, .dim = {RB_COUNT(numbers)}};
    struct rb_graph *graph = rb_graph_new();
    struct rb_value *x = rb_graph_value(graph, RB_VALUE_CONST, NULL, &type, numbers);

    type.dtype = RB_F32;
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data,
                        ((float[]){0x1p63F, 0x1p64F, 0x1p55F}), 12);
    type.dtype = RB_F64;
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data,
                        ((double[]){0x1p63, 0x1p64, 0x1p55 + 0}), 16);
    type.dtype = RB_I64;
    assert_memory_equal(run(graph, RB_OP_CAST, x, NULL, &type)->data, numbers, sizeof numbers);
    rb_graph_free(graph);
}

static void what_is_not_known_stays(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = 1, .dim = {2}};
    struct rb_value *statistic = rb_graph_value(graph, RB_VALUE_BUFFER, "s", &type, &(float[2]){0});
    struct rb_value *weight = rb_graph_value(graph, RB_VALUE_WEIGHT, "w", &type, &(float[2]){0});

    statistic->statistic = true;
    assert_int_equal(
        rb_graph_node(graph, RB_OP_NEG, "n", 1, &statistic, 0, NULL, 1, NULL, NULL, NULL), 0);
    assert_int_equal(rb_graph_node(graph, RB_OP_NEG, "n", 1, &weight, 0, NULL, 1, NULL, NULL, NULL),
                     0);
    assert_int_equal(rb_fold(graph, NULL), 0);
    assert_int_equal(graph->n_nodes, 2);
    statistic->statistic = false;
    assert_int_equal(rb_fold(graph, NULL), 0);
    assert_int_equal(graph->n_nodes, 1);
    assert_int_equal(graph->nodes[0]->id, 0);
    assert_ptr_equal(graph->nodes[0]->in[0], weight);
    rb_graph_free(graph);
}

/* ---- In import ---- */

static void start(struct rb_writer *w)
{
    rb_writer_init(w, "test", 1);
    rb_writer_input(w, "x", RB_F32, 3, (int64_t[]){-1, 4, 6});
    rb_writer_output(w, "y", 1, (int64_t[]){-1});
}

/* What exporters write for x.view(x.shape[0], -1). */
static void shape_arithmetic(void **state)
{
    struct rb_writer w;
    const char *n, *shape;

    start(&w);
    n = rb_writer_node(&w, "Shape", "shape", "x", NULL);
    n = rb_writer_node(&w, "Gather", "n", n, rb_writer_constant_ints(&w, "i", 1, (int64_t[]){-3}),
                       NULL);
    shape = rb_writer_node(&w, "Concat", "to", n,
                           rb_writer_constant_ints(&w, "rest", 1, (int64_t[]){-1}), NULL);
    rb_writer_int(&w, "axis", 0);
    rb_writer_node(&w, "Reshape", "y", "x", shape, NULL);
    expect_text(&w, 5,
                "input in:x : float32[5,4,6]\n%1 = Reshape(in:x) : float32[5,24]\noutput %1\n");
}

/* What PyTorch's exporter writes for x.index_fill(1, ...): the shape of x with another length. */
static void a_length_is_scattered(void **state)
{
    struct rb_writer w;
    const char *shape;

    start(&w);
    shape = rb_writer_node(&w, "Shape", "shape", "x", NULL);
    shape = rb_writer_node(&w, "ScatterElements", "to", shape,
                           rb_writer_constant_ints(&w, "places", 3, (int64_t[]){1, -1, 1}),
                           rb_writer_constant_ints(&w, "lengths", 3, (int64_t[]){7, 3, 8}), NULL);
    rb_writer_node(&w, "Reshape", "y", "x", shape, NULL);
    expect_text(&w, 1,
                "input in:x : float32[1,4,6]\n%1 = Reshape(in:x) : float32[1,8,3]\noutput %1\n");
}

/* A causal mask from ranges: row >= column. */
static void mask_from_ranges(void **state)
{
    struct rb_import_options options = {.batch = 1};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *range, *column;

    start(&w);
    range = rb_writer_node(&w, "Range", "range", rb_writer_constant_float(&w, "zero", 0),
                           rb_writer_constant_float(&w, "end", 3),
                           rb_writer_constant_float(&w, "step", 1), NULL);
    column = rb_writer_node(&w, "Unsqueeze", "column", range,
                            rb_writer_constant_ints(&w, "axis", 1, (int64_t[]){1}), NULL);
    rb_writer_node(&w, "GreaterOrEqual", "y", column, range, NULL);
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    assert_int_equal(graph->n_nodes, 0);
    assert_int_equal(graph->outputs[0]->role, RB_VALUE_CONST);
    assert_int_equal(graph->outputs[0]->type.dtype, RB_BOOL);
    assert_memory_equal(graph->outputs[0]->data, ((uint8_t[]){1, 0, 0, 1, 1, 0, 1, 1, 1}), 9);
    rb_graph_free(graph);
    rb_writer_done(&w);
}

/* Movement of constants, against what NumPy says. */
static void movement(void **state)
{
    struct rb_import_options options = {.batch = 1};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *a;

    start(&w);
    a = rb_writer_constant_ints(&w, "a", 6, (int64_t[]){0, 1, 2, 3, 4, 5});
    a = rb_writer_node(&w, "Reshape", "b", a,
                       rb_writer_constant_ints(&w, "two", 2, (int64_t[]){2, 3}), NULL);
    a = rb_writer_node(&w, "Transpose", "c", a, NULL); /* 0 3 | 1 4 | 2 5 */
    a = rb_writer_node(&w, "Slice", "d", a, rb_writer_constant_ints(&w, "s", 1, (int64_t[]){-1}),
                       rb_writer_constant_ints(&w, "e", 1, (int64_t[]){-4}),
                       rb_writer_constant_ints(&w, "x0", 1, (int64_t[]){0}),
                       rb_writer_constant_ints(&w, "t", 1, (int64_t[]){-2}), NULL); /* 2 5 | 0 3 */
    rb_writer_node(&w, "Split", "e0", a, NULL);
    rb_writer_extra_output(&w, "e1");
    rb_writer_int(&w, "axis", 1);
    a = rb_writer_node(&w, "Concat", "f", "e1", "e0", "e1", NULL); /* 5 2 5 | 3 0 3 */
    rb_writer_int(&w, "axis", -1);
    a = rb_writer_node(&w, "Trilu", "g", a, NULL); /* 5 2 5 | 0 0 3 */
    a = rb_writer_node(&w, "Gather", "h", a,
                       rb_writer_constant_ints(&w, "pick", 2, (int64_t[]){-1, 0}), NULL);
    rb_writer_int(&w, "axis", 1); /* 5 5 | 3 0 */
    rb_writer_node(&w, "ReduceSum", "y", a, NULL);
    rb_writer_int(&w, "keepdims", 0);
    rb_writer_output(&w, "h", 2, (int64_t[]){2, 2});
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    assert_int_equal(graph->n_nodes, 0);
    assert_memory_equal(graph->outputs[1]->data, ((int64_t[]){5, 5, 3, 0}), 32);
    assert_int_equal(graph->outputs[0]->type.rank, 0);
    assert_int_equal(*(const int64_t *)graph->outputs[0]->data, 13);
    rb_graph_free(graph);
    rb_writer_done(&w);
}

/* The largest of integers, and where a mask is not 0. */
static void choices(void **state)
{
    struct rb_import_options options = {.batch = 1};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *a;

    start(&w);
    a = rb_writer_constant_ints(&w, "a", 6, (int64_t[]){0, -7, 2, 9, 0, -5});
    a = rb_writer_node(&w, "Reshape", "b", a,
                       rb_writer_constant_ints(&w, "two", 2, (int64_t[]){2, 3}), NULL);
    rb_writer_node(&w, "ReduceMax", "y", a, NULL);
    rb_writer_ints(&w, "axes", 1, (int64_t[]){1});
    rb_writer_int(&w, "keepdims", 0);
    rb_writer_node(&w, "NonZero", "places", a, NULL);
    rb_writer_output(&w, "places", 2, (int64_t[]){2, -1});
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    assert_int_equal(graph->n_nodes, 0);
    assert_memory_equal(graph->outputs[0]->data, ((int64_t[]){2, 9}), 16);
    assert_int_equal(graph->outputs[1]->type.dim[1], 4);
    assert_memory_equal(graph->outputs[1]->data, ((int64_t[]){0, 0, 1, 1, 1, 2, 0, 2}), 64);
    rb_graph_free(graph);
    rb_writer_done(&w);
    start(&w);
    rb_writer_node(&w, "NonZero", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "its input is computed from the data; the size of");
}

static void an_index_out_of_range_is_an_error(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Gather", "y", rb_writer_constant_ints(&w, "a", 2, (int64_t[]){1, 2}),
                   rb_writer_constant_ints(&w, "i", 1, (int64_t[]){2}), NULL);
    expect_refusal(&w, 1, RB_EINVAL,
                   "node 'y' (Gather, opset 17): index 2 is outside an axis of 2");
}

/* Too large to be worth a constant: left to the kernels. */
static void large_results_are_not_folded(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "ConstantOfShape", "y",
                   rb_writer_constant_ints(&w, "shape", 2, (int64_t[]){1 << 15, 1 << 15}), NULL);
    expect_text(&w, 1,
                "input in:x : float32[1,4,6]\n%2 = Expand(0) : float32[32768,32768]\noutput %2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(division_by_zero_is_an_error),
        cmocka_unit_test(floats),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(casts),
        cmocka_unit_test(large_unsigned),
        cmocka_unit_test(what_is_not_known_stays),
        cmocka_unit_test(shape_arithmetic),
        cmocka_unit_test(a_length_is_scattered),
        cmocka_unit_test(mask_from_ranges),
        cmocka_unit_test(movement),
        cmocka_unit_test(choices),
        cmocka_unit_test(an_index_out_of_range_is_an_error),
        cmocka_unit_test(large_results_are_not_folded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
