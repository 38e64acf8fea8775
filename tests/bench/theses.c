/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of docs/theses.md that the planner's own parts make: nothing here is timed.
 *
 * usage: theses [balance|pipeline|hypergraph] */
#include "base/arena.h"
#include "base/error.h"
#include "plan/partition/balance.h"
#include "plan/partition/hypergraph.h"
#include "plan/partition/stages.h"
#include "plan/partition/versions.h"
#include "plan/simulate/pipeline.h"
#include "tests/plan/nets.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Balance ---------------------------------------------------------------------------------*/

static void print_shares(void)
{
    static const double speeds[4] = {1, 1, 0.5, 0.25};
    static const uint32_t totals[] = {4, 8, 16, 32, 44, 64, 128, 256, 1024};

    printf(
        "| microbatches | even: time over ideal, variation | by speed: shares | time over ideal, "
        "variation |\n|---|---|---|---|\n");
    for (size_t i = 0; i < RB_COUNT(totals); i++) {
        uint32_t even[4], shares[4];

        for (uint32_t r = 0; r < 4; r++)
            even[r] = totals[i] / 4 + (r < totals[i] % 4);
        rb_balance_shares(totals[i], speeds, 4, shares);
        printf("| %u | %.3f, %.2f | %u %u %u %u | %.3f, %.3f |\n", totals[i],
               rb_balance_excess(even, speeds, 4), rb_balance_variation(even, speeds, 4), shares[0],
               shares[1], shares[2], shares[3], rb_balance_excess(shares, speeds, 4),
               rb_balance_variation(shares, speeds, 4));
    }
    printf("\n");
}

/* Weights and biases of VGG-16, as they are declared. */
static size_t list_variables(const struct net *net, double *ret_sizes)
{
    size_t n = 0;

    for (uint32_t l = 0; l < net->n; l++) {
        ret_sizes[n++] = net->layers[l].filters * (net->layers[l].memory / 4 - 1);
        ret_sizes[n++] = net->layers[l].filters;
    }
    return n;
}

static void print_placements(void)
{
    static const char *const names[] = {"greedy, largest first", "greedy, as declared",
                                        "round robin"};
    static const uint32_t devices[] = {2, 3, 4, 8, 16};
    double sizes[2 * NETS_LAYERS];
    struct net net;
    size_t n;

    net_vgg16(&net);
    n = list_variables(&net, sizes);
    printf("| placement of VGG-16 | n=2 | n=3 | n=4 | n=8 | n=16 |\n|---|---|---|---|---|---|\n");
    for (int order = 0; order < 3; order++) {
        printf("| %s |", names[order]);
        for (size_t i = 0; i < RB_COUNT(devices); i++)
            printf(" %.3f |", rb_balance_whole(sizes, n, devices[i], (enum rb_balance_order)order));
        printf("\n");
    }
    printf("| equal ranges |");
    for (size_t i = 0; i < RB_COUNT(devices); i++)
        printf(" %.3f |", rb_balance_ranges((uint64_t)net.parameters, 16, devices[i]));
    printf("\n\n| computing over communicating (equal ranges) | 0 | 0.1 | 0.5 | 1 | 2 | 5 | 10 |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (int order = 0; order < 3; order += 2) {
        static const double ratios[] = {0, 0.1, 0.5, 1, 2, 5, 10};
        double load = rb_balance_whole(sizes, n, 4, (enum rb_balance_order)order);

        printf("| step over equal ranges, n=4, %s |", names[order]);
        for (size_t i = 0; i < RB_COUNT(ratios); i++)
            printf(" %.2f |", (ratios[i] + load) / (ratios[i] + 1));
        printf("\n");
    }
    printf("\n");
}

/* ---- Pipelines -------------------------------------------------------------------------------*/

