/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/silence.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/rpc/request.h"

#include <stdlib.h>
#include <string.h>

/* Looks are counted, not how late it is: a rubatod that was stopped itself finds no node silent. */
enum {
    LOOKS = 5,
    LOOK_MS = 200,
    SILENT_MS = LOOKS * LOOK_MS,
    REMEMBER_MS = 86400000, /* a node whose lease has ended: a step may take long */
};

struct node {
    struct node *next;
    struct rb_silence *silence;
    char *name, *address;
    struct rb_client_call *call;
    uint64_t seen;  /* when it was last in facts, loop time; or all_seen, if that is later */
    unsigned looks; /* since it was asked, without an answer */
    bool wanted, asked, silent;
};

struct rb_silence {
    struct rb_daemon *daemon;
    enum rb_silence_of of;
    uv_timer_t look;
    struct node *nodes; /* those in facts, and some that were */
    size_t n;
    int64_t noted;     /* the newest revision of a node's fact */
    uint64_t all_seen; /* when there were no nodes but those in facts */
    const char **names;
    void (*changed)(void *context);
    void *context;
};

/* ---- Which there are -------------------------------------------------------------------------*/

static struct node *find(const struct rb_silence *silence, const char *name)
{
    struct node *node = silence->nodes;

    while (node && strcmp(node->name, name))
        node = node->next;
    return node;
}

/* No answer of the node is waited for any more. */
static void leave(struct node *node)
{
    rb_client_cancel(RB_TAKE(node->call));
    node->asked = node->silent = false;
}

static struct node *note(struct rb_silence *silence, const char *name, const char *address)
{
    struct node *node = find(silence, name);

    if (!node) {
        node = rb_alloc(sizeof *node);
        node->silence = silence;
        node->name = rb_string(name);
        node->next = silence->nodes;
        silence->nodes = node;
        silence->n++;
    }
    if (!node->address || strcmp(node->address, address)) {
        leave(node); /* another node may be where it was */
        free(node->address);
        node->address = rb_string(address);
    }
    return node;
}

/* Does the report come from the node `name`?  Its own name is NODE:DEVICE. */
static bool is_from(const struct rb_fact *report, const char *name)
{
    const char *colon = strrchr(report->name, ':');
    size_t length = strlen(name);

    return colon && (size_t)(colon - report->name) == length &&
           !strncmp(report->name, name, length);
}

/* Where a node was whose lease had ended before this rubatod came: as its newest report of a worker
 * says. */
static struct node *note_reported(struct rb_silence *silence, const struct rb_facts *facts,
                                  const char *name)
{
    const struct rb_fact *newest = NULL;

    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_fact_list *workers = &facts->jobs[j].workers;

        for (size_t w = 0; w < workers->n; w++)
            if (workers->at[w].worker->agent && is_from(&workers->at[w], name) &&
                (!newest || workers->at[w].revision > newest->revision))
                newest = &workers->at[w];
    }
    return newest ? note(silence, name, newest->worker->agent) : NULL;
}

/* What facts say of most nodes is what they said last time, so only newer facts are noted.  An etcd
 * that has lost its data counts from the start. */
static void note_new(struct rb_silence *silence, const struct rb_fact_list *nodes)
{
    int64_t newest = 0;

    for (size_t n = 0; n < nodes->n; n++)
        if (nodes->at[n].revision > newest)
            newest = nodes->at[n].revision;
    if (newest < silence->noted)
        silence->noted = 0;
    for (size_t n = 0; n < nodes->n; n++)
        if (nodes->at[n].revision > silence->noted)
            note(silence, nodes->at[n].node->name, nodes->at[n].node->address);
    silence->noted = newest;
}

static void node_free(struct node *node)
{
    rb_client_cancel(node->call);
    free(node->name);
    free(node->address);
    free(node);
}

static void forget_old(struct rb_silence *silence, const struct rb_fact_list *nodes)
{
    uint64_t now = uv_now(silence->daemon->loop);

    if (silence->n == nodes->n) {
        silence->all_seen = now;
        return;
    }
    for (struct node **at = &silence->nodes; *at;) {
        struct node *node = *at;

        if (rb_fact_find(nodes, node->name))
            node->seen = now;
        else if (node->seen < silence->all_seen)
            node->seen = silence->all_seen;
        if (node->wanted || now - node->seen < REMEMBER_MS) {
            at = &node->next;
        } else {
            *at = node->next;
            silence->n--;
            node_free(node);
        }
    }
}

