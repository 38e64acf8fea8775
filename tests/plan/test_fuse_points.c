/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise nodes that become one node: which nodes, and that no bit of a loss or a gradient
 * changes. */
#include "base/arena.h"
#include "graph/train.h"
#include "kernels/device.h"
#include "plan/compile/lower.h"
#include "plan/compile/recompute.h"
#include "proto/fused.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which ------------------------------------------------------------------------------------*/

static int count(const struct rb_graph *graph, enum rb_op op)
{
    int n = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->op == op;
    return n;
}

static int steps_of(const struct rb_graph *graph)
{
    int n = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->op == RB_OP_FUSED)
            n += rb_node_attribute(graph->nodes[i], "steps")->n_ints / RB_FUSED_FIELDS;
    return n;
}

static struct tiny open_tiny(void)
{
    struct tiny tiny = tiny_new(2, true);

    tiny_features(&tiny, RB_F32, TYPE(2, 6));
    return tiny;
}

static void output(struct tiny *tiny, struct rb_value *value)
{
    tiny->graph->outputs = RB_ARENA_NEW(&tiny->graph->arena, struct rb_value *, 1);
    tiny->graph->outputs[0] = value;
    tiny->graph->n_outputs = 1;
}

/* (x + row) relu, times x: the row is an input, x one input. */
static void a_chain(void **state)
{
    struct tiny tiny = open_tiny();
    struct rb_value *x = tiny.graph->features, *y;
    const struct rb_node *node;
    const int64_t *steps;

    (void)state;
    y = tiny_two(&tiny, RB_OP_ADD, "add", x, tiny_weight(&tiny, "row", TYPE(6), 0, 1));
    y = tiny_one(&tiny, RB_OP_RELU, "relu", y);
    y = tiny_two(&tiny, RB_OP_MUL, "mul", y, x);
    output(&tiny, y);
    rb_fuse_points(tiny.graph);
    assert_int_equal(tiny.graph->n_nodes, 1);
    node = tiny.graph->nodes[0];
    assert_int_equal(node->op, RB_OP_FUSED);
    assert_int_equal(node->id, 2); /* the last one's */
    assert_int_equal(node->n_in, 2);
    assert_ptr_equal(node->out[0], y);
    steps = node->attributes[0].ints;
    assert_int_equal(node->attributes[0].n_ints, 3 * RB_FUSED_FIELDS);
    assert_int_equal(steps[0], RB_OP_ADD);
    assert_int_equal(steps[RB_FUSED_FIELDS], RB_OP_RELU);
    assert_int_equal(steps[2 * RB_FUSED_FIELDS], RB_OP_MUL);
    assert_int_equal(steps[2 * RB_FUSED_FIELDS + 3], 3);
    rb_graph_free(tiny.graph);
}

/* Two ways that join again, inside. */
static void a_diamond(void **state)
{
    struct tiny tiny = open_tiny();
    struct rb_value *x = tiny_one(&tiny, RB_OP_EXP, "exp", tiny.graph->features);

    (void)state;
    x = tiny_two(&tiny, RB_OP_DIV, "div", tiny_one(&tiny, RB_OP_NEG, "neg", x),
                 tiny_one(&tiny, RB_OP_SQRT, "sqrt", x));
    output(&tiny, x);
    rb_fuse_points(tiny.graph);
    assert_int_equal(tiny.graph->n_nodes, 1);
    assert_int_equal(steps_of(tiny.graph), 4);
    rb_graph_free(tiny.graph);
}

/* What somebody else reads, what is asked for, and what is no number stays. */
static void what_others_read_stays(void **state)
{
    struct tiny tiny = open_tiny();
    const int64_t axis = 1;
    struct rb_value *a, *b, *sum;

    (void)state;
    a = tiny_one(&tiny, RB_OP_TANH, "a", tiny.graph->features);
    b = tiny_one(&tiny, RB_OP_ABS, "b", a);
    sum = tiny_with(&tiny, RB_OP_SOFTMAX, "softmax", 1, &a, "axis", &axis, 1);
    output(&tiny, tiny_two(&tiny, RB_OP_SUB, "sub", b, sum));
    rb_fuse_points(tiny.graph);
    assert_int_equal(count(tiny.graph, RB_OP_TANH), 1);
    assert_int_equal(count(tiny.graph, RB_OP_SOFTMAX), 1);
    assert_int_equal(steps_of(tiny.graph), 2);
    tiny_check_order(tiny.graph);
    rb_graph_free(tiny.graph);
}

