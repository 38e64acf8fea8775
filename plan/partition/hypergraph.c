/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/hypergraph.h"

#include "base/arena.h"
#include "base/error.h"
#include "plan/partition/hypergraph_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 80, STARTS = 16, LEVELS = 40 };

void rb_hypergraph_done(struct rb_hypergraph *graph)
{
    free(graph->work);
    free(graph->memory);
    free(graph->costs);
    free(graph->first_pin);
    free(graph->pins);
    free(graph->first_net);
    free(graph->nets);
    free(graph->layers);
    *graph = (struct rb_hypergraph){0};
}

void rb_hypergraph_index(struct rb_hypergraph *graph)
{
    uint32_t n = graph->n_vertices, pins = graph->first_pin[graph->n_nets];
    RB_CLEANUP(rb_freep) uint32_t *next = rb_alloc((n + 1) * sizeof *next);

    free(graph->first_net);
    free(graph->nets);
    graph->first_net = rb_alloc((n + 1) * sizeof *graph->first_net);
    graph->nets = rb_alloc((pins + 1) * sizeof *graph->nets);
    for (uint32_t p = 0; p < pins; p++)
        graph->first_net[graph->pins[p] + 1]++;
    for (uint32_t v = 0; v < n; v++)
        graph->first_net[v + 1] += graph->first_net[v];
    memcpy(next, graph->first_net, n * sizeof *next);
    for (uint32_t net = 0; net < graph->n_nets; net++)
        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
            graph->nets[next[graph->pins[p]]++] = net;
}

/* ---- What a partition costs ------------------------------------------------------------------*/

/* Parts that a net has pins in.  seen: by part, the number of the last net that was there. */
static uint32_t connectivity(const struct rb_hypergraph *graph, const uint32_t *parts, uint32_t net,
                             uint32_t *seen)
{
    uint32_t found = 0;

    for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++) {
        uint32_t part = parts[graph->pins[p]];

        found += seen[part] != net + 1;
        seen[part] = net + 1;
    }
    return found;
}

double rb_hypergraph_volume(const struct rb_hypergraph *graph, const uint32_t *parts, uint32_t n)
{
    RB_CLEANUP(rb_freep) uint32_t *seen = rb_alloc(n * sizeof *seen);
    double volume = 0;

    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t over = connectivity(graph, parts, net, seen);

        if (over)
            volume += graph->costs[net] * (over - 1);
    }
    return volume;
}

uint64_t rb_hypergraph_messages(const struct rb_hypergraph *graph, const uint32_t *parts,
                                uint32_t n)
{
    RB_CLEANUP(rb_freep) uint32_t *seen = rb_alloc(n * sizeof *seen);
    uint64_t messages = 0;

    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t over = connectivity(graph, parts, net, seen);

        messages += over ? over - 1 : 0;
    }
    return messages;
}

double rb_hypergraph_imbalance(const struct rb_hypergraph *graph, const uint32_t *parts, uint32_t n)
{
    RB_CLEANUP(rb_freep) double *work = rb_alloc(n * sizeof *work);
    double all = 0, most = 0;

    for (uint32_t v = 0; v < graph->n_vertices; v++) {
        work[parts[v]] += graph->work[v];
        all += graph->work[v];
    }
    for (uint32_t p = 0; p < n; p++)
        most = fmax(most, work[p]);
    return all > 0 ? most / (all / n) - 1 : 0;
}

/* ---- Bisection -------------------------------------------------------------------------------*/

/* Side 0 grows from a vertex by the vertices that share most with it, until it has its share. */
static void grow(const struct rb_hypergraph *graph, const struct rb_hypergraph_limits *limits,
                 uint64_t *random, uint8_t *sides)
{
    uint32_t n = graph->n_vertices, v = (uint32_t)(rb_hypergraph_random(random) % n);
    RB_CLEANUP(rb_freep) double *near = rb_alloc((n + 1) * sizeof *near);
    double all = 0, has = 0;

    memset(sides, 1, n);
    for (uint32_t i = 0; i < n; i++)
        all += graph->work[i];
    while (has + graph->work[v] / 2 < all * limits->share) {
        uint32_t best = n;

        sides[v] = 0;
        has += graph->work[v];
        for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
            uint32_t net = graph->nets[i], size;

            size = graph->first_pin[net + 1] - graph->first_pin[net];
            for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
                near[graph->pins[p]] += graph->costs[net] / size;
        }
        for (uint32_t u = 0; u < n; u++)
            if (sides[u] && (best == n || near[u] > near[best]))
                best = u;
        if (best == n)
            break;
        v = best;
    }
}

