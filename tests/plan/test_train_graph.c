/* SPDX-License-Identifier: Apache-2.0 */
/* Loss, fusion and gradient as graphs: what is built, and what is refused in words. */
#include "base/arena.h"
#include "base/buffer.h"
#include "graph/train.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

static int count(const struct rb_graph *graph, enum rb_op op)
{
    int n = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->op == op;
    return n;
}

static void set_output(struct rb_graph *graph, struct rb_value *y)
{
    graph->outputs = RB_ARENA_NEW(&graph->arena, struct rb_value *, 1);
    graph->outputs[0] = y;
    graph->n_outputs = 1;
}

static void assert_says(const struct rb_why *why, const char *part)
{
    if (!strstr(why->text, part))
        fail_msg("'%s' does not say '%s'", why->text, part);
}

static struct rb_value *number(struct tiny *tiny, float x)
{
    return rb_graph_scalar(tiny->graph, x);
}

/* The ways in which exporters write the exact GELU. */
static void gelu(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *y;
        struct rb_why why;

        y = form == 2 ? tiny_two(&tiny, RB_OP_MUL, "s", number(&tiny, (float)sqrt(0.5)), x)
                      : tiny_two(&tiny, RB_OP_DIV, "s", x, number(&tiny, (float)sqrt(2)));
        y = tiny_one(&tiny, RB_OP_ERF, "erf", y);
        y = tiny_two(&tiny, RB_OP_ADD, "one", y, number(&tiny, 1));
        if (form == 0)
            y = tiny_two(&tiny, RB_OP_MUL, "h", tiny_two(&tiny, RB_OP_MUL, "x", x, y),
                         number(&tiny, 0.5f));
        else
            y = tiny_two(&tiny, RB_OP_MUL, "x",
                         tiny_two(&tiny, RB_OP_MUL, "h", x, number(&tiny, 0.5f)), y);
        set_output(tiny.graph, y);
        assert_int_equal(rb_fuse(tiny.graph, &why), 0);
        assert_int_equal(tiny.graph->n_nodes, 1);
        assert_int_equal(tiny.graph->nodes[0]->op, RB_OP_GELU);
        assert_int_equal(tiny.graph->nodes[0]->id, 0);
        rb_graph_free(tiny.graph);
    }
}

/* A form that only looks like it stays as it is. */
static void no_gelu(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *y;
    struct rb_why why;

    (void)state;
    y = tiny_one(&tiny, RB_OP_ERF, "erf", tiny_two(&tiny, RB_OP_DIV, "s", x, number(&tiny, 1.5f)));
    y = tiny_two(&tiny, RB_OP_ADD, "one", y, number(&tiny, 1));
    y = tiny_two(&tiny, RB_OP_MUL, "h", tiny_two(&tiny, RB_OP_MUL, "x", x, y), number(&tiny, 0.5f));
    set_output(tiny.graph, y);
    assert_int_equal(rb_fuse(tiny.graph, &why), 0);
    assert_int_equal(tiny.graph->n_nodes, 5);
    rb_graph_free(tiny.graph);
}

static void layer_norm(void **state)
{
    const int64_t last = 1;
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *d, *y;
    struct rb_value *scale = tiny_weight(&tiny, "scale", TYPE(3), 1, 0);
    struct rb_value *bias = tiny_weight(&tiny, "bias", TYPE(3), 0, 0);
    struct rb_why why;

    (void)state;
    d = tiny_two(&tiny, RB_OP_SUB, "d", x,
                 tiny_with(&tiny, RB_OP_REDUCE_MEAN, "m", 1, &x, "axes", &last, 1));
    y = tiny_two(&tiny, RB_OP_POW, "sq", d, number(&tiny, 2));
    y = tiny_with(&tiny, RB_OP_REDUCE_MEAN, "v", 1, &y, "axes", &last, 1);
    y = tiny_two(&tiny, RB_OP_ADD, "e", y, number(&tiny, 1e-5f));
    y = tiny_two(&tiny, RB_OP_DIV, "n", d, tiny_one(&tiny, RB_OP_SQRT, "r", y));
    y = tiny_two(&tiny, RB_OP_MUL, "scale", y, scale);
    set_output(tiny.graph, tiny_two(&tiny, RB_OP_ADD, "bias", y, bias));
    assert_int_equal(rb_fuse(tiny.graph, &why), 0);
    assert_int_equal(tiny.graph->n_nodes, 1);
    assert_int_equal(tiny.graph->nodes[0]->op, RB_OP_LAYER_NORM);
    assert_ptr_equal(tiny.graph->nodes[0]->in[0], x);
    assert_ptr_equal(tiny.graph->nodes[0]->in[1], scale);
    assert_ptr_equal(tiny.graph->nodes[0]->in[2], bias);
    assert_float_equal(rb_node_float(tiny.graph->nodes[0], "epsilon", 0), 1e-5, 1e-9);
    rb_graph_free(tiny.graph);
}

