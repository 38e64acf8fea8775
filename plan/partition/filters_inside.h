/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of reading a program's filters: for filters_layers.c and filters_values.c alone.
 *
 * instructions > filters_layers: products > [filters_values: what they read] > layers */
#ifndef RB_PLAN_PARTITION_FILTERS_INSIDE_H
#define RB_PLAN_PARTITION_FILTERS_INSIDE_H

#include "plan/partition/filters.h"

#include <stdbool.h>

/* The layers whose filters a value is made of, one after the other along axis 1. */
struct rb_filters_sources {
    uint32_t layers[RB_HYPERGRAPH_INPUTS], n;
    int64_t times[RB_HYPERGRAPH_INPUTS]; /* by layer: elements of axis 1 that a filter has */
    bool many;                           /* more than fit */
    const Rb__Instruction *last;         /* needs all of their filters at once; NULL: none does */
};

/* The activation as which a layer's filters are read: source `place` of what instruction `maker`
 * makes, in whatever shape.  maker -1: they are not read yet. */
struct rb_filters_activation {
    int maker;
    uint32_t place;
};

/* While a program is read. */
struct rb_filters_reading {
    const Rb__Model *model;
    const Rb__Program *program;
    const int *makers;
    struct rb_filters_sources *sources; /* by instruction */
    int *same; /* by instruction: the one whose result it is, before blocks were turned around */
    struct rb_hypergraph_layer *layers;
    struct rb_filters_activation *activations; /* by layer */
    uint32_t n, room;
};

uint32_t rb_filters_add_layer(struct rb_filters_reading *reading,
                              const struct rb_hypergraph_layer *layer);

/* The first number of an attribute. */
int64_t rb_filters_number(const Rb__Instruction *one, const char *key, int64_t otherwise);

/* Is it a weight that is trained? */
bool rb_filters_is_trained(const struct rb_filters_reading *reading, const Rb__Tensor *tensor);

/* Input k of instruction `at`, which needs more than one filter of it: the layers whose nets the
 * instruction reads, each for the activation that is read. */
struct rb_filters_sources rb_filters_read(struct rb_filters_reading *reading, size_t at, size_t k);

/* The sources of what an instruction other than a product makes. */
struct rb_filters_sources rb_filters_take(struct rb_filters_reading *reading, size_t at);

#endif
