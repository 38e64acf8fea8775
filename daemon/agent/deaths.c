/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths that cannot wait for etcd: the agent that has reaped a worker tells the agents of the
 * other nodes of its configuration.
 *
 *   reaped here --member-dead--> the agents of other members, until each has acknowledged
 *                                or its node is gone
 *
 *   member-dead  {job, worker, configuration}  ->  {}      (daemon/agent/rules.h: what follows)
 *                RB_EAGAIN: that configuration is not known here yet: tell again.
 *                RB_EREFUSED: that worker is ours, and lives. */
#include "daemon/agent/deaths.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/agent/worker.h"

#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 100, ANSWER_MS = 1000 };

/* Another node that must know. */
struct listener {
    struct listener *next;
    struct rb_agent *agent;
    char *node;
    struct rb_client_call *call;
    bool knows, missed; /* missed: it could not be told, which has been logged */
    uint64_t again;     /* loop time before which it is not called */
};

struct rb_agent_known_death {
    struct rb_agent_known_death *next;
    char *job, *worker;
    struct listener *listeners; /* of a death here */
};

static struct rb_agent_known_death *find(const struct rb_agent *agent, const char *job,
                                         const char *worker)
{
    struct rb_agent_known_death *death = agent->deaths;
    while (death && (strcmp(death->job, job) || strcmp(death->worker, worker)))
        death = death->next;
    return death;
}

static struct rb_agent_known_death *know(struct rb_agent *agent, const char *job,
                                         const char *worker)
{
    struct rb_agent_known_death *death = find(agent, job, worker);
    if (death)
        return death;
    death = rb_alloc(sizeof(*death));
    death->job = rb_string(job);
    death->worker = rb_string(worker);
    death->next = agent->deaths;
    agent->deaths = death;
    return death;
}

static void death_free(struct rb_agent_known_death *death)
{
    for (struct listener *listener; (listener = death->listeners);) {
        death->listeners = listener->next;
        rb_client_cancel(listener->call);
        free(listener->node);
        free(listener);
    }
    free(death->job);
    free(death->worker);
    free(death);
}

void rb_agent_deaths_free(struct rb_agent *agent)
{
    for (struct rb_agent_known_death *death; (death = agent->deaths);) {
        agent->deaths = death->next;
        death_free(death);
    }
}

static bool has_member(const Rb__Configuration *configuration, const char *worker)
{
    for (size_t m = 0; m < configuration->n_members; m++)
        if (configuration->members[m]->worker && !strcmp(configuration->members[m]->worker, worker))
            return true;
    return false;
}

/* A live configuration that has this worker as a member. */
static const Rb__Configuration *spoken_of(const struct rb_job_facts *job, const char *worker)
{
    for (size_t i = job ? job->configurations.n : 0; i-- > 0;) {
        const Rb__Configuration *configuration = job->configurations.at[i].configuration;
        if (rb_configuration_live(configuration) && has_member(configuration, worker))
            return configuration;
    }
    return NULL;
}

/* ---- Telling --------------------------------------------------------------------------------- */

static void on_answer(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct listener *listener = context;
    (void)body;
    listener->call = NULL;
    listener->knows = !err || err == RB_EUNSUPPORTED;
    listener->again = uv_now(listener->agent->daemon->loop) + AGAIN_MS;
    if (!listener->knows && !listener->missed)
        rb_log(RB_LOG_WARN, "node %s was not told of a death, which is tried again: %s",
               listener->node, why->text);
    listener->missed = !listener->knows;
    if (!listener->knows)
        rb_agent_poke_in(listener->agent, AGAIN_MS);
}

static void call(const struct rb_agent_known_death *death, struct listener *listener,
                 const Rb__Configuration *configuration)
{
    struct rb_agent *agent = listener->agent;
    uint64_t now = uv_now(agent->daemon->loop);
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    if (listener->knows || listener->call || !rb_fact_find(&facts->nodes, listener->node))
        return;
    if (now < listener->again) {
        rb_agent_poke_in(agent, listener->again - now);
        return;
    }
    struct rb_client_options options = {
        .method = "member-dead",
        .body = json_pack("{ss ss sI}", "job", death->job, "worker", death->worker, "configuration",
                          (json_int_t)configuration->number),
        .node = listener->node,
        .timeout_ms = ANSWER_MS,
        .done = on_answer,
        .context = listener,
    };
    listener->call = rb_server_call(agent->daemon->server, &options);
}

