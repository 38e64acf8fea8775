/* SPDX-License-Identifier: Apache-2.0 */
/* etcd's leases: what is put under one goes with it. */
#include "sim_store_inside.h"

#include <inttypes.h>

enum { LEASE_US = 5000000 };

struct sim_lease *sim_store_lease(const struct sim_store *store, int64_t id)
{
    struct sim_lease *lease = store->leases;

    while (lease && lease->id != id)
        lease = lease->next;
    return lease;
}

static void drop_lease(struct sim *sim, struct sim_lease *lease)
{
    struct sim_store *store = sim->store;
    struct sim_lease **at = &store->leases;
    bool any = false;

    while (*at != lease)
        at = &(*at)->next;
    *at = lease->next;
    for (size_t i = 0; i < store->n_keys;) {
        if (store->keys[i].lease != lease->id) {
            i++;
            continue;
        }
        if (!any)
            store->revision++;
        any = true;
        sim_say(sim, "etcd", "lease %" PRId64 " ends: %s", lease->id, store->keys[i].key);
        sim_store_delete_at(sim, i);
    }
    if (any)
        sim_store_changed(sim);
}

static void on_lease(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_lease *lease = sim_store_lease(sim->store, (int64_t)stamp);

    (void)who;
    (void)what;
    if (!lease)
        return;
    if (lease->until > sim->now || !sim->store->up) { /* etcd that is away lets nothing run out */
        uint64_t wait = lease->until > sim->now ? lease->until - sim->now : 500000;

        sim_in(sim, wait, on_lease, NULL, stamp, NULL);
        return;
    }
    drop_lease(sim, lease);
}

int64_t sim_store_grant(struct sim *sim)
{
    struct sim_lease *lease = sim_new(sim, sizeof *lease);

    lease->id = 1000 + ++sim->store->granted;
    lease->until = sim->now + LEASE_US;
    lease->next = sim->store->leases;
    sim->store->leases = lease;
    sim_in(sim, LEASE_US, on_lease, NULL, (uint64_t)lease->id, NULL);
    return lease->id;
}

bool sim_store_keep(struct sim *sim, int64_t id)
{
    struct sim_lease *lease = sim_store_lease(sim->store, id);

    if (lease)
        lease->until = sim->now + LEASE_US;
    return lease != NULL;
}

void sim_store_revoke(struct sim *sim, int64_t id)
{
    struct sim_lease *lease = sim_store_lease(sim->store, id);

    if (lease)
        drop_lease(sim, lease);
}

void sim_store_renew_all(struct sim *sim)
{
    for (struct sim_lease *lease = sim->store->leases; lease; lease = lease->next)
        lease->until = sim->now + LEASE_US;
}
