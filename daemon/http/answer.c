/* SPDX-License-Identifier: Apache-2.0 */
/* What is answered at once: health and metrics from what this node knows, and the page's files. */
#include "base/clock.h"
#include "base/version.h"
#include "daemon/agent/agent.h"
#include "daemon/certificates.h"
#include "daemon/coordinator.h"
#include "daemon/http/files.h"
#include "daemon/http/inside.h"
#include "daemon/http/metrics.h"
#include "daemon/http/readiness.h"
#include "daemon/http/text.h"
#include "daemon/presence.h"

#include <string.h>

static bool write_readiness(struct rb_http *http, struct rb_buffer *out)
{
    struct rb_store *store = http->daemon->store;
    const struct rb_facts *facts = rb_store_facts(store);

    return rb_readiness_say(
        &(struct rb_readiness){
            .leaving = http->leaving,
            .synced = rb_store_synced(store),
            .connected = rb_store_connected(store),
            .registered = rb_presence_announced(http->presence),
            .leader = facts->leader.message ? facts->leader.leader->node : NULL,
        },
        out);
}

static void answer_livez(struct rb_http *http, struct rb_reply *reply)
{
    (void)http;
    rb_buffer_text(&reply->body, "ok\n");
}

static void answer_readyz(struct rb_http *http, struct rb_reply *reply)
{
    if (!write_readiness(http, &reply->body))
        reply->status = MHD_HTTP_SERVICE_UNAVAILABLE;
}

static void answer_metrics(struct rb_http *http, struct rb_reply *reply)
{
    struct rb_daemon *daemon = http->daemon;
    struct rb_buffer reasons = {0};
    struct rb_certificate certificates[RB_CERTIFICATES];

    reply->type = RB_TEXT_TYPE;
    rb_metrics_write(
        &(struct rb_metrics){
            .version = RUBATO_VERSION,
            .node = daemon->settings->node,
            .ready = write_readiness(http, &reasons),
            .connected = rb_store_connected(daemon->store),
            /* Cut off from etcd it leads no more, as far as it knows; and its facts are old. */
            .leads = rb_coordinator_leads(daemon->coordinator) && rb_store_connected(daemon->store),
            .workers = rb_agent_workers(daemon->agent),
            .devices = daemon->devices,
            .certificates = certificates,
            .n_certificates = rb_certificates_list(daemon->certificates, certificates),
            .facts = rb_store_facts(daemon->store),
            .now = rb_clock_unix_ms(),
        },
        &reply->body);
    rb_buffer_done(&reasons);
}

static const struct path {
    const char *path;
    void (*answer)(struct rb_http *http, struct rb_reply *reply);
} paths[] = {
    {"/livez", answer_livez},
    {"/readyz", answer_readyz},
    {"/metrics", answer_metrics},
};

static const struct path *find_path(const char *path)
{
    for (size_t i = 0; i < RB_COUNT(paths); i++)
        if (!strcmp(path, paths[i].path))
            return &paths[i];
    return NULL;
}

static const struct rb_http_file *find_file(const char *path)
{
    for (const struct rb_http_file *file = rb_http_files; file->path; file++)
        if (!strcmp(path, file->path))
            return file;
    return NULL;
}

void rb_http_answer(struct rb_http *http, const char *path, const char *method,
                    struct rb_reply *reply)
{
    const struct path *known = find_path(path);
    const struct rb_http_file *file = find_file(path);
    const bool api = !strncmp(path, "/api/", 5);

    reply->status = MHD_HTTP_OK;
    reply->type = "text/plain; charset=utf-8";
    if (!known && !file && !api) {
        reply->status = MHD_HTTP_NOT_FOUND;
        rb_buffer_text(&reply->body, "not found: there are /, /livez, /readyz and /metrics\n");
    } else if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        reply->status = MHD_HTTP_METHOD_NOT_ALLOWED;
        reply->allow = "GET, HEAD";
        rb_buffer_text(&reply->body, "only GET and HEAD\n");
    } else if (file) {
        reply->type = file->type;
        rb_buffer_add(&reply->body, file->data, file->size);
    } else {
        known->answer(http, reply);
    }
}
