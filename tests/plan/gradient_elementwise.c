/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of operators that work element by element; test_gradient.c runs this. */
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_tests.h"
#include "tests/plan/tiny.h"

void unary(void **state)
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
        gradient_check_output(cases[i].what, &tiny, tiny_one(&tiny, cases[i].op, cases[i].what, w));
    }
}

/* A step function passes no gradient, and does not harm the rules beside it. */
void steps(void **state)
{
    static const enum rb_op ops[] = {RB_OP_SIGN, RB_OP_FLOOR, RB_OP_CEIL, RB_OP_ROUND};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(ops); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 2.25f, 0.2f);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        gradient_check_output("step", &tiny,
                              tiny_two(&tiny, RB_OP_MUL, "y", w, tiny_one(&tiny, ops[i], "s", w)));
    }
}

void gelu_tanh(void **state)
{
    const int64_t one = 1;
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 0, 2);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    gradient_check_output("gelu tanh", &tiny,
                          tiny_with(&tiny, RB_OP_GELU, "gelu", 1, &w, "tanh", &one, 1));
}

/* Every pair of shapes that broadcasts: none, a row, a middle axis of 1, a scalar. */
void binary(void **state)
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
            gradient_check_output(rb_op_info(ops[i])->name, &tiny,
                                  j % 2 ? tiny_two(&tiny, ops[i], "op", a, b)
                                        : tiny_two(&tiny, ops[i], "op", b, a));
        }
}

void power(void **state)
{
    const float exponents[] = {2, 3, 0.5f, -1, 1};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(exponents); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(3, 4), 2, 0.5f);

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        gradient_check_output(
            "pow", &tiny,
            tiny_two(&tiny, RB_OP_POW, "pow", w, rb_graph_scalar(tiny.graph, exponents[i])));
    }
}

/* Base or exponent, or both, are 0: the slope of x^0 is 0 for every x.  Another base lies beside
 * it, so that the gradient is not 0 as a whole. */
void power_of_nothing(void **state)
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
        gradient_check_output("pow of 0", &tiny,
                              tiny_two(&tiny, RB_OP_ADD, "sum",
                                       tiny_two(&tiny, RB_OP_POW, "pow", x, p),
                                       tiny_two(&tiny, RB_OP_MUL, "part", cases[i].trained ? p : x,
                                                rb_graph_scalar(tiny.graph, 0.7f))));
    }
}

void where(void **state)
{
    struct tiny tiny = tiny_new(1, true);
    struct rb_value *a = tiny_weight(&tiny, "a", TYPE(3, 4), 0, 1);
    struct rb_value *b = tiny_weight(&tiny, "b", TYPE(1), 0, 1);
    struct rb_value *c = tiny_constant(&tiny, TYPE(2, 3, 4), 0, 1);

    (void)state;
    tiny_features(&tiny, RB_F32, TYPE(1, 1));
    c = tiny_two(&tiny, RB_OP_GREATER, "greater", c, rb_graph_scalar(tiny.graph, 0));
    gradient_check_output(
        "where", &tiny,
        tiny_with(&tiny, RB_OP_WHERE, "where", 3, (struct rb_value *[]){c, a, b}, NULL, NULL, 0));
}
