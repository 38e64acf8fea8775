/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/error.h"
#include "plan/partition/hypergraph.h"
#include "tests/bench/theses.h"
#include "tests/plan/nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Neurons 1024-1024-10 on 784 inputs, of whose weights one in `keep` stays, at random. */
static struct rb_hypergraph pruned(uint32_t keep, double *ret_parameters)
{
    static const uint32_t sizes[3] = {1024, 1024, 10}, vertices = 2058;
    struct rb_hypergraph graph = {.n_vertices = vertices};
    uint64_t state = 1;
    uint32_t pins = 0, first = 0;

    graph.work = rb_alloc((vertices + 1) * sizeof(double));
    graph.memory = rb_alloc((vertices + 1) * sizeof(double));
    graph.costs = rb_alloc((vertices + 1) * sizeof(double));
    graph.first_pin = rb_alloc((vertices + 1) * sizeof(uint32_t));
    graph.pins = rb_alloc((1024u * 1100u + vertices) * sizeof(uint32_t));
    *ret_parameters = 784.0 * 1024 / keep;
    for (uint32_t v = 0; v < 1024; v++)
        graph.work[v] = 3.0 * 784 / keep;
    for (int l = 0; l < 2; first += sizes[l++])
        for (uint32_t v = first; v < first + sizes[l]; v++) {
            graph.pins[pins++] = v;
            for (uint32_t u = first + sizes[l]; u < first + sizes[l] + sizes[l + 1]; u++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                if ((state >> 33) % keep)
                    continue;
                graph.pins[pins++] = u;
                graph.work[u] += 3;
                *ret_parameters += 1;
            }
            graph.costs[v] = 1;
            graph.first_pin[++graph.n_nets] = pins;
        }
    rb_hypergraph_index(&graph);
    return graph;
}

