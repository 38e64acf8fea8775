/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/hypergraph_inside.h"

#include "base/arena.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 8, PATIENCE = 60 };

/* One pass: the vertices that may still move are in one heap a side, those that gain most on
 * top. */
struct pass {
    const struct rb_hypergraph *graph;
    const struct rb_hypergraph_limits *limits;
    uint8_t *sides;
    double *gains;    /* by vertex: words that moving it saves */
    uint32_t *counts; /* by net, pins on each side */
    uint32_t *heap[2], size[2];
    uint32_t *place; /* by vertex, in its side's heap */
    bool *locked;
    double work[2], memory[2];
};

/* ---- Heaps ----------------------------------------------------------------------------------*/

/* Equal gains: the lower number, so that nothing but the input decides. */
static bool before(const struct pass *pass, uint32_t a, uint32_t b)
{
    if (pass->gains[a] != pass->gains[b])
        return pass->gains[a] > pass->gains[b];
    return a < b;
}

static void put(struct pass *pass, int side, uint32_t at, uint32_t v)
{
    pass->heap[side][at] = v;
    pass->place[v] = at;
}

static void sift(struct pass *pass, uint32_t v)
{
    int side = pass->sides[v];
    uint32_t *heap = pass->heap[side], at = pass->place[v];

    while (at && before(pass, v, heap[(at - 1) / 2])) {
        put(pass, side, at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < pass->size[side] && before(pass, heap[child + 1], heap[child]))
            child++;
        if (child >= pass->size[side] || !before(pass, heap[child], v))
            break;
        put(pass, side, at, heap[child]);
        at = child;
    }
    put(pass, side, at, v);
}

static void drop_top(struct pass *pass, int side)
{
    uint32_t last = pass->heap[side][--pass->size[side]];

    pass->locked[pass->heap[side][0]] = true;
    if (!pass->size[side])
        return;
    put(pass, side, 0, last);
    sift(pass, last);
}

/* ---- Gains ----------------------------------------------------------------------------------*/

static void change_gain(struct pass *pass, uint32_t v, double by)
{
    pass->gains[v] += by;
    if (!pass->locked[v])
        sift(pass, v);
}

/* Change the gains of all of the net's pins on `side`. */
static void change_side(struct pass *pass, uint32_t net, int side, double by)
{
    const struct rb_hypergraph *graph = pass->graph;

    for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
        if (pass->sides[graph->pins[p]] == side)
            change_gain(pass, graph->pins[p], by);
}

/* Move v to the other side, and lock it. */
static void move(struct pass *pass, uint32_t v)
{
    const struct rb_hypergraph *graph = pass->graph;
    int from = pass->sides[v], to = !from;

    for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
        uint32_t net = graph->nets[i], *counts = &pass->counts[2 * net];
        double cost = graph->costs[net];

        if (counts[to] == 0) /* the net was whole: now the others could follow */
            change_side(pass, net, from, cost);
        else if (counts[to] == 1) /* moving that pin would no longer make the net whole */
            change_side(pass, net, to, -cost);
        counts[from]--;
        counts[to]++;
        pass->sides[v] = (uint8_t)to;
        if (counts[from] == 0) /* whole again: no pin should leave */
            change_side(pass, net, to, -cost);
        else if (counts[from] == 1)
            change_side(pass, net, from, cost);
        pass->sides[v] = (uint8_t)from;
    }
    pass->sides[v] = (uint8_t)to;
    pass->work[from] -= graph->work[v];
    pass->work[to] += graph->work[v];
    pass->memory[from] -= graph->memory[v];
    pass->memory[to] += graph->memory[v];
}

static double gain_of(const struct pass *pass, uint32_t v)
{
    const struct rb_hypergraph *graph = pass->graph;
    int side = pass->sides[v];
    double gain = 0;

    for (uint32_t i = graph->first_net[v]; i < graph->first_net[v + 1]; i++) {
        uint32_t net = graph->nets[i];
        const uint32_t *counts = &pass->counts[2 * net];

        if (counts[side] == 1 && counts[!side])
            gain += graph->costs[net];
        else if (!counts[!side] && counts[side] > 1)
            gain -= graph->costs[net];
    }
    return gain;
}

/* ---- A pass ---------------------------------------------------------------------------------*/

static double over(double x, double limit)
{
    return limit > 0 && x > limit * (1 + 1e-12) ? x / limit - 1 : 0;
}

static double overload(const struct rb_hypergraph_limits *limits, const double work[2],
                       const double memory[2])
{
    return over(work[0], limits->work[0]) + over(work[1], limits->work[1]) +
           over(memory[0], limits->memory[0]) + over(memory[1], limits->memory[1]);
}

static void weigh(const struct rb_hypergraph *graph, const uint8_t *sides, double work[2],
                  double memory[2])
{
    work[0] = work[1] = memory[0] = memory[1] = 0;
    for (uint32_t v = 0; v < graph->n_vertices; v++) {
        work[sides[v]] += graph->work[v];
        memory[sides[v]] += graph->memory[v];
    }
}

