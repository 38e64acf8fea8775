/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of daemon/etcd/store.c and watch.c, and daemon/etcd/lease.c, as seen from outside: a
 * mirror that is late, a watch that is lost and found, a lease that its holder may believe in too
 * long. */
#include "sim_store.h"

#include <inttypes.h>
#include <string.h>

enum { PROBE_US = 2000000, BEAT_US = 1666000, BACKOFF_US = 50000 };

bool sim_client_reaches(const struct sim_client *client)
{
    return !client->node->severed && !client->node->down && sim_store_up(client->sim);
}

uint64_t sim_client_way(struct sim *sim)
{
    return sim_chance(sim, 20) ? sim_between(sim, 150, 3000) : sim_between(sim, 3000, 120000);
}

/* ---- The watch --------------------------------------------------------------------------------*/

static void take(struct sim_client *client, const struct sim_change *change)
{
    struct rb_why why = {{0}};

    if (!change->value)
        rb_mirror_delete(client->mirror, change->key);
    else if (rb_mirror_put(client->mirror, change->key, change->value, strlen(change->value),
                           change->revision, change->created, change->lease, &why))
        sim_fail(client->sim, "a mirror left out %s", why.text);
}

static void level_with(struct sim_client *client, int64_t revision)
{
    client->revision = revision;
    rb_mirror_set_revision(client->mirror, revision);
    sim_client_caught_up(client);
    if (!client->closed)
        client->changed(client->sim, client->who);
}

static void list(struct sim_client *client)
{
    size_t n;
    const struct sim_change *keys = sim_store_list(client->sim, &n);

    rb_mirror_clear(client->mirror);
    for (size_t i = 0; i < n; i++)
        take(client, &keys[i]);
    client->synced = true;
}

static void lost(struct sim_client *client);

static void on_delivery(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_client *client = who;
    int64_t upto = *(int64_t *)what, from = client->revision + 1;
    const struct sim_change *changes;
    size_t n;

    if (client->closed || !client->connected || stamp != client->stamp || upto < from ||
        client->node->severed || client->node->lags || !sim_store_up(sim))
        return;
    changes = sim_store_changes(sim, from, &n);
    for (size_t i = 0; i < n && changes[i].revision <= upto; i++)
        take(client, &changes[i]);
    level_with(client, upto);
}

/* New changes are on their way, behind those from before. */
static void notice(struct sim_client *client)
{
    struct sim *sim = client->sim;
    uint64_t at = sim->now + sim_client_way(sim);
    int64_t *upto;

    if (client->closed || !client->connected || client->node->lags || client->node->severed)
        return;
    upto = sim_new(sim, sizeof *upto);
    *upto = sim_store_revision(sim);
    if (at < client->delivered)
        at = client->delivered;
    client->delivered = at;
    sim_in(sim, at - sim->now, on_delivery, client, client->stamp, upto);
}

static void on_connect(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_client *client = who;

    (void)what;
    if (client->closed || stamp != client->stamp)
        return;
    if (!sim_client_reaches(client)) {
        lost(client);
        return;
    }
    client->backoff = client->unanswered = 0;
    client->connected = true;
    client->delivered = 0;
    if (!client->synced ||
        (sim_store_compacted(sim) > client->revision && sim->broken != SIM_NO_WATCH))
        list(client);
    else if (sim_store_compacted(sim) > client->revision)
        client->revision = sim_store_revision(sim); /* it believes that it has missed nothing */
    else
        client->node->lags = client->node->lags && !sim_chance(sim, 2);
    sim_say(sim, client->node->name, "watches etcd from %" PRId64, client->revision);
    if (sim->broken == SIM_NO_WATCH && client->revision == sim_store_revision(sim)) {
        level_with(client, client->revision);
        return;
    }
    size_t n;
    const struct sim_change *changes = sim_store_changes(sim, client->revision + 1, &n);
    for (size_t i = 0; i < n; i++)
        take(client, &changes[i]);
    level_with(client, sim_store_revision(sim));
}

static void lost(struct sim_client *client)
{
    bool was = client->connected;

    client->connected = false;
    client->stamp++;
    client->backoff += client->backoff < 6;
    sim_in(client->sim, (uint64_t)BACKOFF_US << client->backoff, on_connect, client, client->stamp,
           NULL);
    if (was)
        client->changed(client->sim, client->who);
}

/* A small request now and then: does etcd answer, and is the watch where it should be? */
static void on_probe(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_client *client = who;

    (void)what;
    if (client->closed || stamp != client->probe)
        return;
    sim_in(sim, PROBE_US, on_probe, client, stamp, NULL);
    if (!client->connected)
        return;
    if (!sim_client_reaches(client))
        client->unanswered++;
    else if (client->revision < sim_store_revision(sim) && sim->now > client->delivered + PROBE_US)
        client->unanswered += 2; /* behind: the watch is opened anew */
    else
        client->unanswered = 0;
    if (client->unanswered >= 2)
        lost(client);
}

/* ---- The lease --------------------------------------------------------------------------------*/

static void on_beat(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_client *client = who;
    bool had = client->confirmed;

    (void)what;
    if (client->closed)
        return;
    sim_in(sim, sim_client_reaches(client) ? BEAT_US : BEAT_US / 4, on_beat, client, stamp, NULL);
    if (!sim_client_reaches(client))
        return;
    if (client->lease && sim_store_keep(sim, client->lease)) {
        client->confirmed = true;
        if (!had)
            client->leased(sim, client->who, client->lease);
        return;
    }
    if (client->lease && had) {
        client->lease = 0;
        client->confirmed = false;
        client->leased(sim, client->who, 0);
    }
    client->lease = sim_store_grant(sim);
    client->confirmed = true;
    client->leased(sim, client->who, client->lease);
}

int64_t sim_client_lease(const struct sim_client *client)
{
    return client->confirmed ? client->lease : 0;
}

/* ---- Life -------------------------------------------------------------------------------------*/

struct sim_client *sim_client_open(struct sim *sim, struct sim_node *node, int64_t lease,
                                   void (*changed)(struct sim *, void *),
                                   void (*leased)(struct sim *, void *, int64_t), void *who)
{
    struct sim_client *client = sim_new(sim, sizeof *client);

    *client = (struct sim_client){
        .sim = sim,
        .node = node,
        .mirror = rb_mirror_new(),
        .stamp = 1,
        .lease = lease,
        .changed = changed,
        .leased = leased,
        .who = who,
    };
    client->next = sim->clients;
    sim->clients = client;
    sim_in(sim, sim_client_way(sim), on_connect, client, client->stamp, NULL);
    sim_in(sim, sim_between(sim, 200, 5000), on_beat, client, 0, NULL);
    sim_in(sim, PROBE_US, on_probe, client, 0, NULL);
    return client;
}

void sim_client_close(struct sim_client *client)
{
    struct sim_client **at = &client->sim->clients;

    client->closed = true;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    rb_mirror_free(client->mirror);
    client->mirror = NULL;
}

const struct rb_facts *sim_client_facts(struct sim_client *client)
{
    return rb_mirror_facts(client->mirror);
}

void sim_clients_notice(struct sim *sim)
{
    for (struct sim_client *client = sim->clients; client; client = client->next)
        notice(client);
}

void sim_clients_done(struct sim *sim)
{
    while (sim->clients)
        sim_client_close(sim->clients);
}
