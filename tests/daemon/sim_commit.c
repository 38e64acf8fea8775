/* SPDX-License-Identifier: Apache-2.0 */
/* Commits, as in daemon/etcd/store.c: an answer may be lost, and then the outcome is not known. */
#include "sim_store.h"

#include <string.h>

enum { CALL_US = 5000000, CATCH_UP_US = 2000000 };

struct sim_commit {
    struct sim_commit *next;
    struct sim_client *client;
    const struct rb_write *writes;
    size_t n, first, end;
    struct rb_fence fence; /* key NULL: none */
    int64_t revision, lease;
    int err;
    sim_committed *done;
    void *what;
    bool over; /* done was called, or never will be */
};

static void conclude(struct sim_commit *commit)
{
    struct sim_client *client = commit->client;
    struct sim_commit **at = &client->commits;

    if (commit->over)
        return;
    commit->over = true;
    while (*at && *at != commit)
        at = &(*at)->next;
    if (*at)
        *at = commit->next;
    if (!client->closed && commit->done)
        commit->done(client->sim, commit->err, client->who, commit->what);
}

static void on_patience(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)sim;
    (void)stamp;
    (void)what;
    conclude(who);
}

/* Made (or not): the writes are to be in the facts before the caller hears of it. */
static void finish(struct sim_commit *commit)
{
    struct sim_client *client = commit->client;

    /* A client that waits here rarely decides on old facts: without the wait, more stories find the
     * broken order. */
    if (commit->revision <= client->revision || client->sim->broken == SIM_NO_ORDER) {
        conclude(commit);
        return;
    }
    commit->next = client->commits;
    client->commits = commit;
    sim_in(client->sim, CATCH_UP_US, on_patience, commit, 0, NULL);
}

void sim_client_caught_up(struct sim_client *client)
{
    for (struct sim_commit *commit = client->commits, *next; commit; commit = next) {
        next = commit->next;
        if (commit->revision <= client->revision) {
            conclude(commit);
            next = client->commits; /* a caller that heard of it may have changed the list */
        }
    }
}

static void request(struct sim_commit *commit);

static void on_answer(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_commit *commit = who;

    (void)sim;
    (void)stamp;
    (void)what;
    if (commit->err == RB_ETIMEOUT || commit->err == RB_EUNREACHABLE) {
        finish(commit);
        return;
    }
    commit->first = commit->end;
    request(commit);
}

/* No answer comes: the connection is refused at once, or the call runs out of time. */
static void unheard(struct sim *sim, struct sim_commit *commit)
{
    bool refused = sim_chance(sim, 2);

    commit->err = refused ? RB_EUNREACHABLE : RB_ETIMEOUT;
    sim_in(sim, refused ? 2000 : CALL_US, on_answer, commit, 0, NULL);
}

static void on_request(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_commit *commit = who;
    struct sim_client *client = commit->client;
    int64_t revision = 0;
    int err;

    (void)stamp;
    (void)what;
    if (!sim_client_reaches(client)) {
        unheard(sim, commit);
        return;
    }
    err = sim_store_txn(sim, commit->writes + commit->first, commit->end - commit->first,
                        commit->lease, commit->fence.key ? &commit->fence : NULL, &revision);
    if (!err)
        commit->revision = revision;
    if (!err && commit->fence.revision)
        commit->fence.revision = revision;
    if (err && !commit->err)
        commit->err = err;
    if (err)
        sim_say(sim, client->node->name, "etcd refused %s", commit->writes[commit->first].key);
    if (!sim->quiet && !sim_chance(sim, 300)) /* the answer is lost */
        unheard(sim, commit);
    else
        sim_in(sim, sim_client_way(sim), on_answer, commit, 0, NULL);
}

static bool lacks_lease(const struct sim_commit *commit)
{
    for (size_t i = commit->first; i < commit->end; i++)
        if (commit->writes[i].leased && !commit->lease)
            return true;
    return false;
}

static void request(struct sim_commit *commit)
{
    if (commit->first == commit->n) {
        finish(commit);
        return;
    }
    commit->end = commit->first;
    while (commit->end < commit->n &&
           commit->writes[commit->end].transaction == commit->writes[commit->first].transaction)
        commit->end++;
    commit->lease = sim_client_lease(commit->client);
    if (lacks_lease(commit)) {
        commit->err = commit->err ? commit->err : RB_EUNREACHABLE;
        commit->first = commit->end;
        sim_in(commit->client->sim, 0, on_answer, commit, 0, NULL);
        return;
    }
    sim_in(commit->client->sim, sim_client_way(commit->client->sim), on_request, commit, 0, NULL);
}

void sim_client_commit(struct sim_client *client, struct rb_writes *writes,
                       const struct rb_fence *fence, sim_committed *done, void *what)
{
    struct sim *sim = client->sim;
    struct sim_commit *commit = sim_new(sim, sizeof *commit);
    struct rb_write *copy = sim_new(sim, (writes->n + 1) * sizeof *copy);

    for (size_t i = 0; i < writes->n; i++) {
        copy[i] = writes->at[i];
        copy[i].key = rb_arena_string(&sim->arena, copy[i].key);
        if (copy[i].value)
            copy[i].value = rb_arena_string(&sim->arena, copy[i].value);
    }
    *commit = (struct sim_commit){
        .client = client,
        .writes = copy,
        .n = writes->n,
        .fence = fence ? *fence : (struct rb_fence){0},
        .done = done,
        .what = what,
    };
    rb_writes_done(writes);
    request(commit);
}
