/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the members of a configuration have memory to keep activations, or compute them again.
 *
 * Job, Configuration in facts > [fit] > what coordinators make, what is left behind a death
 *
 * Pure, and from facts alone: so agents and the coordinator come to the same where no planner was
 * asked.  It counts as the planner does (plan/compile/footprint.h), so what a death leaves keeps
 * activations where the planner would. */
#ifndef RB_DAEMON_FACTS_FIT_H
#define RB_DAEMON_FACTS_FIT_H

#include "facts.pb-c.h"
#include "plan.pb-c.h"

#include <stdbool.h>

/* Do the members need to compute activations again?  false: they do not, or the job has one way
 * alone (no Job.footprint). */
bool rb_fit_recomputes(const Rb__Job *job, const Rb__Configuration *configuration);

/* Job.footprint, for a Model that has both ways.  limit: that the job file names.  most: devices
 * that the job may have.  Free with rb__footprint__free_unpacked. */
Rb__Footprint *rb_fit_describe(const Rb__Model *model, uint64_t limit, uint32_t most);

#endif
