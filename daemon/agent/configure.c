/* SPDX-License-Identifier: Apache-2.0 */
/* From a Configuration in facts to the order for one of its workers.  Every agent concerned comes
 * to the same plan and digest by itself: they follow from the model, the members and the number. */
#include "daemon/agent/plan.h"

#include "base/buffer.h"
#include "base/hash.h"

#include <string.h>

static const char *host_of(const struct rb_facts *facts, const char *node)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, node);
    return fact ? fact->node->host : NULL;
}

/* How to reach a member: by unix sockets only from its own host. */
static Rb__Peer *make_peer(const struct rb_agent *agent, const struct rb_facts *facts,
                           const Rb__Member *member, const Rb__WorkerReport *report,
                           struct rb_arena *arena)
{
    const char *here = host_of(facts, agent->node), *there = host_of(facts, member->node);
    bool near = !strcmp(agent->node, member->node) || (here && there && !strcmp(here, there));
    Rb__Peer *peer = RB_ARENA_NEW(arena, Rb__Peer, 1);
    rb__peer__init(peer);
    peer->worker = rb_arena_string(arena, report->worker);
    peer->addresses = RB_ARENA_NEW(arena, char *, report->n_addresses + 1);
    for (size_t i = 0; i < report->n_addresses; i++)
        if (near || strncmp(report->addresses[i], "unix:", 5))
            peer->addresses[peer->n_addresses++] = rb_arena_string(arena, report->addresses[i]);
    return peer;
}

static char *configuration_digest(const Rb__Configure *order, const char *plan,
                                  struct rb_arena *arena)
{
    struct rb_buffer text = {0};
    char digest[33];
    rb_buffer_format(&text, "%u\n%s\n", order->number, plan);
    for (size_t i = 0; i < order->n_members; i++)
        rb_buffer_format(&text, "%s\n", order->members[i]->worker);
    rb_hash_digest(text.data, text.size, digest);
    rb_buffer_done(&text);
    return rb_arena_string(arena, digest);
}

int rb_agent_configure(struct rb_agent *agent, const struct rb_job_facts *job,
                       const Rb__Configuration *configuration, size_t rank, struct rb_arena *arena,
                       Rb__Configure *ret, struct rb_why *why)
{
    struct rb_daemon *daemon = agent->daemon;
    const struct rb_facts *facts = rb_store_facts(daemon->store);
    const char *plan;
    rb__configure__init(ret);
    int err = rb_agent_plan(agent, job, configuration, arena, ret, &plan, why);
    if (err)
        return err;
    ret->number = configuration->number;
    ret->rank = (uint32_t)rank;
    ret->model_path = rb_arena_string(arena, rb_blobs_path(daemon->blobs, job->job.job->model));
    ret->members = RB_ARENA_NEW(arena, Rb__Peer *, configuration->n_members);
    for (size_t i = 0; i < configuration->n_members; i++) {
        const struct rb_fact *report = rb_facts_member(job, configuration, i);
        if (!report)
            return rb_why_set(why, RB_EAGAIN, "rank %zu is not there yet", i);
        ret->members[ret->n_members++] =
            make_peer(agent, facts, configuration->members[i], report->worker, arena);
    }
    if (configuration->members[rank]->restores)
        ret->restore = rb_arena_string(
            arena, configuration->restore ? configuration->restore->path
                                          : rb_blobs_path(daemon->blobs, job->job.job->weights));
    ret->has_recovers = 1;
    ret->recovers = !strcmp(configuration->cause, "crash");
    ret->has_stands = 1;
    ret->stands = !strcmp(configuration->cause, "park");
    ret->digest = configuration_digest(ret, plan, arena);
    return RB_OK;
}
