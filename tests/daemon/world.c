/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "base/error.h"
#include "daemon/facts/members.h"
#include "proto/reflect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t world_random(struct world *world, uint64_t below)
{
    world->random += 0x9e3779b97f4a7c15u;
    uint64_t x = world->random;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

void world_commit(struct world *world, struct rb_writes *writes)
{
    struct rb_why why = {{0}};
    int err = rb_mirror_commit(world->mirror, writes, 1, &why);

    if (err)
        fail_msg("commit: %s", why.text);
    rb_writes_done(writes);
    memset(writes, 0, sizeof(*writes));
}

void world_begin(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->mirror = rb_mirror_new();
    world->now = 1000000;
    world->max_restarts = 3;
    world->random = seed;
}

void world_end(struct world *world)
{
    for (size_t i = 0; i < world->n_lefts && i < WORLD_LEFTS; i++)
        rb__configuration__free_unpacked(world->lefts[i].conf, NULL);
    rb_mirror_free(world->mirror);
}

static const struct rb_facts *facts_of(struct world *world)
{
    return rb_mirror_facts(world->mirror);
}

static void put_node(struct world *world, struct world_node *node)
{
    struct rb_writes writes = {0};
    Rb__Device devices[16], *list[16];
    Rb__Node value = RB__NODE__INIT;

    for (uint32_t d = 0; d < node->devices; d++) {
        rb__device__init(&devices[d]);
        devices[d].index = d;
        devices[d].kind = (char *)"cpu";
        list[d] = &devices[d];
    }
    value.name = node->name;
    value.address = (char *)"unix:/nowhere";
    value.numeric_class = (char *)"plain";
    value.started = 1;
    value.devices = list;
    value.n_devices = node->devices;
    value.has_leaving = value.leaving = node->leaving;
    rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "nodes/%s", node->name);
    world_commit(world, &writes);
}

void world_add_node(struct world *world, const char *name, uint32_t devices)
{
    struct world_node *node = &world->nodes[world->n_nodes++];

    snprintf(node->name, sizeof(node->name), "%s", name);
    node->devices = devices;
    node->up = true;
    put_node(world, node);
}

void world_add_job(struct world *world, const char *id, uint32_t min, uint32_t max, uint32_t want,
                   int64_t steps)
{
    struct rb_writes writes = {0};
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__FailureSpec failure = RB__FAILURE_SPEC__INIT;
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    Rb__Job job = RB__JOB__INIT;
    Rb__Wish wish = RB__WISH__INIT;
    Rb__JobState state = RB__JOB_STATE__INIT;

    devices.has_min = devices.has_max = devices.has_want = 1;
    devices.min = min;
    devices.max = max;
    devices.want = want;
    failure.has_max_restarts = 1;
    failure.max_restarts = world->max_restarts;
    spec.devices = &devices;
    spec.failure = &failure;
    parallel.balance = (char *)(world->even ? "even" : "auto");
    spec.parallel = &parallel;
    spec.has_priority = 1;
    spec.priority = world->priority;
    job.name = job.id = (char *)id;
    job.created = world->now + world->n_jobs;
    job.spec = &spec;
    job.model = job.weights = (char *)"0123456789abcdef0123456789abcdef";
    job.node = world->nodes[0].name;
    job.steps = steps;
    job.microbatches = 8;
    job.profile = world->planner.choose ? job.model : NULL;
    job.has_blocks = job.has_replicas = 1;
    job.blocks = 100;
    job.replicas = world->replicas;
    job.numeric_class = (char *)"plain";
    wish.want = want;
    state.phase = RB__PHASE__Pending;
    rb_writes_put(&writes, RB_ABSENT, &job.base, "jobs/%s/job", id);
    rb_writes_put(&writes, RB_ABSENT, &wish.base, "jobs/%s/wish", id);
    rb_writes_put(&writes, RB_ABSENT, &state.base, "jobs/%s/state", id);
    world_commit(world, &writes);
    world->n_jobs++;
}

const struct rb_job_facts *world_job(struct world *world, const char *id)
{
    return rb_facts_job(facts_of(world), id);
}

const Rb__JobState *world_state(struct world *world, const char *id)
{
    return world_job(world, id)->state.state;
}

const Rb__Configuration *world_active(struct world *world, const char *id)
{
    const struct rb_job_facts *job = world_job(world, id);
    const struct rb_fact *fact = rb_facts_configuration(job, job->state.state->active);

    return fact ? fact->configuration : NULL;
}

const Rb__Configuration *world_next(struct world *world, const char *id)
{
    const struct rb_job_facts *job = world_job(world, id);
    const struct rb_fact *fact = rb_facts_configuration(job, job->state.state->next);

    return fact ? fact->configuration : NULL;
}

bool world_event(struct world *world, const char *kind)
{
    const struct rb_facts *facts = facts_of(world);

    for (size_t i = 0; i < facts->events.n; i++)
        if (!strcmp(facts->events.at[i].event->kind, kind))
            return true;
    return false;
}

