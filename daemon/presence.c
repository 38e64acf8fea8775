/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/presence.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/links.h"
#include "daemon/coordinator.h"
#include "daemon/daemon.h"
#include "daemon/election.h"
#include "daemon/etcd/lease.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEASE_S = 5,
    TAKEN_MS = 12000, /* a name whose key does not run out within this has a living owner */
    RETRY_MS = 300,
};

struct rb_presence {
    struct rb_daemon *daemon;
    struct rb_lease *lease;
    uv_timer_t timer;
    struct rb_election election;
    char *address, *http, *host, *lease_path;
    uint64_t started, taken_since;
    uint64_t leaving_since, deadline; /* unix ms */
    bool leaving, writing, announced;
    void (*taken)(void *context);
    void *taken_context;
};

static void look(struct rb_presence *presence);

static void look_in(struct rb_presence *presence, uint64_t ms);

/* ---- The node's key -------------------------------------------------------------------------- */

static char *node_text(struct rb_presence *presence, ProtobufCMessage **ret_message)
{
    const Rb__DaemonSettings *settings = presence->daemon->settings;
    struct rb_why why;
    Rb__Node node = RB__NODE__INIT;
    node.name = settings->node;
    node.address = presence->address;
    node.http = presence->http;
    node.numeric_class = (char *)presence->daemon->numeric_class;
    node.started = presence->started;
    node.has_pid = true;
    node.pid = (uint32_t)getpid();
    node.host = presence->host;
    node.has_leaving = true;
    node.leaving = presence->leaving;
    if (presence->leaving) {
        node.has_leaving_since = node.has_deadline = true;
        node.leaving_since = presence->leaving_since;
        node.deadline = presence->deadline;
    }
    node.devices = presence->daemon->devices->at;
    node.n_devices = presence->daemon->devices->n;
    node.missing = presence->daemon->devices->missing;
    node.has_memory = presence->daemon->devices->memory != 0;
    node.memory = presence->daemon->devices->memory;
    if (presence->daemon->links)
        rb_links_tell(presence->daemon->links, &node);
    char *text = rb_reflect_to_text(&node.base);
    rb_reflect_from_text(text, strlen(text), &rb__node__descriptor, ret_message, &why);
    return text;
}

static void on_node_written(int err, const struct rb_why *why, void *context)
{
    struct rb_presence *presence = context;
    (void)why;
    if (err == RB_ECANCELED)
        return;
    presence->writing = false;
    look_in(presence, err ? RETRY_MS : 0);
}

/* A key under another lease is of a rubatod that died a moment ago, or of one that lives. */
static bool name_is_free(struct rb_presence *presence, const struct rb_fact *known)
{
    uint64_t now = uv_now(presence->daemon->loop);
    if (rb_presence_name(presence) != RB_NAME_ANOTHERS || presence->announced) {
        presence->taken_since = 0;
        return true;
    }
    if (!presence->taken_since) {
        presence->taken_since = now;
        rb_log(RB_LOG_WARN,
               "the name %s is that of another rubatod (process %u), or of one that ended a moment "
               "ago; waiting",
               known->name, known->node->pid);
    }
    if (now - presence->taken_since > TAKEN_MS && presence->taken) {
        void (*taken)(void *context) = RB_TAKE(presence->taken);
        taken(presence->taken_context);
    }
    look_in(presence, RETRY_MS);
    return false;
}

