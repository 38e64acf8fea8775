/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient rule, alone and in whole models, against central differences. */
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_onnx.h"
#include "tests/plan/precise.h"
#include "tests/plan/tiny.h"

#include "base/buffer.h"
#include "graph/autodiff/autodiff.h"
#include "graph/models/models.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void whole_models(void **state)
{
    struct rb_graph *graphs[] = {tiny_mlp(4, true), tiny_mlp(1, true), tiny_cnn(4, true),
                                 tiny_gpt(3, true)};
    static const char *const names[] = {"mlp", "mlp of one sample", "cnn", "gpt"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(graphs); i++) {
        precise_check(names[i], graphs[i], gradient_seen);
        gradient_check(names[i], graphs[i], 4e-3f);
    }
}

/* The same model, plain and in blocks of channels. */
static void layouts(void **state)
{
    struct rb_graph *graph = tiny_residual(3, true);
    struct rb_why why = {0};
    double plain, blocked;

    (void)state;
    plain = gradient_check("plain", tiny_residual(3, true), 4e-3f);
    if (rb_layout(graph, &why))
        fail_msg("%s", why.text);
    blocked = gradient_check("in blocks", graph, 4e-3f);
    assert_true(fabs(plain - blocked) <= 1e-5 * fabs(plain));
}

/* The loss is the sum of y times fixed numbers, so that every element of dy is another one. */
static void check(const char *what, struct tiny *tiny, struct rb_value *y)
{
    struct rb_value *c = tiny_constant(tiny, y->type, 0.3f, 1.0f);
    int64_t axes[RB_MAX_RANK];

    for (int i = 0; i < y->type.rank; i++)
        axes[i] = i;
    y = tiny_two(tiny, RB_OP_MUL, "weighted", y, c);
    y = tiny_with(tiny, RB_OP_REDUCE_SUM, "sum", 1, &y, "axes", axes, y->type.rank);
    tiny_finish(tiny, y, "graph", (struct rb_tensor_type){0});
    precise_check(what, tiny->graph, gradient_seen);
    gradient_check(what, tiny->graph, 4e-3f);
}

static void unary(void **state)
{
    static const struct {
        enum rb_op op;
        const char *what;
        float center, spread;
    } cases[] = {
        {RB_OP_NEG, "neg", 0, 1},        {RB_OP_ABS, "abs", 1.5f, 0.5f},
        {RB_OP_ABS, "abs", -1.5f, 0.5f}, {RB_OP_EXP, "exp", 0, 1},
        {RB_OP_EXPM1, "expm1", -1, 2},   {RB_OP_LOG, "log", 2, 1},
        {RB_OP_SQRT, "sqrt", 2, 1},      {RB_OP_RECIPROCAL, "rec", 2, 0.7f},
        {RB_OP_TANH, "tanh", 0, 1.5f},   {RB_OP_SIGMOID, "sigmoid", 0, 2},
        {RB_OP_ERF, "erf", 0, 1.5f},     {RB_OP_RELU, "relu", 1, 0.8f},
        {RB_OP_GELU, "gelu", 0, 2},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), cases[i].center, cases[i].spread);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check(cases[i].what, &tiny, tiny_one(&tiny, cases[i].op, cases[i].what, w));
    }
}

/* A step function passes nothing, and harms nothing beside it. */
static void steps(void **state)
{
    static const enum rb_op ops[] = {RB_OP_SIGN, RB_OP_FLOOR, RB_OP_CEIL, RB_OP_ROUND};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(ops); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 2.25f, 0.2f);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("step", &tiny, tiny_two(&tiny, RB_OP_MUL, "y", w, tiny_one(&tiny, ops[i], "s", w)));
    }
}

static void gelu_tanh(void **state)
{
    const int64_t one = 1;
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 0, 2);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    check("gelu tanh", &tiny, tiny_with(&tiny, RB_OP_GELU, "gelu", 1, &w, "tanh", &one, 1));
}

