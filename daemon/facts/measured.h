/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of a configuration as the planner sees them: what nodes have measured.
 *
 * facts, Configuration > [measured] > cluster > plan/search */
#ifndef RB_DAEMON_FACTS_MEASURED_H
#define RB_DAEMON_FACTS_MEASURED_H

#include "daemon/facts/facts.h"
#include "plan/simulate/cluster.h"

/* What a profile was taken on. */
struct rb_measured_by {
    const char *node;
    const char *kind;        /* of the device */
    double copied, crossing; /* for rb_cluster_inside */
};

/* By rank.  Nodes of one host are one: they share its memory.  Speeds are relative to the node that
 * the profile was taken on (or to the first member's, where that node is gone).  Cores that differ
 * by less than a quarter are taken to be alike, and so are GPUs: a job's are of one class, which
 * names the model.  RB_ENOTFOUND: something was not measured, or not on such a device. */
int rb_measured_cluster(const struct rb_facts *facts, const Rb__Configuration *configuration,
                        const struct rb_measured_by *by, struct rb_cluster *ret,
                        struct rb_why *why);

/* Sets speeds as a job that runs shows them.  us: by device of the cluster, what a microbatch takes
 * (0: not known).  expected: what the profile expects it to take a device of speed 1.  All devices
 * are as much slower than was measured as the median of them is, except a device that is off by
 * more than a quarter of that: it has its own factor.  In steps of a tenth, so that noise seldom
 * changes an answer. */
void rb_measured_paces(struct rb_cluster *cluster, const uint32_t *us, double expected);

#endif
