/* SPDX-License-Identifier: Apache-2.0 */
/* Random growth, shrinking, deaths before, during and after a flip, agents that come and go:
 * whatever the order, the same bits. */
#include "tests/worker/run.h"

#include "base/sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = RB_SANITIZED ? 200 : 660 }; /* a storm may spend its workers before */

static uint64_t storms = RB_SANITIZED ? 1 : 2;

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Members of the present configuration that stay, and newcomers: a random next set. */
static int choose_members(struct cluster *cluster, uint64_t *seed, int *members)
{
    int n = 0, keep = 1 + (int)(draw(seed) % (uint32_t)cluster->n_members);
    int first = (int)(draw(seed) % (uint32_t)(cluster->n_members - keep + 1));
    int fresh = (int)(draw(seed) % (uint32_t)(RUN_MOST - keep + 1));

    for (int i = 0; i < keep; i++)
        members[n++] = cluster->members[first + i];
    for (int i = 0; i < fresh && n < RUN_MOST && cluster->n < CLUSTER_WORKERS; i++)
        members[n++] = cluster_newcomer(cluster);
    return n;
}

static bool has(int worker, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (members[i] == worker)
            return true;
    return false;
}

/* All living members of the present configuration and of `members` go on together; the others have
 * nothing to lose. */
static void gather_survivors(struct cluster *cluster, const int *members, int n)
{
    int all[2 * RUN_MOST], n_all = 0;

    for (int i = 0; i < cluster->n_members; i++)
        if (!cluster->workers[cluster->members[i]].exited)
            all[n_all++] = cluster->members[i];
    for (int i = 0; i < n; i++)
        if (!cluster->workers[members[i]].exited && !has(members[i], all, n_all))
            all[n_all++] = members[i];
    while (n_all > RUN_MOST)
        cluster_leave(cluster, all[--n_all], NULL, 0);
    cluster->n_members = 0;
    cluster->recovers = true;
    cluster_move(cluster, all, n_all, NULL);
    cluster->recovers = false;
}

/* Did a member of the present configuration notice in time, and train on? */
static bool withdrew(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (has(members[i], cluster->members, cluster->n_members) &&
            !cluster->workers[members[i]].frozen)
            return cluster->workers[members[i]].unready == number;
    return false;
}

static void drop_newcomers(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    for (int i = 0; i < cluster->n_members; i++)
        cluster_abandon(cluster, cluster->members[i], number);
    for (int i = 0; i < n; i++)
        if (!has(members[i], cluster->members, cluster->n_members) &&
            !cluster->workers[members[i]].exited)
            cluster_kill(cluster, members[i]);
}

/* A member may report that it no longer feeds when its vote for the flip is already on its way:
 * whether it withdrew shows in what comes next, steps or its freezing. */
static bool shows(struct cluster *cluster, int64_t rows)
{
    if (cluster->n_rows >= rows + 3)
        return true;
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].frozen)
            return true;
    return false;
}

static bool froze_after_all(struct cluster *cluster)
{
    cluster_until(cluster, shows, cluster->n_rows, "steps or freezing");
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].frozen)
            return true;
    return false;
}

/* A death just when all are told to flip. */
static void die_in_flip(struct cluster *cluster, uint64_t *seed)
{
    int members[RUN_MOST], n = choose_members(cluster, seed, members), victim;
    uint32_t number = ++cluster->number;
    int64_t wait = draw(seed) % 3;

    if (n < 2)
        return;
    victim = members[draw(seed) % (uint32_t)n];
    if (cluster->n_members == 1 && victim == cluster->members[0])
        victim = members[n - 1]; /* a newcomer: a worker with the state must be left */
    cluster_configure(cluster, number, members, n, NULL);
    cluster_until_ready(cluster, number, members, n);
    for (int i = 0; i < n; i++)
        cluster_go(cluster, members[i], number);
    for (int i = 0; i < cluster->n_members; i++)
        cluster_go(cluster, cluster->members[i], number);
    if (wait < 2)
        cluster_until_step(cluster, cluster->n_rows - 1 + wait);
    cluster_kill(cluster, victim);
    cluster_until_frozen(cluster, number, members, n, true);
    if (!has(victim, cluster->members, cluster->n_members) &&
        withdrew(cluster, number, members, n) && !froze_after_all(cluster))
        drop_newcomers(cluster, number, members, n); /* it died too early to cost anything */
    else
        gather_survivors(cluster, members, n);
}

/* A newcomer dies, or the coordinator changes its mind, before any worker is told to go. */
static void give_up_preparing(struct cluster *cluster, uint64_t *seed)
{
    int members[RUN_MOST], n = choose_members(cluster, seed, members);
    uint32_t number = ++cluster->number;

    cluster_configure(cluster, number, members, n, NULL);
    if (draw(seed) % 2)
        cluster_until_ready(cluster, number, members, n);
    for (int i = 0; i < n; i++)
        cluster_abandon(cluster, members[i], number);
    drop_newcomers(cluster, number, members, n);
}

static void storm(uint64_t seed)
{
    uint64_t drawn = seed * 77 + 1;
    struct run run;

    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 1 + (int)(draw(&drawn) % 3), run.weights);
    for (int event = 0; run.cluster.n_rows < STEPS && run.cluster.n < 50; event++) {
        struct cluster *cluster = &run.cluster;
        int members[RUN_MOST], n;

        cluster_spare(cluster, 2);
        if (cluster->n_rows >= STEPS)
            break; /* training did not wait for them */
        cluster_until_step(cluster, cluster->n_rows + draw(&drawn) % 8);
        switch (draw(&drawn) % 6) {
        case 0:
            if (cluster->n_members > 1) {
                cluster_kill(cluster,
                             cluster->members[draw(&drawn) % (uint32_t)cluster->n_members]);
                cluster_recover(cluster);
            }
            break;
        case 1:
            die_in_flip(cluster, &drawn);
            break;
        case 2:
            give_up_preparing(cluster, &drawn);
            break;
        case 3:
            n = cluster->members[draw(&drawn) % (uint32_t)cluster->n_members];
            cluster_disconnect(cluster, n);
            cluster_connect(cluster, n, cluster->workers[n].rows);
            break;
        default:
            n = choose_members(cluster, &drawn, members);
            cluster_move(cluster, members, n, NULL);
        }
    }
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_storms(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= storms; seed++) {
        print_message("storm %llu\n", (unsigned long long)seed);
        storm(seed);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storms),
    };

    if (argc < 2) {
        fprintf(stderr, "usage: %s RUBATO-WORKER STORMS [FILTER]\n", argv[0]);
        return 2;
    }
    run_program = argv[1];
    if (argc > 2)
        storms = strtoull(argv[2], NULL, 10); /* for a longer look by hand */
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
