/* SPDX-License-Identifier: Apache-2.0 */
/* Activations that are computed again: copies of forward nodes, where they are wanted, and a
 * smaller arena. */
#include "base/arena.h"
#include "graph/train.h"
#include "plan/compile/lower.h"
#include "plan/compile/recompute.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct rb_graph *make_fn(int64_t batch, bool train);

static make_fn *const makers[] = {tiny_mlp, tiny_cnn, tiny_gpt, tiny_residual};

static struct rb_graph *make(make_fn *maker, bool bf16)
{
    struct rb_graph *graph = maker(4, true);
    struct rb_why why = {0};

    if (rb_layout(graph, &why) || (bf16 && rb_narrow(graph, &why)))
        fail_msg("%s", why.text);
    return graph;
}

static uint64_t arena_of(const struct rb_graph *graph)
{
    Rb__Model *model = rb_alloc(sizeof(*model));
    struct rb_why why = {0};
    uint64_t bytes;

    rb__model__init(model);
    if (rb_lower_variables(graph, model, &why) || rb_lower_program(graph, "train", model, &why))
        fail_msg("%s", why.text);
    bytes = model->programs[0]->arena_bytes;
    rb__model__free_unpacked(model, NULL);
    return bytes;
}

/* The original nodes are all there, in their order; a copy stands behind its original, and the
 * contributions are unchanged. */
static int check_copies(const struct rb_graph *graph, struct rb_node *const *before, int n)
{
    int next = 0, copies = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        bool found = false;

        if (next < n && node == before[next]) {
            next++;
            continue;
        }
        for (int j = 0; j < next; j++)
            found = found || (before[j]->id == node->id && before[j]->op == node->op);
        assert_true(found);
        copies++;
    }
    assert_int_equal(next, n);
    return copies;
}

static void copies_of_forward_nodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * RB_COUNT(makers); i++)
        for (int segments = 2; segments < 6; segments++) {
            struct rb_graph *graph = make(makers[i / 2], i % 2);
            int n = graph->n_nodes, n_contributions = graph->n_contributions;
            struct rb_node **before =
                rb_arena_copy(&graph->arena, graph->nodes, sizeof(*before) * (size_t)n);
            struct rb_contribution *sums = rb_arena_copy(&graph->arena, graph->contributions,
                                                         sizeof(*sums) * (size_t)n_contributions);
            struct rb_recompute_cuts cuts;

            rb_recompute_cut(graph, segments, &cuts);
            assert_true(cuts.n > 0);
            rb_recompute(graph, &cuts);
            if (!check_copies(graph, before, n)) /* a short one keeps all: it crosses the cuts */
                assert_ptr_equal(makers[i / 2], tiny_mlp);
            tiny_check_order(graph);
            assert_int_equal(graph->n_contributions, n_contributions);
            assert_memory_equal(graph->contributions, sums,
                                sizeof(*sums) * (size_t)n_contributions);
            rb_graph_free(graph);
        }
}

/* A chain of 24 layers: in about five segments of five the arena is less than half. */
static struct rb_graph *chain(void)
{
    struct tiny tiny = tiny_new(64, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(64, 32));

    for (int i = 0; i < 24; i++) {
        char name[16];

        snprintf(name, sizeof(name), "w%d", i);
        x = tiny_two(&tiny, RB_OP_MATMUL, name, x, tiny_weight(&tiny, name, TYPE(32, 32), 0, 0.1f));
        x = tiny_one(&tiny, RB_OP_GELU, "gelu", x);
    }
    tiny_finish(&tiny, x, "mse", TYPE(32));
    return tiny.graph;
}

static void less_memory(void **state)
{
    struct rb_recompute_cuts cuts;
    struct rb_graph *graph = chain();
    uint64_t before = arena_of(graph), after;

    (void)state;
    rb_recompute_cut(graph, 5, &cuts);
    assert_int_equal(cuts.n, 4);
    rb_recompute(graph, &cuts);
    after = arena_of(graph);
    rb_graph_free(graph);
    if (after * 2 > before)
        fail_msg("%llu bytes and then %llu", (unsigned long long)before, (unsigned long long)after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_forward_nodes),
        cmocka_unit_test(less_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