/* Every pair of shapes that broadcasts: none, a row, a middle axis of 1, a scalar. */
static void binary(void **state)
{
    static const enum rb_op ops[] = {RB_OP_ADD, RB_OP_SUB, RB_OP_MUL, RB_OP_DIV};
    const struct rb_tensor_type shapes[] = {
        TYPE(2, 3, 4), TYPE(4), TYPE(2, 1, 4), TYPE(1, 4), {.dtype = RB_F32}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(ops); i++)
        for (size_t j = 0; j < 2 * RB_COUNT(shapes); j++) {
            struct tiny tiny = tiny_new(1, true);
            struct rb_value *a = tiny_weight(&tiny, "a", TYPE(2, 3, 4), 2, 0.8f);
            struct rb_value *b = tiny_weight(&tiny, "b", shapes[j / 2], -2, 0.8f);

            tiny_features(&tiny, RB_F32, TYPE(1, 1));
            check(rb_op_info(ops[i])->name, &tiny,
                  j % 2 ? tiny_two(&tiny, ops[i], "op", a, b)
                        : tiny_two(&tiny, ops[i], "op", b, a));
        }
}

static void power(void **state)
{
    const float exponents[] = {2, 3, 0.5f, -1, 1};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(exponents); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 2, 0.5f);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("pow", &tiny,
              tiny_two(&tiny, RB_OP_POW, "pow", w, rb_graph_scalar(tiny.graph, exponents[i])));
    }
}

/* Where base or exponent is 0, or both: the slope of x^0 is 0 for every x.  Beside it is another
 * one, so that the gradient is not 0 as a whole. */
static void power_of_nothing(void **state)
{
    static const struct {
        float x, p;
        bool fixed; /* the exponent is a constant, else it is trained, or read from a buffer */
        bool trained;
    } cases[] = {{0, 0, true, false},   {0, 1, true, false},  {0, 2, true, false},
                 {0, 3, true, false},   {2, 0, true, false},  {0, 0, false, false},
                 {0, 1, false, false},  {0, 2, false, false}, {0, 2, false, true},
                 {0, 0.5f, false, true}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *x = cases[i].trained ? tiny_buffer(&tiny, "x", TYPE(3, 4), cases[i].x)
                                              : tiny_weight(&tiny, "x", TYPE(3, 4), cases[i].x, 0);
        struct rb_value *p = cases[i].fixed     ? rb_graph_scalar(tiny.graph, cases[i].p)
                             : cases[i].trained ? tiny_weight(&tiny, "p", TYPE(4), cases[i].p, 0)
                                                : tiny_buffer(&tiny, "p", TYPE(4), cases[i].p);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("pow of 0", &tiny,
              tiny_two(&tiny, RB_OP_ADD, "sum", tiny_two(&tiny, RB_OP_POW, "pow", x, p),
                       tiny_two(&tiny, RB_OP_MUL, "part", cases[i].trained ? p : x,
                                rb_graph_scalar(tiny.graph, 0.7f))));
    }
}

static void where(void **state)
{
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *a = tiny_weight(&tiny, "a", TYPE(3, 4), 0, 1);
    struct rb_value *b = tiny_weight(&tiny, "b", TYPE(1), 0, 1);
    struct rb_value *c = tiny_constant(&tiny, TYPE(2, 3, 4), 0, 1);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    c = tiny_two(&tiny, RB_OP_GREATER, "greater", c, rb_graph_scalar(tiny.graph, 0));
    check("where", &tiny,
          tiny_with(&tiny, RB_OP_WHERE, "where", 3, (struct rb_value *[]){c, a, b}, NULL, NULL, 0));
}

/* A weight of [2, 3, 4] through one operator that moves elements. */
static struct rb_value *moved(struct tiny *tiny, enum rb_op op, const struct rb_tensor_type *given,
                              const char *key, const int64_t *ints, int n, const char *key2,
                              const int64_t *ints2, int n2)
{
    struct rb_value *w = tiny_weight(tiny, "w", TYPE(2, 3, 4), 0, 1);
    struct rb_graph_attribute attributes[] = {rb_attr_ints(key ? key : "", ints, n),
                                              rb_attr_ints(key2 ? key2 : "", ints2, n2)};

    return tiny_node(tiny, op, "move", 1, given, (key != NULL) + (key2 != NULL), attributes, 1, &w)
        ->out[0];
}