/* More than one node has room for: several nodes, none longer than allowed. */
static void long_ones(void **state)
{
    struct tiny tiny = open_tiny();
    struct rb_value *x = tiny.graph->features;

    (void)state;
    for (int i = 0; i < 40; i++)
        x = tiny_one(&tiny, RB_OP_TANH, "tanh", x);
    for (int i = 0; i < 20; i++)
        x = tiny_two(&tiny, RB_OP_MUL, "mul", x, tiny_weight(&tiny, "w", TYPE(6), 1, 0.1f));
    output(&tiny, x);
    rb_fuse_points(tiny.graph);
    assert_int_equal(
        steps_of(tiny.graph) + count(tiny.graph, RB_OP_TANH) + count(tiny.graph, RB_OP_MUL), 60);
    assert_true(tiny.graph->n_nodes <= 7);
    for (int i = 0; i < tiny.graph->n_nodes; i++) {
        const struct rb_node *node = tiny.graph->nodes[i];

        assert_true(node->n_in <= RB_FUSED_INPUTS);
        assert_true(node->op != RB_OP_FUSED ||
                    node->attributes[0].n_ints <= RB_FUSED_STEPS * RB_FUSED_FIELDS);
    }
    tiny_check_order(tiny.graph);
    rb_graph_free(tiny.graph);
}

/* ---- Bits -------------------------------------------------------------------------------------*/

struct bits {
    struct rb_device *device;
    void **data; /* by value */
};

static size_t bytes_of(const struct rb_tensor_type *type)
{
    return (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype);
}

static void fill(struct bits *bits, const struct rb_value *value)
{
    char *to = rb_device_alloc(bits->device, bytes_of(&value->type) + 1);
    uint32_t seed = 7;

    bits->data[value->id] = to;
    if (value->data)
        memcpy(to, value->data, bytes_of(&value->type));
    for (int64_t i = 0;
         !value->data && value->role != RB_VALUE_TEMP && i < rb_tensor_elements(&value->type);
         i++) {
        seed = seed * 1664525 + 1013904223;
        if (value->type.dtype == RB_F32)
            ((float *)(void *)to)[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
        else if (value->type.dtype == RB_I64)
            ((int64_t *)(void *)to)[i] = seed >> 16 & 1;
    }
}

static void run_node(struct bits *bits, const struct rb_node *node)
{
    static const struct rb_key key = {1, 3, 2};
    struct rb_tensor_type in[64] = {0}, out[64] = {0};
    struct rb_attribute attributes[8];
    const void *from[64] = {0};
    void *to[64] = {0};
    struct rb_call call = {node->op, (uint32_t)node->id, node->n_in,         node->n_out, in,
                           out,      attributes,         node->n_attributes, false};
    struct rb_kernel *kernel = NULL;
    struct rb_why why = {0};

    assert_true(node->n_in <= 64 && node->n_out <= 64 && node->n_attributes <= 8);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]) {
            in[i] = node->in[i]->type;
            from[i] = bits->data[node->in[i]->id];
        }
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]) {
            out[i] = node->out[i]->type;
            to[i] = bits->data[node->out[i]->id];
        }
    for (int i = 0; i < node->n_attributes; i++) {
        const struct rb_graph_attribute *a = &node->attributes[i];

        attributes[i] = (struct rb_attribute){a->key, a->ints, a->n_ints, a->floats, a->n_floats};
    }
    if (rb_kernel_prepare(bits->device, &call, &kernel, &why))
        fail_msg("%s", why.text);
    rb_kernel_run(kernel, from, to, &key);
    rb_kernel_free(kernel);
}

static struct bits run_graph(const struct rb_graph *graph)
{
    struct bits bits = {.data = rb_alloc(sizeof(void *) * (size_t)(graph->n_values + 1))};
    struct rb_why why = {0};

    if (rb_device_open("cpu", 0, &bits.device, &why))
        fail_msg("%s", why.text);
    for (int i = 0; i < graph->n_values; i++)
        fill(&bits, graph->values[i]);
    for (int i = 0; i < graph->n_nodes; i++)
        run_node(&bits, graph->nodes[i]);
    return bits;
}

static void bits_done(struct bits *bits, const struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        rb_device_free(bits->device, bits->data[i]);
    rb_device_close(bits->device);
    free(bits->data);
}

static void check_value(const char *what, const struct bits *a, const struct bits *b,
                        const struct rb_value *value)
{
    if (value && memcmp(a->data[value->id], b->data[value->id], bytes_of(&value->type)) != 0)
        fail_msg("%s: %s has other bits", what, value->name ? value->name : "a result");
}

typedef struct rb_graph *make_fn(int64_t batch, bool train);

