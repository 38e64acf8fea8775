/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions against the tables of docs/theses.md, against every other partition where there are
 * few, and the bytes on the links against bytes that are counted one by one. */
#include "base/arena.h"
#include "base/error.h"
#include "base/sanitized.h"
#include "plan/partition/filters.h"
#include "plan/partition/hypergraph.h"
#include "tests/plan/nets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Random nets of up to four pins. */
static struct rb_hypergraph random_graph(uint32_t vertices, uint32_t nets, uint64_t seed)
{
    struct rb_hypergraph graph = {.n_vertices = vertices};
    uint32_t pins = 0;

    graph.work = rb_alloc((vertices + 1) * sizeof(double));
    graph.memory = rb_alloc((vertices + 1) * sizeof(double));
    graph.costs = rb_alloc((nets + 1) * sizeof(double));
    graph.first_pin = rb_alloc((nets + 1) * sizeof(uint32_t));
    graph.pins = rb_alloc((4 * nets + 1) * sizeof(uint32_t));
    for (uint32_t v = 0; v < vertices; v++) {
        graph.work[v] = 1 + (double)(next_random(&seed) % 3);
        graph.memory[v] = 1 + (double)(next_random(&seed) % 5);
    }
    for (uint32_t n = 0; n < nets; n++) {
        uint32_t first = pins;

        graph.costs[n] = 1 + (double)(next_random(&seed) % 9);
        for (int i = 0; i < 4; i++) {
            uint32_t v = (uint32_t)(next_random(&seed) % vertices);
            int twice = 0;

            for (uint32_t p = first; p < pins; p++)
                twice |= graph.pins[p] == v;
            if (!twice)
                graph.pins[pins++] = v;
        }
        graph.first_pin[++graph.n_nets] = pins;
    }
    rb_hypergraph_index(&graph);
    return graph;
}

/* With ten vertices every bisection is tried: the partition found is the best, or nearly. */
static void test_small(void **state)
{
    enum { VERTICES = 10 };
    double found_all = 0, best_all = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct rb_hypergraph graph = random_graph(VERTICES, 14, seed);
        struct rb_hypergraph_how how = {.parts = 2, .epsilon = 0.25, .seed = seed};
        uint32_t parts[VERTICES];
        double best = INFINITY;

        for (uint32_t word = 0; word < 1u << VERTICES; word++) {
            for (int v = 0; v < VERTICES; v++)
                parts[v] = word >> v & 1;
            if (rb_hypergraph_imbalance(&graph, parts, 2) <= 0.25)
                best = fmin(best, rb_hypergraph_volume(&graph, parts, 2));
        }
        rb_hypergraph_partition(&graph, &how, parts);
        assert_true(rb_hypergraph_imbalance(&graph, parts, 2) <= 0.25 + 1e-9);
        assert_true(rb_hypergraph_volume(&graph, parts, 2) >= best - 1e-9);
        found_all += rb_hypergraph_volume(&graph, parts, 2);
        best_all += best;
        rb_hypergraph_done(&graph);
    }
    print_message("50 small graphs: %.0f words, the best are %.0f\n", found_all, best_all);
    assert_true(found_all <= 1.02 * best_all);
}

/* Words that go over links when each maker sends what it makes to each other part that reads it,
 * counted part by part and net by net. */
static void test_volume(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 8; n *= 2) {
        struct rb_hypergraph graph = random_graph(60, 90, n);
        struct rb_hypergraph_how how = {.parts = n, .epsilon = 0.1, .seed = 1};
        uint32_t parts[60], again[60];
        double words = 0;
        uint64_t messages = 0;

        rb_hypergraph_partition(&graph, &how, parts);
        rb_hypergraph_partition(&graph, &how, again);
        assert_memory_equal(parts, again, sizeof parts);
        assert_true(rb_hypergraph_imbalance(&graph, parts, n) <= 0.1 + 1e-9);
        for (uint32_t net = 0; net < graph.n_nets; net++)
            for (uint32_t to = 0; to < n; to++) {
                uint32_t first = graph.first_pin[net], owner = parts[graph.pins[first]];
                int reads = 0;

                for (uint32_t p = first; p < graph.first_pin[net + 1]; p++)
                    reads |= parts[graph.pins[p]] == to;
                if (to != owner && reads) {
                    words += graph.costs[net];
                    messages++;
                }
            }
        assert_true(rb_hypergraph_volume(&graph, parts, n) == words);
        assert_int_equal(rb_hypergraph_messages(&graph, parts, n), messages);
        rb_hypergraph_done(&graph);
    }
}

