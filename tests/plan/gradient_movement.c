/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of operators that only move elements; test_gradient.c runs this. */
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_tests.h"
#include "tests/plan/tiny.h"

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

void movement(void **state)
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
        gradient_check_output("movement", &tiny, y);
    }
}

void split_and_concat(void **state)
{
    const int64_t axis = 1;
    const struct rb_tensor_type parts[] = {TYPE(2, 1, 3), TYPE(2, 3, 3), TYPE(2, 2, 3)};
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    (void)state;
    for (int used = 2; used <= 3; used++) { /* an unused part has a gradient of zeros */
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(2, 6, 3), 0, 1);
        struct rb_value *v = tiny_weight(&tiny, "v", TYPE(2, 2, 3), 0, 1);
        struct rb_node *split =
            tiny_node(&tiny, RB_OP_SPLIT, "split", 7, parts, 1, &attribute, 1, &w);
        struct rb_value *in[] = {split->out[1], v, split->out[0], split->out[2]};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        gradient_check_output(
            "split", &tiny,
            tiny_with(&tiny, RB_OP_CONCAT, "concat", used + 1, in, "axis", &axis, 1));
    }
}

void gather(void **state)
{
    const int64_t indices[] = {2, 0, 2, -1}, axes[] = {0, 1};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(axes); i++) {
        struct tiny tiny = tiny_new(1, true);
        struct rb_value *in[] = {tiny_weight(&tiny, "w", TYPE(3, 4), 0, 1),
                                 rb_graph_int64s(tiny.graph, NULL, indices, 4)};

        tiny_features(&tiny, RB_F32, TYPE(1, 1));
        gradient_check_output("gather", &tiny,
                              tiny_with(&tiny, RB_OP_GATHER, "gather", 2, in, "axis", &axes[i], 1));
    }
}
