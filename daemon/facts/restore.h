/* SPDX-License-Identifier: Apache-2.0 */
/* Which saved state a job without processes has.
 *
 * facts > [restore] > allocate, start, export */
#ifndef RB_DAEMON_FACTS_RESTORE_H
#define RB_DAEMON_FACTS_RESTORE_H

#include "base/arena.h"
#include "daemon/facts/facts.h"

/* Where the job goes on from: its parked state, its newest checkpoint or what it was told to
 * resume, whichever has come furthest; NULL: its initial weights.  *ret_local: only that node can
 * read it. */
const Rb__Checkpoint *rb_restore_source(const struct rb_job_facts *job, struct rb_arena *arena,
                                        bool *ret_local);

#endif