static void add_listener(struct rb_agent *agent, struct rb_agent_known_death *death,
                         const char *node)
{
    struct listener *listener = death->listeners;
    while (listener && strcmp(listener->node, node))
        listener = listener->next;
    if (listener || !strcmp(node, agent->node))
        return;
    listener = rb_alloc(sizeof(*listener));
    listener->agent = agent;
    listener->node = rb_string(node);
    listener->next = death->listeners;
    death->listeners = listener;
}

static void tell_of(struct rb_agent *agent, const struct rb_worker *worker)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    const struct rb_job_facts *job = rb_facts_job(facts, worker->told.job);
    const Rb__Configuration *configuration = spoken_of(job, worker->told.worker);
    /* A saver's end is no loss: the job is being parked. */
    if (!configuration || (job->state.message && job->state.state->saver))
        return;
    if (!find(agent, worker->told.job, worker->told.worker))
        rb_fault("daemon.telling");
    struct rb_agent_known_death *death = know(agent, worker->told.job, worker->told.worker);
    for (size_t m = 0; m < configuration->n_members; m++)
        add_listener(agent, death, configuration->members[m]->node);
    for (struct listener *listener = death->listeners; listener; listener = listener->next)
        call(death, listener, configuration);
}

void rb_agent_deaths_tell(struct rb_agent *agent)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    for (struct rb_agent_known_death **at = &agent->deaths; *at;) {
        struct rb_agent_known_death *death = *at;
        if (spoken_of(rb_facts_job(facts, death->job), death->worker)) {
            at = &death->next;
        } else {
            *at = death->next;
            death_free(death);
        }
    }
    for (const struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        if (worker->told.gone)
            tell_of(agent, worker);
}

const struct rb_agent_death *rb_agent_deaths_known(const struct rb_agent *agent,
                                                   struct rb_arena *arena, size_t *ret_n)
{
    size_t n = 0;
    for (const struct rb_agent_known_death *death = agent->deaths; death; death = death->next)
        n++;
    struct rb_agent_death *deaths = RB_ARENA_NEW(arena, struct rb_agent_death, n + 1);
    n = 0;
    for (const struct rb_agent_known_death *death = agent->deaths; death; death = death->next)
        deaths[n++] = (struct rb_agent_death){death->job, death->worker};
    *ret_n = n;
    return deaths;
}

/* ---- Hearing --------------------------------------------------------------------------------- */

static bool lives_here(const struct rb_agent *agent, const char *job, const char *worker)
{
    for (const struct rb_worker *own = agent->workers; own; own = own->next)
        if (!own->told.gone && !strcmp(own->told.worker, worker) && !strcmp(own->told.job, job))
            return true;
    return false;
}

static void member_dead(struct rb_request *request, void *context)
{
    struct rb_agent *agent = context;
    const json_t *number = json_object_get(rb_request_body(request), "configuration");
    const char *id, *worker;
    struct rb_why why = {0};
    int err = rb_request_string(request, "job", &id, &why);
    if (!err)
        err = rb_request_string(request, "worker", &worker, &why);
    if (!err && (!json_is_integer(number) || json_integer_value(number) <= 0 ||
                 json_integer_value(number) > UINT32_MAX))
        err = rb_why_set(&why, RB_EINVAL, "member-dead: `configuration` must be a number");
    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    const struct rb_job_facts *job = rb_facts_job(rb_store_facts(agent->daemon->store), id);
    if (!job || !rb_facts_configuration(job, (uint32_t)json_integer_value(number))) {
        rb_request_failf(request, RB_EAGAIN, "configuration %u of job %s is not known here yet",
                         (unsigned)json_integer_value(number), id);
    } else if (lives_here(agent, id, worker)) {
        rb_request_failf(request, RB_EREFUSED, "worker %s lives on node %s", worker, agent->node);
    } else {
        if (spoken_of(job, worker) && !find(agent, id, worker)) {
            rb_log(RB_LOG_INFO, "job %s: worker %s is dead, says its agent", id, worker);
            know(agent, id, worker);
            rb_fault("daemon.told");
            rb_agent_poke(agent);
        }
        rb_request_reply(request, json_object());
    }
}

const struct rb_server_method rb_agent_death_methods[] = {
    {"member-dead", false, member_dead},
    {0},
};
