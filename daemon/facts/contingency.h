/* SPDX-License-Identifier: Apache-2.0 */
/* Contingency plans: what goes on training when members of a configuration die, known to everyone
 * beforehand, so that nobody has to be asked.
 *
 * facts, deaths > [contingency] > agent/rules, at once;  decide/crash, which records it
 *
 * Pure.  A configuration c of n members keeps the numbers c+1 .. c+n-1 for what is left of it: c+k
 * is c without the k members that are proven dead.  Everything about it follows from c and from
 * which members died: members, ranks, shares, digest.  So agents that know of the same deaths
 * prepare the same configuration.  Agents that know of different deaths prepare configurations that
 * cannot meet until they know of the same deaths.  The coordinator makes the same configuration
 * again when it hears of a death, be it minutes later.
 *
 *     c --X dies--> c+1 = c without X --Y dies--> c+2 = c without X and Y     (base of both: c)
 *
 * Not everything is foreseen.  The coordinator is asked, and plans a new configuration, where too
 * few members are left, or none that is known to have the state, or not all of a state in shards;
 * where a newer configuration may have been flipped to; where the job is being parked; or where
 * what was foreseen has been tried and given up. */
#ifndef RB_DAEMON_FACTS_CONTINGENCY_H
#define RB_DAEMON_FACTS_CONTINGENCY_H

#include "base/arena.h"
#include "daemon/facts/facts.h"

/* What is known beyond facts. */
struct rb_contingency_known {
    const char *const *dead; /* processes, proven dead */
    size_t n_dead;
    const char *const *holders; /* processes that hold a whole state */
    size_t n_holders;
    bool committed; /* a worker of ours has been told to go to a foreseen configuration already:
                       what the coordinator has decided since, without knowing, is void */
};

/* What is to train instead of the job's active configuration: a configuration that facts do not
 * have, the arena's, told to go from birth (asked, created: 0).  NULL: nobody died, or the
 * coordinator is to be asked, or facts have it. */
Rb__Configuration *rb_contingency_next(const struct rb_job_facts *job,
                                       const struct rb_contingency_known *known,
                                       struct rb_arena *arena);

/* The planned configuration that this one is, or is left of.  NULL: facts do not have it. */
const Rb__Configuration *rb_contingency_base(const struct rb_job_facts *job,
                                             const Rb__Configuration *configuration);

/* What is left of `base` where dead[rank] says which members died, at least one; NULL: it is not
 * foreseen. */
Rb__Configuration *rb_contingency_make(const Rb__Job *job, const Rb__Configuration *base,
                                       const bool *dead, uint32_t min, struct rb_arena *arena);

/* Is `number` this configuration, or one that it is left of?  Then what the configuration `number`
 * has made is this one's past: only deaths lie between. */
bool rb_contingency_descends(const Rb__Configuration *configuration, uint32_t number);

/* Does the report speak of this very configuration as active?  Two sets of members that different
 * agents thought left may have the same number; a report says which members its set is without. */
bool rb_contingency_entered(const Rb__WorkerReport *report, const Rb__Configuration *configuration,
                            const Rb__Configuration *base);

/* The processes of `base` that are not in `configuration`. */
size_t rb_contingency_without(const Rb__Configuration *base, const Rb__Configuration *configuration,
                              struct rb_arena *arena, const char ***ret_workers);

#endif
