/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/filters.h"

#include "base/arena.h"
#include "plan/simulate/predict.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* While the tasks of a step are made.  By layer and part: work; by layer, part and part: words. */
struct split {
    const struct rb_filters_how *how;
    struct rb_simulate *simulate;
    double *work, *words, all;
    int *slots, *links[2];   /* by part */
    int *forward, *backward; /* by layer and part, of the microbatches under way; -1: nothing */
    int *arrivals;           /* by layer, part and part: the words have come; -1: there are none */
    int *last;               /* by part: done with the microbatches before; -1: there are none */
    uint32_t size;           /* microbatches under way */
    double *sent;
};

static size_t at(const struct split *split, uint32_t layer, uint32_t part)
{
    return (size_t)layer * split->how->n_parts + part;
}

static double *words_of(const struct split *split, uint32_t layer, uint32_t from, uint32_t to)
{
    return &split->words[at(split, layer, from) * split->how->n_parts + to];
}

/* A vertex has filters of all layers that are joined with its own. */
static void count_work(struct split *split)
{
    const struct rb_filters_how *how = split->how;
    RB_CLEANUP(rb_freep) uint32_t *roots = rb_alloc((how->n_layers + 1) * sizeof *roots);

    rb_hypergraph_roots(how->layers, how->n_layers, roots);
    for (uint32_t l = 0; l < how->n_layers; l++)
        for (uint32_t v = 0; v < how->graph->n_vertices; v++) {
            const struct rb_hypergraph_bundle *bundle = &how->bundles[v];
            double work = how->layers[l].work * (bundle->end - bundle->first);

            if (bundle->layer != roots[l])
                continue;
            split->work[at(split, l, how->parts[v])] += work;
            split->all += work;
        }
}

/* Each net goes from its first pin, the vertex that makes it, to every other part that has a pin of
 * it. */
static void count_words(struct split *split)
{
    const struct rb_hypergraph *graph = split->how->graph;
    uint32_t n = split->how->n_parts;
    RB_CLEANUP(rb_freep) uint32_t *seen = rb_alloc(n * sizeof *seen);

    for (uint32_t net = 0; net < graph->n_nets; net++) {
        uint32_t maker = graph->pins[graph->first_pin[net]], from = split->how->parts[maker];

        seen[from] = net + 1;
        for (uint32_t p = graph->first_pin[net]; p < graph->first_pin[net + 1]; p++) {
            uint32_t to = split->how->parts[graph->pins[p]];

            if (seen[to] != net + 1)
                *words_of(split, graph->layers[net], from, to) += graph->costs[net];
            seen[to] = net + 1;
        }
    }
}

static int add_work(struct split *split, uint32_t part, int kind, uint32_t number, double seconds)
{
    struct rb_simulate_task task = {.slot = split->slots[part],
                                    .work = seconds,
                                    .rate = 1,
                                    .kind = kind,
                                    .lane = part,
                                    .number = number};

    return rb_simulate_add(split->simulate, &task);
}

/* Send `words` from one part to another behind `before`.  Returns the task of their arrival. */
static int add_transfer(struct split *split, int before, uint32_t from, int way, double words)
{
    struct rb_simulate_task transfer = {.slot = RB_SIMULATE_NO_SLOT,
                                        .latency = split->how->latency,
                                        .work = 4 * words * split->how->samples * split->size,
                                        .kind = RB_PREDICT_MEET};
    int i;

    if (split->links[way][from] >= 0)
        rb_simulate_use(&transfer, split->links[way][from], 1);
    i = rb_simulate_add(split->simulate, &transfer);
    rb_simulate_after(split->simulate, i, before);
    split->sent[from] += transfer.work;
    return i;
}

static void after(struct split *split, int task, int before)
{
    if (task >= 0 && before >= 0)
        rb_simulate_after(split->simulate, task, before);
}

/* Compute a part's filters of a layer, in one direction; -1: it has none.  A sum takes no time of
 * its own; its summands do. */
static int add_filters(struct split *split, uint32_t layer, uint32_t part, bool back, uint32_t m)
{
    double share = split->work[at(split, layer, part)] / split->all * (back ? 2 : 1) / 3;
    struct rb_simulate_task gate = {.slot = RB_SIMULATE_NO_SLOT, .kind = RB_PREDICT_MEET};

    if (split->how->layers[layer].n_joins)
        return rb_simulate_add(split->simulate, &gate);
    if (share <= 0)
        return -1;
    return add_work(split, part, back ? RB_PREDICT_BACKWARD : RB_PREDICT_COMPUTE, m,
                    split->how->microbatch * split->size * share);
}

/* What a layer needs comes from its own part, or over a link, once for all readers in the part. */
static void add_forward(struct split *split, uint32_t m)
{
    uint32_t n = split->how->n_parts;

    for (uint32_t l = 0; l < split->how->n_layers; l++)
        for (uint32_t p = 0; p < n; p++) {
            int task = add_filters(split, l, p, false, m);

            split->forward[at(split, l, p)] = task;
            after(split, task, split->last[p]);
            for (uint32_t i = 0; i < split->how->layers[l].n_inputs; i++) {
                uint32_t from = split->how->layers[l].inputs[i];

                after(split, task, split->forward[at(split, from, p)]);
                for (uint32_t q = 0; q < n; q++)
                    after(split, task, split->arrivals[at(split, from, q) * n + p]);
            }
            for (uint32_t i = 0; i < split->how->layers[l].n_joins; i++)
                after(split, task, split->forward[at(split, split->how->layers[l].joins[i], p)]);
            for (uint32_t q = 0; q < n; q++) {
                double words = *words_of(split, l, p, q);

                split->arrivals[at(split, l, p) * n + q] =
                    task >= 0 && words > 0 ? add_transfer(split, task, p, 0, words) : -1;
            }
        }
}

