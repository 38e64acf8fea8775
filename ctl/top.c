/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the cluster on a whole terminal: asked for every second, until `q`. */
#include "base/arena.h"
#include "base/clock.h"
#include "ctl/terminal.h"
#include "ctl/top_view.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* PAGE: rows of `metrics` at a time; EVENTS: events that are kept; PATIENCE_MS: how long rubatod
 * may be silent, which itself waits 5 s for the rows of a node. */
enum { EVERY_MS = 1000, PAGE = 4096, EVENTS = 16, PATIENCE_MS = 6000 };

struct top {
    const struct rb_session *session;
    bool alone; /* the job was named: there is no list behind it */
    char *job;  /* its name, then its id; NULL: all jobs */
    json_t *jobs, *nodes, *devices, *status, *events;
    char *last_event; /* key */
    struct rb_history history;
    int64_t configuration; /* that trained when the rows were asked for */
    uint64_t heard;        /* unix ms: when all of this was the state */
    char *chosen;
    enum rb_top_order order;
    bool help;
    char *trouble;
};

/* ---- Asking ----------------------------------------------------------------------------------*/

static int ask(const struct top *top, const char *method, json_t *body, json_t **ret_reply,
               struct rb_why *why)
{
    const uint64_t deadline = rb_clock_ns() + (uint64_t)PATIENCE_MS * 1000000;

    return rb_session_call(top->session, method, body, deadline, ret_reply, why);
}

/* Replaces the old list by a new one. */
static int ask_list(const struct top *top, const char *kind, json_t **list, struct rb_why *why)
{
    json_t *reply = NULL;
    int err = ask(top, "get", json_pack("{s:s}", "kind", kind), &reply, why);

    if (err)
        return err;
    json_decref(*list);
    *list = json_incref(json_object_get(reply, "items"));
    json_decref(reply);
    return 0;
}

static int ask_all(struct top *top, struct rb_why *why)
{
    int err = ask_list(top, "jobs", &top->jobs, why);

    if (!err)
        err = ask_list(top, "nodes", &top->nodes, why);
    return err ? err : ask_list(top, "devices", &top->devices, why);
}

static int ask_status(struct top *top, struct rb_why *why)
{
    json_t *reply = NULL;
    int err = ask(top, "status", json_pack("{s:s}", "job", top->job), &reply, why);
    const char *id = rb_value_text(reply, "id", NULL);

    if (err == RB_ENOTFOUND && top->status)
        return rb_why_set(why, err, "job %s was deleted meanwhile",
                          rb_value_text(top->status, "name", top->job));
    if (err)
        return err;
    if (id && strcmp(id, top->job) != 0) {
        free(top->job);
        top->job = rb_string(id);
    }
    json_decref(top->status);
    top->status = reply;
    return 0;
}

/* Ask for the rows since the last ones, at first for as many as are kept.  Each new configuration
 * asks for all anew, because it may have begun with a fall back that the job has made up for
 * already. */
static int ask_rows(struct top *top, struct rb_why *why)
{
    const int64_t step = rb_value_integer(top->status, "step", 0);
    const int64_t configuration = rb_value_integer(top->status, "configuration", 0);
    int64_t after = step - RB_HISTORY_ROWS;
    json_t *reply = NULL;
    int err;

    rb_history_fall_back(&top->history, configuration == top->configuration ? step : 0);
    if (top->history.n && top->history.row[top->history.n - 1].step > after)
        after = top->history.row[top->history.n - 1].step;
    err = ask(top, "metrics",
              json_pack("{s:s,s:I,s:i}", "job", top->job, "after",
                        (json_int_t)(after > 0 ? after : 0), "limit", PAGE),
              &reply, why);
    if (err)
        return err;
    top->configuration = configuration;
    rb_history_add(&top->history, json_object_get(reply, "columns"),
                   json_object_get(reply, "rows"));
    json_decref(reply);
    return 0;
}

static int ask_events(struct top *top, struct rb_why *why)
{
    json_t *reply = NULL;
    int err = ask(top, "events", json_pack("{s:s,s:s*}", "job", top->job, "after", top->last_event),
                  &reply, why);
    const json_t *items = json_object_get(reply, "items"), *last;

    if (err)
        return err;
    json_array_extend(top->events, (json_t *)items);
    while (json_array_size(top->events) > EVENTS)
        json_array_remove(top->events, 0);
    last = json_array_get(top->events, json_array_size(top->events) - 1);
    free(top->last_event);
    top->last_event = last ? rb_string(rb_value_text(last, "key", "")) : NULL;
    json_decref(reply);
    return 0;
}

/* The first reply, without which there is nothing to show. */
static int ask_first(struct top *top, struct rb_why *why)
{
    return top->job ? ask_status(top, why) : ask_all(top, why);
}