void world_wish(struct world *world, const char *id, void (*change)(Rb__Wish *wish, uint64_t to),
                uint64_t to)
{
    struct rb_writes writes = {0};
    Rb__Wish wish = *world_job(world, id)->wish.wish;

    change(&wish, to);
    if (change == world_want) {
        wish.has_asked = 1;
        wish.asked = ++world->now;
    }
    rb_writes_put(&writes, RB_ANY_REVISION, &wish.base, "jobs/%s/wish", id);
    world_commit(world, &writes);
}

void world_want(Rb__Wish *wish, uint64_t to)
{
    wish->want = (uint32_t)to;
}

void world_pause(Rb__Wish *wish, uint64_t to)
{
    wish->has_paused = wish->paused = to;
}

void world_cancel(Rb__Wish *wish, uint64_t to)
{
    wish->has_cancelled = wish->cancelled = to;
}

void world_cancel_keeping(Rb__Wish *wish, uint64_t to)
{
    world_cancel(wish, to);
    wish->has_keep = wish->keep = to;
}

void world_cancel_at_once(Rb__Wish *wish, uint64_t to)
{
    world_cancel(wish, to);
    wish->has_keep = 1;
    wish->keep = 0;
}

void world_delete(Rb__Wish *wish, uint64_t to)
{
    wish->has_deleted = wish->deleted = to;
}

void world_cordon(struct world *world, const char *node, bool on, bool drain)
{
    struct rb_writes writes = {0};
    Rb__Cordon cordon = RB__CORDON__INIT;

    cordon.since = world->now;
    cordon.has_drain = cordon.drain = drain;
    if (on)
        rb_writes_put(&writes, RB_ANY_REVISION, &cordon.base, "cordons/%s", node);
    else
        rb_writes_delete(&writes, RB_ANY_REVISION, "cordons/%s", node);
    world_commit(world, &writes);
}

void world_drain(struct world *world, const char *node, uint64_t within_ms)
{
    struct rb_writes writes = {0};
    Rb__Cordon cordon = RB__CORDON__INIT;

    cordon.since = world->now;
    cordon.has_drain = cordon.drain = true;
    cordon.has_deadline = true;
    cordon.deadline = world->now + within_ms;
    rb_writes_put(&writes, RB_ANY_REVISION, &cordon.base, "cordons/%s", node);
    world_commit(world, &writes);
}

void world_node_up(struct world *world, size_t n, bool up)
{
    struct rb_writes writes = {0};

    world->nodes[n].up = up;
    if (up) {
        world->nodes[n].leaving = false;
        world_agent(world, n); /* an agent adopts and reports before it registers */
        put_node(world, &world->nodes[n]);
        return;
    }
    rb_writes_delete(&writes, RB_ANY_REVISION, "nodes/%s", world->nodes[n].name);
    world_commit(world, &writes);
}

void world_node_leaving(struct world *world, size_t n, bool leaving)
{
    world->nodes[n].leaving = leaving;
    put_node(world, &world->nodes[n]);
}

void world_checkpoint(struct world *world, const char *id, int64_t step, const char *node)
{
    struct rb_writes writes = {0};
    Rb__Checkpoint value = RB__CHECKPOINT__INIT;

    value.step = step;
    value.path = (char *)"/checkpoints";
    value.node = (char *)node;
    rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "jobs/%s/checkpoints/%012lld", id,
                  (long long)step);
    world_commit(world, &writes);
}

void world_progress(struct world *world, const char *id, int64_t steps)
{
    const Rb__Configuration *active = world_active(world, id);
    struct rb_writes writes = {0};
    Rb__Progress value = RB__PROGRESS__INIT;

    value.configuration = active->number;
    value.step = active->level + steps;
    rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "jobs/%s/progress", id);
    world_commit(world, &writes);
}

/* ---- The coordinator, and what it promises ----------------------------------------------------*/

static void check_job(struct world *world, size_t j)
{
    const struct rb_job_facts *job = &facts_of(world)->jobs[j];
    const Rb__JobState *state = job->state.state;
    size_t preparing = 0, active = 0;

    if (!job->job.message)
        return;
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;

        assert_true(conf->number <= state->newest);
        if (!rb_configuration_live(conf))
            continue;
        assert_false(rb_phase_final(state->phase));
        /* A state in shards is brought together on fewer members, before the job is parked. */
        assert_true(conf->n_members >= job->job.job->spec->devices->min ||
                    (job->job.job->replicas &&
                     (!strcmp(conf->cause, "park") || !strcmp(conf->cause, "crash"))));
        assert_true(conf->n_members <= job->job.job->spec->devices->max + 1);
        if (conf->state == RB__CONFIGURATION__STATE__ACTIVE) {
            active++;
            assert_int_equal(conf->number, state->active);
        } else {
            preparing++;
            assert_int_equal(conf->number, state->next);
        }
    }
    assert_true(preparing <= 1 && active <= 1);
    assert_int_equal(preparing, state->next != 0);
    assert_int_equal(active, state->active != 0);
    assert_int_equal(state->phase == RB__PHASE__Running, state->active != 0);
}