/* A transposed weight and its bias become flags and an input of the product. */
static void transpose_and_bias(void **state)
{
    const int64_t swap[] = {1, 0};
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *y;
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(4, 3), 0, 1);
    struct rb_value *b = tiny_weight(&tiny, "b", TYPE(4), 0, 1);
    const struct rb_node *node;
    struct rb_why why;

    (void)state;
    y = tiny_with(&tiny, RB_OP_TRANSPOSE, "t", 1, &w, "perm", swap, 2);
    y = tiny_two(&tiny, RB_OP_ADD, "b", b, tiny_two(&tiny, RB_OP_MATMUL, "m", x, y));
    set_output(tiny.graph, y);
    assert_int_equal(rb_fuse(tiny.graph, &why), 0);
    assert_int_equal(tiny.graph->n_nodes, 1);
    node = tiny.graph->nodes[0];
    assert_int_equal(node->op, RB_OP_MATMUL);
    assert_int_equal(rb_node_int(node, "transB", 0), 1);
    assert_ptr_equal(node->in[1], w);
    assert_ptr_equal(node->in[2], b);
    rb_graph_free(tiny.graph);
}

/* A product that another node reads too keeps its own value. */
static void shared_product_keeps_its_bias(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3));
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 0, 1);
    struct rb_value *b = tiny_weight(&tiny, "b", TYPE(4), 0, 1), *m, *y;
    struct rb_why why;

    (void)state;
    m = tiny_two(&tiny, RB_OP_MATMUL, "m", x, w);
    y = tiny_two(&tiny, RB_OP_ADD, "b", m, b);
    set_output(tiny.graph, tiny_two(&tiny, RB_OP_MUL, "both", m, y));
    assert_int_equal(rb_fuse(tiny.graph, &why), 0);
    assert_int_equal(count(tiny.graph, RB_OP_ADD), 1);
    rb_graph_free(tiny.graph);
}

static int attach(struct rb_tensor_type output, const char *type, struct rb_tensor_type targets,
                  struct rb_graph **ret_graph, struct rb_why *why)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_loss_options options = {.type = type, .ignore_index = -100, .targets = targets};
    struct rb_value *x = tiny_features(&tiny, RB_F32, output);

    set_output(tiny.graph, tiny_one(&tiny, RB_OP_RELU, "y", x));
    *ret_graph = tiny.graph;
    return rb_loss_attach(tiny.graph, &options, why);
}

static void class_axis(void **state)
{
    static const struct {
        struct rb_tensor_type output, targets;
        int axis; /* -1: does not fit */
    } cases[] = {
        {{RB_F32, 2, {2, 5}}, {.dtype = RB_I64}, 1},
        {{RB_F32, 3, {2, 7, 5}}, {RB_I64, 1, {7}}, 2},
        {{RB_F32, 3, {2, 5, 7}}, {RB_I64, 1, {7}}, 1},
        {{RB_F32, 3, {2, 5, 5}}, {RB_I64, 1, {5}}, 1}, /* both would do */
        {{RB_F32, 4, {2, 5, 3, 4}}, {RB_U8, 2, {3, 4}}, 1},
        {{RB_F32, 2, {2, 5}}, {RB_I64, 1, {5}}, -1},
        {{RB_F32, 2, {2, 5}}, {RB_F32, 0, {0}}, -1},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_graph *graph;
        struct rb_why why;
        int err = attach(cases[i].output, "cross_entropy", cases[i].targets, &graph, &why);

        assert_int_equal(err, cases[i].axis < 0 ? RB_EINVAL : 0);
        if (!err)
            assert_int_equal(rb_node_int(graph->loss->maker, "axis", -1), cases[i].axis);
        else if (cases[i].targets.rank)
            assert_says(&why, "float32[2,5] and the targets are int64[2,5]");
        rb_graph_free(graph);
    }
}