/* The gradients of what part p gave to part q come back when all its readers in q are done; those
 * of a sum are there already. */
static void await_gradients(struct split *split, int task, uint32_t layer, uint32_t p)
{
    for (uint32_t q = 0; q < split->how->n_parts; q++) {
        double words = *words_of(split, layer, p, q);
        int gate = -1;

        for (uint32_t reader = layer + 1; reader < split->how->n_layers; reader++) {
            const struct rb_hypergraph_layer *one = &split->how->layers[reader];
            int before = split->backward[at(split, reader, q)];

            if (q == p && rb_hypergraph_joins(one, layer))
                after(split, task, before);
            if (!rb_hypergraph_reads(one, layer) || before < 0 || (q != p && words <= 0))
                continue;
            if (q == p)
                after(split, task, before);
            else if (gate < 0)
                gate = add_transfer(split, before, q, 1, words);
            else
                after(split, gate, before);
        }
        after(split, task, gate);
    }
}

static void add_backward(struct split *split, uint32_t m)
{
    for (uint32_t l = split->how->n_layers; l-- > 0;)
        for (uint32_t p = 0; p < split->how->n_parts; p++) {
            int task = add_filters(split, l, p, true, m);

            split->backward[at(split, l, p)] = task;
            after(split, task, split->forward[at(split, l, p)]);
            if (task >= 0)
                await_gradients(split, task, l, p);
        }
}

/* A task behind all that each part does for these microbatches. */
static void end_microbatches(struct split *split)
{
    struct rb_simulate_task gate = {.slot = RB_SIMULATE_NO_SLOT, .kind = RB_PREDICT_MEET};

    for (uint32_t p = 0; p < split->how->n_parts; p++) {
        int done = rb_simulate_add(split->simulate, &gate);

        after(split, done, split->last[p]);
        for (uint32_t l = 0; l < split->how->n_layers; l++)
            after(split, done, split->backward[at(split, l, p)]);
        split->last[p] = done;
    }
}

static void open_split(struct split *split)
{
    uint32_t n = split->how->n_parts;
    size_t cells = (size_t)split->how->n_layers * n;

    split->simulate = rb_simulate_new();
    split->work = rb_alloc((cells + 1) * sizeof(double));
    split->words = rb_alloc((cells * n + 1) * sizeof(double));
    split->forward = rb_alloc((cells + 1) * sizeof(int));
    split->backward = rb_alloc((cells + 1) * sizeof(int));
    split->arrivals = rb_alloc((cells * n + 1) * sizeof(int));
    split->sent = rb_alloc((n + 1) * sizeof(double));
    split->slots = rb_alloc((n + 1) * sizeof(int));
    split->last = rb_alloc((n + 1) * sizeof(int));
    for (int way = 0; way < 2; way++)
        split->links[way] = rb_alloc((n + 1) * sizeof(int));
    for (uint32_t p = 0; p < n; p++) {
        split->slots[p] = rb_simulate_slot(split->simulate);
        split->last[p] = -1;
        for (int way = 0; way < 2; way++)
            split->links[way][p] =
                split->how->bandwidth > 0
                    ? rb_simulate_resource(split->simulate, split->how->bandwidth)
                    : -1;
    }
    count_work(split);
    count_words(split);
}

static void close_split(struct split *split)
{
    free(split->work);
    free(split->words);
    free(split->forward);
    free(split->backward);
    free(split->arrivals);
    free(split->sent);
    free(split->slots);
    free(split->last);
    free(split->links[0]);
    free(split->links[1]);
}

/* Each part updates what it has when it is done. */
static void add_updates(struct split *split)
{
    for (uint32_t p = 0; p < split->how->n_parts; p++) {
        double share = 0;

        for (uint32_t l = 0; l < split->how->n_layers; l++)
            share += split->work[at(split, l, p)] / split->all;
        after(split, add_work(split, p, RB_PREDICT_UPDATE, 0, split->how->update * share),
              split->last[p]);
    }
}

int rb_filters_step(const struct rb_filters_how *how, struct rb_pipeline_step *ret_step,
                    struct rb_why *why)
{
    struct split split = {.how = how};
    struct rb_pipeline_step step = {0};
    double busy = 0;
    int err;

    open_split(&split);
    for (uint32_t m = 0; m < how->microbatches; m += split.size) {
        uint32_t rest = how->microbatches - m;

        split.size = how->together > 1 ? how->together : 1;
        split.size = split.size < rest ? split.size : rest;
        add_forward(&split, m);
        add_backward(&split, m);
        end_microbatches(&split);
    }
    add_updates(&split);
    err = rb_simulate_run(split.simulate, &step.seconds, why);
    for (size_t i = 0; i < rb_simulate_count(split.simulate); i++) {
        const struct rb_simulate_task *task = rb_simulate_task(split.simulate, i);

        if (task->slot >= 0)
            busy += task->end - task->start;
    }
    for (uint32_t p = 0; p < how->n_parts; p++) {
        step.all_sent += split.sent[p];
        step.sent = split.sent[p] > step.sent ? split.sent[p] : step.sent;
    }
    if (step.seconds > 0)
        step.idle = fmax(0, 1 - busy / how->n_parts / step.seconds);
    step.simulate = split.simulate;
    if (err)
        rb_simulate_free(split.simulate);
    else
        *ret_step = step;
    close_split(&split);
    return err;
}
