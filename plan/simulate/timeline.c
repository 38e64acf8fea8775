/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/timeline.h"

#include "plan/simulate/predict.h"

#include <stdbool.h>

enum { WIDTH = 1000, LEFT = 70, TOP = 60, ROW = 22, BAR = 16, RIGHT = 34, LEGEND = 150, TICKS = 5 };

static const char *const colours[RB_PREDICT_COUNT] = {
    [RB_PREDICT_COMPUTE] = "#4477aa", [RB_PREDICT_BACKWARD] = "#66ccee",
    [RB_PREDICT_SUM] = "#ee6677",     [RB_PREDICT_VOTE] = "#aa3377",
    [RB_PREDICT_UPDATE] = "#228833",  [RB_PREDICT_GATHER] = "#ccbb44",
    [RB_PREDICT_SEND] = "#ee8866",
};

static bool drawn(const struct rb_simulate_task *task)
{
    return task->kind >= 0 && task->kind < RB_PREDICT_COUNT && colours[task->kind] &&
           task->lane < RB_TIMELINE_LANES;
}

static void add_escaped(struct rb_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            rb_buffer_text(out, "&lt;");
        else if (*text == '&')
            rb_buffer_text(out, "&amp;");
        else if ((unsigned char)*text >= 0x20)
            rb_buffer_add(out, text, 1);
    }
}

static void measure(const struct rb_simulate *simulate, double *ret_end, uint32_t *ret_lanes,
                    bool kinds[RB_PREDICT_COUNT])
{
    *ret_end = 0;
    *ret_lanes = 0;
    for (size_t i = 0; i < rb_simulate_count(simulate); i++) {
        const struct rb_simulate_task *task = rb_simulate_task(simulate, i);

        if (task->end > *ret_end)
            *ret_end = task->end;
        if (!drawn(task))
            continue;
        if (task->lane >= *ret_lanes)
            *ret_lanes = task->lane + 1;
        kinds[task->kind] = true;
    }
}

static double x_of(double seconds, double end)
{
    return LEFT + (end > 0 ? seconds / end : 0) * (WIDTH - LEFT - RIGHT);
}

static void add_legend(const bool kinds[RB_PREDICT_COUNT], struct rb_buffer *out)
{
    int x = LEFT;

    for (int k = 0; k < RB_PREDICT_COUNT; k++) {
        if (!kinds[k])
            continue;
        rb_buffer_format(out,
                         "<rect x=\"%d\" y=\"32\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                         "<text x=\"%d\" y=\"42\">%s</text>\n",
                         x, colours[k], x + 17, rb_predict_kind_text(k));
        x += LEGEND;
    }
    rb_buffer_format(out, "<text x=\"%d\" y=\"42\" fill=\"#888\">blank: waits</text>\n", x);
}

static void add_axis(double end, uint32_t lanes, struct rb_buffer *out)
{
    double bottom = TOP + ROW * (double)lanes;

    for (int i = 0; i <= TICKS; i++) {
        double x = x_of(end * i / TICKS, end);

        rb_buffer_format(out,
                         "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#ddd\"/>"
                         "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.4g ms</text>\n",
                         x, TOP - 4, x, bottom, x, bottom + 16, 1e3 * end * i / TICKS);
    }
    for (uint32_t lane = 0; lane < lanes; lane++)
        rb_buffer_format(out, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\">%u</text>\n", LEFT - 8,
                         TOP + ROW * lane + BAR - 3, lane);
}

static void add_task(const struct rb_simulate_task *task, double end, struct rb_buffer *out)
{
    double x = x_of(task->start, end), width = x_of(task->end, end) - x;

    if (width < 0.05)
        return;
    rb_buffer_format(out,
                     "<rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                     "stroke=\"#fff\" stroke-width=\"0.3\"><title>%s %u: %.4g to %.4g ms</title>"
                     "</rect>\n",
                     x, TOP + ROW * task->lane, width, BAR, colours[task->kind],
                     rb_predict_kind_text(task->kind), task->number, 1e3 * task->start,
                     1e3 * task->end);
}

void rb_timeline_svg(const struct rb_simulate *simulate, const char *title, struct rb_buffer *out)
{
    bool kinds[RB_PREDICT_COUNT] = {false};
    uint32_t lanes;
    double end;

    measure(simulate, &end, &lanes, kinds);
    rb_buffer_format(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
                     "font-family=\"sans-serif\" font-size=\"11\">\n"
                     "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                     "<text x=\"%d\" y=\"20\" font-size=\"13\">",
                     WIDTH, TOP + ROW * lanes + 30, LEFT);
    add_escaped(out, title);
    rb_buffer_text(out, "</text>\n");
    add_legend(kinds, out);
    add_axis(end, lanes, out);
    for (size_t i = 0; i < rb_simulate_count(simulate); i++)
        if (drawn(rb_simulate_task(simulate, i)))
            add_task(rb_simulate_task(simulate, i), end, out);
    rb_buffer_text(out, "</svg>\n");
}