static void probabilities_need_a_loss_of_their_own(void **state)
{
    struct rb_graph *graph;
    struct rb_why why;

    (void)state;
    assert_int_equal(
        attach(TYPE(2, 5), "cross_entropy", (struct rb_tensor_type){RB_F32, 1, {5}}, &graph, &why),
        RB_EINVAL);
    assert_says(&why, "for probabilities of classes");
    rb_graph_free(graph);
}

/* Both axes would do: tokens have their classes on the last. */
static void class_axis_of_tokens(void **state)
{
    static const struct rb_tensor_type targets = {RB_I64, 1, {5}};

    (void)state;
    for (int sequences = 0; sequences < 2; sequences++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_loss_options options = {
            .type = "cross_entropy", .targets = targets, .sequences = sequences};
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 5, 5));
        struct rb_why why;

        set_output(tiny.graph, tiny_one(&tiny, RB_OP_RELU, "y", x));
        assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
        assert_int_equal(rb_node_int(tiny.graph->loss->maker, "axis", -1), sequences ? 2 : 1);
        rb_graph_free(tiny.graph);
    }
}

static void elementwise(void **state)
{
    struct rb_graph *graph;
    struct rb_why why;

    (void)state;
    assert_int_equal(
        attach(TYPE(2, 1), "mse", (struct rb_tensor_type){.dtype = RB_F32}, &graph, &why), 0);
    assert_int_equal(count(graph, RB_OP_RESHAPE), 1);
    assert_null(graph->correct);
    rb_graph_free(graph);
    assert_int_equal(attach(TYPE(2, 3), "bce_with_logits", (struct rb_tensor_type){RB_I64, 1, {3}},
                            &graph, &why),
                     0);
    assert_int_equal(count(graph, RB_OP_CAST), 1);
    assert_non_null(graph->correct);
    rb_graph_free(graph);
    assert_int_equal(
        attach(TYPE(2, 3), "mse", (struct rb_tensor_type){RB_F32, 1, {4}}, &graph, &why),
        RB_EINVAL);
    assert_says(&why, "float32[2,3] and the targets are float32[2,4]");
    rb_graph_free(graph);
    assert_int_equal(attach(TYPE(2, 3), "mse", (struct rb_tensor_type){0}, &graph, &why),
                     RB_EINVAL);
    assert_says(&why, "needs targets");
    rb_graph_free(graph);
    assert_int_equal(
        attach(TYPE(2, 3), "hinge", (struct rb_tensor_type){RB_F32, 1, {3}}, &graph, &why),
        RB_EINVAL);
    assert_says(&why, "'hinge'");
    rb_graph_free(graph);
    assert_int_equal(attach(TYPE(2, 3), "graph", (struct rb_tensor_type){0}, &graph, &why),
                     RB_EINVAL);
    assert_says(&why, "must be the loss");
    rb_graph_free(graph);
}

/* What is made of a mean, or of two: in the first three kinds each sample still has the same
 * share. */
static struct rb_value *behind_mean(struct tiny *tiny, int kind, struct rb_value *mean)
{
    struct rb_value *tenth = tiny_constant(tiny, (struct rb_tensor_type){.dtype = RB_F32}, 0.1F, 0);

    switch (kind) {
    case 0:
        return tiny_one(tiny, RB_OP_NEG, "n", mean);
    case 1:
        return tiny_two(tiny, RB_OP_ADD, "a", mean, tiny_two(tiny, RB_OP_MUL, "b", tenth, mean));
    case 2:
        return tiny_two(tiny, RB_OP_SUB, "s", tenth, tiny_two(tiny, RB_OP_DIV, "d", mean, tenth));
    case 3:
        return tiny_two(tiny, RB_OP_DIV, "d", tenth, mean);
    case 4:
        return tiny_two(tiny, RB_OP_MUL, "m", mean, mean);
    default: /* each addition doubles the time of a naive search */
        for (int i = 0; i < 64; i++)
            mean = tiny_two(tiny, RB_OP_ADD, "a", mean, mean);
        return mean;
    }
}