/* A random partition with the same number of vertices in each part. */
static double random_words(const struct rb_hypergraph *graph, uint32_t n, uint64_t seed)
{
    RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc((graph->n_vertices + 1) * sizeof *parts);

    for (uint32_t v = 0; v < graph->n_vertices; v++) {
        uint32_t other;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        other = (uint32_t)((seed >> 33) % (v + 1));
        parts[v] = parts[other];
        parts[other] = v % n;
    }
    return rb_hypergraph_volume(graph, parts, n);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

struct partition {
    double imbalance, words, median, random, split;
    uint64_t messages;
};

struct by_layer {
    double imbalance, words;
};

/* The best of ten partitions that keep the balance, and the median. */
static struct partition partition(const struct rb_hypergraph *graph, uint32_t n)
{
    enum { SEEDS = 10 };
    RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc((graph->n_vertices + 1) * sizeof *parts);
    struct partition best = {.words = INFINITY, .random = random_words(graph, n, n)};
    double words[SEEDS];

    for (int i = 0; i < SEEDS; i++) {
        struct rb_hypergraph_how how = {.parts = n, .epsilon = 0.03, .seed = (uint64_t)i + 1};

        rb_hypergraph_partition(graph, &how, parts);
        words[i] = rb_hypergraph_volume(graph, parts, n);
        if (words[i] < best.words) {
            best.words = words[i];
            best.imbalance = rb_hypergraph_imbalance(graph, parts, n);
            best.messages = rb_hypergraph_messages(graph, parts, n);
        }
    }
    qsort(words, SEEDS, sizeof *words, by_value);
    best.median = (words[4] + words[5]) / 2;
    for (uint32_t i = 0; i < graph->n_nets; i++)
        best.split += graph->costs[i] * (n - 1);
    return best;
}

static void print_partition(const char *name, double parameters, uint32_t n,
                            const struct partition *found, const struct by_layer *layers)
{
    double words = found->words;

    printf("| %s | %u | ", name, n);
    if (layers)
        printf("%.3f, %.1fk", layers->imbalance, layers->words / 1e3);
    printf(" | %.3f, %.1fk (median %.1fk), %llu | %.1fk | %.1fk | %.0f, %.0f | %.0f, %.0f |\n",
           found->imbalance, words / 1e3, found->median / 1e3, (unsigned long long)found->messages,
           found->random / 1e3, found->split / 1e3, floor(0.07 * parameters * n / words),
           floor(0.07 * parameters * (n - 1) / words), floor(parameters * n / words),
           floor(parameters * (n - 1) / words));
}

static void write_partition(const char *name, double parameters, uint32_t n,
                            const struct partition *found, const struct by_layer *layers)
{
    printf("{\"table\": \"hypergraph\", \"net\": \"%s\", \"parts\": %u, \"parameters\": %.0f, ",
           name, n, parameters);
    if (layers)
        printf("\"layerImbalance\": %.4f, \"layerWords\": %.0f, ", layers->imbalance,
               layers->words);
    printf("\"imbalance\": %.4f, \"words\": %.0f, \"random\": %.0f, \"split\": %.0f}\n",
           found->imbalance, found->words, found->random, found->split);
}

/* json: of a partition, otherwise Markdown; folder: where nets are written instead, or NULL. */
struct how {
    bool json;
    const char *folder;
};

static void show(const struct how *how, const char *name, const struct rb_hypergraph *graph,
                 double parameters, uint32_t n, const struct by_layer *layers)
{
    struct partition found = partition(graph, n);

    (how->json ? write_partition : print_partition)(name, parameters, n, &found, layers);
    fflush(stdout);
}

/* In the format of other partitioners (hMETIS): nets with their costs, vertices with their work. */
static void write_net(const char *folder, const char *name, const struct rb_hypergraph *graph)
{
    double all = 0;
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.hgr", folder, name);
    file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    fprintf(file, "%u %u 11\n", graph->n_nets, graph->n_vertices);
    for (uint32_t net = 0; net < graph->n_nets; net++) {
        fprintf(file, "%.0f", graph->costs[net]);
        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
            fprintf(file, " %u", graph->pins[p] + 1);
        fprintf(file, "\n");
    }
    for (uint32_t v = 0; v < graph->n_vertices; v++)
        all += graph->work[v];
    for (uint32_t v = 0; v < graph->n_vertices; v++) /* their sum fits 32 bits */
        fprintf(file, "%.0f\n", fmax(1, graph->work[v] / fmax(1, all / 1e9)));
    fclose(file);
}

static void show_net(const struct how *how, const struct net *net, uint32_t grain)
{
    struct rb_hypergraph graph;
    struct rb_hypergraph_bundle *bundles;

    rb_hypergraph_of_layers(net->layers, net->n, grain, &graph, &bundles);
    if (how->folder)
        write_net(how->folder, net->name, &graph);
    for (uint32_t n = 2; !how->folder && n <= 8; n *= 2) {
        RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc(graph.n_vertices * sizeof *parts);
        uint32_t places[NETS_LAYERS];
        struct by_layer layers = {rb_hypergraph_by_layer(net->layers, net->n, n, places), 0};

        for (uint32_t v = 0; v < graph.n_vertices; v++)
            parts[v] = places[bundles[v].layer];
        layers.words = rb_hypergraph_volume(&graph, parts, n);
        show(how, net->name, &graph, net->parameters, n, &layers);
    }
    free(bundles);
    rb_hypergraph_done(&graph);
}

void theses_hypergraph(bool json, const char *folder)
{
    const struct how how = {json, folder};
    struct rb_hypergraph graph;
    double parameters;
    struct net net;

    if (!folder && !json)
        printf(
            "| net | parts | by layer: imbalance, words | by filter: imbalance, words, messages | "
            "at random | all split | 93 %% at batch: server, ring | even at: server, ring |\n"
            "|---|---|---|---|---|---|---|---|\n");
    net_vgg16(&net);
    show_net(&how, &net, 64);
    net_vgg16_cifar(&net);
    show_net(&how, &net, 64);
    net_alexnet(&net, 0);
    show_net(&how, &net, 128);
    net_alexnet(&net, 1);
    show_net(&how, &net, 128);
    net_cifar_quick(&net);
    show_net(&how, &net, 0);
    net_inception(&net);
    show_net(&how, &net, 0);
    net_resnet18(&net);
    show_net(&how, &net, 64);
    graph = pruned(10, &parameters);
    if (folder)
        write_net(folder, "MLP, a tenth of the weights", &graph);
    for (uint32_t n = 2; !folder && n <= 8; n *= 2)
        show(&how, "MLP, a tenth of the weights", &graph, parameters, n, NULL);
    rb_hypergraph_done(&graph);
}
