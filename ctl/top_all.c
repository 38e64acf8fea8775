/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/error.h"
#include "ctl/chart.h"
#include "ctl/get.h"
#include "ctl/human.h"
#include "ctl/top_page.h"
#include "ctl/value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_BAR = 16 };

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
    json_decref(list); /* the jobs belong to `seen` */
    return id;
}

/* The head and as many jobs as there is room for, around the chosen one. */
static void add_jobs(const struct rb_top_page *page, int most)
{
    json_t *list = ordered(page->seen);
    const size_t chosen = find_chosen(page->seen, list), n = json_array_size(list);
    const size_t shown = n <= (size_t)most ? n : most > 1 ? (size_t)most - 1 : (size_t)most;
    const size_t first = chosen < shown ? 0 : chosen - shown + 1;
    struct rb_buffer text = {0};
    char *line, *rest;

    rb_get_jobs(list, &text);
    json_decref(list);
    line = strtok_r(text.data, "\n", &rest);
    rb_lines_add(page->out, RB_LOOK_HEAD, "%s", line ? line : "");
    for (size_t i = 0; (line = strtok_r(NULL, "\n", &rest)); i++) {
        if (i >= first && i < first + shown)
            rb_lines_add(page->out, i == chosen ? RB_LOOK_CHOSEN : RB_LOOK_PLAIN, "%-*s",
                         page->width, line);
    }
    if (shown < n)
        rb_lines_add(page->out, RB_LOOK_TALK, "%zu more", n - shown);
    rb_buffer_done(&text);
}

/* ---- Nodes -----------------------------------------------------------------------------------*/

/* The devices of a node, how many of them jobs have, and how many are sick. */
struct devices {
    int64_t all, used, sick;
};

static bool is_of(const json_t *device, const char *node)
{
    return !node || strcmp(rb_value_text(device, "node", ""), node) == 0;
}

/* node NULL: the devices of all nodes. */
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

static void add_node(const struct rb_top_page *page, const json_t *node)
{
    const char *name = rb_value_text(node, "name", "?"), *state = rb_value_text(node, "state", "-");
    const struct devices devices = count_devices(page->seen, name);
    const bool good = strcmp(state, "ready") == 0 && !devices.sick;
    struct rb_buffer bar = {0}, jobs = {0};

    name_jobs(page->seen, name, &jobs);
    rb_chart_bar(devices.all ? (double)devices.used / (double)devices.all : 0, NODE_BAR,
                 page->blocks, &bar);
    rb_lines_add(page->out, good ? RB_LOOK_PLAIN : RB_LOOK_BAD,
                 "%-16s  %-9s  %s  %3" PRId64 " of %-3" PRId64 "  %s%s", name, state, bar.data,
                 devices.used, devices.all, devices.sick ? "unhealthy devices; " : "",
                 jobs.size ? jobs.data : "");
    rb_buffer_done(&bar);
    rb_buffer_done(&jobs);
}

static void add_nodes(const struct rb_top_page *page)
{
    const size_t n = json_array_size(page->seen->nodes);
    int lines = rb_top_room(page, 2);
    const json_t *node;
    size_t i;

    if (lines < 2)
        return;
    rb_lines_add(page->out, RB_LOOK_HEAD, "%-16s  %-9s  %-*s  %s", "NODE", "STATE", NODE_BAR + 12,
                 "DEVICES IN USE", "BY");
    lines--;
    json_array_foreach(page->seen->nodes, i, node)
    {
        if ((int)i + 1 == lines && i + 1 < n) {
            rb_lines_add(page->out, RB_LOOK_TALK, "%zu more", n - i);
            break;
        }
        add_node(page, node);
    }
}

void rb_top_all(const struct rb_top_page *page)
{
    static const char *const orders[RB_TOP_ORDERS] = {"age", "name", "phase", "step", "devices"};
    const struct rb_top_seen *seen = page->seen;
    const size_t n = json_array_size(seen->jobs), nodes = json_array_size(seen->nodes);
    const struct devices devices = count_devices(seen, NULL);
    char heard[RB_HUMAN_SIZE], ill[2 * RB_HUMAN_SIZE] = "";
    int lines;

    if (devices.sick)
        snprintf(ill, sizeof ill, ", %" PRId64 " unhealthy", devices.sick);
    rb_lines_add(page->out, RB_LOOK_HEAD,
                 "%zu job%s, %zu node%s, %" PRId64 " of %" PRId64 " devices in use%s   %s UTC", n,
                 n == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", devices.used, devices.all, ill,
                 rb_human_time(seen->heard, heard));
    rb_top_trouble(page);
    rb_top_blank(page);
    lines = (int)nodes + 4; /* below: two blank lines, a head, the keys */
    lines = lines < page->height / 2 ? lines : page->height / 2;
    add_jobs(page, rb_top_room(page, lines + 1));
    rb_top_blank(page);
    add_nodes(page);
    rb_top_blank(page);
    rb_lines_add(page->out, RB_LOOK_TALK,
                 "up, down: choose   enter: look at it   s: order (by %s)   ?: help   q: leave",
                 orders[seen->order]);
}
