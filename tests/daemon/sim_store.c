/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_store_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MOST = 128 };

/* ---- Keys -------------------------------------------------------------------------------------*/

static size_t lower_bound(const struct sim_store *store, const char *key)
{
    size_t low = 0, high = store->n_keys;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(store->keys[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sim_change *find(const struct sim_store *store, const char *key)
{
    size_t i = lower_bound(store, key);

    return i < store->n_keys && !strcmp(store->keys[i].key, key) ? &store->keys[i] : NULL;
}

/* Into the log, and to the observer. */
static void log_change(struct sim *sim, const struct sim_change *change)
{
    struct sim_store *store = sim->store;
    struct rb_why why = {{0}};

    if (store->n_changes == store->room_changes) {
        store->room_changes = store->room_changes ? store->room_changes * 2 : 1024;
        store->changes = rb_realloc(store->changes, store->room_changes * sizeof *store->changes);
    }
    store->changes[store->n_changes++] = *change;
    if (!change->value)
        rb_mirror_delete(sim->observer, change->key);
    else if (rb_mirror_put(sim->observer, change->key, change->value, strlen(change->value),
                           change->revision, change->created, change->lease, &why))
        sim_fail(sim, "%s cannot be read: %s", change->key, why.text);
}

static void put(struct sim *sim, const char *key, const char *value, int64_t lease)
{
    struct sim_store *store = sim->store;
    size_t i = lower_bound(store, key);
    bool there = i < store->n_keys && !strcmp(store->keys[i].key, key);
    struct sim_change change = {
        .revision = store->revision,
        .created = there ? store->keys[i].created : store->revision,
        .lease = lease,
        .key = there ? store->keys[i].key : rb_arena_string(&sim->arena, key),
        .value = rb_arena_string(&sim->arena, value),
    };

    if (!there) {
        if (store->n_keys == store->room_keys) {
            store->room_keys = store->room_keys ? store->room_keys * 2 : 256;
            store->keys = rb_realloc(store->keys, store->room_keys * sizeof *store->keys);
        }
        memmove(&store->keys[i + 1], &store->keys[i], (store->n_keys - i) * sizeof *store->keys);
        store->n_keys++;
    }
    store->keys[i] = change;
    log_change(sim, &change);
}

void sim_store_delete_at(struct sim *sim, size_t i)
{
    struct sim_store *store = sim->store;
    struct sim_change change = {.revision = store->revision, .key = store->keys[i].key};

    memmove(&store->keys[i], &store->keys[i + 1], (store->n_keys - i - 1) * sizeof *store->keys);
    store->n_keys--;
    log_change(sim, &change);
}

static void delete_all(struct sim *sim, const char *prefix)
{
    struct sim_store *store = sim->store;
    size_t i = lower_bound(store, prefix);

    while (i < store->n_keys && !strncmp(store->keys[i].key, prefix, strlen(prefix)))
        sim_store_delete_at(sim, i);
}

/* ---- Transactions -----------------------------------------------------------------------------*/

static bool holds(const struct sim *sim, const struct rb_write *write)
{
    const struct sim_change *at;

    if (write->revision == RB_ANY_REVISION || sim->broken == SIM_NO_GUARDS)
        return true;
    at = find(sim->store, write->key);
    return (at ? at->revision : RB_ABSENT) == write->revision;
}

static bool lets(const struct sim *sim, const struct rb_fence *fence)
{
    const struct sim_change *at = find(sim->store, fence->key);

    return sim->broken == SIM_NO_GUARDS ||
           (at && at->created == fence->created &&
            (!fence->revision || sim->broken == SIM_NO_ORDER || at->revision == fence->revision));
}

static bool covers(const struct rb_write *range, const struct rb_write *write)
{
    return range->kind == RB_WRITE_DELETE_ALL &&
           !strncmp(range->key, write->key, strlen(range->key));
}

/* etcd takes no transaction that changes a key twice, nor one that is too long. */
static void check_shape(struct sim *sim, const struct rb_write *writes, size_t n)
{
    size_t puts = 0;

    for (size_t i = 0; i < n; i++) {
        puts += writes[i].kind != RB_WRITE_GUARD;
        for (size_t k = 0; k < i; k++) {
            bool changes = writes[i].kind != RB_WRITE_GUARD && writes[k].kind != RB_WRITE_GUARD &&
                           (writes[i].kind == RB_WRITE_PUT || writes[k].kind == RB_WRITE_PUT);

            if (changes && (!strcmp(writes[i].key, writes[k].key) ||
                            covers(&writes[i], &writes[k]) || covers(&writes[k], &writes[i])))
                sim_fail(sim, "a transaction changes %s twice", writes[i].key);
        }
    }
    if (puts > OPERATIONS_MOST || n > OPERATIONS_MOST)
        sim_fail(sim, "a transaction of %zu operations", n);
}

static void apply(struct sim *sim, const struct rb_write *write, int64_t lease)
{
    struct sim_change *at;

    switch (write->kind) {
    case RB_WRITE_PUT:
        put(sim, write->key, write->value, write->leased ? lease : 0);
        break;
    case RB_WRITE_DELETE:
        at = find(sim->store, write->key);
        if (at)
            sim_store_delete_at(sim, (size_t)(at - sim->store->keys));
        break;
    case RB_WRITE_DELETE_ALL:
        delete_all(sim, write->key);
        break;
    case RB_WRITE_GUARD:
        break;
    }
}

static void touch(struct sim *sim, const char *key)
{
    const struct sim_change *at = find(sim->store, key);

    if (at)
        put(sim, key, at->value, at->lease);
}

void sim_store_changed(struct sim *sim)
{
    rb_mirror_set_revision(sim->observer, sim->store->revision);
    sim_check_facts(sim);
    sim_clients_notice(sim);
}

int sim_store_txn(struct sim *sim, const struct rb_write *writes, size_t n, int64_t lease,
                  const struct rb_fence *fence, int64_t *ret_revision)
{
    struct sim_store *store = sim->store;
    bool changes = fence && fence->revision;

    check_shape(sim, writes, n);
    if (fence && !lets(sim, fence))
        return RB_ESTALE;
    for (size_t i = 0; i < n; i++) {
        if (!holds(sim, &writes[i]))
            return RB_ESTALE;
        if (writes[i].leased && !sim_store_lease(store, lease))
            return RB_ENOTFOUND;
        changes |= writes[i].kind != RB_WRITE_GUARD;
    }
    sim_check_txn(sim, writes, n);
    *ret_revision = store->revision;
    if (!changes)
        return RB_OK;
    *ret_revision = ++store->revision;
    for (size_t i = 0; i < n; i++)
        apply(sim, &writes[i], lease);
    if (fence && fence->revision)
        touch(sim, fence->key);
    sim_store_changed(sim);
    return RB_OK;
}

int sim_store_commit(struct sim *sim, struct rb_writes *writes)
{
    int64_t revision;
    int err = sim_store_txn(sim, writes->at, writes->n, 0, NULL, &revision);

    rb_writes_done(writes);
    return err;
}

/* ---- The rest ---------------------------------------------------------------------------------*/

void sim_store_compact(struct sim *sim)
{
    sim->store->compacted = sim->store->revision;
}

void sim_store_stand(struct sim *sim, bool up)
{
    if (up && !sim->store->up)
        sim_store_renew_all(sim); /* a new leader of etcd gives every lease its whole time */
    sim->store->up = up;
    if (up)
        sim_clients_notice(sim);
}

bool sim_store_up(const struct sim *sim)
{
    return sim->store->up;
}

int64_t sim_store_revision(const struct sim *sim)
{
    return sim->store->revision;
}

int64_t sim_store_compacted(const struct sim *sim)
{
    return sim->store->compacted;
}

const struct sim_change *sim_store_changes(const struct sim *sim, int64_t revision, size_t *ret_n)
{
    const struct sim_store *store = sim->store;
    size_t low = 0, high = store->n_changes;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (store->changes[middle].revision < revision)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_n = store->n_changes - low;
    if (!*ret_n)
        return NULL;
    return store->changes + low;
}

const struct sim_change *sim_store_list(const struct sim *sim, size_t *ret_n)
{
    *ret_n = sim->store->n_keys;
    return sim->store->keys;
}

void sim_store_begin(struct sim *sim)
{
    sim->store = rb_alloc(sizeof *sim->store);
    sim->store->up = true;
    sim->store->revision = 1;
    sim->observer = rb_mirror_new();
}

void sim_store_end(struct sim *sim)
{
    rb_mirror_free(sim->observer);
    free(sim->store->keys);
    free(sim->store->changes);
    free(sim->store);
}