/* The best of some beginnings. */
static void divide(const struct rb_hypergraph *graph, const struct rb_hypergraph_limits *limits,
                   uint64_t *random, uint8_t *ret_sides)
{
    RB_CLEANUP(rb_freep) uint8_t *sides = rb_alloc(graph->n_vertices + 1);
    double least = INFINITY, cut = INFINITY;

    for (int i = 0; i < STARTS; i++) {
        double over, words;

        grow(graph, limits, random, sides);
        rb_hypergraph_refine(graph, limits, sides);
        over = rb_hypergraph_overload(graph, sides, limits);
        words = rb_hypergraph_cut(graph, sides);
        if (over < least || (over <= least && words < cut)) {
            least = over;
            cut = words;
            memcpy(ret_sides, sides, graph->n_vertices);
        }
    }
}

/* Refine `sides`, and keep the better of it and the best so far. */
static void take_better(const struct rb_hypergraph *graph,
                        const struct rb_hypergraph_limits *limits, uint8_t *sides, uint8_t *best)
{
    double over, least = rb_hypergraph_overload(graph, best, limits);

    rb_hypergraph_refine(graph, limits, sides);
    over = rb_hypergraph_overload(graph, sides, limits);
    if (over < least ||
        (over <= least && rb_hypergraph_cut(graph, sides) < rb_hypergraph_cut(graph, best)))
        memcpy(best, sides, graph->n_vertices);
}

/* Coarsen, divide, and refine on the way back. */
static void bisect(const struct rb_hypergraph *graph, const struct rb_hypergraph_limits *limits,
                   uint64_t *random, int depth, uint8_t *ret_sides)
{
    RB_CLEANUP(rb_freep) uint32_t *map = rb_alloc((graph->n_vertices + 1) * sizeof *map);
    RB_CLEANUP(rb_freep) uint8_t *sides = rb_alloc(graph->n_vertices + 1);
    struct rb_hypergraph small;
    double all = 0;

    for (uint32_t v = 0; v < graph->n_vertices; v++)
        all += graph->work[v];
    if (graph->n_vertices <= SMALL || depth == LEVELS ||
        !rb_hypergraph_coarsen(graph, 1.5 * all / SMALL, random, &small, map)) {
        divide(graph, limits, random, ret_sides);
        return;
    }
    bisect(&small, limits, random, depth + 1, sides);
    for (uint32_t v = 0; v < graph->n_vertices; v++)
        ret_sides[v] = sides[map[v]];
    rb_hypergraph_done(&small);
    rb_hypergraph_refine(graph, limits, ret_sides);
}

/* ---- Recursion -------------------------------------------------------------------------------*/

/* The vertices of one side, and what is left of their nets: a net that is cut continues on both
 * sides. */
static void split(const struct rb_hypergraph *graph, const uint8_t *sides, int side,
                  struct rb_hypergraph *ret, uint32_t *ret_vertices)
{
    RB_CLEANUP(rb_freep) uint32_t *number = rb_alloc((graph->n_vertices + 1) * sizeof *number);
    uint32_t n = 0, pins = 0;

    for (uint32_t v = 0; v < graph->n_vertices; v++)
        if (sides[v] == side) {
            ret_vertices[n] = v;
            number[v] = n++;
        }
    *ret = (struct rb_hypergraph){.n_vertices = n};
    ret->work = rb_alloc((n + 1) * sizeof(double));
    ret->memory = rb_alloc((n + 1) * sizeof(double));
    ret->costs = rb_alloc((graph->n_nets + 1) * sizeof(double));
    ret->first_pin = rb_alloc((graph->n_nets + 1) * sizeof(uint32_t));
    ret->pins = rb_alloc((graph->first_pin[graph->n_nets] + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        ret->work[i] = graph->work[ret_vertices[i]];
        ret->memory[i] = graph->memory[ret_vertices[i]];
    }
    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t first = pins;

        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
            if (sides[graph->pins[p]] == side)
                ret->pins[pins++] = number[graph->pins[p]];
        if (pins - first < 2) {
            pins = first;
            continue;
        }
        ret->costs[ret->n_nets] = graph->costs[net];
        ret->first_pin[ret->n_nets++] = first;
    }
    ret->first_pin[ret->n_nets] = pins;
    rb_hypergraph_index(ret);
}

