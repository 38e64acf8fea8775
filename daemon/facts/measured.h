/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of a configuration as the planner sees them: what nodes have measured.
 *
 * facts, Configuration > [measured] > cluster > plan/search */
#ifndef RB_DAEMON_FACTS_MEASURED_H
#define RB_DAEMON_FACTS_MEASURED_H

#include "daemon/facts/facts.h"
#include "plan/simulate/cluster.h"

/* By rank.  Nodes of one host are one: they share its memory.  Speeds are those beside the node
 * that the profile was taken on (or the first member, where that is gone); cores that differ by
 * less than a quarter are taken to be alike.  `bytes`: what a core of that node copies a second.
 * RB_ENOTFOUND: something was not measured. */
int rb_measured_cluster(const struct rb_facts *facts, const Rb__Configuration *configuration,
                        const char *profiled_on, double bytes, struct rb_cluster *ret,
                        struct rb_why *why);

#endif