/* Both weights at once: no part has more memory than it may have. */
static void test_memory(void **state)
{
    struct rb_hypergraph graph = random_graph(80, 120, 5);
    struct rb_hypergraph_how how = {.parts = 4, .epsilon = 0.2, .memory_slack = 0.2, .seed = 3};
    uint32_t parts[80];
    double *work = graph.work;

    (void)state;
    rb_hypergraph_partition(&graph, &how, parts);
    assert_true(rb_hypergraph_imbalance(&graph, parts, 4) <= 0.2 + 1e-9);
    graph.work = graph.memory;
    assert_true(rb_hypergraph_imbalance(&graph, parts, 4) <= 0.2 + 1e-9);
    graph.work = work;
    rb_hypergraph_done(&graph);
}

/* ---- Layers that are added -------------------------------------------------------------------*/

/* Convolutions a, b and c of two filters each, s = a + c, and a reader of four: a is read by b, b
 * by c, s by the reader. */
static const struct rb_hypergraph_layer added[] = {
    {.filters = 2, .work = 10, .memory = 1, .words = 7},
    {.filters = 2, .work = 20, .memory = 2, .words = 5, .inputs = {0}, .n_inputs = 1},
    {.filters = 2, .work = 30, .memory = 4, .words = 99, .inputs = {1}, .n_inputs = 1},
    {.filters = 2, .words = 3, .joins = {2, 0}, .n_joins = 2},
    {.filters = 4, .groups = 2, .work = 40, .memory = 8, .inputs = {3}, .n_inputs = 1},
};

/* Filter f of a and of c are one vertex; no part sends what c makes, and a and s are a net each. */
static void test_joined(void **state)
{
    static const uint32_t roots[] = {0, 1, 0, 0, 4}, layers[] = {0, 0, 1, 1, 3, 3};
    static const double costs[] = {7, 7, 5, 5, 3, 3}, work[] = {40, 40, 20, 20, 40, 40, 40, 40};
    /* a0 b0 b1 | a1 b0 b1 | b0 a0 a1 | b1 a0 a1 | s0 d0 d1 | s1 d2 d3: the reader has groups */
    static const uint32_t pins[] = {0, 2, 3, 1, 2, 3, 2, 0, 1, 3, 0, 1, 0, 4, 5, 1, 6, 7};
    RB_CLEANUP(rb_freep) struct rb_hypergraph_bundle *bundles = NULL;
    struct rb_hypergraph graph;
    uint32_t found[5], parts[8] = {0, 1, 0, 0, 1, 0, 1, 1};
    bool borders[2] = {false, false};

    (void)state;
    rb_hypergraph_roots(added, 5, found);
    assert_memory_equal(found, roots, sizeof roots);
    rb_hypergraph_borders(added, 5, 0, borders); /* borders of the layer that reads the sum */
    assert_true(borders[1]);
    rb_hypergraph_of_layers(added, 5, 0, &graph, &bundles);
    assert_int_equal(graph.n_vertices, 8);
    assert_int_equal(graph.n_nets, 6);
    for (uint32_t v = 0; v < 8; v++) {
        assert_true(graph.work[v] == work[v]);
        assert_true(graph.memory[v] == (v < 2 ? 5 : v < 4 ? 2 : 8));
    }
    for (uint32_t net = 0; net < 6; net++) {
        assert_true(graph.costs[net] == costs[net]);
        assert_int_equal(graph.layers[net], layers[net]);
        assert_int_equal(graph.first_pin[net + 1], 3 * (net + 1));
    }
    assert_memory_equal(graph.pins, pins, sizeof pins);
    /* a1 goes to part 0, b0 and b1 to part 1, s0 to part 1; s1 is already where it is read */
    assert_true(rb_hypergraph_volume(&graph, parts, 2) == 7 + 5 + 5 + 3);
    rb_hypergraph_done(&graph);
}

