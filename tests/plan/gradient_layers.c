/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of reductions, products and the operators of layers; test_gradient.c runs this. */
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_tests.h"
#include "tests/plan/tiny.h"

#include <string.h>

void reductions(void **state)
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
            gradient_check_output(rb_op_info(ops[i])->name, &tiny,
                                  tiny_node(&tiny, ops[i], "reduce", 1,
                                            i < 2 && j ? &dropped : NULL, 1, &attribute, 1, &w)
                                      ->out[0]);
        }
}

/* Plain, batched and broadcast products, with each pair of flags and with a bias. */
void products(void **state)
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
            gradient_check_output(
                "matmul", &tiny,
                tiny_node(&tiny, RB_OP_MATMUL, "matmul", 1, NULL, n, attributes, 3, in)->out[0]);
        }
}

void convolutions(void **state)
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
        gradient_check_output(
            "conv", &tiny,
            tiny_node(&tiny, RB_OP_CONV, "conv", 1, NULL, 4, attributes, 3, in)->out[0]);
    }
}

void norms(void **state)
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
        gradient_check_output(
            "layer norm", &tiny,
            tiny_node(&tiny, RB_OP_LAYER_NORM, "norm", 1, NULL, 2, attributes, 3, in)->out[0]);
    }
    {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *in[] = {tiny_weight(&tiny, "x", TYPE(3, 2, 2, 2), 0.5f, 1.5f),
                                 tiny_weight(&tiny, "scale", TYPE(2), 1, 0.3f),
                                 tiny_weight(&tiny, "bias", TYPE(2), 0, 1)};
        struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        gradient_check_output(
            "batch norm", &tiny,
            tiny_node(&tiny, RB_OP_BATCH_NORM, "norm", 1, NULL, 1, &attribute, 3, in)->out[0]);
    }
}

/* Frozen: the running statistics stand still. */
void frozen_norm(void **state)
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
    gradient_check_output(
        "frozen batch norm", &tiny,
        tiny_node(&tiny, RB_OP_BATCH_NORM_EVAL, "norm", 1, NULL, 1, &attribute, 5, in)->out[0]);
}

/* A batch norm of a weight that is standardized: the statistics are computed from the weight. */
void computed_norm(void **state)
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
    gradient_check_output(
        "batch norm of computed statistics", &tiny,
        tiny_node(&tiny, RB_OP_BATCH_NORM_EVAL, "norm", 1, NULL, 1, &attribute, 5, in)->out[0]);
}

void pools(void **state)
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
        gradient_check_output("pool", &tiny,
                              tiny_node(&tiny, flags == 4 ? RB_OP_MAX_POOL : RB_OP_AVERAGE_POOL,
                                        "pool", 1, NULL, 5, attributes, 1, &w)
                                  ->out[0]);
    }
}

void dropout(void **state)
{
    const float ratio = 0.4f;
    struct rb_graph_attribute attribute = rb_attr_float("ratio", &ratio);
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(5, 7), 0, 1);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    w = tiny_one(&tiny, RB_OP_TANH, "tanh", w); /* so that its id is not 0 */
    gradient_check_output(
        "dropout", &tiny,
        tiny_node(&tiny, RB_OP_DROPOUT, "drop", 1, NULL, 1, &attribute, 1, &w)->out[0]);
}

void attention(void **state)
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
        gradient_check_output(
            "attention", &tiny,
            tiny_node(&tiny, RB_OP_ATTENTION, "attention", 1, NULL, n, attributes, 3, in)->out[0]);
    }
}