/* ---- Asking ----------------------------------------------------------------------------------*/

static void set_silent(struct node *node, bool silent)
{
    if (node->silent == silent)
        return;
    node->silent = silent;
    if (silent)
        rb_log(RB_LOG_WARN, "node %s has not answered for %d ms", node->name, SILENT_MS);
    else
        rb_log(RB_LOG_INFO, "node %s answers again", node->name);
    node->silence->changed(node->silence->context);
}

/* A node that says anything is there. */
static void on_answer(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct node *node = context;

    (void)why;
    (void)body;
    node->call = NULL;
    if (err == RB_ETIMEOUT || (err == RB_EUNREACHABLE && node->silence->of == RB_SILENCE_LOST))
        return;
    node->asked = false;
    set_silent(node, false);
}

static void ask(struct node *node)
{
    struct rb_client_options options = {
        .method = "version",
        .body = json_object(),
        .timeout_ms = SILENT_MS,
        .done = on_answer,
        .context = node,
    };

    if (!node->asked)
        node->looks = 0;
    node->asked = true;
    node->call = rb_client_open(node->silence->daemon->server, node->address, &options);
}

static void on_look(uv_timer_t *timer)
{
    struct rb_silence *silence = timer->data;

    for (struct node *node = silence->nodes; node; node = node->next) {
        if (!node->wanted)
            continue;
        if (node->asked && ++node->looks >= LOOKS)
            set_silent(node, true);
        if (!node->call)
            ask(node);
    }
}

static void look_on(struct rb_silence *silence, bool wanted)
{
    if (!wanted)
        uv_timer_stop(&silence->look);
    else if (!uv_is_active((uv_handle_t *)&silence->look))
        uv_timer_start(&silence->look, on_look, 0, LOOK_MS);
}

/* ---- The door --------------------------------------------------------------------------------*/

void rb_silence_ask(struct rb_silence *silence, const char *const *names, size_t n)
{
    const struct rb_facts *facts = rb_store_facts(silence->daemon->store);
    bool wanted = false;

    note_new(silence, &facts->nodes);
    for (struct node *node = silence->nodes; node; node = node->next)
        node->wanted = false;
    for (size_t i = 0; i < n; i++) {
        struct node *node = find(silence, names[i]);

        if (!node)
            node = note_reported(silence, facts, names[i]);
        if (node && strcmp(names[i], silence->daemon->settings->node))
            node->wanted = true;
    }
    for (struct node *node = silence->nodes; node; node = node->next) {
        wanted |= node->wanted;
        if (!node->wanted)
            leave(node);
    }
    look_on(silence, wanted);
    forget_old(silence, &facts->nodes);
}

const char *const *rb_silence_names(struct rb_silence *silence, size_t *ret_n)
{
    size_t n = 0;

    for (const struct node *node = silence->nodes; node; node = node->next)
        n += node->silent;
    free(silence->names);
    silence->names = rb_alloc((n + 1) * sizeof *silence->names);
    *ret_n = n;
    for (const struct node *node = silence->nodes; node; node = node->next)
        if (node->silent)
            silence->names[--n] = node->name;
    return silence->names;
}

struct rb_silence *rb_silence_new(struct rb_daemon *daemon, enum rb_silence_of of,
                                  void (*changed)(void *context), void *context)
{
    struct rb_silence *silence = rb_alloc(sizeof *silence);

    silence->daemon = daemon;
    silence->of = of;
    silence->changed = changed;
    silence->context = context;
    uv_timer_init(daemon->loop, &silence->look);
    silence->look.data = silence;
    return silence;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_silence_free(struct rb_silence *silence)
{
    if (!silence)
        return;
    for (struct node *node; (node = silence->nodes);) {
        silence->nodes = node->next;
        node_free(node);
    }
    free(silence->names);
    uv_close((uv_handle_t *)&silence->look, on_closed);
}