/* A sum that is read by the maker of its own summand: y = x + conv(x) and z = y + conv(y) are made
 * of one vertex a filter, which is one pin of each net. */
static void test_joined_readers(void **state)
{
    static const struct rb_hypergraph_layer layers[] = {
        {.filters = 3, .work = 1, .words = 1},
        {.filters = 3, .work = 1, .inputs = {0}, .n_inputs = 1},
        {.filters = 3, .words = 1, .joins = {0, 1}, .n_joins = 2},
        {.filters = 3, .work = 1, .inputs = {2}, .n_inputs = 1},
        {.filters = 3, .words = 1, .joins = {2, 3}, .n_joins = 2},
        {.filters = 1, .work = 1, .inputs = {4}, .n_inputs = 1},
    };
    struct rb_hypergraph graph;

    (void)state;
    rb_hypergraph_of_layers(layers, 6, 0, &graph, NULL);
    assert_int_equal(graph.n_vertices, 4);
    assert_int_equal(graph.n_nets, 9);
    for (uint32_t net = 0; net < 9; net++) {
        assert_int_equal(graph.first_pin[net + 1] - graph.first_pin[net], net < 6 ? 3 : 2);
        assert_int_equal(graph.pins[graph.first_pin[net]], net % 3); /* its maker */
        for (uint32_t p = graph.first_pin[net]; p < graph.first_pin[net + 1]; p++)
            for (uint32_t q = p + 1; q < graph.first_pin[net + 1]; q++)
                assert_int_not_equal(graph.pins[p], graph.pins[q]);
    }
    rb_hypergraph_done(&graph);
}

/* Also by layer, joined layers are in one part, and a part is contiguous. */
static void test_joined_by_layer(void **state)
{
    uint32_t parts[NETS_LAYERS], roots[NETS_LAYERS];
    struct net net;

    (void)state;
    net_resnet18(&net);
    assert_true(net.parameters == 11689512);
    rb_hypergraph_roots(net.layers, net.n, roots);
    for (uint32_t n = 2; n <= 8; n *= 2) {
        rb_hypergraph_by_layer(net.layers, net.n, n, parts);
        assert_true(parts[net.n - 1] > 0);
        for (uint32_t l = 0; l < net.n; l++) {
            assert_int_equal(parts[l], parts[roots[l]]);
            assert_true(!l || parts[l] == parts[l - 1] || parts[l] == parts[l - 1] + 1);
        }
    }
}

/* ---- Steps -----------------------------------------------------------------------------------*/

/* A step of a net: what goes over the links is 8 bytes a word and sample, and no more. */
static void check_step(const struct net *net)
{
    RB_CLEANUP(rb_freep) struct rb_hypergraph_bundle *bundles = NULL;
    RB_CLEANUP(rb_freep) uint32_t *parts = NULL;
    struct rb_hypergraph_how how = {.parts = 4, .epsilon = 0.03, .seed = 1};
    struct rb_filters_how step = {.n_parts = 4, .microbatches = 3, .samples = 5, .microbatch = 2};
    struct rb_hypergraph graph;
    struct rb_pipeline_step found;
    struct rb_why why;

    rb_hypergraph_of_layers(net->layers, net->n, 32, &graph, &bundles);
    parts = rb_alloc(graph.n_vertices * sizeof *parts);
    rb_hypergraph_partition(&graph, &how, parts);
    step.layers = net->layers;
    step.n_layers = net->n;
    step.graph = &graph;
    step.bundles = bundles;
    step.parts = parts;
    if (rb_filters_step(&step, &found, &why))
        fail_msg("%s", why.text);
    assert_true(rb_hypergraph_volume(&graph, parts, 4) > 0);
    assert_true(found.all_sent == 8.0 * 3 * 5 * rb_hypergraph_volume(&graph, parts, 4));
    assert_true(found.seconds >= 3 * 2 / 4.0 && found.seconds <= 3 * 2);
    rb_simulate_free(found.simulate);
    step.together = 2; /* and one that is left over: the same words */
    if (rb_filters_step(&step, &found, &why))
        fail_msg("%s", why.text);
    assert_true(found.all_sent == 8.0 * 3 * 5 * rb_hypergraph_volume(&graph, parts, 4));
    rb_simulate_free(found.simulate);
    memset(parts, 0, graph.n_vertices * sizeof *parts); /* all on one part: as without a split */
    if (rb_filters_step(&step, &found, &why))
        fail_msg("%s", why.text);
    assert_true(found.all_sent == 0 && fabs(found.seconds - 6) < 1e-9);
    rb_simulate_free(found.simulate);
    rb_hypergraph_done(&graph);
}