static void movement(void **state)
{
    const int64_t perm[] = {2, 0, 1}, starts[] = {1, 2, 3}, steps[] = {1, -1, -2}, one = 1,
                  zero = 0, back = -1;
    const struct rb_tensor_type flat = TYPE(4, 6), cut = TYPE(1, 3, 2), wide = TYPE(5, 2, 3, 4);

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *y;

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        if (i == 0)
            y = moved(&tiny, RB_OP_TRANSPOSE, NULL, "perm", perm, 3, NULL, NULL, 0);
        else if (i == 1)
            y = moved(&tiny, RB_OP_SLICE, &cut, "starts", starts, 3, "steps", steps, 3);
        else if (i == 2)
            y = moved(&tiny, RB_OP_RESHAPE, &flat, NULL, NULL, 0, NULL, NULL, 0);
        else if (i == 3)
            y = moved(&tiny, RB_OP_EXPAND, &wide, NULL, NULL, 0, NULL, NULL, 0);
        else
            y = moved(&tiny, RB_OP_TRILU, NULL, "upper", i == 4 ? &one : &zero, 1, "k",
                      i == 4 ? &one : &back, 1);
        check("movement", &tiny, y);
    }
}

static void split_and_concat(void **state)
{
    const int64_t axis = 1;
    const struct rb_tensor_type parts[] = {TYPE(2, 1, 3), TYPE(2, 3, 3), TYPE(2, 2, 3)};
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    (void)state;
    for (int used = 2; used <= 3; used++) { /* a part that nobody uses has a gradient of zeros */
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(2, 6, 3), 0, 1);
        struct rb_value *v = tiny_weight(&tiny, "v", TYPE(2, 2, 3), 0, 1);
        struct rb_node *split =
            tiny_node(&tiny, RB_OP_SPLIT, "split", 7, parts, 1, &attribute, 1, &w);
        struct rb_value *in[] = {split->out[1], v, split->out[0], split->out[2]};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("split", &tiny,
              tiny_with(&tiny, RB_OP_CONCAT, "concat", used + 1, in, "axis", &axis, 1));
    }
}

static void gather(void **state)
{
    const int64_t indices[] = {2, 0, 2, -1}, axes[] = {0, 1};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(axes); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *in[] = {tiny_weight(&tiny, "w", TYPE(3, 4), 0, 1),
                                 rb_graph_int64s(tiny.graph, NULL, indices, 4)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("gather", &tiny,
              tiny_with(&tiny, RB_OP_GATHER, "gather", 2, in, "axis", &axes[i], 1));
    }
}

static void reductions(void **state)
{
    static const enum rb_op ops[] = {RB_OP_REDUCE_SUM, RB_OP_REDUCE_MEAN, RB_OP_SOFTMAX,
                                     RB_OP_LOG_SOFTMAX};
    const int64_t axes[] = {0, 2};
    const struct rb_tensor_type dropped = TYPE(3);

    (void)state;
    for (size_t i = 0; i < RB_COUNT(ops); i++)
        for (int j = 0; j < 2; j++) {
            struct tiny tiny = tiny_new(1, true);
            struct rb_value *w = tiny_weight(&tiny, "w", TYPE(2, 3, 4), 0, 1.5f);
            struct rb_graph_attribute attribute =
                rb_attr_ints(i < 2 ? "axes" : "axis", i < 2 ? axes : &axes[j], i < 2 ? 2 : 1);

            tiny_features(&tiny, RB_F32, TYPE(1, 1));
            check(rb_op_info(ops[i])->name, &tiny,
                  tiny_node(&tiny, ops[i], "reduce", 1, i < 2 && j ? &dropped : NULL, 1, &attribute,
                            1, &w)
                      ->out[0]);
        }
}

