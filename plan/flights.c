/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/flights.h"

#include "base/arena.h"
#include "plan/partition/chain.h"
#include "plan/partition/course.h"
#include "plan/schedule_pipeline.h"

#include <math.h>
#include <stdlib.h>

/* The place in a list of the number of stages that stands for this one. */
static size_t place_of(uint32_t stages)
{
    size_t place = 0;

    while (place < 5 && UINT32_C(2) << place < stages)
        place++;
    return place;
}

/* Bytes of the stage that has most, where the model is cut so. */
static double most_under_way(const Rb__Model *model, const uint32_t *cuts, uint32_t stages)
{
    static const struct rb_cluster_device any = {.flops = 1, .bandwidth = 1};
    static const struct rb_cost_profile none;
    RB_CLEANUP(rb_freep) struct rb_chain_layer *layers = NULL;
    uint32_t n = rb_chain_layers(model, &any, &none, &layers), stage = 0;
    double made = 0, most = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (stage + 1 < stages && model->programs[0]->instructions[i]->id == cuts[stage + 1]) {
            stage++;
            made = 0;
        }
        made += layers[i].made;
        most = fmax(most, made * (stages - stage));
    }
    return most;
}

uint64_t rb_flights_find(const Rb__Model *model, uint32_t stages)
{
    uint32_t cuts[RB_COURSE_STAGES] = {0}, n = UINT32_C(2) << place_of(stages);

    while (n > 1 && rb_pipeline_cut(model, n, n, cuts, NULL))
        n /= 2;
    return (uint64_t)most_under_way(model, cuts, n);
}

size_t rb_flights_list(const Rb__Model *model, uint32_t most, uint64_t **ret_flights)
{
    size_t n = place_of(most) + 1;

    *ret_flights = rb_alloc(n * sizeof **ret_flights);
    for (size_t i = 0; i < n; i++)
        (*ret_flights)[i] = rb_flights_find(model, UINT32_C(2) << i);
    return n;
}

uint64_t rb_flights_of(const uint64_t *flights, size_t n, uint32_t stages)
{
    size_t place = place_of(stages);

    return flights[place < n ? place : n - 1];
}
