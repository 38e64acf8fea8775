/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/fit.h"

#include "daemon/facts/shares.h"
#include "plan/compile/footprint.h"
#include "proto/spec.h"

bool rb_fit_recomputes(const Rb__Job *job, const Rb__Configuration *configuration)
{
    const Rb__Footprint *has = job->footprint;
    struct rb_footprint footprint;

    if (!has)
        return false;
    footprint = (struct rb_footprint){has->everywhere, has->held, has->kept, has->again};
    return rb_footprint_total(&footprint, false, configuration->replicas,
                              (uint32_t)configuration->n_members,
                              rb_shares_shape(configuration).stages,
                              rb_spec_class_is(job->numeric_class, "cuda")) > has->limit;
}

void rb_fit_describe(const Rb__Model *model, uint64_t limit, Rb__Footprint *ret)
{
    struct rb_footprint footprint = rb_footprint_of(model);

    rb__footprint__init(ret);
    ret->everywhere = footprint.everywhere;
    ret->held = footprint.held;
    ret->kept = footprint.kept;
    ret->again = footprint.again;
    ret->limit = limit;
}
