/* SPDX-License-Identifier: Apache-2.0 */
/* Which saved state a job without processes has.
 *
 * facts > [restore] > allocate, start, export */
#ifndef RB_DAEMON_FACTS_RESTORE_H
#define RB_DAEMON_FACTS_RESTORE_H

#include "base/arena.h"
#include "daemon/facts/facts.h"

/* Failed starts from one state, until an older one is taken if it could not be loaded, else until
 * the job has failed. */
enum { RB_START_TRIES = 3 };

/* Where the job goes on from: its parked state, its newest checkpoint or what it was told to
 * resume, whichever has come furthest; NULL: its initial weights.  What was found unreadable counts
 * where there is nothing else.  *ret_local: only that node can read it. */
const Rb__Checkpoint *rb_restore_source(const struct rb_job_facts *job, struct rb_arena *arena,
                                        bool *ret_local);
/* The same without what lies at these paths (NULL behind the last; NULL: none). */
const Rb__Checkpoint *rb_restore_without(const struct rb_job_facts *job, const char *const *paths,
                                         struct rb_arena *arena, bool *ret_local);

/* Starts from `source` that failed since a configuration was last active. */
unsigned rb_restore_failures(const struct rb_job_facts *job, const Rb__Checkpoint *source);

#endif