/* Plain, batched and broadcast products, with each pair of flags and with a bias. */
static void products(void **state)
{
    static const struct {
        int rank_a, rank_b;
        int64_t lead_a[2], lead_b[2];
    } cases[] = {{0, 0, {0}, {0}},    {1, 0, {3}, {0}},       {0, 1, {0}, {3}},
                 {2, 0, {2, 3}, {0}}, {2, 2, {2, 3}, {2, 1}}, {2, 2, {1, 3}, {2, 3}}};
    const int64_t one = 1;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        for (int flags = 0; flags < 8; flags++) {
            struct tiny tiny = tiny_new(1, true);
            struct rb_tensor_type a = {.dtype = RB_F32, .rank = cases[i].rank_a},
                                  b = {.dtype = RB_F32, .rank = cases[i].rank_b};
            struct rb_graph_attribute attributes[2];
            struct rb_value *in[3] = {NULL};
            int n = 0;

            memcpy(a.dim, cases[i].lead_a, sizeof(cases[i].lead_a));
            memcpy(b.dim, cases[i].lead_b, sizeof(cases[i].lead_b));
            a.dim[a.rank++] = flags & 1 ? 5 : 4;
            a.dim[a.rank++] = flags & 1 ? 4 : 5;
            b.dim[b.rank++] = flags & 2 ? 6 : 5;
            b.dim[b.rank++] = flags & 2 ? 5 : 6;
            if (flags & 1)
                attributes[n++] = rb_attr_ints("transA", &one, 1);
            if (flags & 2)
                attributes[n++] = rb_attr_ints("transB", &one, 1);
            in[0] = tiny_weight(&tiny, "a", a, 0, 1);
            in[1] = tiny_weight(&tiny, "b", b, 0, 1);
            if (flags & 4)
                in[2] = tiny_weight(&tiny, "bias", TYPE(6), 0, 1);
            tiny_features(&tiny, RB_F32, TYPE(1, 1));
            check("matmul", &tiny,
                  tiny_node(&tiny, RB_OP_MATMUL, "matmul", 1, NULL, n, attributes, 3, in)->out[0]);
        }
}

static void convolutions(void **state)
{
    const int64_t twos[] = {2, 2}, ones[] = {1, 1}, pads[] = {1, 0, 2, 1}, groups[] = {1, 2};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tiny tiny = tiny_new(1, true);
        int64_t group = groups[i / 2];
        struct rb_value *in[] = {tiny_weight(&tiny, "x", TYPE(2, 4, 7, 6), 0, 1),
                                 tiny_weight(&tiny, "w", TYPE(6, 4 / group, 3, 2), 0, 1),
                                 tiny_weight(&tiny, "b", TYPE(6), 0, 1)};
        struct rb_graph_attribute attributes[] = {
            rb_attr_ints("strides", i % 2 ? twos : ones, 2), rb_attr_ints("pads", pads, 4),
            rb_attr_ints("dilations", i % 2 ? ones : twos, 2), rb_attr_ints("group", &group, 1)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("conv", &tiny,
              tiny_node(&tiny, RB_OP_CONV, "conv", 1, NULL, 4, attributes, 3, in)->out[0]);
    }
}

