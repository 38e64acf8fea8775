/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of faults share.
 *
 *     sim_fault.c: which fault comes when; workers and nodes > sim_fault_net.c, sim_fault_stop.c
 *
 * Private to tests/daemon/sim_fault*.c. */
#ifndef RB_TESTS_DAEMON_SIM_FAULT_H
#define RB_TESTS_DAEMON_SIM_FAULT_H

#include "sim_rubatod.h"

enum {
    SIM_LASTS_US = 12000000,  /* most faults, at most */
    SIM_GIVE_UP_US = 7000000, /* a link to nowhere */
};

uint64_t sim_fault_lasts(struct sim *sim);
struct sim_node *sim_fault_any_node(struct sim *sim);
/* After `us` the node is there again, unless it is in another stop by then. */
void sim_fault_ends(struct sim *sim, uint64_t us, struct sim_node *node);

/* sim_fault_net.c: networks, and etcd, which nodes reach or not. */
void sim_fault_part(struct sim *sim);
void sim_fault_etcd(struct sim *sim);
void sim_fault_etcd_away(struct sim *sim, uint64_t us);

/* sim_fault_stop.c: a node that stands still as a whole; for a short time, or a long one. */
void sim_fault_stand(struct sim *sim, struct sim_node *node);
void sim_fault_continue(struct sim *sim, struct sim_node *node);
void sim_fault_long_stop(struct sim *sim, uint64_t us);

#endif