/* Ask for all that the view shows.  A failure is shown, and the old values stay. */
static int look(struct top *top, struct rb_why *why)
{
    int err = ask_first(top, why), others;

    if (!err && top->job) {
        err = ask_rows(top, why);
        others = err == RB_ECANCELED ? err : ask_events(top, why);
        err = err ? err : others;
    }
    if (!err)
        top->heard = rb_clock_unix_ms();
    free(top->trouble);
    top->trouble = err && err != RB_ECANCELED ? rb_string(why->text) : NULL;
    return err == RB_ECANCELED ? err : 0;
}

/* ---- Keys ------------------------------------------------------------------------------------*/

static void forget_job(struct top *top)
{
    free(top->job);
    free(top->last_event);
    json_decref(top->status);
    json_array_clear(top->events);
    rb_history_done(&top->history);
    top->job = top->last_event = NULL;
    top->status = NULL;
}

static struct rb_top_seen seen_by(const struct top *top)
{
    return (struct rb_top_seen){
        .jobs = top->jobs,
        .nodes = top->nodes,
        .devices = top->devices,
        .chosen = top->chosen,
        .order = top->order,
        .job = top->job,
        .status = top->status,
        .events = top->events,
        .history = &top->history,
        .trouble = top->trouble,
        .help = top->help,
        .heard = top->heard,
    };
}

static void choose(struct top *top, int by)
{
    const struct rb_top_seen seen = seen_by(top);
    const char *id = rb_top_move(&seen, by);
    char *chosen = id ? rb_string(id) : NULL;

    free(top->chosen);
    top->chosen = chosen;
}

/* false: leave.  *ret_asks: there is something else to ask for. */
static bool press(struct top *top, enum rb_press key, bool *ret_asks)
{
    if (top->help) {
        top->help = key == RB_PRESS_RESIZED;
        return true;
    }
    if (key == RB_PRESS_HELP)
        top->help = true;
    if (key == RB_PRESS_CLOSE) {
        if (!top->job || top->alone)
            return false;
        forget_job(top);
        *ret_asks = true;
    }
    if (top->job)
        return true;
    if (key == RB_PRESS_UP || key == RB_PRESS_DOWN)
        choose(top, key == RB_PRESS_UP ? -1 : 1);
    if (key == RB_PRESS_ORDER)
        top->order = (top->order + 1) % RB_TOP_ORDERS;
    if (key == RB_PRESS_OPEN) {
        choose(top, 0);
        top->job = top->chosen ? rb_string(top->chosen) : NULL;
        *ret_asks = true;
    }
    return true;
}

/* ---- The verb --------------------------------------------------------------------------------*/

static void draw(const struct top *top, struct rb_terminal *terminal)
{
    const struct rb_top_seen seen = seen_by(top);
    struct rb_lines lines = {0};
    int width, height;

    rb_terminal_size(terminal, &width, &height);
    rb_top_view(&seen, width, height, rb_terminal_blocks(terminal), &lines);
    rb_terminal_draw(terminal, &lines);
    rb_lines_done(&lines);
}

static int ms_until(uint64_t time)
{
    const uint64_t now = rb_clock_ns();

    return time > now ? (int)((time - now) / 1000000) + 1 : 0;
}

/* Run until the user leaves. */
static int run(struct top *top, struct rb_terminal *terminal, struct rb_why *why)
{
    int err = look(top, why);
    bool stays = true;

    while (stays && !err) {
        const uint64_t next = rb_clock_ns() + (uint64_t)EVERY_MS * 1000000;
        bool asks = false;

        while (stays && !err && !asks && rb_clock_ns() < next) {
            enum rb_press key;

            draw(top, terminal);
            err = rb_terminal_press(terminal, top->session->to.interrupt_fd, ms_until(next), &key,
                                    why);
            if (!err && key != RB_PRESS_NONE)
                stays = press(top, key, &asks);
        }
        if (stays && !err)
            err = look(top, why);
    }
    return err == RB_ECANCELED ? 0 : err;
}

/* Returns the exit code. */
static int show(struct top *top)
{
    struct rb_terminal *terminal = NULL;
    struct rb_why why = {0};
    int err = rb_terminal_open(&terminal, &why);

    if (err)
        return rb_session_usage(top->session, "%s; elsewhere: rubatoctl %s", why.text,
                                top->job ? "status JOB" : "get jobs");
    err = run(top, terminal, &why);
    rb_terminal_close(terminal);
    return err ? rb_session_fail(top->session, err, &why) : RB_EXIT_DONE;
}

int rb_top(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *job = arguments->n_words ? arguments->word[0] : NULL;
    struct top top = {
        .session = session,
        .alone = job,
        .job = job ? rb_string(job) : NULL,
        .events = json_array(),
    };
    struct rb_why why = {0};
    const int err = ask_first(&top, &why);
    const int code = err ? rb_session_fail(session, err, &why) : show(&top);

    forget_job(&top);
    json_decref(top.jobs);
    json_decref(top.nodes);
    json_decref(top.devices);
    json_decref(top.events);
    free(top.chosen);
    free(top.trouble);
    return code;
}
