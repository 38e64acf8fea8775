/* SPDX-License-Identifier: Apache-2.0 */
/* Vertices that are numbered in the order of their layers can be cut in that order: between two
 * layers, or inside one.  Where nets are as wide as a layer, no vertex gains anything by moving
 * alone, and refinement from another start does not reach such a cut. */
#include "plan/partition/hypergraph_inside.h"

#include "base/arena.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* By vertex: the words that are cut right behind it. */
static double *find_cuts(const struct rb_hypergraph *graph)
{
    double *cuts = rb_alloc((graph->n_vertices + 1) * sizeof *cuts);

    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t low = UINT32_MAX, high = 0;

        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++) {
            low = graph->pins[p] < low ? graph->pins[p] : low;
            high = graph->pins[p] > high ? graph->pins[p] : high;
        }
        if (low >= high)
            continue;
        cuts[low] += graph->costs[net]; /* as differences at first */
        cuts[high] -= graph->costs[net];
    }
    for (uint32_t v = 1; v < graph->n_vertices; v++)
        cuts[v] += cuts[v - 1];
    return cuts;
}

void rb_hypergraph_cut_in_order(const struct rb_hypergraph *graph,
                                const struct rb_hypergraph_limits *limits, bool first_last,
                                uint8_t *ret_sides)
{
    RB_CLEANUP(rb_freep) double *cuts = find_cuts(graph);
    double all = 0, has = 0, least_over = INFINITY, least = INFINITY;
    uint32_t best = 0;

    for (uint32_t v = 0; v < graph->n_vertices; v++)
        all += graph->work[v];
    for (uint32_t v = 0; v + 1 < graph->n_vertices; v++) {
        double over;

        has += graph->work[v];
        over = fmax(0, has - limits->work[first_last]) +
               fmax(0, all - has - limits->work[!first_last]);
        if (over < least_over || (over <= least_over && cuts[v] < least)) {
            least_over = over;
            least = cuts[v];
            best = v + 1;
        }
    }
    memset(ret_sides, first_last, best);
    memset(ret_sides + best, !first_last, graph->n_vertices - best);
}
