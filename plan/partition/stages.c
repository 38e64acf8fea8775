/* SPDX-License-Identifier: Apache-2.0 */
/* For a given pace, the least number of devices is found for each beginning of the chain in turn;
 * the pace is found by halving.  So a thousand layers on a thousand devices take no longer than on
 * ten. */
#include "plan/partition/stages.h"

#include "base/arena.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* While a chain is cut. */
struct cut {
    const struct rb_stages_layer *layers;
    uint32_t n, devices;
    double bandwidth;
    bool straight;
    double *seconds, *weights; /* of all layers in front of each */
    uint32_t *least;           /* by number of layers: devices they need */
    uint32_t *from;            /* and where their last stage begins */
    uint32_t *last;            /* and its devices */
};

static double transfer(double bytes, double bandwidth)
{
    return bandwidth > 0 ? bytes / bandwidth : 0;
}

static double stage_seconds(double seconds, double weights, double bandwidth, double devices)
{
    return (seconds + 4 * (devices - 1) / devices * transfer(weights, bandwidth)) / devices;
}

/* The fewest devices on which layers first..end-1 keep the pace; more than there are: none. */
static uint32_t need(const struct cut *cut, uint32_t first, uint32_t end, double pace)
{
    double seconds = cut->seconds[end] - cut->seconds[first];
    double sum = transfer(cut->weights[end] - cut->weights[first], cut->bandwidth);
    double link = first ? 2 * transfer(cut->layers[first - 1].activations, cut->bandwidth) : 0;
    double least, half;

    if (seconds <= pace && link <= pace)
        return 1;
    if (cut->straight)
        return cut->devices + 1;
    /* pace r^2 - (seconds + 4 sum) r + 4 sum >= 0; beyond the larger root it always holds */
    half = (seconds + 4 * sum) / (2 * pace);
    least = half * half > 4 * sum / pace ? half + sqrt(half * half - 4 * sum / pace) : 2;
    least = fmax(fmax(2, ceil(least * (1 - 1e-12))), ceil(link / pace * (1 - 1e-12)));
    return least <= cut->devices ? (uint32_t)least : cut->devices + 1;
}

/* Can the whole chain keep the pace? */
static bool keeps(const struct cut *cut, double pace)
{
    cut->least[0] = 0;
    for (uint32_t end = 1; end <= cut->n; end++) {
        cut->least[end] = cut->devices + 1;
        for (uint32_t first = end; first-- > 0;) {
            uint32_t one;

            if (cut->least[first] >= cut->least[end])
                continue;
            one = need(cut, first, end, pace);
            if (one <= cut->devices && cut->least[first] + one < cut->least[end]) {
                cut->least[end] = cut->least[first] + one;
                cut->from[end] = first;
                cut->last[end] = one;
            }
            if (one > cut->devices && cut->straight &&
                cut->seconds[end] - cut->seconds[first] > pace)
                break; /* longer stages are no faster */
        }
    }
    return cut->least[cut->n] <= cut->devices;
}

static void take_parts(const struct cut *cut, struct rb_stages_part *ret_parts, uint32_t *ret_n)
{
    uint32_t n = 0, at;

    for (at = cut->n; at; at = cut->from[at])
        n++;
    *ret_n = n;
    for (at = cut->n; at; at = cut->from[at])
        ret_parts[--n] = (struct rb_stages_part){
            .first = cut->from[at], .count = at - cut->from[at], .devices = cut->last[at]};
}

static void open_cut(struct cut *cut)
{
    size_t room = cut->n + 1;

    cut->seconds = rb_alloc(room * sizeof(double));
    cut->weights = rb_alloc(room * sizeof(double));
    cut->least = rb_alloc(room * sizeof(uint32_t));
    cut->from = rb_alloc(room * sizeof(uint32_t));
    cut->last = rb_alloc(room * sizeof(uint32_t));
    for (uint32_t i = 0; i < cut->n; i++) {
        cut->seconds[i + 1] = cut->seconds[i] + cut->layers[i].seconds;
        cut->weights[i + 1] = cut->weights[i] + cut->layers[i].weights;
    }
}

static void close_cut(struct cut *cut)
{
    free(cut->seconds);
    free(cut->weights);
    free(cut->least);
    free(cut->from);
    free(cut->last);
}

double rb_stages_cut(const struct rb_stages_layer *layers, uint32_t n, uint32_t devices,
                     double bandwidth, bool straight, struct rb_stages_part *ret_parts,
                     uint32_t *ret_n)
{
    struct cut cut = {
        .layers = layers, .n = n, .devices = devices, .bandwidth = bandwidth, .straight = straight};
    double low, high;

    open_cut(&cut);
    high = cut.seconds[n]; /* one device does it all */
    low = high / devices;
    while (high - low > 1e-10 * high) {
        double middle = (low + high) / 2;

        if (keeps(&cut, middle))
            high = middle;
        else
            low = middle;
    }
    keeps(&cut, high);
    take_parts(&cut, ret_parts, ret_n);
    close_cut(&cut);
    return rb_stages_price(layers, bandwidth, ret_parts, *ret_n);
}

double rb_stages_price(const struct rb_stages_layer *layers, double bandwidth,
                       struct rb_stages_part *parts, uint32_t n)
{
    double slowest = 0;

    for (uint32_t p = 0; p < n; p++) {
        struct rb_stages_part *part = &parts[p];
        double seconds = 0, weights = 0;

        for (uint32_t i = part->first; i < part->first + part->count; i++) {
            seconds += layers[i].seconds;
            weights += layers[i].weights;
        }
        part->seconds = stage_seconds(seconds, weights, bandwidth, part->devices);
        slowest = fmax(slowest, part->seconds);
        if (part->first)
            slowest = fmax(slowest, 2 * transfer(layers[part->first - 1].activations, bandwidth) /
                                        part->devices);
    }
    return slowest;
}