static void norms(void **state)
{
    const float epsilon = 1e-5f;

    (void)state;
    for (int64_t axis = 1; axis <= 2; axis++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_tensor_type row = axis == 1 ? TYPE(3, 4) : TYPE(4);
        struct rb_value *in[] = {tiny_weight(&tiny, "x", TYPE(2, 3, 4), 0.5f, 1.5f),
                                 tiny_weight(&tiny, "scale", row, 1, 0.3f),
                                 tiny_weight(&tiny, "bias", row, 0, 1)};
        struct rb_graph_attribute attributes[] = {rb_attr_ints("axis", &axis, 1),
                                                  rb_attr_float("epsilon", &epsilon)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("layer norm", &tiny,
              tiny_node(&tiny, RB_OP_LAYER_NORM, "norm", 1, NULL, 2, attributes, 3, in)->out[0]);
    }
    {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *in[] = {tiny_weight(&tiny, "x", TYPE(3, 2, 2, 2), 0.5f, 1.5f),
                                 tiny_weight(&tiny, "scale", TYPE(2), 1, 0.3f),
                                 tiny_weight(&tiny, "bias", TYPE(2), 0, 1)};
        struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("batch norm", &tiny,
              tiny_node(&tiny, RB_OP_BATCH_NORM, "norm", 1, NULL, 1, &attribute, 3, in)->out[0]);
    }
}

/* Frozen: the running statistics stand still. */
static void frozen_norm(void **state)
{
    const float epsilon = 1e-5f;
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *in[] = {
        tiny_weight(&tiny, "x", TYPE(3, 2, 2, 2), 0.5f, 1.5f),
        tiny_weight(&tiny, "scale", TYPE(2), 1, 0.3f), tiny_weight(&tiny, "bias", TYPE(2), 0, 1),
        tiny_buffer(&tiny, "mean", TYPE(2), 0.3f), tiny_buffer(&tiny, "variance", TYPE(2), 0.8f)};
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    check("frozen batch norm", &tiny,
          tiny_node(&tiny, RB_OP_BATCH_NORM_EVAL, "norm", 1, NULL, 1, &attribute, 5, in)->out[0]);
}

/* Of a weight that is standardized: they are computed from it. */
static void computed_norm(void **state)
{
    const float epsilon = 1e-5f;
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *in[] = {tiny_weight(&tiny, "x", TYPE(3, 2, 2, 2), 0.5f, 1.5f),
                             tiny_weight(&tiny, "scale", TYPE(2), 1, 0.3f),
                             tiny_weight(&tiny, "bias", TYPE(2), 0, 1),
                             tiny_weight(&tiny, "mean", TYPE(2), 0.3f, 1),
                             tiny_weight(&tiny, "variance", TYPE(2), 2, 1)};
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    check("batch norm of computed statistics", &tiny,
          tiny_node(&tiny, RB_OP_BATCH_NORM_EVAL, "norm", 1, NULL, 1, &attribute, 5, in)->out[0]);
}

static void pools(void **state)
{
    const int64_t kernel[] = {3, 2}, strides[] = {2, 1}, pads[] = {1, 0, 1, 1}, one = 1,
                  ones[] = {1, 1};

    (void)state;
    for (int64_t flags = 0; flags < 5; flags++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(2, 2, 6, 5), 0, 4);
        const int64_t ceil = flags & 1, count = flags >> 1 & 1;
        struct rb_graph_attribute attributes[] = {
            rb_attr_ints("kernel", kernel, 2), rb_attr_ints("strides", strides, 2),
            rb_attr_ints("pads", pads, 4), rb_attr_ints("ceil", flags == 4 ? &one : &ceil, 1),
            flags == 4 ? rb_attr_ints("dilations", ones, 2) : rb_attr_ints("countPad", &count, 1)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check("pool", &tiny,
              tiny_node(&tiny, flags == 4 ? RB_OP_MAX_POOL : RB_OP_AVERAGE_POOL, "pool", 1, NULL, 5,
                        attributes, 1, &w)
                  ->out[0]);
    }
}

static void dropout(void **state)
{
    const float ratio = 0.4f;
    struct rb_graph_attribute attribute = rb_attr_float("ratio", &ratio);
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(5, 7), 0, 1);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    w = tiny_one(&tiny, RB_OP_TANH, "tanh", w); /* so that its id is not 0 */
    check("dropout", &tiny,
          tiny_node(&tiny, RB_OP_DROPOUT, "drop", 1, NULL, 1, &attribute, 1, &w)->out[0]);
}

static void attention(void **state)
{
    const float scale = 0.7f, ratio = 0.25f;
    const int64_t causal = 1;
    struct rb_graph_attribute attributes[] = {rb_attr_float("scale", &scale),
                                              rb_attr_float("ratio", &ratio),
                                              rb_attr_ints("causal", &causal, 1)};

    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *in[] = {tiny_weight(&tiny, "q", TYPE(2, 4, 3), 0, 1),
                                 tiny_weight(&tiny, "k", TYPE(2, 4, 3), 0, 1),
                                 tiny_weight(&tiny, "v", TYPE(2, 4, 2), 0, 1)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        check(
            "attention", &tiny,
            tiny_node(&tiny, RB_OP_ATTENTION, "attention", 1, NULL, n, attributes, 3, in)->out[0]);
    }
}