/* Every live configuration's devices: no device of two jobs, none twice in one. */
static void check_devices(struct world *world)
{
    const struct rb_facts *facts = facts_of(world);
    struct {
        const char *node, *job;
        uint32_t device, number;
    } seen[256];
    size_t n = 0;

    for (size_t j = 0; j < facts->n_jobs; j++)
        for (size_t c = 0; c < facts->jobs[j].configurations.n; c++) {
            const Rb__Configuration *conf = facts->jobs[j].configurations.at[c].configuration;

            for (size_t m = 0; rb_configuration_live(conf) && m < conf->n_members; m++) {
                for (size_t i = 0; i < n; i++)
                    if (!strcmp(seen[i].node, conf->members[m]->node) &&
                        seen[i].device == conf->members[m]->device) {
                        assert_string_equal(seen[i].job, facts->jobs[j].id);
                        assert_int_not_equal(seen[i].number, conf->number);
                    }
                assert_true(n < RB_COUNT(seen));
                seen[n].node = conf->members[m]->node;
                seen[n].device = conf->members[m]->device;
                seen[n].number = conf->number;
                seen[n++].job = facts->jobs[j].id;
            }
        }
}

/* New configurations have numbers that were never used, or were kept for them. */
static void check_number(struct world *world, size_t j, const Rb__Configuration *conf)
{
    const struct rb_job_facts *job = &facts_of(world)->jobs[j];
    const struct rb_fact *base;

    assert_null(rb_facts_configuration(job, conf->number));
    if (!conf->left_of) {
        assert_true(conf->number > world->highest[j]);
        world->highest[j] = conf->number + conf->spare;
        return;
    }
    base = rb_facts_configuration(job, conf->left_of);
    assert_non_null(base);
    assert_true(conf->number > conf->left_of &&
                conf->number <= conf->left_of + base->configuration->spare);
}

static void check_numbers(struct world *world, const struct rb_writes *writes)
{
    for (size_t i = 0; i < writes->n; i++) {
        const struct rb_write *write = &writes->at[i];
        ProtobufCMessage *message;

        if (!strstr(write->key, "/configurations/") || write->kind != RB_WRITE_PUT ||
            write->revision != RB_ABSENT)
            continue;
        assert_int_equal(rb_reflect_from_text(write->value, strlen(write->value),
                                              &rb__configuration__descriptor, &message, NULL),
                         0);
        for (size_t j = 0; j < facts_of(world)->n_jobs && j < RB_COUNT(world->highest); j++) {
            const char *id = facts_of(world)->jobs[j].id;

            if (!strncmp(write->key + 5, id, strlen(id)))
                check_number(world, j, (const Rb__Configuration *)message);
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

void world_decide(struct world *world)
{
    struct rb_decide_options options = {.node = "a",
                                        .patience_ms = WORLD_PATIENCE,
                                        .silent = &world->silent,
                                        .n_silent = world->silent != NULL,
                                        .balance_steps = WORLD_BALANCE_STEPS,
                                        .balance_ms = WORLD_BALANCE_MS,
                                        .replan_ms = WORLD_REPLAN_MS,
                                        .balance_gain_ms = WORLD_BALANCE_GAIN_MS,
                                        .planner = world->planner};

    for (int calls = 0;; calls++) {
        struct rb_writes writes = {0};
        bool more;

        assert_true(calls < 40); /* else it never comes to rest */
        options.random = world->decisions++;
        assert_int_equal(
            rb_decide(facts_of(world), world->now, &options, &writes, &world->wake, NULL), 0);
        more = writes.n > 0;
        for (size_t i = 0; calls > 36 && i < writes.n; i++)
            print_error("restless: %s = %s\n", writes.at[i].key,
                        writes.at[i].value ? writes.at[i].value : "-");
        check_numbers(world, &writes);
        if (more)
            world_commit(world, &writes);
        rb_writes_done(&writes);
        for (size_t j = 0; j < facts_of(world)->n_jobs; j++)
            check_job(world, j);
        check_devices(world);
        if (!more)
            return;
    }
}

void world_rounds(struct world *world, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t n = 0; n < world->n_nodes; n++)
            world_agent(world, n);
        for (size_t j = 0; j < facts_of(world)->n_jobs; j++)
            world_train(world, facts_of(world)->jobs[j].id);
        world_decide(world);
        world->now += 100;
    }
}

void world_running(struct world *world, uint32_t devices, uint32_t min, uint32_t want)
{
    world_begin(world, 1);
    world_add_node(world, "a", devices);
    world_add_job(world, WORLD_JOB, min, 8, want, 1000);
    world_rounds(world, 10);
    assert_int_equal(world_state(world, WORLD_JOB)->phase, RB__PHASE__Running);
}