static void announce(struct rb_presence *presence, const struct rb_facts *facts, int64_t lease)
{
    const struct rb_fact *known = rb_fact_find(&facts->nodes, presence->daemon->settings->node);
    ProtobufCMessage *message = NULL;
    if (presence->writing || !name_is_free(presence, known))
        return;
    RB_CLEANUP(rb_freep) char *text = node_text(presence, &message);
    if (message && (!known || known->lease != lease || strcmp(known->text, text))) {
        struct rb_writes writes = {0};
        rb_writes_put_leased(&writes, known ? known->revision : RB_ABSENT, message, "nodes/%s",
                             presence->daemon->settings->node);
        presence->writing = true;
        rb_store_commit(presence->daemon->store, &writes, NULL, on_node_written, presence);
        rb_writes_done(&writes);
    } else if (message) {
        presence->announced = true;
    }
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- Candidacy ------------------------------------------------------------------------------- */

static struct rb_election_view view(struct rb_presence *presence)
{
    return (struct rb_election_view){
        .facts = rb_store_facts(presence->daemon->store),
        .lease = presence->announced ? rb_lease_id(presence->lease) : 0,
        .leaving = presence->leaving,
        .now_ms = uv_now(presence->daemon->loop),
        .random = rb_clock_ns() >> 8,
    };
}

static void on_campaigned(int err, const struct rb_why *why, void *context)
{
    struct rb_presence *presence = context;
    (void)why;
    if (err == RB_ECANCELED)
        return;
    struct rb_election_view now = view(presence);
    rb_election_campaigned(&presence->election, err, &now);
    look_in(presence, err ? RETRY_MS : 0);
}

static void campaign(struct rb_presence *presence)
{
    struct rb_writes writes = {0};
    Rb__Leader leader = RB__LEADER__INIT;
    leader.node = presence->daemon->settings->node;
    leader.address = presence->address;
    rb_writes_put_leased(&writes, RB_ABSENT, &leader.base, "leader");
    rb_store_commit(presence->daemon->store, &writes, NULL, on_campaigned, presence);
    rb_writes_done(&writes);
}

static void stand(struct rb_presence *presence)
{
    for (;;) {
        struct rb_election_view now = view(presence);
        switch (rb_election_step(&presence->election, &now)) {
        case RB_ELECTION_NOTHING:
            /* Whatever else has set the timer: a campaign that failed is tried again. */
            if (now.now_ms < presence->election.retry_ms)
                look_in(presence, presence->election.retry_ms - now.now_ms);
            return;
        case RB_ELECTION_CAMPAIGN:
            campaign(presence);
            return;
        case RB_ELECTION_LEAD:
            rb_log(RB_LOG_INFO, "this node coordinates (fence %" PRId64 ")",
                   presence->election.fence);
            rb_fault("daemon.elected");
            rb_coordinator_lead(presence->daemon->coordinator, presence->election.fence);
            break;
        case RB_ELECTION_FOLLOW:
            rb_log(RB_LOG_INFO, "this node does not coordinate any more");
            rb_coordinator_lead(presence->daemon->coordinator, 0);
            break;
        }
    }
}

static void look(struct rb_presence *presence)
{
    struct rb_store *store = presence->daemon->store;
    if (!rb_store_synced(store))
        return;
    int64_t lease = rb_lease_id(presence->lease);
    if (lease)
        announce(presence, rb_store_facts(store), lease);
    stand(presence);
}

static void on_timer(uv_timer_t *timer)
{
    look(timer->data);
}

static void look_in(struct rb_presence *presence, uint64_t ms)
{
    uv_timer_start(&presence->timer, on_timer, ms, 0);
}

static void on_facts(void *context)
{
    look(context);
}

/* ---- The lease ------------------------------------------------------------------------------- */

/* STATE/lease: the lease, and a digest of the machine that has it.  A state folder that was copied
 * to another machine, perhaps with its disk, names the lease of a rubatod that may still live. */
static char *lease_text(const struct rb_presence *presence, int64_t lease)
{
    char digest[33];
    rb_hash_digest(presence->host, strlen(presence->host), digest);
    return rb_format("%" PRId64 " %s\n", lease, digest);
}

static int64_t read_lease(const struct rb_presence *presence)
{
    struct rb_buffer text = {0};
    struct rb_why why;
    int64_t lease = 0;
    if (!rb_file_read(presence->lease_path, 64, &text, &why) && text.data)
        lease = strtoll(text.data, NULL, 10);
    RB_CLEANUP(rb_freep) char *ours = lease_text(presence, lease);
    /* A private etcd has no others.  Up to 0.23.0 there was no digest. */
    if (lease && !presence->daemon->settings->single_node && strchr(text.data, ' ') &&
        strcmp(text.data, ours))
        lease = 0;
    rb_buffer_done(&text);
    return lease > 0 ? lease : 0;
}

static void on_lease(int64_t id, void *context)
{
    struct rb_presence *presence = context;
    struct rb_why why = {0};
    RB_CLEANUP(rb_freep) char *text = lease_text(presence, id);
    /* Only so that a rubatod that was killed is at once itself again; the write may fail. */
    if (rb_file_write(presence->lease_path, text, strlen(text), &why))
        rb_log(RB_LOG_WARN, "%s", why.text);
    if (!id)
        presence->announced = false;
    rb_store_set_lease(presence->daemon->store, id);
    look_in(presence, 0);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* The machine, whatever it is called in a container: its boot and its name. */
static char *host_name(void)
{
    struct rb_buffer boot = {0};
    struct rb_why why;
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    rb_file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &why);
    char *host = rb_format("%.*s/%s", boot.data ? (int)strcspn(boot.data, "\n") : 0,
                           boot.data ? boot.data : "", name);
    rb_buffer_done(&boot);
    return host;
}

struct rb_presence *rb_presence_new(struct rb_daemon *daemon, struct rb_etcd *etcd,
                                    const char *address)
{
    struct rb_presence *presence = rb_alloc(sizeof(*presence));
    presence->daemon = daemon;
    presence->address = rb_string(address);
    presence->host = host_name();
    presence->lease_path = rb_format("%s/lease", daemon->settings->state_dir);
    presence->started = rb_clock_unix_ms();
    uv_timer_init(daemon->loop, &presence->timer);
    presence->timer.data = presence;
    presence->lease =
        rb_lease_new(daemon->loop, etcd, LEASE_S, read_lease(presence), on_lease, presence);
    rb_store_watch(daemon->store, on_facts, presence);
    return presence;
}

void rb_presence_on_taken(struct rb_presence *presence, void (*taken)(void *context), void *context)
{
    presence->taken = taken;
    presence->taken_context = context;
}

void rb_presence_serves(struct rb_presence *presence, const char *http)
{
    presence->http = rb_string(http);
}

bool rb_presence_announced(const struct rb_presence *presence)
{
    return presence->announced;
}

enum rb_name rb_presence_name(const struct rb_presence *presence)
{
    const struct rb_daemon *daemon = presence->daemon;
    const struct rb_fact *known =
        rb_fact_find(&rb_store_facts(daemon->store)->nodes, daemon->settings->node);
    if (!known)
        return RB_NAME_FREE;
    return known->lease == rb_lease_known(presence->lease) ? RB_NAME_OURS : RB_NAME_ANOTHERS;
}

void rb_presence_leave(struct rb_presence *presence, uint64_t within_ms)
{
    presence->leaving = true;
    presence->leaving_since = rb_clock_unix_ms();
    presence->deadline = presence->leaving_since + within_ms;
    look(presence);
}

void rb_presence_end(struct rb_presence *presence, uint64_t timeout_ms, void (*done)(void *context),
                     void *context)
{
    rb_lease_revoke(presence->lease, timeout_ms, done, context);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_presence *presence = handle->data;
    free(presence->address);
    free(presence->http);
    free(presence->host);
    free(presence->lease_path);
    free(presence);
}

void rb_presence_look(struct rb_presence *presence)
{
    look_in(presence, 0);
}

void rb_presence_free(struct rb_presence *presence)
{
    if (!presence)
        return;
    rb_lease_free(presence->lease);
    uv_close((uv_handle_t *)&presence->timer, on_closed);
}
