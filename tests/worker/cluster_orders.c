/* SPDX-License-Identifier: Apache-2.0 */
/* The orders that lead workers into a configuration. */
#include "tests/worker/cluster.h"

#include "base/arena.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

void cluster_configure(struct cluster *cluster, uint32_t number, const int *members, int n,
                       const char *restore)
{
    RB_CLEANUP(rb_freep) char *plan = rb_format("%s/plan.%d", cluster->folder, n);
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/model", cluster->folder);
    RB_CLEANUP(rb_freep) char *digest = rb_format("%u of %d", number, n);
    Rb__Peer peers[CLUSTER_WORKERS], *pointers[CLUSTER_WORKERS];

    for (int r = 0; r < n; r++) {
        const Rb__Hello *hello = cluster->workers[members[r]].hello->hello;

        rb__peer__init(&peers[r]);
        peers[r].worker = hello->worker;
        peers[r].addresses = hello->addresses;
        peers[r].n_addresses = hello->n_addresses;
        pointers[r] = &peers[r];
    }
    for (int r = 0; r < n; r++) {
        Rb__ToWorker message = RB__TO_WORKER__INIT;
        Rb__Configure configure = RB__CONFIGURE__INIT;

        configure.number = number;
        configure.plan_path = plan;
        configure.model_path = model;
        configure.rank = (uint32_t)r;
        configure.n_members = (size_t)n;
        configure.members = pointers;
        configure.restore = (char *)restore;
        configure.digest = digest;
        configure.has_recovers = configure.recovers = cluster->recovers;
        configure.has_stands = configure.stands = cluster->stands;
        message.configure = &configure;
        cluster_send(cluster, members[r], &message);
    }
}

void cluster_go(struct cluster *cluster, int worker, uint32_t number)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Go go = RB__GO__INIT;

    go.number = number;
    message.go = &go;
    cluster_send(cluster, worker, &message);
}

void cluster_abandon(struct cluster *cluster, int worker, uint32_t number)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Abandon abandon = RB__ABANDON__INIT;

    abandon.number = number;
    message.abandon = &abandon;
    cluster_send(cluster, worker, &message);
}

struct set {
    uint32_t number;
    const int *members;
    int n;
    bool or_unready;
};

static bool all_ready(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;
    bool all = true;

    for (int i = 0; i < set->n; i++) {
        struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (one->unready == set->number || one->failed || one->exited)
            CLUSTER_FAIL(cluster, "%s is not ready for %u: %s", one->name, set->number,
                         one->reason);
        all &= one->ready == set->number;
    }
    return all;
}

static bool all_flipped(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;
    bool all = true;

    for (int i = 0; i < set->n; i++) {
        struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (one->flipped == set->number)
            continue; /* whatever has happened to it since */
        if (one->exited && cluster->mortal)
            continue; /* it may have been there already */
        if (one->failed || one->exited)
            CLUSTER_FAIL(cluster, "%s failed on its way to %u: %s", one->name, set->number,
                         one->reason);
        if (set->or_unready && one->unready == set->number)
            return true;
        all = false;
    }
    return all;
}

void cluster_until_ready(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_ready, (int64_t)(intptr_t)&set, "ready");
}

void cluster_until_flipped(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_flipped, (int64_t)(intptr_t)&set, "flipped");
}

static bool all_unready(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;

    for (int i = 0; i < set->n; i++)
        if (cluster->workers[set->members[i]].unready != set->number)
            return false;
    return true;
}

void cluster_until_unready(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_unready, (int64_t)(intptr_t)&set, "unready");
}

static bool all_frozen(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;

    for (int i = 0; i < set->n; i++) {
        const struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (!one->exited && !(one->frozen && one->frozen_in == set->number) &&
            !(set->or_unready && one->unready == set->number))
            return false;
    }
    return true;
}

void cluster_until_frozen(struct cluster *cluster, uint32_t number, const int *members, int n,
                          bool or_unready)
{
    struct set set = {number, members, n, or_unready};

    cluster_until(cluster, all_frozen, (int64_t)(intptr_t)&set, "frozen");
}

static bool is_in(int worker, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (members[i] == worker)
            return true;
    return false;
}

/* False: the configuration is given up, as when newcomers do not keep up on a busy machine. */
static bool move_once(struct cluster *cluster, const int *members, int n, const char *restore)
{
    struct set set = {++cluster->number, members, n, true};

    cluster_configure(cluster, set.number, members, n, restore);
    cluster_until_ready(cluster, set.number, members, n);
    for (int i = 0; i < n; i++)
        cluster_go(cluster, members[i], set.number);
    for (int i = 0; i < cluster->n_members; i++)
        if (!is_in(cluster->members[i], members, n))
            cluster_go(cluster, cluster->members[i], set.number);
    cluster_until(cluster, all_flipped, (int64_t)(intptr_t)&set, "flipped");
    for (int i = 0; i < n; i++)
        if (cluster->workers[members[i]].unready == set.number)
            return false;
    return true;
}

void cluster_move(struct cluster *cluster, const int *members, int n, const char *restore)
{
    for (int tries = 1; !move_once(cluster, members, n, restore); tries++) {
        if (tries == 50)
            CLUSTER_FAIL(cluster, "%d tries to enter a configuration came to nothing", tries);
        for (int i = 0; i < n; i++)
            cluster_abandon(cluster, members[i], cluster->number);
    }
    for (int i = 0; i < cluster->n_members; i++)
        if (!is_in(cluster->members[i], members, n))
            cluster_leave(cluster, cluster->members[i], NULL, 0);
    memcpy(cluster->members, members, (size_t)n * sizeof *members);
    cluster->n_members = n;
}

void cluster_start(struct cluster *cluster, int n, const char *restore)
{
    int members[CLUSTER_WORKERS];

    for (int i = 0; i < n; i++)
        members[i] = cluster_spawn(cluster);
    cluster->n_members = 0;
    cluster_move(cluster, members, n, restore);
}

void cluster_resize(struct cluster *cluster, int n)
{
    int members[CLUSTER_WORKERS];

    for (int i = 0; i < n; i++)
        members[i] = i < cluster->n_members ? cluster->members[i] : cluster_newcomer(cluster);
    cluster_move(cluster, members, n, NULL);
}
