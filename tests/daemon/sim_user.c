/* SPDX-License-Identifier: Apache-2.0 */
/* Users: they submit, grow, shrink, pause, cancel and drain, whenever they like. */
#include "sim_store.h"

#include "daemon/facts/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_US = 200000, THINK_US = 6000000, CALM_US = 60000000 };

static const struct rb_job_facts *facts_of(struct sim *sim, const struct sim_job *job)
{
    const struct rb_job_facts *facts = rb_facts_job(rb_mirror_facts(sim->observer), job->id);

    return facts && facts->job.message && facts->wish.message && facts->state.message ? facts
                                                                                      : NULL;
}

static bool is_over(struct sim *sim, const struct sim_job *job)
{
    const struct rb_job_facts *facts = facts_of(sim, job);

    return !facts || rb_phase_final(facts->state.state->phase);
}

/* ---- Submit -----------------------------------------------------------------------------------*/

static void submit(struct sim *sim, struct sim_job *job)
{
    struct rb_writes writes = {0};
    size_t n = (size_t)(job - sim->jobs), home = sim_chance(sim, sim->n_nodes);
    char digest[8];
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__FailureSpec failure = RB__FAILURE_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    Rb__Footprint footprint = RB__FOOTPRINT__INIT;
    Rb__Job value = RB__JOB__INIT;
    Rb__Wish wish = RB__WISH__INIT;
    Rb__JobState state = RB__JOB_STATE__INIT;

    job->submitted = true;
    snprintf(digest, sizeof digest, "%zu", n);
    sim->nodes[home].blobs[n] = true;
    devices.has_min = devices.has_max = devices.has_want = 1;
    devices.min = 1 + (uint32_t)sim_chance(sim, 2);
    devices.max = devices.min + 4;
    devices.want = devices.min + (uint32_t)sim_chance(sim, job->replicas || job->open ? 5 : 3);
    failure.has_max_restarts = 1;
    failure.max_restarts = 1000000;
    spec.devices = &devices;
    spec.failure = &failure;
    spec.has_priority = 1;
    spec.priority = (int32_t)sim_chance(sim, 2);
    value.name = value.id = job->id;
    value.created = sim_ms(sim);
    value.spec = &spec;
    value.model = value.weights = digest;
    value.node = sim->nodes[home].name;
    value.steps = job->steps;
    value.microbatches = job->microbatches;
    value.has_blocks = value.has_replicas = 1;
    value.blocks = SIM_BLOCKS;
    value.replicas = job->replicas;
    value.profile = job->open ? digest : NULL;
    footprint.held = 240; /* half of it fits beside activations that are kept, and no more */
    footprint.kept = 50;
    footprint.again = 20;
    footprint.limit = 170;
    value.footprint = job->replicas ? &footprint : NULL;
    value.numeric_class = (char *)"plain";
    wish.want = devices.want;
    state.phase = RB__PHASE__Pending;
    rb_writes_put(&writes, RB_ABSENT, &value.base, "jobs/%s/job", job->id);
    rb_writes_put(&writes, RB_ABSENT, &wish.base, "jobs/%s/wish", job->id);
    rb_writes_put(&writes, RB_ABSENT, &state.base, "jobs/%s/state", job->id);
    sim_say(sim, "user", "submits %s: %" PRId64 " steps, %u to %u devices", job->id, job->steps,
            devices.min, devices.max);
    if (sim_store_commit(sim, &writes))
        sim_fail(sim, "%s could not be submitted", job->id);
}

static void on_submit(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)stamp;
    (void)what;
    if (!sim_store_up(sim))
        sim_in(sim, 500000, on_submit, who, 0, NULL);
    else
        submit(sim, who);
}

/* ---- Wishes -----------------------------------------------------------------------------------*/

static void put_wish(struct sim *sim, const struct rb_job_facts *facts, const Rb__Wish *wish)
{
    struct rb_writes writes = {0};

    rb_writes_put(&writes, facts->wish.revision, &wish->base, "jobs/%s/wish", facts->id);
    sim_say(sim, "user", "%s: %s", facts->id, writes.at[0].value);
    sim_store_commit(sim, &writes);
}

