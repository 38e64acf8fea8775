/* SPDX-License-Identifier: Apache-2.0 */
/* etcd from inside: for sim_store.c and sim_lease.c alone. */
#ifndef RB_TESTS_DAEMON_SIM_STORE_INSIDE_H
#define RB_TESTS_DAEMON_SIM_STORE_INSIDE_H

#include "sim_store.h"

struct sim_lease {
    struct sim_lease *next;
    int64_t id;
    uint64_t until;
};

struct sim_store {
    struct sim_change *keys; /* by key: what is there */
    size_t n_keys, room_keys;
    struct sim_change *changes;
    size_t n_changes, room_changes;
    int64_t revision, compacted, granted;
    struct sim_lease *leases;
    bool up;
};

void sim_store_delete_at(struct sim *sim, size_t i); /* of `keys` */
void sim_store_changed(struct sim *sim);
struct sim_lease *sim_store_lease(const struct sim_store *store, int64_t id); /* NULL: none */
void sim_store_renew_all(struct sim *sim);

#endif
