/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "plan/partition/stages.h"
#include "plan/partition/versions.h"
#include "plan/simulate/pipeline.h"
#include "tests/bench/theses.h"
#include "tests/plan/nets.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Minibatches a second of the full pipeline, simulated for some of them. */
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

/* The bytes a second at which the pipeline is `wanted` times as fast; 0: at no rate. */
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

enum { NETS = 4 };

static void open_laws(struct net nets[NETS], struct law laws[NETS])
{
    net_vgg16(&nets[0]);
    net_vgg16_cifar(&nets[1]);
    net_alexnet(&nets[2], 0);
    net_dense(&nets[3]);
    for (size_t i = 0; i < NETS; i++)
        open_law(&nets[i], 1e13, 128, 4, &laws[i]);
}

static void print_law(void)
{
    static const double rates[] = {1e8, 3e8, 1e9, 3e9, 1e10};
    struct net nets[NETS];
    struct law laws[NETS];

    open_laws(nets, laws);
    printf(
        "| net, batch 128 | 0.1 GB/s: ring, server (balance) | 0.3 | 1 | 3 | 10 | 8.91 at: ring, "
        "server | 15.77 at: ring, server |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < NETS; i++) {
        const struct law *law = &laws[i];

        printf("| %s |", nets[i].name);
        for (size_t r = 0; r < RB_COUNT(rates); r++) {
            double balance, ring = speed_up(law, rates[r], false, &balance);

            printf(" %.2f, %.2f (%.2f) |", ring, speed_up(law, rates[r], true, &balance), balance);
        }
        for (int k = 0; k < 2; k++)
            print_rates(rate_of(law, k ? 15.77 : 8.91, false),
                        rate_of(law, k ? 15.77 : 8.91, true));
        printf("\n");
    }
    printf("\n");
}

/* From 10 MB/s to 100 GB/s. */
static void write_law(void)
{
    struct net nets[NETS];
    struct law laws[NETS];

    open_laws(nets, laws);
    for (size_t i = 0; i < NETS; i++)
        for (int r = 0; r <= 32; r++) {
            double balance, rate = pow(10, 7 + r / 8.0);
            double ring = speed_up(&laws[i], rate, false, &balance);

            printf("{\"table\": \"law\", \"net\": \"%s\", \"bandwidth\": %.4g, \"ring\": %.4g, "
                   "\"server\": %.4g, \"balance\": %.4f}\n",
                   nets[i].name, rate, ring, speed_up(&laws[i], rate, true, &balance), balance);
        }
}

void theses_pipeline(bool json)
{
    if (json) {
        write_law();
        return;
    }
    print_versions();
    print_law();
}
