/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/notice.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/agent/notice_command.h"
#include "daemon/daemon.h"
#include "proto/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_MS = 300 };

struct rb_notice {
    struct rb_daemon *daemon;
    uv_timer_t timer; /* the next question */
    uv_timer_t retry; /* of the write */
    uint64_t every_ms;
    struct rb_notice_command *command; /* under way */
    bool said;                         /* the last answer was that it will be taken away */
    bool confused;                     /* the last answer was neither yes nor no */
    bool pending, writing;             /* the drain is to be written, is being written */
    uint64_t told, deadline;           /* unix ms; 0: no time was named */
    int64_t lease;                     /* that the drain was written with */
};

static void ask(uv_timer_t *timer);
static void drain(struct rb_notice *notice);

static void on_retry(uv_timer_t *timer)
{
    drain(timer->data);
}

/* ---- The drain ------------------------------------------------------------------------------- */

static void on_written(int err, const struct rb_why *why, void *context)
{
    struct rb_notice *notice = context;
    (void)why;
    if (err == RB_ECANCELED)
        return;
    notice->writing = false;
    if (err) {
        notice->pending = true;
        uv_timer_start(&notice->retry, on_retry, RETRY_MS, 0);
    } else {
        drain(notice); /* there may have been another notice meanwhile */
    }
}

static void put_event(const struct rb_notice *notice, const char *text, struct rb_writes *writes)
{
    Rb__Event event = RB__EVENT__INIT;
    event.time = notice->told;
    event.node = notice->daemon->settings->node;
    event.kind = "notice";
    event.text = (char *)text;
    rb_writes_event(writes, RB_ANY_REVISION, &event, "notice-%s", event.node);
}

/* A cordon has the node drained by then already. */
static bool drained(const struct rb_notice *notice, const struct rb_fact *cordon)
{
    const Rb__Cordon *value = cordon ? cordon->cordon : NULL;
    if (!value || !value->drain)
        return false;
    return !notice->deadline || (value->has_deadline && value->deadline <= notice->deadline);
}

static void drain(struct rb_notice *notice)
{
    struct rb_daemon *daemon = notice->daemon;
    const struct rb_facts *facts = rb_store_facts(daemon->store);
    const char *node = daemon->settings->node;
    const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node);
    const struct rb_fact *own = rb_fact_find(&facts->nodes, node);
    struct rb_writes writes = {0};
    Rb__Cordon value = RB__CORDON__INIT;
    char text[160], by[RB_CLOCK_TEXT];
    if (!notice->pending || notice->writing || !own || own->lease != rb_store_lease(daemon->store))
        return; /* the name is not ours yet, or another rubatod's */
    snprintf(text, sizeof(text), "node %s will be taken away%s%s: it is drained", node,
             notice->deadline ? " by " : "",
             notice->deadline ? rb_clock_text(notice->deadline, by) : "");
    put_event(notice, text, &writes);
    value.since = notice->told;
    value.has_drain = value.drain = true;
    value.has_deadline = notice->deadline != 0;
    value.deadline = notice->deadline;
    value.reason = "notice";
    if (!drained(notice, cordon))
        rb_writes_put_leased(&writes, cordon ? cordon->revision : RB_ABSENT, &value.base,
                             "cordons/%s", node);
    notice->writing = true;
    notice->pending = false;
    notice->lease = own->lease;
    rb_store_commit(daemon->store, &writes, NULL, on_written, notice);
    rb_writes_done(&writes);
}

/* The lease ran out and took the drain along, but the notice stands. */
static void on_facts(void *context)
{
    struct rb_notice *notice = context;
    const struct rb_facts *facts = rb_store_facts(notice->daemon->store);
    const struct rb_fact *own = rb_fact_find(&facts->nodes, notice->daemon->settings->node);
    if (notice->said && notice->lease && own && own->lease != notice->lease &&
        !rb_fact_find(&facts->cordons, notice->daemon->settings->node))
        notice->pending = true;
    drain(notice);
}

/* ---- The question ---------------------------------------------------------------------------- */

static void answered(int status, const char *output, void *context)
{
    struct rb_notice *notice = context;
    double seconds = -1;
    bool yes = !status && !rb_notice_command_read(output, &seconds);
    bool confused = status < 0 || (!status && !yes);
    notice->command = NULL;
    uv_timer_start(&notice->timer, ask, notice->every_ms, 0);
    if (confused && !notice->confused)
        rb_log(RB_LOG_WARN, "the notice command %s",
               status < 0 ? "was killed or took longer than 10 s"
                          : "ended well and said something else than a number of seconds");
    notice->confused = confused;
    if (confused)
        return; /* neither yes nor no */
    if (yes && !notice->said) {
        notice->told = rb_clock_unix_ms();
        notice->deadline = seconds < 0 ? 0 : notice->told + (uint64_t)(seconds * 1000);
        notice->pending = true;
        rb_log(RB_LOG_WARN, "this node will be taken away: the notice command says so");
    }
    notice->said = yes;
    drain(notice);
}

static void ask(uv_timer_t *timer)
{
    struct rb_notice *notice = timer->data;
    struct rb_why why = {0};
    if (!rb_notice_command_run(notice->daemon->loop, notice->daemon->settings->notice->command,
                               RB_NOTICE_COMMAND_MS, answered, notice, &notice->command, &why))
        return;
    if (!notice->confused)
        rb_log(RB_LOG_ERROR, "the notice command: %s", why.text);
    notice->confused = true;
    uv_timer_start(&notice->timer, ask, notice->every_ms, 0);
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_notice *rb_notice_new(struct rb_daemon *daemon)
{
    const Rb__NoticeSettings *settings = daemon->settings->notice;
    int64_t every;
    if (!settings || !settings->command || rb_spec_duration_ms(settings->every, &every))
        return NULL;
    struct rb_notice *notice = rb_alloc(sizeof(*notice));
    notice->daemon = daemon;
    notice->every_ms = (uint64_t)every;
    uv_timer_init(daemon->loop, &notice->timer);
    uv_timer_init(daemon->loop, &notice->retry);
    notice->timer.data = notice->retry.data = notice;
    rb_store_watch(daemon->store, on_facts, notice);
    uv_timer_start(&notice->timer, ask, 0, 0);
    return notice;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_retry_closed(uv_handle_t *handle)
{
    struct rb_notice *notice = handle->data;
    uv_close((uv_handle_t *)&notice->timer, on_closed);
}

void rb_notice_free(struct rb_notice *notice)
{
    if (!notice)
        return;
    rb_notice_command_stop(notice->command);
    uv_close((uv_handle_t *)&notice->retry, on_retry_closed);
}
