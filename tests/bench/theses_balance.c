/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "plan/partition/balance.h"
#include "tests/bench/theses.h"
#include "tests/plan/nets.h"

#include <stdio.h>

struct sharing {
    uint32_t even[4], shares[4];
    double even_over, even_variation, over, variation; /* over: time over ideal */
};

static struct sharing share(uint32_t total)
{
    static const double speeds[4] = {1, 1, 0.5, 0.25};
    struct sharing found;

    for (uint32_t r = 0; r < 4; r++)
        found.even[r] = total / 4 + (r < total % 4);
    rb_balance_shares(total, speeds, 4, found.shares);
    found.even_over = rb_balance_excess(found.even, speeds, 4);
    found.even_variation = rb_balance_variation(found.even, speeds, 4);
    found.over = rb_balance_excess(found.shares, speeds, 4);
    found.variation = rb_balance_variation(found.shares, speeds, 4);
    return found;
}

static void print_shares(void)
{
    static const uint32_t totals[] = {4, 8, 16, 32, 44, 64, 128, 256, 1024};

    printf(
        "| microbatches | even: time over ideal, variation | by speed: shares | time over ideal, "
        "variation |\n|---|---|---|---|\n");
    for (size_t i = 0; i < RB_COUNT(totals); i++) {
        struct sharing found = share(totals[i]);
        const uint32_t *shares = found.shares;

        printf("| %u | %.3f, %.2f | %u %u %u %u | %.3f, %.3f |\n", totals[i], found.even_over,
               found.even_variation, shares[0], shares[1], shares[2], shares[3], found.over,
               found.variation);
    }
    printf("\n");
}

static void write_shares(void)
{
    for (uint32_t total = 4; total <= 256; total++) {
        struct sharing found = share(total);
        const uint32_t *shares = found.shares;

        printf("{\"table\": \"shares\", \"microbatches\": %u, \"even\": %.4f, \"bySpeed\": %.4f, "
               "\"shares\": [%u, %u, %u, %u]}\n",
               total, found.even_over, found.over, shares[0], shares[1], shares[2], shares[3]);
    }
}

/* Weights and biases of VGG-16, in the order of their declaration. */
static size_t list_variables(const struct net *net, double *ret_sizes)
{
    size_t n = 0;

    for (uint32_t l = 0; l < net->n; l++) {
        ret_sizes[n++] = net->layers[l].filters * (net->layers[l].memory / 4 - 1);
        ret_sizes[n++] = net->layers[l].filters;
    }
    return n;
}

enum { ORDERS = 3 };

static const char *const names[ORDERS] = {"greedy, largest first", "greedy, as declared",
                                          "round robin"};

static void print_placements(void)
{
    static const uint32_t devices[] = {2, 3, 4, 8, 16};
    double sizes[2 * NETS_LAYERS];
    struct net net;
    size_t n;

    net_vgg16(&net);
    n = list_variables(&net, sizes);
    printf("| placement of VGG-16 | n=2 | n=3 | n=4 | n=8 | n=16 |\n|---|---|---|---|---|---|\n");
    for (int order = 0; order < ORDERS; order++) {
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
    for (int order = 0; order < ORDERS; order += 2) {
        static const double ratios[] = {0, 0.1, 0.5, 1, 2, 5, 10};
        double load = rb_balance_whole(sizes, n, 4, (enum rb_balance_order)order);

        printf("| step over equal ranges, n=4, %s |", names[order]);
        for (size_t i = 0; i < RB_COUNT(ratios); i++)
            printf(" %.2f |", (ratios[i] + load) / (ratios[i] + 1));
        printf("\n");
    }
    printf("\n");
}

static void write_placements(void)
{
    double sizes[2 * NETS_LAYERS];
    struct net net;
    size_t n;

    net_vgg16(&net);
    n = list_variables(&net, sizes);
    for (int order = 0; order < ORDERS; order++)
        for (uint32_t devices = 2; devices <= 16; devices *= 2)
            printf("{\"table\": \"placement\", \"order\": \"%s\", \"devices\": %u, \"load\": "
                   "%.4f}\n",
                   names[order], devices,
                   rb_balance_whole(sizes, n, devices, (enum rb_balance_order)order));
}

void theses_balance(bool json)
{
    (json ? write_shares : print_shares)();
    (json ? write_placements : print_placements)();
}
