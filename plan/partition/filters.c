/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/filters.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { GRAIN = 64, TRIES = 4 }; /* vertices a layer; partitions tried */

/* Parts of the work of a part: what it may have above the mean, and what is next to nothing. */
static const double EPSILON = 0.03;

/* Parts have no order: so the loss, the last vertex, is in the last of them. */
static void put_loss_last(const struct rb_filters_cut *cut)
{
    uint32_t of_loss = cut->parts[cut->graph.n_vertices - 1], last = cut->n_parts - 1;

    for (uint32_t v = 0; v < cut->graph.n_vertices; v++)
        if (cut->parts[v] == of_loss)
            cut->parts[v] = last;
        else if (cut->parts[v] == last)
            cut->parts[v] = of_loss;
}

/* The layers that only the loss follows and that are together next to nothing to compute: dividing
 * them would send their filters to the loss for no gain.  ret_last: by layer. */
static void find_last(const struct rb_filters_cut *cut, bool *ret_last)
{
    double all = 0, some = 0;

    for (uint32_t l = 0; l < cut->n_layers; l++)
        all += cut->layers[l].work * cut->layers[l].filters;
    for (uint32_t l = cut->n_layers; l-- > 0;) {
        const struct rb_hypergraph_layer *layer = &cut->layers[l];
        bool last = !layer->n_joins;

        for (uint32_t to = l + 1; to < cut->n_layers; to++)
            if (rb_hypergraph_reads(&cut->layers[to], l) ||
                rb_hypergraph_joins(&cut->layers[to], l))
                last &= ret_last[to];
        some += layer->work * layer->filters;
        ret_last[l] = l + 1 == cut->n_layers || (last && some <= EPSILON / cut->n_parts * all);
    }
}

/* Divide each layer over all parts, in the order of its filters, so that groups that feed each
 * other stay together. */
static void cut_layers(const struct rb_filters_cut *cut)
{
    RB_CLEANUP(rb_freep) bool *last = rb_alloc(cut->n_layers + 1);

    find_last(cut, last);
    for (uint32_t v = 0; v < cut->graph.n_vertices; v++) {
        const struct rb_hypergraph_bundle *bundle = &cut->bundles[v];
        uint64_t filters = cut->layers[bundle->layer].filters;

        cut->parts[v] = last[bundle->layer] ? cut->n_parts - 1
                                            : (uint32_t)(bundle->first * cut->n_parts / filters);
    }
}

enum rb_filters_aim rb_filters_aim_of(const Rb__ParallelSpec *parallel)
{
    return parallel && parallel->cut && !strcmp(parallel->cut, "layers") ? RB_FILTERS_LAYERS
                                                                         : RB_FILTERS_WORDS;
}

int rb_filters_cut(const Rb__Model *model, uint32_t parts, enum rb_filters_aim aim,
                   struct rb_filters_cut *ret_cut, struct rb_why *why)
{
    struct rb_hypergraph_how how = {.parts = parts, .epsilon = EPSILON, .seed = 1, .tries = TRIES};
    struct rb_filters_cut cut = {.n_parts = parts};
    int err = rb_filters_layers(model, &cut.layers, &cut.n_layers, why);

    if (err)
        return err;
    rb_hypergraph_of_layers(cut.layers, cut.n_layers, GRAIN, &cut.graph, &cut.bundles);
    cut.parts = rb_alloc((cut.graph.n_vertices + 1) * sizeof *cut.parts);
    if (aim == RB_FILTERS_LAYERS) {
        cut_layers(&cut);
    } else {
        rb_hypergraph_partition(&cut.graph, &how, cut.parts);
        put_loss_last(&cut);
    }
    *ret_cut = cut;
    return 0;
}

void rb_filters_cut_done(struct rb_filters_cut *cut)
{
    free(cut->layers);
    free(cut->bundles);
    free(cut->parts);
    rb_hypergraph_done(&cut->graph);
    *cut = (struct rb_filters_cut){0};
}
