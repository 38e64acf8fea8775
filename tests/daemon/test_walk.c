/* SPDX-License-Identifier: Apache-2.0 */
/* Random histories: workers die, nodes leave, vanish and return, users change their minds, in any
 * order.  `world` checks each decision; at the end, left alone, every job must succeed. */
#include "world.h"

#include "base/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HISTORIES = RB_SANITIZED ? 100 : 500, MOVES = 400, STEPS = 300, ROUNDS = 12000 };

static const char *const jobs[] = {"j1", "j2"};

static void kill_someone(struct world *world)
{
    if (!world->n_workers)
        return;
    struct worker *worker = &world->workers[world_random(world, world->n_workers)];

    if (worker->alive)
        world_kill(world, worker);
}

/* A machine that dies takes its workers along; a partition leaves them. */
static void lose_node(struct world *world, size_t n)
{
    bool machine = world_random(world, 2);

    world_node_up(world, n, false);
    for (size_t i = 0; machine && i < world->n_workers; i++)
        if (!strcmp(world->workers[i].node, world->nodes[n].name) && world->workers[i].alive)
            world_kill(world, &world->workers[i]);
}

static void disturb(struct world *world)
{
    const char *job = jobs[world_random(world, RB_COUNT(jobs))];
    size_t n = world_random(world, world->n_nodes);

    switch (world_random(world, 13)) {
    case 0:
    case 1:
        kill_someone(world);
        break;
    case 2:
    case 3:
    case 4:
        world_wish(world, job, world_want, 2 + world_random(world, 3));
        break;
    case 5:
        if (world_random(world, 8))
            world_cordon(world, world->nodes[n].name, world_random(world, 2),
                         world_random(world, 2));
        else
            world_drain(world, world->nodes[n].name, world_random(world, 60000));
        break;
    case 6:
        world_wish(world, job, world_pause, world_random(world, 2));
        break;
    case 7:
        if (world->nodes[n].up)
            lose_node(world, n);
        break;
    case 8:
    case 9:
        if (!world->nodes[n].up)
            world_node_up(world, n, true);
        break;
    case 10:
        if (world->nodes[n].up)
            world_node_leaving(world, n, world_random(world, 2));
        break;
    case 11:
        world->full = !world->full;
        break;
    default:
        world_checkpoint(world, job, 1 + (int64_t)world_random(world, STEPS / 2),
                         world->nodes[0].name);
        break;
    }
}

static void move(struct world *world)
{
    switch (world_random(world, 8)) {
    case 0:
        disturb(world);
        break;
    case 1:
    case 2:
        world_agent(world, world_random(world, world->n_nodes));
        break;
    case 3:
    case 4:
        world_train(world, jobs[world_random(world, RB_COUNT(jobs))]);
        break;
    case 5:
        world->now += 1 + world_random(world, 4000);
        break;
    default:
        world_decide(world);
        break;
    }
}

static void heal(struct world *world)
{
    world->unready_one_in = 0;
    world->full = false;
    for (size_t n = 0; n < world->n_nodes; n++) {
        if (!world->nodes[n].up)
            world_node_up(world, n, true);
        world_node_leaving(world, n, false);
        world_cordon(world, world->nodes[n].name, false, false);
    }
    for (size_t j = 0; j < RB_COUNT(jobs); j++) {
        world_wish(world, jobs[j], world_pause, 0);
        world_wish(world, jobs[j], world_want, 2);
    }
}

static void complain(struct world *world, uint64_t seed)
{
    for (size_t j = 0; j < RB_COUNT(jobs); j++) {
        const Rb__JobState *state = world_state(world, jobs[j]);

        print_error("history %llu, job %s: phase %d active %u next %u saver %s: %s\n",
                    (unsigned long long)seed, jobs[j], (int)state->phase, state->active,
                    state->next, state->saver ? state->saver : "-",
                    state->reason ? state->reason : "-");
    }
    for (size_t i = 0; i < world->n_workers; i++) {
        const struct worker *w = &world->workers[i];

        print_error(
            "  %s of %s on %s:%u %s state %d ready %u go %u active %u opening %u level %lld\n",
            w->name, w->job, w->node, w->device, w->alive ? "lives" : "is dead", (int)w->state,
            w->ready, w->go, w->active, w->opening, (long long)w->level);
    }
}

static bool all_succeeded(struct world *world)
{
    for (size_t j = 0; j < RB_COUNT(jobs); j++)
        if (world_state(world, jobs[j])->phase != RB__PHASE__Succeeded)
            return false;
    return true;
}

static unsigned ended_failed, seen[5], unasked;
static const char *const kinds[RB_COUNT(seen)] = {"restarted", "recovered", "parked", "moved",
                                                  "preempted"};

static void live(uint64_t seed)
{
    struct world world;

    world_begin(&world, seed);
    world.max_restarts = 1000000;
    world.slow = true;
    world.replicas = seed % 3;
    world_add_node(&world, "a", 2);
    world_add_node(&world, "b", 2);
    world_add_node(&world, "c", 1);
    world_add_job(&world, jobs[0], 1, 5, 2, STEPS);
    world.priority = (int32_t)world_random(&world, 2);
    world_add_job(&world, jobs[1], 2, 4, 2, STEPS);
    world.unready_one_in = 5 + (unsigned)world_random(&world, 30);
    for (int i = 0; i < MOVES; i++)
        move(&world);
    heal(&world);
    for (int i = 0; i < ROUNDS && !all_succeeded(&world); i++)
        world_rounds(&world, 1);
    if (!all_succeeded(&world)) {
        bool failed = false;

        for (size_t j = 0; j < RB_COUNT(jobs); j++)
            failed |= world_state(&world, jobs[j])->phase == RB__PHASE__Failed;
        if (!failed) { /* preparations that failed three times in a row end a start: that is the
                          rule */
            complain(&world, seed);
            fail_msg("history %llu does not end well", (unsigned long long)seed);
        }
        ended_failed++;
    }
    unasked += world.n_entered > 0;
    for (size_t i = 0; i < RB_COUNT(seen); i++)
        seen[i] += world_event(&world, kinds[i]);
    world_end(&world);
}

static void every_history_ends_well(void **unused)
{
    const char *one = getenv("RUBATO_HISTORY");

    (void)unused;
    if (one) {
        live(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= HISTORIES; seed++)
        live(seed);
    for (size_t i = 0; i < RB_COUNT(seen); i++) {
        print_message("%u of %d histories: %s\n", seen[i], HISTORIES, kinds[i]);
        assert_true(seen[i] > HISTORIES / 25); /* else the walk is too tame to show anything */
    }
    print_message("%u of %d histories: survivors went on before facts had it\n", unasked,
                  HISTORIES);
    assert_true(unasked > HISTORIES / 50); /* it is 23 of 500, so of 100 it may be 3 */
    print_message("%u of %d histories: a job failed\n", ended_failed, HISTORIES);
    assert_true(ended_failed < HISTORIES / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_history_ends_well)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
