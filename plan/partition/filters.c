/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/filters.h"

#include "base/arena.h"

#include <stdlib.h>

enum { GRAIN = 64, TRIES = 4 }; /* vertices a layer; partitions that are tried */

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

int rb_filters_cut(const Rb__Model *model, uint32_t parts, struct rb_filters_cut *ret_cut,
                   struct rb_why *why)
{
    struct rb_hypergraph_how how = {.parts = parts, .epsilon = 0.03, .seed = 1, .tries = TRIES};
    struct rb_filters_cut cut = {.n_parts = parts};
    int err = rb_filters_layers(model, &cut.layers, &cut.n_layers, why);

    if (err)
        return err;
    rb_hypergraph_of_layers(cut.layers, cut.n_layers, GRAIN, &cut.graph, &cut.bundles);
    cut.parts = rb_alloc((cut.graph.n_vertices + 1) * sizeof *cut.parts);
    rb_hypergraph_partition(&cut.graph, &how, cut.parts);
    put_loss_last(&cut);
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