/* Gates as exporters write them: x sigmoid(x) times tanh of another product, and a norm by hand. */
static struct rb_graph *gates(int64_t batch, bool train)
{
    struct tiny tiny = tiny_new(batch, train);
    const int64_t axis = 1;
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(batch, 6)), *a, *b, *mean;

    a = tiny_two(&tiny, RB_OP_MATMUL, "a", x, tiny_weight(&tiny, "wa", TYPE(6, 8), 0, 0.5f));
    b = tiny_two(&tiny, RB_OP_MATMUL, "b", x, tiny_weight(&tiny, "wb", TYPE(6, 8), 0, 0.5f));
    a = tiny_two(&tiny, RB_OP_MUL, "silu", a, tiny_one(&tiny, RB_OP_SIGMOID, "gate", a));
    x = tiny_two(&tiny, RB_OP_MUL, "both", a, tiny_one(&tiny, RB_OP_TANH, "tanh", b));
    mean = tiny_with(&tiny, RB_OP_REDUCE_SUM, "mean", 1,
                     (struct rb_value *[]){tiny_two(&tiny, RB_OP_MUL, "square", x, x)}, "axes",
                     &axis, 1);
    mean = tiny_two(&tiny, RB_OP_ADD, "eps", mean, rb_graph_scalar(tiny.graph, 0.01f));
    mean = tiny_reshape(&tiny, mean, TYPE(batch, 1));
    x = tiny_two(&tiny, RB_OP_DIV, "norm", x, tiny_one(&tiny, RB_OP_SQRT, "root", mean));
    x = tiny_two(&tiny, RB_OP_MUL, "scaled", x, tiny_weight(&tiny, "scale", TYPE(8), 1, 0.1f));
    x = tiny_one(&tiny, RB_OP_GELU, "gelu", x);
    tiny_finish(&tiny, x, "mse", TYPE(8));
    return tiny.graph;
}

static const struct {
    const char *what;
    make_fn *make;
} models[] = {{"mlp", tiny_mlp},
              {"cnn", tiny_cnn},
              {"gpt", tiny_gpt},
              {"residual", tiny_residual},
              {"gates", gates}};

static struct rb_graph *make(int model, int64_t batch, bool bf16, bool fused)
{
    struct rb_graph *graph = models[model].make(batch, true);
    struct rb_why why = {0};

    if (bf16 && rb_narrow(graph, &why))
        fail_msg("%s", why.text);
    if (fused) {
        rb_fuse_relu(graph);
        rb_fuse_points(graph);
    }
    tiny_check_order(graph);
    return graph;
}

static void the_same_bits(void **state)
{
    int all = 0;

    (void)state;
    for (int i = 0; i < 2 * (int)RB_COUNT(models); i++) {
        const char *what = models[i / 2].what;
        struct rb_graph *plain = make(i / 2, 4, i % 2, false), *fused = make(i / 2, 4, i % 2, true);
        struct bits a = run_graph(plain), b = run_graph(fused);

        assert_int_equal(plain->n_values, fused->n_values);
        check_value(what, &a, &b, plain->loss);
        check_value(what, &a, &b, plain->count);
        check_value(what, &a, &b, plain->correct);
        for (int c = 0; c < plain->n_contributions; c++)
            check_value(what, &a, &b, plain->contributions[c].value);
        print_message("%s%s: %d nodes instead of %d, %d of them fused from %d\n", what,
                      i % 2 ? " bf16" : "", fused->n_nodes, plain->n_nodes,
                      count(fused, RB_OP_FUSED), steps_of(fused));
        all += count(fused, RB_OP_FUSED);
        bits_done(&a, plain);
        bits_done(&b, fused);
        rb_graph_free(plain);
        rb_graph_free(fused);
    }
    assert_true(all > 10);
}

/* Stages and cuts name forward nodes of all batch sizes by their ids; the rest can be lowered, and
 * computed again. */
static void forward_nodes_of_all_batches(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * (int)RB_COUNT(models); i++) {
        struct rb_graph *one = make(i / 2, i % 2 ? 2 : 1, i % 2, true);
        struct rb_graph *four = make(i / 2, 4, i % 2, true);
        struct rb_recompute_cuts cuts;
        Rb__Model *model = rb_alloc(sizeof(*model));
        struct rb_why why = {0};
        int end = rb_graph_forward_end(one);

        assert_int_equal(end, rb_graph_forward_end(four));
        for (int k = 0; k < end; k++) {
            assert_int_equal(one->nodes[k]->id, four->nodes[k]->id);
            assert_int_equal(one->nodes[k]->op, four->nodes[k]->op);
        }
        rb_recompute_cut(four, 3, &cuts);
        rb_recompute(four, &cuts);
        rb_recompute(one, &cuts);
        tiny_check_order(one);
        tiny_check_order(four);
        rb__model__init(model);
        if (rb_lower_variables(four, model, &why) || rb_lower_program(four, "four", model, &why) ||
            rb_lower_program(one, "one", model, &why))
            fail_msg("%s", why.text);
        rb__model__free_unpacked(model, NULL);
        rb_graph_free(one);
        rb_graph_free(four);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain),
        cmocka_unit_test(a_diamond),
        cmocka_unit_test(what_others_read_stays),
        cmocka_unit_test(long_ones),
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(forward_nodes_of_all_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