/* Everything of a partition that stays the same on the way down. */
struct work {
    double part_work, part_memory; /* that a part may have at most */
    bool ordered;                  /* cuts in the vertices' order are tried too */
    uint64_t random;
    uint32_t *parts;
};

/* Vertices of `graph` are `vertices` of the whole; they become parts first..first+n-1. */
static void recurse(struct work *work, const struct rb_hypergraph *graph, const uint32_t *vertices,
                    uint32_t first, uint32_t n)
{
    uint32_t left = n / 2, right = n - left;
    struct rb_hypergraph_limits limits = {
        .work = {work->part_work * left, work->part_work * right},
        .memory = {work->part_memory * left, work->part_memory * right},
        .share = (double)left / n,
    };
    RB_CLEANUP(rb_freep) uint8_t *sides = NULL;

    if (n == 1 || !graph->n_vertices) {
        for (uint32_t v = 0; v < graph->n_vertices; v++)
            work->parts[vertices[v]] = first;
        return;
    }
    if (n > 2) /* leave room for later cuts: a full side cannot be divided */
        for (int side = 0; side < 2; side++) {
            double all = 0, tight;

            for (uint32_t v = 0; v < graph->n_vertices; v++)
                all += graph->work[v];
            tight = all * (side ? right : left) / n;
            limits.work[side] = tight + (fmax(limits.work[side], tight) - tight) / log2(n);
        }
    sides = rb_alloc(graph->n_vertices + 1);
    bisect(graph, &limits, &work->random, 0, sides);
    for (int last = 0; work->ordered && last < 2; last++) {
        RB_CLEANUP(rb_freep) uint8_t *others = rb_alloc(graph->n_vertices + 1);

        rb_hypergraph_cut_in_order(graph, &limits, last, others);
        take_better(graph, &limits, others, sides);
    }
    for (int side = 0; side < 2; side++) {
        RB_CLEANUP(rb_freep) uint32_t *inner = rb_alloc((graph->n_vertices + 1) * sizeof *inner);
        struct rb_hypergraph half;

        split(graph, sides, side, &half, inner);
        for (uint32_t v = 0; v < half.n_vertices; v++)
            inner[v] = vertices[inner[v]];
        recurse(work, &half, inner, side ? first + left : first, side ? right : left);
        rb_hypergraph_done(&half);
    }
}

/* By how much the heaviest part is above what it may have. */
static double excess(const struct rb_hypergraph *graph, const struct rb_hypergraph_how *how,
                     const uint32_t *parts)
{
    struct rb_hypergraph memory = *graph;
    double over = fmax(0, rb_hypergraph_imbalance(graph, parts, how->parts) - how->epsilon - 1e-12);

    memory.work = graph->memory;
    if (how->memory_slack > 0)
        over += fmax(0, rb_hypergraph_imbalance(&memory, parts, how->parts) - how->memory_slack -
                            1e-12);
    return over;
}

void rb_hypergraph_partition(const struct rb_hypergraph *graph, const struct rb_hypergraph_how *how,
                             uint32_t *ret_parts)
{
    size_t n = graph->n_vertices;
    RB_CLEANUP(rb_freep) uint32_t *vertices = rb_alloc((n + 1) * sizeof *vertices);
    RB_CLEANUP(rb_freep) uint32_t *parts = rb_alloc((n + 1) * sizeof *parts);
    struct work work = {.random = how->seed, .parts = parts};
    double least = INFINITY, volume = INFINITY;

    for (uint32_t v = 0; v < n; v++) {
        vertices[v] = v;
        work.part_work += graph->work[v] / how->parts * (1 + how->epsilon);
        if (how->memory_slack > 0)
            work.part_memory += graph->memory[v] / how->parts * (1 + how->memory_slack);
    }
    /* the best bisection is not always the best to cut further */
    for (uint32_t i = 0; i < 2 * (how->tries ? how->tries : 1); i++) {
        double over, words;

        work.ordered = i % 2;
        recurse(&work, graph, vertices, 0, how->parts);
        over = excess(graph, how, parts);
        words = rb_hypergraph_volume(graph, parts, how->parts);
        if (over < least || (over <= least && words < volume)) {
            least = over;
            volume = words;
            memcpy(ret_parts, parts, n * sizeof *parts);
        }
    }
}
