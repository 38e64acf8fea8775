/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_view.h"

#include "base/arena.h"
#include "base/error.h"
#include "ctl/chart.h"
#include "ctl/follow.h"
#include "ctl/get.h"
#include "ctl/human.h"
#include "ctl/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 24, BAR_LEAST = 6, NODE_BAR = 16, CURVE_LEAST = 4, CURVE_MOST = 12, EVENTS = 4 };

struct view {
    const struct rb_top_seen *seen;
    int width, height;
    bool blocks;
    struct rb_lines *out;
};

static int room(const struct view *view, int kept)
{
    const int left = view->height - (int)view->out->n - kept;

    return left > 0 ? left : 0;
}

static void add_blank(const struct view *view)
{
    rb_lines_add(view->out, RB_LOOK_PLAIN, "%s", "");
}

static void add_trouble(const struct view *view)
{
    if (view->seen->trouble)
        rb_lines_add(view->out, RB_LOOK_BAD, "%s", view->seen->trouble);
}

/* ---- Jobs ------------------------------------------------------------------------------------*/

static int by_text(const json_t *a, const json_t *b, const char *key)
{
    return strcmp(rb_value_text(a, key, ""), rb_value_text(b, key, ""));
}

/* The larger one first. */
static int by_count(const json_t *a, const json_t *b, const char *key)
{
    const int64_t x = rb_value_count(a, key), y = rb_value_count(b, key);

    return (x < y) - (x > y);
}

static int compare(const void *a, const void *b, void *order)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int difference = 0;

    switch (*(enum rb_top_order *)order) {
    case RB_TOP_BY_PHASE:
        difference = by_text(x, y, "phase");
        break;
    case RB_TOP_BY_STEP:
        difference = by_count(x, y, "step");
        break;
    case RB_TOP_BY_DEVICES:
        difference = by_count(x, y, "devices");
        break;
    default:
        break;
    }
    return difference ? difference : by_text(x, y, "name");
}

/* A new list, to be freed with json_decref. */
static json_t *ordered(const struct rb_top_seen *seen)
{
    enum rb_top_order order = seen->order;
    const size_t n = json_array_size(seen->jobs);
    RB_CLEANUP(rb_freep) json_t **job = rb_alloc((n + 1) * sizeof(json_t *));
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        job[i] = json_array_get(seen->jobs, i);
    if (order != RB_TOP_AS_TOLD)
        qsort_r(job, n, sizeof *job, compare, &order);
    for (size_t i = 0; i < n; i++)
        json_array_append(list, job[i]);
    return list;
}

static size_t find_chosen(const struct rb_top_seen *seen, const json_t *list)
{
    const json_t *job;
    size_t i;

    json_array_foreach(list, i, job)
    {
        if (seen->chosen && strcmp(rb_value_text(job, "id", ""), seen->chosen) == 0)
            return i;
    }
    return 0;
}

const char *rb_top_move(const struct rb_top_seen *seen, int by)
{
    json_t *list = ordered(seen);
    const int64_t n = (int64_t)json_array_size(list);
    int64_t at = (int64_t)find_chosen(seen, list) + by;
    const char *id;

    at = at >= n ? n - 1 : at;
    id = rb_value_text(json_array_get(list, (size_t)(at < 0 ? 0 : at)), "id", NULL);
    json_decref(list); /* the jobs themselves are those of `seen` */
    return id;
}

/* The head and as many jobs as there is room for, around the chosen one. */
static void add_jobs(const struct view *view, int most)
{
    json_t *list = ordered(view->seen);
    const size_t chosen = find_chosen(view->seen, list), n = json_array_size(list);
    const size_t shown = n <= (size_t)most ? n : most > 1 ? (size_t)most - 1 : (size_t)most;
    const size_t first = chosen < shown ? 0 : chosen - shown + 1;
    struct rb_buffer text = {0};
    char *line, *rest;

    rb_get_jobs(list, &text);
    json_decref(list);
    line = strtok_r(text.data, "\n", &rest);
    rb_lines_add(view->out, RB_LOOK_HEAD, "%s", line ? line : "");
    for (size_t i = 0; (line = strtok_r(NULL, "\n", &rest)); i++) {
        if (i >= first && i < first + shown)
            rb_lines_add(view->out, i == chosen ? RB_LOOK_CHOSEN : RB_LOOK_PLAIN, "%-*s",
                         view->width, line);
    }
    if (shown < n)
        rb_lines_add(view->out, RB_LOOK_TALK, "%zu more", n - shown);
    rb_buffer_done(&text);
}

