/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/error.h"
#include "ctl/chart.h"
#include "ctl/human.h"
#include "ctl/progress.h"
#include "ctl/top_page.h"
#include "ctl/value.h"

#include <inttypes.h>
#include <math.h>

enum { BAR = 24, BAR_LEAST = 6, CURVE_LEAST = 4, CURVE_MOST = 12, EVENTS = 4 };

static void add_head(const struct rb_top_page *page, double median, double slow)
{
    const struct rb_top_seen *seen = page->seen;
    const json_t *plan = json_object_get(seen->status, "plan");
    const char *reason = rb_value_text(seen->status, "reason", NULL);
    const int64_t configuration = rb_value_integer(seen->status, "configuration", 0);
    char heard[RB_HUMAN_SIZE];

    rb_lines_add(page->out, RB_LOOK_HEAD, "%s: %s   %s UTC",
                 rb_value_text(seen->status, "name", seen->job),
                 rb_value_text(seen->status, "phase", "?"), rb_human_time(seen->heard, heard));
    rb_top_trouble(page);
    if (reason)
        rb_lines_add(page->out, RB_LOOK_PLAIN, "%s", reason);
    if (configuration)
        rb_lines_add(page->out, RB_LOOK_PLAIN, "configuration %" PRId64 ": %s", configuration,
                     rb_value_text(plan, "summary", "-"));
    if (!isnan(median) && rb_value_count(seen->status, "devices"))
        rb_lines_add(page->out, RB_LOOK_PLAIN, "a step takes %.3g ms, 99 of 100 at most %.3g",
                     median, slow);
}

/* The progress line, behind a bar where there is room. */
static void add_progress(const struct rb_top_page *page)
{
    const int64_t step = rb_value_integer(page->seen->status, "step", 0);
    const int64_t steps = rb_value_integer(page->seen->status, "steps", 0);
    struct rb_buffer bar = {0}, line = {0};
    int space;

    if (!page->seen->status)
        return;
    rb_progress_line(page->seen->status, &line);
    space = page->width - (int)line.size - 3;
    if (space >= BAR_LEAST) {
        rb_buffer_text(&bar, "[");
        rb_chart_bar(steps ? (double)step / (double)steps : 0, space < BAR ? space : BAR,
                     page->blocks, &bar);
        rb_buffer_text(&bar, "] ");
    }
    rb_lines_add(page->out, RB_LOOK_PLAIN, "%s%s", bar.size ? bar.data : "", line.data);
    rb_buffer_done(&bar);
    rb_buffer_done(&line);
}

/* A device, and how much of a step it computes. */
static void add_device(const struct rb_top_page *page, const json_t *device, double step_ms)
{
    const double share = rb_value_real(device, "microbatches", NAN);
    const double ms = rb_value_real(device, "microbatchMs", NAN);
    const bool straggler = json_is_object(json_object_get(device, "straggler"));
    const int64_t pid = rb_value_integer(device, "pid", 0);
    RB_CLEANUP(rb_freep)
    char *name = rb_format("%s:%" PRId64, rb_value_text(device, "node", "?"),
                           rb_value_integer(device, "device", 0));
    struct rb_buffer bar = {0}, text = {0};

    rb_chart_bar(share * ms / step_ms, BAR, page->blocks, &bar);
    if (!isnan(share))
        rb_buffer_format(&text, "%.0f", share);
    if (!isnan(ms))
        rb_buffer_format(&text, " of %.3g ms", ms);
    rb_lines_add(page->out, straggler ? RB_LOOK_BAD : RB_LOOK_PLAIN,
                 "%-18s  %-4s  %8" PRId64 "  [%s]  %s%s", name, rb_value_text(device, "kind", "?"),
                 pid, bar.data, text.size ? text.data : "-", straggler ? ", a straggler" : "");
    rb_buffer_done(&bar);
    rb_buffer_done(&text);
}

static void add_devices(const struct rb_top_page *page, double step_ms, int most)
{
    const json_t *devices = json_object_get(page->seen->status, "devices"), *device;
    const size_t n = json_array_size(devices);
    size_t i;

    if (!n || most < 2)
        return;
    rb_lines_add(page->out, RB_LOOK_HEAD, "%-18s  %-4s  %8s  %-*s  %s", "DEVICE", "KIND", "PID",
                 BAR + 2, "COMPUTES, OF A STEP", "MICROBATCHES");
    json_array_foreach(devices, i, device)
    {
        if ((int)i + 2 == most && i + 1 < n) {
            rb_lines_add(page->out, RB_LOOK_TALK, "%zu more", n - i);
            break;
        }
        add_device(page, device, step_ms);
    }
}

/* The newest events. */
static void add_events(const struct rb_top_page *page, int most)
{
    const size_t n = json_array_size(page->seen->events);
    size_t i = n > (size_t)most ? n - (size_t)most : 0;

    for (; i < n; i++) {
        const json_t *event = json_array_get(page->seen->events, i);
        char time[RB_HUMAN_SIZE];

        rb_human_time((uint64_t)rb_value_integer(event, "time", 0), time);
        rb_lines_add(page->out, RB_LOOK_PLAIN, "%s  %s: %s", time,
                     rb_value_text(event, "kind", "?"), rb_value_text(event, "text", ""));
    }
}

void rb_top_job(const struct rb_top_page *page)
{
    const struct rb_top_seen *seen = page->seen;
    const int devices = (int)rb_value_count(seen->status, "devices");
    int events = (int)json_array_size(seen->events), curve;
    double median, slow;

    events = events < EVENTS ? events : EVENTS;
    rb_history_times(seen->history, &median, &slow);
    add_head(page, median, slow);
    add_progress(page);
    rb_top_blank(page);
    /* Below it its axis of two lines, a blank line, devices, a blank line, events, the keys. */
    curve = rb_top_room(page, 2 + 1 + devices + 1 + 1 + events + 1);
    curve = curve > CURVE_MOST ? CURVE_MOST : curve < CURVE_LEAST ? CURVE_LEAST : curve;
    if (seen->history->n && rb_top_room(page, curve + 3) > 0) {
        rb_chart_losses(seen->history, page->width, curve, page->blocks, page->out);
        rb_top_blank(page);
    }
    add_devices(page, median, rb_top_room(page, events + 2));
    if (devices)
        rb_top_blank(page);
    add_events(page, rb_top_room(page, 1) < events ? rb_top_room(page, 1) : events);
    while (rb_top_room(page, 1))
        rb_top_blank(page);
    rb_lines_add(page->out, RB_LOOK_TALK, "?: help   q: back");
}