static void print_versions(void)
{
    static const uint32_t sizes[] = {2, 3, 4, 8};

    printf("| stages | backward/forward time | steps ahead by stage (forward/backward), counted | "
           "the paper's formula | busy |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < RB_COUNT(sizes); i++)
        for (int ratio = 1; ratio <= 3; ratio++) {
            double forward[8], backward[8], busy;
            struct rb_versions found[8];

            for (uint32_t k = 0; k < sizes[i]; k++) {
                forward[k] = 1;
                backward[k] = ratio;
            }
            rb_versions_count(forward, backward, sizes[i], found, &busy);
            printf("| %u | %d |", sizes[i], ratio);
            for (uint32_t k = 0; k < sizes[i]; k++)
                printf(" %u/%u", found[k].forward, found[k].backward);
            printf(" |");
            for (uint32_t k = 0; k < sizes[i]; k++)
                printf(" %u/%u", rb_versions_paper(sizes[i], k).forward,
                       rb_versions_paper(sizes[i], k).backward);
            printf(" | %.2f |\n", busy);
        }
    printf("\n");
}

/* What the law needs of a net: a device of so many operations a second, a batch, n devices. */
struct law {
    struct rb_stages_layer layers[NETS_LAYERS];
    uint32_t n_layers, devices;
    double one, parameters; /* seconds of a minibatch on one device, bytes */
};

static void open_law(const struct net *net, double flops, double batch, uint32_t devices,
                     struct law *law)
{
    *law = (struct law){.n_layers = net->n, .devices = devices, .parameters = 4 * net->parameters};
    for (uint32_t l = 0; l < net->n; l++) {
        const struct rb_hypergraph_layer *layer = &net->layers[l];

        law->layers[l] = (struct rb_stages_layer){
            .seconds = 2 * layer->work * layer->filters * batch / flops,
            .activations = 4 * layer->words * layer->filters * batch,
        };
        law->one += law->layers[l].seconds;
    }
}

/* Minibatches a second of the pipeline when it is full, played for some of them. */
static double play(const struct law *law, double bandwidth, double *ret_balance)
{
    struct rb_stages_part parts[8];
    struct rb_pipeline_stage stages[8] = {{0}};
    struct rb_pipeline_step step[2];
    double slowest;
    uint32_t n;

    slowest = rb_stages_cut(law->layers, law->n_layers, law->devices, bandwidth, true, parts, &n);
    for (uint32_t k = 0; k < n; k++) {
        stages[k].forward = parts[k].seconds / 3;
        stages[k].backward = parts[k].seconds * 2 / 3;
        stages[k].activations = law->layers[parts[k].first + parts[k].count - 1].activations;
        stages[k].devices = 1;
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct rb_pipeline_how how = {stages, n, 40 + 40 * i, bandwidth, 0};

        if (rb_pipeline_run(&how, &step[i], NULL))
            exit(1);
        rb_simulate_free(step[i].simulate);
    }
    *ret_balance = law->one / law->devices / slowest;
    return 40 / (step[1].seconds - step[0].seconds);
}

/* Speed-up over data parallelism whose sums are not hidden: a ring, or a parameter server behind
 * one link.  Both do `devices` minibatches at a time. */
static double speed_up(const struct law *law, double bandwidth, bool server, double *ret_balance)
{
    double n = law->devices;
    double sum = (server ? 2 * n : 2 * (n - 1) / n) * law->parameters / bandwidth;

    return play(law, bandwidth, ret_balance) * (law->one + sum) / n;
}

/* Bytes a second at which the pipeline is `wanted` times as fast; 0: at none. */
static double rate_of(const struct law *law, double wanted, bool server)
{
    double low = 1e3, high = 1e12, balance;

    for (double rate = high; rate >= low; rate /= 1.3)
        if (speed_up(law, rate, server, &balance) >= wanted) {
            low = rate;
            high = rate * 1.3;
            for (int i = 0; i < 40; i++) {
                double middle = sqrt(low * high);

                if (speed_up(law, middle, server, &balance) >= wanted)
                    low = middle;
                else
                    high = middle;
            }
            return low;
        }
    return 0;
}

static void print_rates(double ring, double server)
{
    if (ring > 0)
        printf(" %.3g,", ring / 1e6);
    else
        printf(" none,");
    if (server > 0)
        printf(" %.3g MB/s |", server / 1e6);
    else
        printf(" none |");
}

static void print_law(void)
{
    static const double rates[] = {1e8, 3e8, 1e9, 3e9, 1e10};
    struct net nets[4];

    net_vgg16(&nets[0]);
    net_vgg16_cifar(&nets[1]);
    net_alexnet(&nets[2], 0);
    net_dense(&nets[3]);
    printf(
        "| net, batch 128 | 0.1 GB/s: ring, server (balance) | 0.3 | 1 | 3 | 10 | 8.91 at: ring, "
        "server | 15.77 at: ring, server |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < RB_COUNT(nets); i++) {
        struct law law;

        open_law(&nets[i], 1e13, 128, 4, &law);
        printf("| %s |", nets[i].name);
        for (size_t r = 0; r < RB_COUNT(rates); r++) {
            double balance, ring = speed_up(&law, rates[r], false, &balance);

            printf(" %.2f, %.2f (%.2f) |", ring, speed_up(&law, rates[r], true, &balance), balance);
        }
        for (int k = 0; k < 2; k++)
            print_rates(rate_of(&law, k ? 15.77 : 8.91, false),
                        rate_of(&law, k ? 15.77 : 8.91, true));
        printf("\n");
    }
    printf("\n");
}

/* ---- Hypergraphs -----------------------------------------------------------------------------*/

/* Neurons 1024-1024-10 on 784 inputs, of whose weights one in `keep` is left, by chance. */
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

/* Everything at random, the same number of vertices a part. */
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

/* Ten partitions; the best of those that keep the balance, and the median. */
static void print_partition(const char *name, const struct rb_hypergraph *graph, double parameters,
                            uint32_t n, const char *by_layer)
{
    enum { SEEDS = 10 };
    RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc((graph->n_vertices + 1) * sizeof *parts);
    double words[SEEDS], best = INFINITY, imbalance = 0, split = 0;
    uint64_t messages = 0;

    for (int i = 0; i < SEEDS; i++) {
        struct rb_hypergraph_how how = {.parts = n, .epsilon = 0.03, .seed = (uint64_t)i + 1};

        rb_hypergraph_partition(graph, &how, parts);
        words[i] = rb_hypergraph_volume(graph, parts, n);
        if (words[i] < best) {
            best = words[i];
            imbalance = rb_hypergraph_imbalance(graph, parts, n);
            messages = rb_hypergraph_messages(graph, parts, n);
        }
    }
    qsort(words, SEEDS, sizeof *words, by_value);
    for (uint32_t i = 0; i < graph->n_nets; i++)
        split += graph->costs[i] * (n - 1);
    printf("| %s | %u | %s | %.3f, %.1fk (median %.1fk), %llu | %.1fk | %.1fk | %.0f, %.0f | %.0f, "
           "%.0f |\n",
           name, n, by_layer, imbalance, best / 1e3, (words[4] + words[5]) / 2e3,
           (unsigned long long)messages, random_words(graph, n, n) / 1e3, split / 1e3,
           floor(0.07 * parameters * n / best), floor(0.07 * parameters * (n - 1) / best),
           floor(parameters * n / best), floor(parameters * (n - 1) / best));
    fflush(stdout);
}

/* As other partitioners read it (hMETIS): nets with their costs, vertices with their work. */
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

/* Where all nets are to be written; NULL: they are partitioned. */
static const char *write_to;

static void print_net(const struct net *net, uint32_t grain)
{
    struct rb_hypergraph graph;
    struct rb_hypergraph_bundle *bundles;

    rb_hypergraph_of_layers(net->layers, net->n, grain, &graph, &bundles);
    if (write_to)
        write_net(write_to, net->name, &graph);
    for (uint32_t n = 2; !write_to && n <= 8; n *= 2) {
        RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc(graph.n_vertices * sizeof *parts);
        uint32_t by_layer[NETS_LAYERS];
        double imbalance = rb_hypergraph_by_layer(net->layers, net->n, n, by_layer);
        char text[48];

        for (uint32_t v = 0; v < graph.n_vertices; v++)
            parts[v] = by_layer[bundles[v].layer];
        snprintf(text, sizeof text, "%.3f, %.1fk", imbalance,
                 rb_hypergraph_volume(&graph, parts, n) / 1e3);
        print_partition(net->name, &graph, net->parameters, n, text);
    }
    free(bundles);
    rb_hypergraph_done(&graph);
}

static void print_hypergraphs(void)
{
    struct rb_hypergraph graph;
    double parameters;
    struct net net;

    if (!write_to)
        printf(
            "| net | parts | by layer: imbalance, words | by filter: imbalance, words, messages | "
            "at random | all split | 93 %% at batch: server, ring | even at: server, ring |\n"
            "|---|---|---|---|---|---|---|---|\n");
    net_vgg16(&net);
    print_net(&net, 64);
    net_vgg16_cifar(&net);
    print_net(&net, 64);
    net_alexnet(&net, 0);
    print_net(&net, 128);
    net_alexnet(&net, 1);
    print_net(&net, 128);
    net_cifar_quick(&net);
    print_net(&net, 0);
    net_inception(&net);
    print_net(&net, 0);
    graph = pruned(10, &parameters);
    if (write_to)
        write_net(write_to, "MLP, a tenth of the weights", &graph);
    for (uint32_t n = 2; !write_to && n <= 8; n *= 2)
        print_partition("MLP, a tenth of the weights", &graph, parameters, n, "");
    rb_hypergraph_done(&graph);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;

    write_to = argc > 2 ? argv[2] : NULL;
    if (!only || !strcmp(only, "balance")) {
        print_shares();
        print_placements();
    }
    if (!only || !strcmp(only, "pipeline")) {
        print_versions();
        print_law();
    }
    if (!only || !strcmp(only, "hypergraph"))
        print_hypergraphs();
    return 0;
}
