/* SPDX-License-Identifier: Apache-2.0 */
/* Which members of a configuration hold which part of the job's state, and whether some hold all of
 * it.
 *
 * Job, Configuration in facts > [holding] > the agents' plans, the coordinator's rules
 *
 * Pure; plan/replicas.h has the placement itself. */
#ifndef RB_DAEMON_FACTS_HOLDING_H
#define RB_DAEMON_FACTS_HOLDING_H

#include "base/arena.h"
#include "facts.pb-c.h"
#include "plan/replicas.h"

/* What decides the placement of a configuration (nodes: the arena's). */
struct rb_replicas rb_holding_of(const Rb__Job *job, const Rb__Configuration *configuration,
                                 struct rb_arena *arena);

/* Does no member have all of it? */
bool rb_holding_sharded(const Rb__Job *job, const Rb__Configuration *configuration);

#endif