static void own_loss_of_means(void **state)
{
    const int64_t axes[] = {0, 1};

    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *y;

        y = tiny_with(&tiny, RB_OP_REDUCE_MEAN, "all", 1, &x, "axes", axes, 2);
        y = behind_mean(&tiny, kind, y);
        assert_int_equal(rb_own_loss_of(tiny.graph, y),
                         kind < 3 ? RB_OWN_LOSS_MEAN : RB_OWN_LOSS_OTHER);
        rb_graph_free(tiny.graph);
    }
}

/* A plain mean is a sum over samples; a function of it may not be. */
static void own_loss(void **state)
{
    static const enum rb_own_loss kinds[] = {RB_OWN_LOSS_MEAN, RB_OWN_LOSS_SUM, RB_OWN_LOSS_OTHER};
    const int64_t axes[] = {0, 1};
    struct rb_why why;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3));
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3), 0, 1), *y;
        struct rb_loss_options options = {.type = "graph"};
        bool sum = kinds[i] == RB_OWN_LOSS_SUM;

        y = tiny_two(&tiny, RB_OP_MUL, "m", x, w);
        y = tiny_with(&tiny, sum ? RB_OP_REDUCE_SUM : RB_OP_REDUCE_MEAN, "all", 1, &y, "axes", axes,
                      2);
        if (kinds[i] == RB_OWN_LOSS_OTHER)
            y = tiny_one(&tiny, RB_OP_SQRT, "root", y);
        set_output(tiny.graph, y);
        assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
        assert_int_equal(tiny.graph->own_loss, kinds[i]);
        assert_int_equal(rb_autodiff(tiny.graph, &why), 0);
        assert_int_equal(tiny.graph->n_contributions, 1);
        rb_graph_free(tiny.graph);
    }
}

/* x is used by three nodes: their gradients are added first use first. */
static void left_fold(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3)), *a, *b, *c;
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3), 0, 1);
    const struct rb_node *outer, *inner;
    int adds = 0;

    (void)state;
    x = tiny_two(&tiny, RB_OP_MUL, "x", x, w);
    a = tiny_one(&tiny, RB_OP_TANH, "a", x);
    b = tiny_one(&tiny, RB_OP_SIGMOID, "b", x);
    c = tiny_one(&tiny, RB_OP_EXP, "c", x);
    x = tiny_two(&tiny, RB_OP_MUL, "y", tiny_two(&tiny, RB_OP_MUL, "ab", a, b), c);
    tiny_finish(&tiny, x, "mse", (struct rb_tensor_type){RB_F32, 1, {3}});
    outer = inner = NULL;
    for (int i = 0; i < tiny.graph->n_nodes; i++)
        if (tiny.graph->nodes[i]->op == RB_OP_ADD) {
            inner = outer;
            outer = tiny.graph->nodes[i];
            adds++;
        }
    assert_int_equal(adds, 2);
    assert_ptr_equal(outer->in[0], inner->out[0]);
    assert_string_equal(inner->in[0]->maker->name, "a.grad");
    assert_string_equal(inner->in[1]->maker->name, "b.grad");
    assert_string_equal(outer->in[1]->maker->name, "c.grad");
    rb_graph_free(tiny.graph);
}

/* Each use of a tied weight contributes by itself; frozen weights and the features get no
 * gradient. */
static void contributions(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3));
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 3), 0, 1);
    struct rb_value *f = tiny_weight(&tiny, "f", TYPE(3, 3), 0, 1);

    (void)state;
    f->frozen = true;
    x = tiny_two(&tiny, RB_OP_MATMUL, "f", x, f);
    x = tiny_two(&tiny, RB_OP_MATMUL, "1", x, w);
    x = tiny_two(&tiny, RB_OP_MATMUL, "2", x, w);
    tiny_finish(&tiny, x, "mse", (struct rb_tensor_type){RB_F32, 1, {3}});
    assert_int_equal(tiny.graph->n_contributions, 2);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(tiny.graph->contributions[i].variable, w);
    /* Forward 3, loss 1, its gradient 1; dw twice, and dx only between the two. */
    assert_int_equal(count(tiny.graph, RB_OP_MATMUL), 3 + 3);
    rb_graph_free(tiny.graph);
}