static void wish_want(struct sim *sim, const struct rb_job_facts *facts)
{
    const Rb__DevicesSpec *devices = facts->job.job->spec->devices;
    Rb__Wish wish = *facts->wish.wish;
    uint64_t now = sim_ms(sim);

    wish.want = devices->min + (uint32_t)sim_chance(sim, devices->max - devices->min + 1);
    wish.has_asked = 1;
    wish.asked = now > wish.asked ? now : wish.asked + 1;
    put_wish(sim, facts, &wish);
}

static void wish_pause(struct sim *sim, const struct rb_job_facts *facts, bool paused)
{
    Rb__Wish wish = *facts->wish.wish;

    wish.has_paused = 1;
    wish.paused = paused;
    put_wish(sim, facts, &wish);
}

static void wish_end(struct sim *sim, const struct rb_job_facts *facts)
{
    Rb__Wish wish = *facts->wish.wish;

    if (sim_chance(sim, 2))
        wish.has_deleted = wish.deleted = 1;
    else
        wish.has_cancelled = wish.cancelled = wish.has_keep = 1;
    wish.keep = wish.cancelled && sim_chance(sim, 2);
    put_wish(sim, facts, &wish);
}

static void cordon(struct sim *sim, const struct sim_node *node, bool on)
{
    struct rb_writes writes = {0};
    Rb__Cordon value = RB__CORDON__INIT;

    value.since = sim_ms(sim);
    value.has_drain = 1;
    value.drain = sim_chance(sim, 4) != 0;
    if (value.drain && sim_chance(sim, 2)) {
        value.has_deadline = 1;
        value.deadline = value.since + sim_between(sim, 100, 40000);
    }
    if (on)
        rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "cordons/%s", node->name);
    else
        rb_writes_delete(&writes, RB_ANY_REVISION, "cordons/%s", node->name);
    sim_say(sim, "user", "%s %s", on ? "cordons" : "uncordons", node->name);
    sim_store_commit(sim, &writes);
}

static void act(struct sim *sim, const struct sim_job *job)
{
    const struct rb_job_facts *facts = facts_of(sim, job);
    const struct sim_node *node = &sim->nodes[sim_chance(sim, sim->n_nodes)];

    if (!facts)
        return;
    sim->changes++;
    switch (sim_chance(sim, 40)) {
    case 0:
    case 1:
    case 2:
    case 3:
        wish_pause(sim, facts, !facts->wish.wish->paused);
        break;
    case 4:
        wish_end(sim, facts);
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        cordon(sim, node, true);
        break;
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
        cordon(sim, node, false);
        break;
    default:
        wish_want(sim, facts);
    }
}

static void on_think(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_job *job = who;

    (void)stamp;
    (void)what;
    if (sim->quiet)
        return;
    if (job->submitted && sim_store_up(sim) && !is_over(sim, job))
        act(sim, job);
    sim_in(sim, sim_between(sim, 1000, sim->now < sim->calm ? CALM_US : THINK_US), on_think, job, 0,
           NULL);
}

void sim_users_begin(struct sim *sim)
{
    for (size_t j = 0; j < sim->n_jobs; j++) {
        sim_in(sim, sim_between(sim, 1000, FIRST_US + j * 3000000), on_submit, &sim->jobs[j], 0,
               NULL);
        sim_in(sim, FIRST_US + j * 3000000, on_think, &sim->jobs[j], 0, NULL);
    }
}

/* Nodes are uncordoned, and paused jobs resumed. */
void sim_users_settle(struct sim *sim)
{
    for (size_t n = 0; n < sim->n_nodes; n++)
        cordon(sim, &sim->nodes[n], false);
    for (size_t j = 0; j < sim->n_jobs; j++) {
        const struct rb_job_facts *facts = facts_of(sim, &sim->jobs[j]);

        if (facts && facts->wish.wish->paused)
            wish_pause(sim, facts, false);
    }
}