static void losses(void **state)
{
    static const char *const names[] = {"mse", "bce_with_logits", "cross_entropy", "cross_entropy"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 4));
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(4, 12), 0, 1);
        struct rb_tensor_type targets = {
            .dtype = i < 2 ? RB_F32 : RB_I64, .rank = 2, .dim = {3, 4}};
        struct rb_value *y = tiny_two(&tiny, RB_OP_MATMUL, "fc", x, w);

        if (i == 2) /* classes last */
            targets = (struct rb_tensor_type){.dtype = RB_I64, .rank = 1, .dim = {3}};
        if (i == 3) /* classes second, as PyTorch wants them */
            targets = (struct rb_tensor_type){.dtype = RB_I64, .rank = 1, .dim = {4}};
        tiny_finish(&tiny, tiny_reshape(&tiny, y, TYPE(2, 3, 4)), names[i], targets);
        precise_check(names[i], tiny.graph, gradient_seen);
        gradient_check(names[i], tiny.graph, 4e-3f);
    }
}

/* A model as it comes from a file: generated, imported, fused. */
static struct rb_graph *imported(const char *kind, const char *const *settings, int n,
                                 const struct rb_loss_options *loss)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    const struct rb_import_options options = {.batch = 3, .train = true};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    int err = rb_models_new(kind, settings, n, &onnx, &why);

    if (!err)
        err = rb_onnx_open_bytes(onnx.data, onnx.size, &model, &why);
    if (!err)
        err = rb_onnx_import(model, &options, &graph, &why);
    if (!err)
        err = rb_loss_attach(graph, loss, &why);
    if (!err)
        err = rb_fuse(graph, &why);
    if (!err)
        err = rb_autodiff(graph, &why);
    rb_onnx_close(model);
    if (err)
        fail_msg("%s: %s", kind, why.text);
    return graph;
}

static void generated_models(void **state)
{
    static const char *const mlp[] = {"inputs=6", "hidden=8", "depth=2", "classes=3"};
    static const char *const cnn[] = {"image=8", "channels=2", "classes=3", "batchnorm=1",
                                      "dropout=0.2"};
    static const char *const gpt[] = {"vocab=11", "layers=2", "width=8",
                                      "heads=2",  "seq=6",    "dropout=0.1"};
    const struct rb_loss_options label = {
        .type = "cross_entropy", .ignore_index = -100, .targets = {.dtype = RB_I64}};
    const struct rb_loss_options tokens = {.type = "cross_entropy",
                                           .ignore_index = -100,
                                           .label_smoothing = 0.1,
                                           .targets = {RB_I64, 1, {6}}};

    (void)state;
    gradient_check("generated mlp", imported("mlp", mlp, 4, &label), 4e-3f);
    gradient_check("generated cnn", imported("cnn", cnn, 5, &label), 4e-3f);
    gradient_check("generated gpt", imported("gpt", gpt, 6, &tokens), 4e-3f);
}

/* What is between two operators of import's own table is only known in here; what goes between
 * devices is tests/worker/split_links_test.c's. */
static void every_rule_was_run(void **state)
{
    static const enum rb_op rules[] = {
#define X(op, rule) RB_OP_##op,
        RB_DIFF_RULES(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(rules); i++)
        if (!gradient_seen[rules[i]] && rb_op_info(rules[i])->kind != RB_KIND_EXCHANGE)
            fail_msg("no gradient went through %s", rb_op_info(rules[i])->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_models),
        cmocka_unit_test(unary),
        cmocka_unit_test(steps),
        cmocka_unit_test(gelu_tanh),
        cmocka_unit_test(binary),
        cmocka_unit_test(power),
        cmocka_unit_test(power_of_nothing),
        cmocka_unit_test(where),
        cmocka_unit_test(movement),
        cmocka_unit_test(split_and_concat),
        cmocka_unit_test(gather),
        cmocka_unit_test(reductions),
        cmocka_unit_test(products),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(norms),
        cmocka_unit_test(frozen_norm),
        cmocka_unit_test(computed_norm),
        cmocka_unit_test(pools),
        cmocka_unit_test(dropout),
        cmocka_unit_test(attention),
        cmocka_unit_test(losses),
        cmocka_unit_test(whole_models),
        cmocka_unit_test(layouts),
        cmocka_unit_test(gradient_onnx_cases),
        cmocka_unit_test(gradient_onnx_all),
        cmocka_unit_test(every_rule_was_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