static void refusals(void **state)
{
    const int64_t axis = 1;
    struct rb_loss_options options = {.type = "mse", .targets = {RB_F32, 1, {1}}};
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 3));
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3), 0, 1);
    struct rb_why why;

    (void)state;
    x = tiny_two(&tiny, RB_OP_MUL, "m", x, w);
    set_output(tiny.graph, tiny_with(&tiny, RB_OP_SOFTMAX_GRAD, "top", 2,
                                     (struct rb_value *[]){x, x}, "axis", &axis, 1));
    options.targets.dim[0] = 3;
    assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
    assert_int_equal(rb_autodiff(tiny.graph, &why), RB_EUNSUPPORTED);
    assert_says(&why, "'top'");
    assert_says(&why, "SoftmaxGrad");
    options.targets.dim[0] = 1;
    rb_graph_free(tiny.graph);

    tiny = tiny_new(2, true);
    x = tiny_features(&tiny, RB_F32, TYPE(2, 1));
    set_output(tiny.graph, tiny_one(&tiny, RB_OP_TANH, "t", x));
    assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
    assert_int_equal(rb_autodiff(tiny.graph, &why), RB_EINVAL);
    assert_says(&why, "nothing to train");
    rb_graph_free(tiny.graph);

    for (int last = 0; last < 2; last++) { /* updates at 1 and last of an axis of two */
        const struct rb_tensor_type type = {RB_I64, 2, {2, 1}};
        const int64_t places[] = {1, last};
        struct rb_value *in[3];

        tiny = tiny_new(2, true);
        x = tiny_features(&tiny, RB_F32, TYPE(2, 1));
        w = tiny_weight(&tiny, "w", TYPE(2, 1), 0, 1);
        in[0] = x;
        in[1] = rb_graph_value(tiny.graph, RB_VALUE_CONST, "i", &type, places);
        in[2] = w;
        set_output(tiny.graph,
                   tiny_with(&tiny, RB_OP_SCATTER, "s", 3, in, "axis", &(int64_t){0}, 1));
        assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
        assert_int_equal(rb_autodiff(tiny.graph, &why), last ? RB_EUNSUPPORTED : 0);
        if (last)
            assert_says(&why, "several updates fall on one place");
        rb_graph_free(tiny.graph);
    }

    tiny = tiny_new(2, true);
    x = tiny_features(&tiny, RB_F32, TYPE(2, 1));
    set_output(tiny.graph, tiny_one(&tiny, RB_OP_TANH, "t", x));
    tiny.graph->other_floats = 3;
    assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
    assert_int_equal(rb_autodiff(tiny.graph, &why), RB_EINVAL);
    assert_says(&why, "3 are half floats or doubles; model.float() before");
    rb_graph_free(tiny.graph);

    tiny = tiny_new(2, true);
    x = tiny_features(&tiny, RB_F32, TYPE(2, 1));
    w = tiny_weight(&tiny, "w", TYPE(1), 2, 0);
    set_output(tiny.graph, tiny_two(&tiny, RB_OP_MOD, "p", x, w));
    assert_int_equal(rb_loss_attach(tiny.graph, &options, &why), 0);
    assert_int_equal(rb_autodiff(tiny.graph, &why), RB_EUNSUPPORTED);
    assert_says(&why, "divisor");
    rb_graph_free(tiny.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu),
        cmocka_unit_test(no_gelu),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(transpose_and_bias),
        cmocka_unit_test(shared_product_keeps_its_bias),
        cmocka_unit_test(class_axis),
        cmocka_unit_test(probabilities_need_a_loss_of_their_own),
        cmocka_unit_test(class_axis_of_tokens),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(own_loss),
        cmocka_unit_test(own_loss_of_means),
        cmocka_unit_test(left_fold),
        cmocka_unit_test(contributions),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
