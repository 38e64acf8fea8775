/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/links.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/agent/link_rounds.h"
#include "daemon/daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PEERS = 3,
    REPEATS = 3, /* of each size: others may have had the cores */
    FIRST = 64 << 10,
    MOST = 16 << 20,
    PIECE = 256 << 10, /* smaller ones take a core longer than they take a quick link */
    LONG_MS = 80,      /* a burst that takes this long says something */
    TIMEOUT_MS = 5000,
    RETRY_MS = 2000,
    TRIES = 3, /* that may fail in a round */
};

/* Waits before later rounds: what the first round lacked, above all cores, may be there by then.
 * The last wait is for all further rounds. */
static const uint64_t again_ms[] = {1000, 10000, 60000, 600000};

/* Calls that go one behind the other: empty ones, then bursts that grow. */
struct burst {
    char *node;
    struct rb_client_call *call; /* NULL: nobody is asked */
    int repeats;                 /* of this size */
    double shortest, best;       /* of these: seconds, bytes a second */
    double round_trip;           /* of the empty calls, with connecting */
    size_t asked, got;
    uint64_t begun; /* ns */
};

struct rb_links {
    struct rb_daemon *daemon;
    uv_timer_t retry, again;
    int closing; /* timers */
    struct burst burst;
    char *peers[PEERS]; /* that were asked in this round */
    size_t n_peers;
    unsigned failures, rounds;   /* rounds: that are over */
    struct rb_link_rounds found; /* of a round without any answer nothing is kept */
    void (*changed)(void *context);
    void *context;
};

static void ask(struct rb_links *links, size_t bytes);

/* ---- Whom ------------------------------------------------------------------------------------ */

static bool was_asked(const struct rb_links *links, const char *node)
{
    for (size_t i = 0; i < links->n_peers; i++)
        if (!strcmp(links->peers[i], node))
            return true;
    return false;
}

/* The next node behind this one by name that is on another host and was not asked yet; NULL: there
 * is none. */
static const char *next_peer(const struct rb_links *links)
{
    const struct rb_fact_list *nodes = &rb_store_facts(links->daemon->store)->nodes;
    const struct rb_fact *here = rb_fact_find(nodes, links->daemon->settings->node);
    size_t first = here ? (size_t)(here - nodes->at) : 0;

    for (size_t i = 1; here && here->node->host && i < nodes->n; i++) {
        const Rb__Node *node = nodes->at[(first + i) % nodes->n].node;

        if (node->host && strcmp(node->host, here->node->host) && !was_asked(links, node->name))
            return node->name;
    }
    return NULL;
}

static void look(struct rb_links *links)
{
    const char *peer;

    if (links->burst.call || links->n_peers == PEERS || links->failures >= TRIES ||
        uv_is_active((uv_handle_t *)&links->retry) || !rb_store_synced(links->daemon->store))
        return;
    peer = next_peer(links);
    if (!peer)
        return;
    links->burst = (struct burst){.node = rb_string(peer)};
    ask(links, 0);
}

static void on_facts(void *context)
{
    look(context);
}

static void on_retry(uv_timer_t *timer)
{
    look(timer->data);
}

static void forget_peers(struct rb_links *links)
{
    while (links->n_peers)
        free(links->peers[--links->n_peers]);
}

static void on_again(uv_timer_t *timer);

/* Plan the next round, once a peer has been asked in this one. */
static void plan_again(struct rb_links *links)
{
    unsigned last = RB_COUNT(again_ms) - 1;

    if (!uv_is_active((uv_handle_t *)&links->again))
        uv_timer_start(&links->again, on_again,
                       again_ms[links->rounds < last ? links->rounds : last], 0);
}

static void on_again(uv_timer_t *timer)
{
    struct rb_links *links = timer->data;

    links->rounds++;
    links->failures = 0;
    if (links->n_peers)
        rb_link_rounds_next(&links->found);
    forget_peers(links);
    plan_again(links);
    look(links);
}

/* ---- A burst --------------------------------------------------------------------------------- */

static void fail(struct rb_links *links, const struct rb_why *why)
{
    rb_log(RB_LOG_DEBUG, "the link to node %s was not measured: %s", links->burst.node, why->text);
    free(RB_TAKE(links->burst.node));
    links->failures++;
    uv_timer_start(&links->retry, on_retry, RETRY_MS, 0);
    plan_again(links);
}

