/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are added, in parts: each part adds what it has, and what is not where the other is
 * is refused. */
#include "graph/split.h"

#include "graph/train.h"
#include "tests/graph/help.h"

static const char *conv(struct rb_writer *w, const char *name, const char *x, int64_t from)
{
    const char *weight = rb_writer_weight(w, RB_WRITER_NAME(w, "%s.weight", name), 4,
                                          (int64_t[]){4, from, 1, 1}, RB_INIT_UNIFORM, 1);

    x = rb_writer_node(w, "Conv", name, x, weight, NULL);
    rb_writer_ints(w, "kernel_shape", 2, (int64_t[]){1, 1});
    return x;
}

/* first > Relu > second; `op` of what the Relu and the second give > Relu > mean > dense > loss. */
static struct rb_graph *residual(const char *op)
{
    struct rb_loss_options loss = {.type = "cross_entropy", .targets = {.dtype = RB_I64}};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *x, *weight;

    rb_writer_init(&w, "net", 1);
    rb_writer_input(&w, "features", RB_F32, 4, (int64_t[]){-1, 3, 2, 2});
    x = rb_writer_node(&w, "Relu", "r", conv(&w, "first", "features", 3), NULL);
    x = rb_writer_node(&w, op, "sum", x, conv(&w, "second", x, 4), NULL);
    x = rb_writer_node(&w, "Relu", "s", x, NULL);
    x = rb_writer_node(&w, "GlobalAveragePool", "mean", x, NULL);
    x = rb_writer_node(&w, "Flatten", "flat", x, NULL);
    weight = rb_writer_weight(&w, "w", 2, (int64_t[]){2, 4}, RB_INIT_UNIFORM, 1);
    rb_writer_node(&w, "Gemm", "logits", x, weight, NULL);
    rb_writer_int(&w, "transB", 1);
    rb_writer_output(&w, "logits", 2, (int64_t[]){-1, 2});
    if (import_batch(&w, 5, &graph, &why) || rb_loss_attach(graph, &loss, &why) ||
        rb_fuse(graph, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    return graph;
}

/* Of two parts; `second`: the runs of the convolution that is added to the first one's Relu. */
static int split(const char *op, struct rb_split_run *second, int n, uint32_t mine,
                 struct rb_graph **ret, struct rb_why *why)
{
    struct rb_split_run first[] = {{0, 1, 0}, {1, 4, 1}}, dense[] = {{0, 2, 1}};
    struct rb_split_layer layers[] = {{first, 2}, {second, n}, {dense, 1}};
    struct rb_split how = {2, mine, layers, 3};

    return rb_graph_split(residual(op), &how, ret, why);
}

static const struct rb_node *find(const struct rb_graph *graph, enum rb_op op, int *ret_n)
{
    const struct rb_node *found = NULL;

    *ret_n = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->op == op) {
            found = graph->nodes[i];
            ++*ret_n;
        }
    return found;
}

/* The same places, in runs that are cut differently: a part adds its own filters, and what is
 * spread is what products read, the Relu and the mean of the sum. */
static void sums_stay_home(void **state)
{
    static const enum rb_op ops[] = {RB_OP_ADD, RB_OP_SUB, RB_OP_MUL};
    static const char *const names[] = {"Add", "Sub", "Mul"};

    for (size_t k = 0; k < RB_COUNT(ops); k++)
        for (uint32_t part = 0; part < 2; part++) {
            struct rb_split_run second[] = {{0, 1, 0}, {1, 2, 1}, {2, 4, 1}};
            struct rb_graph *graph = NULL;
            struct rb_why why = {0};
            const struct rb_node *sum;
            int n;

            if (split(names[k], second, 3, part, &graph, &why))
                fail_msg("%s", why.text);
            sum = find(graph, ops[k], &n);
            assert_int_equal(n, 1);
            assert_int_equal(sum->out[0]->type.dim[1], part ? 3 : 1);
            assert_int_equal(sum->in[0]->maker->op, RB_OP_RELU);
            assert_int_equal(sum->in[1]->maker->op, RB_OP_CONV);
            find(graph, RB_OP_SPREAD, &n);
            assert_int_equal(n, 2);
            rb_graph_free(graph);
        }
}

/* A plan that has them elsewhere is refused with the node, whatever part is asked for. */
static void strangers_are_refused(void **state)
{
    static const char *const names[] = {"Add", "Sub", "Mul"};

    for (size_t k = 0; k < RB_COUNT(names); k++)
        for (uint32_t part = 0; part < 2; part++) {
            struct rb_split_run second[] = {{0, 2, 0}, {2, 4, 1}};
            struct rb_graph *graph = NULL;
            struct rb_why why = {0};

            assert_int_equal(split(names[k], second, 2, part, &graph, &why), RB_EUNSUPPORTED);
            assert_null(graph);
            assert_non_null(strstr(why.text, "node 'sum'"));
            assert_non_null(strstr(why.text, "filters of several layers together"));
            assert_non_null(strstr(why.text, "not on the same devices"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_stay_home),
        cmocka_unit_test(strangers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
