/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are added, in parts: each part adds what it has, and a plan is refused where the
 * summands are not on the same parts. */
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

/* first > Relu > second; `op` of the outputs of the Relu and of second > Relu > mean > dense >
 * loss. */
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

/* Split into two parts; `second`: the runs of the convolution that is added to the first one's
 * Relu. */
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

/* The same places, in runs that are cut differently: a part adds its own filters, and only what
 * products read is spread, the Relu and the mean of the sum. */
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

/* A plan that has the summands elsewhere is refused with the node, whichever part is asked for. */
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

static const char *dense(struct rb_writer *w, const char *name, const char *x, int64_t from,
                         int64_t to)
{
    const char *weight = rb_writer_weight(w, RB_WRITER_NAME(w, "%s.weight", name), 2,
                                          (int64_t[]){to, from}, RB_INIT_UNIFORM, 1);

    x = rb_writer_node(w, "Gemm", name, x, weight, NULL);
    rb_writer_int(w, "transB", 1);
    return x;
}

/* Two layers, concatenated, and a third one that is added to them; with `behind` a product reads
 * the sum. */
static struct rb_graph *strangers(bool behind)
{
    struct rb_loss_options loss = {.type = "cross_entropy", .targets = {.dtype = RB_I64}};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *x, *a, *b;

    rb_writer_init(&w, "net", 1);
    rb_writer_input(&w, "features", RB_F32, 2, (int64_t[]){-1, 6});
    a = dense(&w, "a", "features", 6, 2);
    b = dense(&w, "b", "features", 6, 2);
    x = rb_writer_node(&w, "Concat", "both", a, b, NULL);
    rb_writer_int(&w, "axis", 1);
    x = rb_writer_node(&w, "Add", "sum", x, dense(&w, "c", "features", 6, 4), NULL);
    if (behind)
        x = dense(&w, "d", x, 4, 4);
    rb_writer_output(&w, x, 2, (int64_t[]){-1, 4});
    if (import_batch(&w, 5, &graph, &why) || rb_loss_attach(graph, &loss, &why) ||
        rb_fuse(graph, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    return graph;
}

/* A value that only the loss reads is in the last part, and everything that it is made of goes
 * there, once, even where places are the same by chance: the partition has no sum there.  A product
 * cannot read such a value. */
static void strangers_are_last(void **state)
{
    static const uint32_t places[][2] = {{0, 1}, {1, 0}, {0, 0}};

    for (size_t k = 0; k < RB_COUNT(places); k++)
        for (uint32_t part = 0; part < 2; part++)
            for (int behind = 0; behind < 2; behind++) {
                struct rb_split_run ab[] = {{0, 1, places[k][0]}, {1, 2, places[k][1]}};
                struct rb_split_run c[] = {{0, 1, 0}, {1, 2, k < 2}, {2, 4, 0}}, d[] = {{0, 4, 1}};
                struct rb_split_layer layers[] = {{ab, 2}, {ab, 2}, {c, 3}, {d, 1}};
                struct rb_split how = {2, part, layers, 3 + behind};
                struct rb_graph *graph = NULL;
                struct rb_why why = {0};
                const struct rb_node *sum;
                int err = rb_graph_split(strangers(behind), &how, &graph, &why), n;

                assert_int_equal(err, behind ? RB_EUNSUPPORTED : 0);
                if (behind) {
                    assert_non_null(strstr(why.text, "node 'sum'"));
                    continue;
                }
                sum = find(graph, RB_OP_ADD, &n);
                assert_int_equal(n, part);
                assert_true(!sum || sum->out[0]->type.dim[1] == 4);
                find(graph, RB_OP_SPREAD, &n);
                assert_true(n > 0 && n <= 2);
                rb_graph_free(graph);
            }
}

/* A layer that is read pooled, and twice more through views of it, is sent once. */
static void views_are_one(void **state)
{
    struct rb_loss_options loss = {.type = "cross_entropy", .targets = {.dtype = RB_I64}};

    for (uint32_t part = 0; part < 2; part++) {
        struct rb_split_run run[] = {{0, 2, 0}, {2, 4, 1}}, logits[] = {{0, 4, 1}};
        struct rb_split_layer layers[] = {{run, 2}, {run, 2}, {logits, 1}, {logits, 1}};
        struct rb_split how = {2, part, layers, 4};
        struct rb_graph *graph = NULL, *whole = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        const char *x, *y, *z;
        int n;

        rb_writer_init(&w, "net", 1);
        rb_writer_input(&w, "features", RB_F32, 4, (int64_t[]){-1, 3, 2, 2});
        x = rb_writer_node(&w, "Relu", "r", conv(&w, "first", "features", 3), NULL);
        y = rb_writer_node(&w, "Flatten", "flat1", conv(&w, "second", x, 4), NULL);
        y = dense(&w, "d1", y, 16, 4);
        z = dense(&w, "d2", rb_writer_node(&w, "Flatten", "flat2", x, NULL), 16, 4);
        rb_writer_output(&w, rb_writer_node(&w, "Add", "sum", y, z, NULL), 2, (int64_t[]){-1, 4});
        if (import_batch(&w, 5, &whole, &why) || rb_loss_attach(whole, &loss, &why) ||
            rb_fuse(whole, &why) || rb_graph_split(whole, &how, &graph, &why))
            fail_msg("%s", why.text);
        rb_writer_done(&w);
        find(graph, RB_OP_SPREAD, &n);
        assert_int_equal(n, 2); /* one of the Relu, one of the second convolution */
        rb_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_stay_home),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(strangers_are_last),
        cmocka_unit_test(views_are_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