/* ---- Nodes -----------------------------------------------------------------------------------*/

/* Devices of a node, and how many of them some job has or are sick. */
struct devices {
    int64_t all, used, sick;
};

static bool is_of(const json_t *device, const char *node)
{
    return !node || strcmp(rb_value_text(device, "node", ""), node) == 0;
}

/* node NULL: of all nodes. */
static struct devices count_devices(const struct rb_top_seen *seen, const char *node)
{
    struct devices devices = {0};
    const json_t *device;
    size_t i;

    json_array_foreach(seen->devices, i, device)
    {
        if (!is_of(device, node))
            continue;
        devices.all++;
        devices.used += rb_value_text(device, "job", NULL) != NULL;
        devices.sick += rb_value_there(device, "sick");
    }
    return devices;
}

/* "gpt 2, mlp 1": the jobs that have devices of this node. */
static void name_jobs(const struct rb_top_seen *seen, const char *node, struct rb_buffer *out)
{
    json_t *uses = json_object(), *count;
    const json_t *device;
    const char *job;
    size_t i;

    json_array_foreach(seen->devices, i, device)
    {
        job = rb_value_text(device, "job", NULL);
        if (job && is_of(device, node))
            json_object_set_new(uses, job, json_integer(rb_value_integer(uses, job, 0) + 1));
    }
    json_object_foreach(uses, job, count)
    {
        rb_buffer_format(out, "%s%s %" PRId64, out->size ? ", " : "", job,
                         (int64_t)json_integer_value(count));
    }
    json_decref(uses);
}

static void add_node(const struct view *view, const json_t *node)
{
    const char *name = rb_value_text(node, "name", "?"), *state = rb_value_text(node, "state", "-");
    const struct devices devices = count_devices(view->seen, name);
    const bool good = strcmp(state, "ready") == 0 && !devices.sick;
    struct rb_buffer bar = {0}, jobs = {0};

    name_jobs(view->seen, name, &jobs);
    rb_chart_bar(devices.all ? (double)devices.used / (double)devices.all : 0, NODE_BAR,
                 view->blocks, &bar);
    rb_lines_add(view->out, good ? RB_LOOK_PLAIN : RB_LOOK_BAD,
                 "%-16s  %-9s  %s  %3" PRId64 " of %-3" PRId64 "  %s%s", name, state, bar.data,
                 devices.used, devices.all, devices.sick ? "unhealthy devices; " : "",
                 jobs.size ? jobs.data : "");
    rb_buffer_done(&bar);
    rb_buffer_done(&jobs);
}

static void add_nodes(const struct view *view)
{
    const size_t n = json_array_size(view->seen->nodes);
    int lines = room(view, 2);
    const json_t *node;
    size_t i;

    if (lines < 2)
        return;
    rb_lines_add(view->out, RB_LOOK_HEAD, "%-16s  %-9s  %-*s  %s", "NODE", "STATE", NODE_BAR + 12,
                 "DEVICES IN USE", "BY");
    lines--;
    json_array_foreach(view->seen->nodes, i, node)
    {
        if ((int)i + 1 == lines && i + 1 < n) {
            rb_lines_add(view->out, RB_LOOK_TALK, "%zu more", n - i);
            break;
        }
        add_node(view, node);
    }
}