static double seconds_of(const struct rb_filters_how *step)
{
    struct rb_pipeline_step found;
    struct rb_why why;

    if (rb_filters_step(step, &found, &why))
        fail_msg("%s", why.text);
    rb_simulate_free(found.simulate);
    return found.seconds;
}

/* Where only the reader of the sum is elsewhere, nothing runs beside anything else: the reader
 * waits for the sum, and the sum's maker waits for its gradient.  Groups of microbatches wait for
 * each other in the same way. */
static void test_joined_step(void **state)
{
    RB_CLEANUP(rb_freep) struct rb_hypergraph_bundle *bundles = NULL;
    static const uint32_t parts[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct rb_hypergraph graph;
    struct rb_filters_how step = {.layers = added,
                                  .n_layers = 5,
                                  .graph = &graph,
                                  .parts = parts,
                                  .n_parts = 2,
                                  .microbatches = 1,
                                  .samples = 5,
                                  .microbatch = 2,
                                  .latency = 0.25};
    struct rb_pipeline_step found;
    struct rb_why why;

    (void)state;
    rb_hypergraph_of_layers(added, 5, 0, &graph, &bundles);
    step.bundles = bundles;
    if (rb_filters_step(&step, &found, &why))
        fail_msg("%s", why.text);
    assert_true(fabs(found.seconds - (2 + 2 * 0.25)) < 1e-9);
    assert_true(found.all_sent == 8.0 * 5 * (3 + 3));
    rb_simulate_free(found.simulate);
    step.microbatches = 3;
    assert_true(fabs(seconds_of(&step) - 3 * (2 + 2 * 0.25)) < 1e-9);
    step.together = 2;
    assert_true(fabs(seconds_of(&step) - (3 * 2 + 2 * 2 * 0.25)) < 1e-9);
    rb_hypergraph_done(&graph);
}

static void test_step(void **state)
{
    struct net net;

    (void)state;
    net_inception(&net);
    check_step(&net);
    net_resnet18(&net);
    check_step(&net);
}

/* ---- Nets -----------------------------------------------------------------------------------*/

struct row {
    uint32_t parts;
    double by_layer, by_layer_words; /* imbalance, words a sample */
    double words;                    /* at most, by filter */
    double split;                    /* with every layer split among all */
};

/* Words where each layer is in the part of `parts`. */
static double layer_words(const struct net *net, const struct rb_hypergraph_bundle *bundles,
                          const uint32_t *parts, const struct rb_hypergraph *graph, uint32_t n)
{
    RB_CLEANUP(rb_freep) uint32_t *by_vertex = rb_alloc(graph->n_vertices * sizeof *by_vertex);

    (void)net;
    for (uint32_t v = 0; v < graph->n_vertices; v++)
        by_vertex[v] = parts[bundles[v].layer];
    return rb_hypergraph_volume(graph, by_vertex, n);
}

static void check(const struct net *net, uint32_t grain, const struct row *row)
{
    struct rb_hypergraph_how how = {.parts = row->parts, .epsilon = 0.03, .seed = 1, .tries = 10};
    RB_CLEANUP(rb_freep) struct rb_hypergraph_bundle *bundles = NULL;
    RB_CLEANUP(rb_freep) uint32_t *parts = NULL;
    uint32_t by_layer[NETS_LAYERS];
    struct rb_hypergraph graph;
    double imbalance, words, split = 0;
    clock_t start = clock(); /* of this process alone */

    rb_hypergraph_of_layers(net->layers, net->n, grain, &graph, &bundles);
    parts = rb_alloc(graph.n_vertices * sizeof *parts);
    rb_hypergraph_partition(&graph, &how, parts);
    imbalance = rb_hypergraph_by_layer(net->layers, net->n, row->parts, by_layer);
    words = layer_words(net, bundles, by_layer, &graph, row->parts);
    for (uint32_t l = 0; l + 1 < net->n; l++)
        split += net->layers[l].words * net->layers[l].filters * (row->parts - 1);
    print_message("%s, %u parts: by layer %.3f, %.1fk; by filter %.3f, %.1fk; all split %.0fk "
                  "(%.2f s)\n",
                  net->name, row->parts, imbalance, words / 1e3,
                  rb_hypergraph_imbalance(&graph, parts, row->parts),
                  rb_hypergraph_volume(&graph, parts, row->parts) / 1e3, split / 1e3,
                  (double)(clock() - start) / CLOCKS_PER_SEC);
    assert_true(fabs(imbalance - row->by_layer) < 0.0006);
    assert_true(fabs(words - row->by_layer_words) < 0.006 * words);
    assert_true(fabs(split - row->split) < 0.004 * split);
    assert_true(rb_hypergraph_imbalance(&graph, parts, row->parts) <= 0.03 + 1e-9);
    assert_true(rb_hypergraph_volume(&graph, parts, row->parts) <= row->words);
    rb_hypergraph_done(&graph);
}

/* Words by filter: no more than the best cut that splits only layers where it cuts the chain. */
static void test_nets(void **state)
{
    struct net net;

    (void)state;
    net_vgg16(&net);
    assert_true(net.parameters == 138357544);
    check(&net, 64, &(struct row){2, 0.032, 803e3, 807e3, 8965e3});
    check(&net, 64, &(struct row){4, 0.196, 2810e3, 3243e3, 26894e3});
    if (RB_SANITIZED) /* the other nets test nothing that this one does not */
        return;
    net_vgg16_cifar(&net);
    check(&net, 64, &(struct row){2, 0.026, 16.4e3, 16.45e3, 184e3});
    check(&net, 64, &(struct row){4, 0.203, 57.3e3, 65.5e3, 551e3});
    net_alexnet(&net, 0);
    check(&net, 64, &(struct row){2, 0.025, 43.3e3, 43.35e3, 260e3});
    check(&net, 128, &(struct row){4, 0.578, 178e3, 219e3, 781e3});
    net_cifar_quick(&net);
    check(&net, 0, &(struct row){2, 0.459, 2.048e3, 9.35e3, 11.3e3});
}

/* A grouped AlexNet has two halves that meet in the third convolution only. */
static void test_grouped(void **state)
{
    struct rb_hypergraph_how how = {.parts = 2, .epsilon = 0.03, .seed = 1, .tries = 10};
    struct rb_hypergraph graph;
    uint32_t *parts;
    struct net net;

    (void)state;
    net_alexnet(&net, 1);
    assert_true(net.parameters == 60965224);
    rb_hypergraph_of_layers(net.layers, net.n, 32, &graph, NULL);
    parts = rb_alloc(graph.n_vertices * sizeof *parts);
    rb_hypergraph_partition(&graph, &how, parts);
    print_message("AlexNet, grouped, 2 parts: %.3f, %.1fk\n",
                  rb_hypergraph_imbalance(&graph, parts, 2),
                  rb_hypergraph_volume(&graph, parts, 2) / 1e3);
    assert_true(rb_hypergraph_imbalance(&graph, parts, 2) <= 0.03 + 1e-9);
    rb_hypergraph_done(&graph);
    net_inception(&net);
    rb_hypergraph_of_layers(net.layers, net.n, 0, &graph, NULL);
    parts = rb_realloc(parts, graph.n_vertices * sizeof *parts);
    rb_hypergraph_partition(&graph, &how, parts);
    print_message("Inception 3a, 2 parts: %.3f, %.1fk\n", rb_hypergraph_imbalance(&graph, parts, 2),
                  rb_hypergraph_volume(&graph, parts, 2) / 1e3);
    assert_true(rb_hypergraph_imbalance(&graph, parts, 2) <= 0.03 + 1e-9);
    rb_hypergraph_done(&graph);
    free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),          cmocka_unit_test(test_volume),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_joined),
        cmocka_unit_test(test_joined_readers), cmocka_unit_test(test_joined_by_layer),
        cmocka_unit_test(test_step),           cmocka_unit_test(test_joined_step),
        cmocka_unit_test(test_nets),           cmocka_unit_test(test_grouped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
