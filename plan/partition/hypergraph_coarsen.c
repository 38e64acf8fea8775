/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/hypergraph_inside.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t none = UINT32_MAX;

uint64_t rb_hypergraph_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t *shuffled(uint32_t n, uint64_t *random)
{
    uint32_t *order = rb_alloc((n + 1) * sizeof *order);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)(rb_hypergraph_random(random) % (i + 1));

        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

/* The single vertex that shares most with v: each net counts its cost over its other pins.  scores:
 * zeros, by vertex, here and on return. */
static uint32_t partner(const struct rb_hypergraph *graph, uint32_t v, double most,
                        const uint32_t *map, double *scores)
{
    uint32_t best = none;

    for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
        uint32_t n = graph->nets[i], first = graph->first_pin[n], end = graph->first_pin[n + 1];

        for (uint32_t p = first; p < end; p++)
            scores[graph->pins[p]] += graph->costs[n] / (end - first);
    }
    scores[v] = 0;
    for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
        uint32_t n = graph->nets[i];

        for (uint32_t p = graph->first_pin[n]; p < graph->first_pin[n + 1]; p++) {
            uint32_t u = graph->pins[p];

            if (scores[u] > 0 && map[u] == none && graph->work[u] + graph->work[v] <= most &&
                (best == none || scores[u] > scores[best]))
                best = u;
        }
    }
    for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
        uint32_t n = graph->nets[i];

        for (uint32_t p = graph->first_pin[n]; p < graph->first_pin[n + 1]; p++)
            scores[graph->pins[p]] = 0;
    }
    return best;
}

/* Number the pairs and the vertices left single; returns how many there are. */
static uint32_t match(const struct rb_hypergraph *graph, double most, uint64_t *random,
                      uint32_t *ret_map)
{
    RB_CLEANUP(rb_freep) uint32_t *order = shuffled(graph->n_vertices, random);
    RB_CLEANUP(rb_freep) double *scores = rb_alloc((graph->n_vertices + 1) * sizeof *scores);
    uint32_t n = 0;

    memset(ret_map, 0xff, graph->n_vertices * sizeof *ret_map);
    for (uint32_t i = 0; i < graph->n_vertices; i++) {
        uint32_t v = order[i], u;

        if (ret_map[v] != none)
            continue;
        u = partner(graph, v, most, ret_map, scores);
        ret_map[v] = n;
        if (u != none)
            ret_map[u] = n;
        n++;
    }
    return n;
}

/* Nets with the pins of the smaller graph, each once; those with one pin can never be cut. */
static void contract(const struct rb_hypergraph *graph, const uint32_t *map, uint32_t n,
                     struct rb_hypergraph *small)
{
    RB_CLEANUP(rb_freep) uint32_t *seen = rb_alloc((n + 1) * sizeof *seen);
    uint32_t pins = 0;

    *small = (struct rb_hypergraph){.n_vertices = n};
    small->work = rb_alloc((n + 1) * sizeof(double));
    small->memory = rb_alloc((n + 1) * sizeof(double));
    small->costs = rb_alloc((graph->n_nets + 1) * sizeof(double));
    small->first_pin = rb_alloc((graph->n_nets + 1) * sizeof(uint32_t));
    small->pins = rb_alloc((graph->first_pin[graph->n_nets] + 1) * sizeof(uint32_t));
    for (uint32_t v = 0; v < graph->n_vertices; v++) {
        small->work[map[v]] += graph->work[v];
        small->memory[map[v]] += graph->memory[v];
    }
    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t first = pins;

        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++) {
            uint32_t v = map[graph->pins[p]];

            if (seen[v] != net + 1)
                small->pins[pins++] = v;
            seen[v] = net + 1;
        }
        if (pins - first < 2) {
            pins = first;
            continue;
        }
        small->costs[small->n_nets] = graph->costs[net];
        small->first_pin[small->n_nets++] = first;
    }
    small->first_pin[small->n_nets] = pins;
    rb_hypergraph_index(small);
}

bool rb_hypergraph_coarsen(const struct rb_hypergraph *graph, double most, uint64_t *random,
                           struct rb_hypergraph *ret_small, uint32_t *ret_map)
{
    uint32_t n = match(graph, most, random, ret_map);

    if (n > graph->n_vertices - graph->n_vertices / 10)
        return false;
    contract(graph, ret_map, n, ret_small);
    return true;
}