static void view_all(const struct view *view)
{
    static const char *const orders[RB_TOP_ORDERS] = {"age", "name", "phase", "step", "devices"};
    const struct rb_top_seen *seen = view->seen;
    const size_t n = json_array_size(seen->jobs), nodes = json_array_size(seen->nodes);
    const struct devices devices = count_devices(seen, NULL);
    char heard[RB_HUMAN_SIZE], ill[2 * RB_HUMAN_SIZE] = "";
    int lines;

    if (devices.sick)
        snprintf(ill, sizeof ill, ", %" PRId64 " unhealthy", devices.sick);
    rb_lines_add(view->out, RB_LOOK_HEAD,
                 "%zu job%s, %zu node%s, %" PRId64 " of %" PRId64 " devices in use%s   %s UTC", n,
                 n == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", devices.used, devices.all, ill,
                 rb_human_time(seen->heard, heard));
    add_trouble(view);
    add_blank(view);
    lines = (int)nodes + 4; /* below: two blank lines, a head, the keys */
    lines = lines < view->height / 2 ? lines : view->height / 2;
    add_jobs(view, room(view, lines + 1));
    add_blank(view);
    add_nodes(view);
    add_blank(view);
    rb_lines_add(view->out, RB_LOOK_TALK,
                 "up, down: choose   enter: look at it   s: order (by %s)   ?: help   q: leave",
                 orders[seen->order]);
}

/* ---- One job ---------------------------------------------------------------------------------*/

static void add_head(const struct view *view, double median, double slow)
{
    const struct rb_top_seen *seen = view->seen;
    const json_t *plan = json_object_get(seen->status, "plan");
    const char *reason = rb_value_text(seen->status, "reason", NULL);
    const int64_t configuration = rb_value_integer(seen->status, "configuration", 0);
    char heard[RB_HUMAN_SIZE];

    rb_lines_add(view->out, RB_LOOK_HEAD, "%s: %s   %s UTC",
                 rb_value_text(seen->status, "name", seen->job),
                 rb_value_text(seen->status, "phase", "?"), rb_human_time(seen->heard, heard));
    add_trouble(view);
    if (reason)
        rb_lines_add(view->out, RB_LOOK_PLAIN, "%s", reason);
    if (configuration)
        rb_lines_add(view->out, RB_LOOK_PLAIN, "configuration %" PRId64 ": %s", configuration,
                     rb_value_text(plan, "summary", "-"));
    if (!isnan(median) && rb_value_count(seen->status, "devices"))
        rb_lines_add(view->out, RB_LOOK_PLAIN, "a step takes %.3g ms, 99 of 100 at most %.3g",
                     median, slow);
}

/* Behind a bar where there is room for one. */
static void add_progress(const struct view *view)
{
    const int64_t step = rb_value_integer(view->seen->status, "step", 0);
    const int64_t steps = rb_value_integer(view->seen->status, "steps", 0);
    struct rb_buffer bar = {0}, line = {0};
    int space;

    if (!view->seen->status)
        return;
    rb_progress_line(view->seen->status, &line);
    space = view->width - (int)line.size - 3;
    if (space >= BAR_LEAST) {
        rb_buffer_text(&bar, "[");
        rb_chart_bar(steps ? (double)step / (double)steps : 0, space < BAR ? space : BAR,
                     view->blocks, &bar);
        rb_buffer_text(&bar, "] ");
    }
    rb_lines_add(view->out, RB_LOOK_PLAIN, "%s%s", bar.size ? bar.data : "", line.data);
    rb_buffer_done(&bar);
    rb_buffer_done(&line);
}

/* How much of a step it computes. */
static void add_device(const struct view *view, const json_t *device, double step_ms)
{
    const double share = rb_value_real(device, "microbatches", NAN);
    const double ms = rb_value_real(device, "microbatchMs", NAN);
    const bool straggler = json_is_object(json_object_get(device, "straggler"));
    const int64_t pid = rb_value_integer(device, "pid", 0);
    RB_CLEANUP(rb_freep)
    char *name = rb_format("%s:%" PRId64, rb_value_text(device, "node", "?"),
                           rb_value_integer(device, "device", 0));
    struct rb_buffer bar = {0}, text = {0};

    rb_chart_bar(share * ms / step_ms, BAR, view->blocks, &bar);
    if (!isnan(share))
        rb_buffer_format(&text, "%.0f", share);
    if (!isnan(ms))
        rb_buffer_format(&text, " of %.3g ms", ms);
    rb_lines_add(view->out, straggler ? RB_LOOK_BAD : RB_LOOK_PLAIN,
                 "%-18s  %-4s  %8" PRId64 "  [%s]  %s%s", name, rb_value_text(device, "kind", "?"),
                 pid, bar.data, text.size ? text.data : "-", straggler ? ", a straggler" : "");
    rb_buffer_done(&bar);
    rb_buffer_done(&text);
}

