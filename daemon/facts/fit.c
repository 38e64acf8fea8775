/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/fit.h"

#include "base/arena.h"
#include "daemon/facts/shares.h"
#include "plan/compile/footprint.h"
#include "plan/flights.h"
#include "proto/spec.h"

/* 0: on GPUs. */
static uint64_t flights_of(const Rb__Job *job, const struct rb_footprint *footprint,
                           uint32_t stages)
{
    const Rb__Footprint *has = job->footprint;

    if (rb_spec_class_is(job->numeric_class, "cuda"))
        return 0;
    return has->n_flights ? rb_flights_of(has->flights, has->n_flights, stages)
                          : rb_footprint_flights(footprint);
}

bool rb_fit_recomputes(const Rb__Job *job, const Rb__Configuration *configuration)
{
    const Rb__Footprint *has = job->footprint;
    uint32_t stages = rb_shares_shape(configuration).stages;
    struct rb_footprint footprint;

    if (!has)
        return false;
    footprint = (struct rb_footprint){has->everywhere, has->held, has->kept, has->again};
    return rb_footprint_staged(&footprint, false, configuration->replicas,
                               (uint32_t)configuration->n_members, stages,
                               flights_of(job, &footprint, stages)) > has->limit;
}

Rb__Footprint *rb_fit_describe(const Rb__Model *model, uint64_t limit, uint32_t most)
{
    struct rb_footprint footprint = rb_footprint_of(model);
    Rb__Footprint *fit = rb_alloc(sizeof *fit);

    rb__footprint__init(fit);
    fit->everywhere = footprint.everywhere;
    fit->held = footprint.held;
    fit->kept = footprint.kept;
    fit->again = footprint.again;
    fit->limit = limit;
    fit->n_flights = rb_flights_list(model, most, &fit->flights);
    return fit;
}