static void finish(struct rb_links *links)
{
    /* A round trip each to connect, with TLS to agree, and to call. */
    double latency = links->burst.round_trip / (links->daemon->settings->tls ? 6 : 4);

    rb_link_rounds_note(&links->found, links->burst.best, latency);
    links->peers[links->n_peers++] = RB_TAKE(links->burst.node);
    links->changed(links->context);
    plan_again(links);
    look(links);
}

static void on_piece(const void *data, size_t size, void *context)
{
    struct burst *burst = &((struct rb_links *)context)->burst;

    (void)data;
    burst->got += size;
}

/* The next size, or the end. */
static void go_on(struct rb_links *links)
{
    struct burst *burst = &links->burst;
    bool enough = burst->shortest * 1e3 >= LONG_MS || burst->asked >= MOST;

    burst->repeats = 0;
    if (!burst->asked) {
        burst->round_trip = burst->shortest;
        ask(links, FIRST);
    } else if (enough) {
        finish(links);
    } else {
        ask(links, 4 * burst->asked);
    }
}

static void on_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_links *links = context;
    struct burst *burst = &links->burst;
    double seconds = (double)(rb_clock_ns() - burst->begun) / 1e9;
    double rate = (double)burst->got / (seconds > 1e-9 ? seconds : 1e-9);

    (void)body;
    burst->call = NULL;
    if (err) {
        fail(links, why);
        return;
    }
    if (!burst->repeats || seconds < burst->shortest)
        burst->shortest = seconds;
    if (!burst->repeats || rate > burst->best)
        burst->best = rate;
    if (++burst->repeats < REPEATS)
        ask(links, burst->asked);
    else
        go_on(links);
}

static void ask(struct rb_links *links, size_t bytes)
{
    struct burst *burst = &links->burst;

    burst->asked = bytes;
    burst->got = 0;
    burst->begun = rb_clock_ns();
    burst->call = rb_server_call(links->daemon->server,
                                 &(struct rb_client_options){
                                     .method = "burst",
                                     .body = json_pack("{sI}", "bytes", (json_int_t)bytes),
                                     .node = burst->node,
                                     .timeout_ms = TIMEOUT_MS,
                                     .piece = on_piece,
                                     .done = on_done,
                                     .context = links,
                                 });
}

/* Send as many bytes as were asked for, of no meaning. */
static void send_burst(struct rb_request *request, void *context)
{
    json_int_t bytes = json_integer_value(json_object_get(rb_request_body(request), "bytes"));
    RB_CLEANUP(rb_freep) char *piece = rb_alloc(PIECE);

    (void)context;
    if (bytes < 0 || bytes > MOST) {
        rb_request_failf(request, RB_EINVAL, "bytes: 0 to %d", MOST);
        return;
    }
    for (; bytes > 0; bytes -= PIECE)
        rb_request_piece(request, piece, bytes < PIECE ? (size_t)bytes : PIECE);
    rb_request_reply(request, json_object());
}

static const struct rb_server_method methods[] = {
    {"burst", false, send_burst},
    {NULL, false, NULL},
};

/* ---- Life ------------------------------------------------------------------------------------ */

static double two_digits(double x)
{
    char text[32];

    snprintf(text, sizeof(text), "%.1e", x);
    return strtod(text, NULL);
}

void rb_links_tell(const struct rb_links *links, Rb__Node *node)
{
    struct rb_link_round best = rb_link_rounds_best(&links->found);

    if (best.bandwidth <= 0)
        return;
    node->has_network_bandwidth = node->has_network_latency = true;
    node->network_bandwidth = two_digits(best.bandwidth);
    node->network_latency = two_digits(best.latency);
}

struct rb_links *rb_links_new(struct rb_daemon *daemon, void (*changed)(void *context),
                              void *context)
{
    struct rb_links *links = rb_alloc(sizeof(*links));

    links->daemon = daemon;
    links->changed = changed;
    links->context = context;
    uv_timer_init(daemon->loop, &links->retry);
    uv_timer_init(daemon->loop, &links->again);
    links->retry.data = links->again.data = links;
    rb_server_add(daemon->server, methods, links);
    rb_store_watch(daemon->store, on_facts, links);
    return links;
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_links *links = handle->data;

    if (--links->closing)
        return;
    forget_peers(links);
    free(links->burst.node);
    free(links);
}

void rb_links_free(struct rb_links *links)
{
    if (!links)
        return;
    links->closing = 2;
    uv_close((uv_handle_t *)&links->retry, on_closed);
    uv_close((uv_handle_t *)&links->again, on_closed);
}
