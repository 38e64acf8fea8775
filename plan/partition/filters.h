/* SPDX-License-Identifier: Apache-2.0 */
/* The filters and neurons of a program, as layers of a hypergraph; and a step in which each filter
 * is on one of several devices.
 *
 * Program > [filters] > hypergraph_model > partition > [filters] > simulate > seconds
 *
 * A part computes its filters of a layer when it has what they read, sends what other parts read,
 * and sends the gradients back; weights are never sent.  Microbatches go through in groups
 * (`together`): a part begins the next group when it is done with one. */
#ifndef RB_PLAN_PARTITION_FILTERS_H
#define RB_PLAN_PARTITION_FILTERS_H

#include "plan/partition/hypergraph_model.h"
#include "plan/simulate/cost.h"
#include "plan/simulate/pipeline.h"
#include "spec.pb-c.h"

/* The layers of the first program: its products; what is made of several layers filter by filter
 * and read; and the loss, as the last layer, of one filter.  The caller frees *ret_layers.
 * RB_EUNSUPPORTED: there is a Dropout, or a product whose filters cannot be told apart: it is not
 * with a weight, has its neurons in columns, reads what needs all filters of a layer, or reads too
 * many layers. */
int rb_filters_layers(const Rb__Model *model, struct rb_hypergraph_layer **ret_layers,
                      uint32_t *ret_n, struct rb_why *why);

/* What a cut optimizes (spec.parallel.cut). */
enum rb_filters_aim {
    RB_FILTERS_WORDS,  /* few words change parts; parts are even over the whole step, so one mostly
                          waits for another: for slow links, or little memory */
    RB_FILTERS_LAYERS, /* parts are even in each layer, except small layers in front of the loss,
                          which the last part has; so all compute at once, and most words go to all:
                          for quick links */
};
enum rb_filters_aim rb_filters_aim_of(const Rb__ParallelSpec *parallel); /* NULL: words */

/* Which part has which filters, as a pin makes it: a function of the model, the number of parts and
 * the aim. */
struct rb_filters_cut {
    struct rb_hypergraph_layer *layers;
    uint32_t n_layers;
    struct rb_hypergraph graph;
    struct rb_hypergraph_bundle *bundles; /* by vertex */
    uint32_t *parts;                      /* by vertex; the loss is in the last part */
    uint32_t n_parts;
};

int rb_filters_cut(const Rb__Model *model, uint32_t parts, enum rb_filters_aim aim,
                   struct rb_filters_cut *ret_cut, struct rb_why *why);
void rb_filters_cut_done(struct rb_filters_cut *cut);

struct rb_filters_how {
    const struct rb_hypergraph_layer *layers;
    uint32_t n_layers;
    const struct rb_hypergraph *graph;          /* of the layers */
    const struct rb_hypergraph_bundle *bundles; /* by vertex */
    const uint32_t *parts;                      /* by vertex */
    uint32_t n_parts;
    uint32_t microbatches, samples; /* samples of a microbatch */
    uint32_t together;         /* microbatches that go through the program at once; 0 counts as 1 */
    double microbatch, update; /* seconds on one device: of one microbatch of a group; of the whole
                                  update */
    double bandwidth, latency; /* of a device's link, each way; 0: no obstacle */
};

/* lanes are parts; `sent` is of the part that sends most. */
int rb_filters_step(const struct rb_filters_how *how, struct rb_pipeline_step *ret_step,
                    struct rb_why *why);

#endif