static void add_devices(const struct view *view, double step_ms, int most)
{
    const json_t *devices = json_object_get(view->seen->status, "devices"), *device;
    const size_t n = json_array_size(devices);
    size_t i;

    if (!n || most < 2)
        return;
    rb_lines_add(view->out, RB_LOOK_HEAD, "%-18s  %-4s  %8s  %-*s  %s", "DEVICE", "KIND", "PID",
                 BAR + 2, "COMPUTES, OF A STEP", "MICROBATCHES");
    json_array_foreach(devices, i, device)
    {
        if ((int)i + 2 == most && i + 1 < n) {
            rb_lines_add(view->out, RB_LOOK_TALK, "%zu more", n - i);
            break;
        }
        add_device(view, device, step_ms);
    }
}

/* The newest ones. */
static void add_events(const struct view *view, int most)
{
    const size_t n = json_array_size(view->seen->events);
    size_t i = n > (size_t)most ? n - (size_t)most : 0;

    for (; i < n; i++) {
        const json_t *event = json_array_get(view->seen->events, i);
        char time[RB_HUMAN_SIZE];

        rb_human_time((uint64_t)rb_value_integer(event, "time", 0), time);
        rb_lines_add(view->out, RB_LOOK_PLAIN, "%s  %s: %s", time,
                     rb_value_text(event, "kind", "?"), rb_value_text(event, "text", ""));
    }
}

static void view_job(const struct view *view)
{
    const struct rb_top_seen *seen = view->seen;
    const int devices = (int)rb_value_count(seen->status, "devices");
    int events = (int)json_array_size(seen->events), curve;
    double median, slow;

    events = events < EVENTS ? events : EVENTS;
    rb_history_times(seen->history, &median, &slow);
    add_head(view, median, slow);
    add_progress(view);
    add_blank(view);
    /* Below it its axis of two lines, a blank line, devices, a blank line, events, the keys. */
    curve = room(view, 2 + 1 + devices + 1 + 1 + events + 1);
    curve = curve > CURVE_MOST ? CURVE_MOST : curve < CURVE_LEAST ? CURVE_LEAST : curve;
    if (seen->history->n && room(view, curve + 3) > 0) {
        rb_chart_losses(seen->history, view->width, curve, view->blocks, view->out);
        add_blank(view);
    }
    add_devices(view, median, room(view, events + 2));
    if (devices)
        add_blank(view);
    add_events(view, room(view, 1) < events ? room(view, 1) : events);
    while (room(view, 1))
        add_blank(view);
    rb_lines_add(view->out, RB_LOOK_TALK, "?: help   q: back");
}

/* ---- Help ------------------------------------------------------------------------------------*/

static void view_help(const struct view *view)
{
    static const char *const lines[] = {
        "up, k; down, j     choose a job",
        "enter              look at it",
        "s                  order jobs by age, name, phase, step, devices",
        "q                  back, or leave",
        "ctrl-c             leave, at once also while rubatod is silent",
        "",
        "The losses are those of the newest steps, means where there are more steps than columns;",
        "'!' is a loss that is no number.  Below it is on how many devices they were done.  A",
        "device's bar is how much of a step it computes; the rest is all else: exchange, update,",
        "waiting.",
        "",
        "Nothing here changes a job: grow, shrink, pause and others are verbs of rubatoctl.",
        "",
    };

    rb_lines_add(view->out, RB_LOOK_HEAD, "rubatoctl top");
    add_blank(view);
    for (size_t i = 0; i < RB_COUNT(lines); i++)
        rb_lines_add(view->out, RB_LOOK_PLAIN, "%s", lines[i]);
    rb_lines_add(view->out, RB_LOOK_TALK, "any key: back");
}

void rb_top_view(const struct rb_top_seen *seen, int width, int height, bool blocks,
                 struct rb_lines *out)
{
    const struct view view = {seen, width, height, blocks, out};

    if (seen->help)
        view_help(&view);
    else if (seen->job)
        view_job(&view);
    else
        view_all(&view);
    rb_lines_cut(out, width, height);
}
