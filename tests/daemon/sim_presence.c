/* SPDX-License-Identifier: Apache-2.0 */
/* A node's key and its candidacy, as in daemon/presence.c. */
#include "sim_rubatod.h"

#include <string.h>

enum { ANNOUNCE_US = 300000 };

static void on_look(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    (void)what;
    if (rubatod->alive && stamp == rubatod->looks)
        sim_presence_look(rubatod);
}

static void look_in(struct sim_rubatod *rubatod, uint64_t us)
{
    sim_in(rubatod->sim, us, on_look, rubatod, ++rubatod->looks, NULL);
}

static void on_announced(struct sim *sim, int err, void *who, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    (void)what;
    rubatod->writing = false;
    look_in(rubatod, err ? ANNOUNCE_US : 0);
}

static void put_node(struct sim_rubatod *rubatod, const struct rb_fact *known,
                     struct rb_writes *writes)
{
    struct sim_node *at = rubatod->node;
    Rb__Device devices[SIM_DEVICES], *list[SIM_DEVICES];
    Rb__Node node = RB__NODE__INIT;

    for (uint32_t d = 0; d < at->devices; d++) {
        rb__device__init(&devices[d]);
        devices[d].index = d;
        devices[d].kind = (char *)"cpu";
        list[d] = &devices[d];
    }
    node.name = at->name;
    node.address = (char *)"unix:/nowhere";
    node.numeric_class = (char *)"plain";
    node.started = at->born;
    node.has_leaving = true;
    node.leaving = rubatod->leaving;
    if (rubatod->leaving) {
        node.has_leaving_since = node.has_deadline = true;
        node.leaving_since = rubatod->leaving_since;
        node.deadline = node.leaving_since + SIM_LEAVE_US / 1000;
    }
    node.devices = list;
    node.n_devices = at->devices;
    rb_writes_put_leased(writes, known ? known->revision : RB_ABSENT, &node.base, "nodes/%s",
                         at->name);
}

static bool name_is_free(struct sim_rubatod *rubatod, const struct rb_fact *known, int64_t lease)
{
    if (!known || known->lease == lease || rubatod->announced)
        return true;
    look_in(rubatod, ANNOUNCE_US);
    return false;
}

static void announce(struct sim_rubatod *rubatod, const struct rb_facts *facts, int64_t lease)
{
    const struct rb_fact *known = rb_fact_find(&facts->nodes, rubatod->node->name);
    struct rb_writes writes = {0};

    if (rubatod->writing || !name_is_free(rubatod, known, lease))
        return;
    put_node(rubatod, known, &writes);
    if (known && known->lease == lease && !strcmp(known->text, writes.at[0].value)) {
        rubatod->announced = true;
    } else {
        rubatod->writing = true;
        sim_client_commit(rubatod->client, &writes, NULL, on_announced, NULL);
    }
    rb_writes_done(&writes);
}

static struct rb_election_view view(struct sim_rubatod *rubatod)
{
    return (struct rb_election_view){
        .facts = sim_client_facts(rubatod->client),
        .lease = rubatod->announced ? sim_client_lease(rubatod->client) : 0,
        .leaving = rubatod->leaving,
        .now_ms = rubatod->sim->now / 1000,
        .random = sim_chance(rubatod->sim, 1000000),
    };
}

static void on_campaigned(struct sim *sim, int err, void *who, void *what)
{
    struct sim_rubatod *rubatod = who;
    struct rb_election_view now = view(rubatod);

    (void)sim;
    (void)what;
    rb_election_campaigned(&rubatod->election, err, &now);
    look_in(rubatod, err ? ANNOUNCE_US : 0);
}

static void campaign(struct sim_rubatod *rubatod)
{
    struct rb_writes writes = {0};
    Rb__Leader leader = RB__LEADER__INIT;

    leader.node = rubatod->node->name;
    leader.address = (char *)"unix:/nowhere";
    rb_writes_put_leased(&writes, RB_ABSENT, &leader.base, "leader");
    sim_client_commit(rubatod->client, &writes, NULL, on_campaigned, NULL);
}

static void stand(struct sim_rubatod *rubatod)
{
    for (;;) {
        struct rb_election_view now = view(rubatod);

        switch (rb_election_step(&rubatod->election, &now)) {
        case RB_ELECTION_NOTHING:
            if (now.now_ms < rubatod->election.retry_ms)
                look_in(rubatod, (rubatod->election.retry_ms - now.now_ms) * 1000);
            return;
        case RB_ELECTION_CAMPAIGN:
            campaign(rubatod);
            return;
        case RB_ELECTION_LEAD:
            sim_coordinator_lead(rubatod, rubatod->election.fence);
            break;
        case RB_ELECTION_FOLLOW:
            sim_coordinator_lead(rubatod, 0);
            break;
        }
    }
}

void sim_presence_look(struct sim_rubatod *rubatod)
{
    int64_t lease = sim_client_lease(rubatod->client);

    if (!rubatod->client->synced)
        return;
    if (lease)
        announce(rubatod, sim_client_facts(rubatod->client), lease);
    stand(rubatod);
}

void sim_presence_leased(struct sim *sim, void *who, int64_t lease)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    rubatod->node->lease_file = lease;
    if (!lease)
        rubatod->announced = false;
    look_in(rubatod, 0);
}