double rb_hypergraph_overload(const struct rb_hypergraph *graph, const uint8_t *sides,
                              const struct rb_hypergraph_limits *limits)
{
    double work[2], memory[2];

    weigh(graph, sides, work, memory);
    return overload(limits, work, memory);
}

double rb_hypergraph_cut(const struct rb_hypergraph *graph, const uint8_t *sides)
{
    double cut = 0;

    for (uint32_t n = 0; n < graph->n_nets; n++) {
        uint32_t first = graph->first_pin[n], side0 = 0, all = graph->first_pin[n + 1] - first;

        for (uint32_t p = first; p < first + all; p++)
            side0 += !sides[graph->pins[p]];
        if (side0 && side0 < all)
            cut += graph->costs[n];
    }
    return cut;
}

static void open_pass(struct pass *pass)
{
    const struct rb_hypergraph *graph = pass->graph;
    uint32_t n = graph->n_vertices;

    weigh(graph, pass->sides, pass->work, pass->memory);
    memset(pass->counts, 0, 2 * graph->n_nets * sizeof *pass->counts);
    memset(pass->locked, 0, n * sizeof *pass->locked);
    for (uint32_t net = 0; net < graph->n_nets; net++)
        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++)
            pass->counts[2 * net + pass->sides[graph->pins[p]]]++;
    pass->size[0] = pass->size[1] = 0;
    for (uint32_t v = 0; v < n; v++) {
        int side = pass->sides[v];

        pass->gains[v] = gain_of(pass, v);
        put(pass, side, pass->size[side]++, v);
        sift(pass, v);
    }
}

/* The overload if v moved. */
static double overload_after(const struct pass *pass, uint32_t v)
{
    int from = pass->sides[v], to = !from;
    double work[2], memory[2];

    work[from] = pass->work[from] - pass->graph->work[v];
    work[to] = pass->work[to] + pass->graph->work[v];
    memory[from] = pass->memory[from] - pass->graph->memory[v];
    memory[to] = pass->memory[to] + pass->graph->memory[v];
    return overload(pass->limits, work, memory);
}

/* The vertex that moves next; those on top that would make a side too heavy stay where they are. */
static bool choose(struct pass *pass, uint32_t *ret_v)
{
    double now = overload(pass->limits, pass->work, pass->memory);
    bool found = false;

    for (int side = 0; side < 2; side++) {
        while (pass->size[side]) {
            uint32_t v = pass->heap[side][0];
            double then = overload_after(pass, v);

            if (then <= 0 || then < now)
                break;
            drop_top(pass, side);
        }
        if (pass->size[side] && (!found || before(pass, pass->heap[side][0], *ret_v))) {
            *ret_v = pass->heap[side][0];
            found = true;
        }
    }
    return found;
}

/* False: it was no improvement, and nothing has changed. */
static bool run_pass(struct pass *pass)
{
    uint32_t n = pass->graph->n_vertices, made = 0, best = 0, v = 0;
    RB_CLEANUP(rb_freep) uint32_t *moved = rb_alloc((n + 1) * sizeof *moved);
    double saved = 0, most = 0, least;

    open_pass(pass);
    least = overload(pass->limits, pass->work, pass->memory);
    while (made < best + PATIENCE + n / 8 && choose(pass, &v)) {
        double load;

        saved += pass->gains[v];
        drop_top(pass, pass->sides[v]);
        move(pass, v);
        moved[made++] = v;
        load = overload(pass->limits, pass->work, pass->memory);
        if (load < least - 1e-12 || (load <= least && saved > most * (1 + 1e-12) + 1e-12)) {
            least = load;
            most = saved;
            best = made;
        }
    }
    while (made > best)
        pass->sides[moved[--made]] ^= 1;
    return best > 0;
}

void rb_hypergraph_refine(const struct rb_hypergraph *graph,
                          const struct rb_hypergraph_limits *limits, uint8_t *sides)
{
    uint32_t n = graph->n_vertices;
    struct pass pass = {.graph = graph, .limits = limits, .sides = sides};

    pass.gains = rb_alloc((n + 1) * sizeof(double));
    pass.counts = rb_alloc(2 * (graph->n_nets + 1) * sizeof(uint32_t));
    pass.heap[0] = rb_alloc((n + 1) * sizeof(uint32_t));
    pass.heap[1] = rb_alloc((n + 1) * sizeof(uint32_t));
    pass.place = rb_alloc((n + 1) * sizeof(uint32_t));
    pass.locked = rb_alloc((n + 1) * sizeof(bool));
    for (int i = 0; i < PASSES && run_pass(&pass); i++)
        ;
    free(pass.gains);
    free(pass.counts);
    free(pass.heap[0]);
    free(pass.heap[1]);
    free(pass.place);
    free(pass.locked);
}
