/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/chart.h"

#include "base/arena.h"
#include "base/error.h"
#include "ctl/human.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { EIGHTHS = 8, AXIS = 12 }; /* cells beside a curve: its numbers and a line */

static const char *const rising[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const growing[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

/* A cell with `eighths` eighths filled. */
static const char *cell(const char *const *blocks, int eighths)
{
    if (blocks)
        return blocks[eighths];
    return eighths == EIGHTHS ? "#" : eighths >= EIGHTHS / 2 ? ":" : eighths ? "." : " ";
}

static int clamp(int x, int most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

void rb_chart_bar(double part, int width, bool blocks, struct rb_buffer *out)
{
    int filled = isfinite(part) && part > 0
                     ? (int)lround((part < 1 ? part : 1) * (double)(width * EIGHTHS))
                     : 0;

    for (int i = 0; i < width; i++, filled -= EIGHTHS)
        rb_buffer_text(out, cell(blocks ? growing : NULL, clamp(filled, EIGHTHS)));
}

/* ---- Curves ----------------------------------------------------------------------------------*/

struct column {
    double loss; /* NAN: no row of the column has a number */
    bool broken; /* a row of the column has no number */
    size_t first;
};

struct curve {
    struct column *column;
    int columns;
    double least, most;
};

static struct column make_column(const struct rb_history *history, size_t from, size_t to)
{
    struct column column = {.loss = NAN, .first = from};
    double sum = 0;
    size_t n = 0;

    for (size_t i = from; i < to; i++) {
        if (isfinite(history->row[i].loss)) {
            sum += history->row[i].loss;
            n++;
        }
    }
    column.broken = n < to - from;
    if (n)
        column.loss = sum / (double)n;
    return column;
}

static struct curve make_curve(const struct rb_history *history, int columns)
{
    struct curve curve = {.least = INFINITY, .most = -INFINITY};

    curve.columns = history->n < (size_t)columns ? (int)history->n : columns;
    curve.column = rb_alloc((size_t)(curve.columns + 1) * sizeof *curve.column);
    for (int c = 0; c < curve.columns; c++) {
        const size_t from = history->n * (size_t)c / (size_t)curve.columns;
        const size_t to = history->n * (size_t)(c + 1) / (size_t)curve.columns;

        curve.column[c] = make_column(history, from, to);
        curve.least = fmin(curve.least, curve.column[c].loss);
        curve.most = fmax(curve.most, curve.column[c].loss);
    }
    return curve;
}

/* How many eighths of `height` cells a column fills; the least loss fills one. */
static int fill(const struct curve *curve, int c, int height)
{
    const double loss = curve->column[c].loss, range = curve->most - curve->least;

    if (isnan(loss))
        return 0;
    if (!(range > 0))
        return height * EIGHTHS / 2;
    return 1 + (int)lround((loss - curve->least) / range * (height * EIGHTHS - 1));
}

static void add_line(const struct curve *curve, int line, int height, bool blocks,
                     struct rb_lines *out)
{
    const double label = line == 0 ? curve->most : line == height - 1 ? curve->least : NAN;
    struct rb_buffer text = {0};
    char number[RB_HUMAN_SIZE] = "";

    if (isfinite(label))
        rb_human_real(label, number);
    for (int c = 0; c < curve->columns; c++) {
        const int eighths = fill(curve, c, height) - (height - 1 - line) * EIGHTHS;
        const bool mark = curve->column[c].broken && line == height - 1;

        rb_buffer_text(&text, mark ? "!" : cell(blocks ? rising : NULL, clamp(eighths, EIGHTHS)));
    }
    rb_lines_add(out, RB_LOOK_PLAIN, "%*s %s%s", AXIS - 2, number, blocks ? "│" : "|", text.data);
    rb_buffer_done(&text);
}

/* Shows the number of devices where it changes, and a line while it stays the same. */
static void add_devices(const struct rb_history *history, const struct curve *curve, bool blocks,
                        struct rb_lines *out)
{
    struct rb_buffer text = {0};
    int64_t shown = -1;

    for (int c = 0; c < curve->columns;) {
        const int64_t devices = history->row[curve->column[c].first].devices;
        char number[RB_HUMAN_SIZE];
        const int size = snprintf(number, sizeof number, "%" PRId64, devices);

        if (devices != shown && c + size <= curve->columns) {
            rb_buffer_text(&text, number);
            c += size;
        } else {
            rb_buffer_text(&text, blocks ? "─" : "-");
            c++;
        }
        shown = devices;
    }
    rb_lines_add(out, RB_LOOK_TALK, "%*s  %s", AXIS - 2, "devices", text.data);
    rb_buffer_done(&text);
}

void rb_chart_losses(const struct rb_history *history, int width, int height, bool blocks,
                     struct rb_lines *out)
{
    struct curve curve;

    if (!history->n || width <= AXIS || height < 2)
        return;
    curve = make_curve(history, width - AXIS);
    for (int line = 0; line < height; line++)
        add_line(&curve, line, height, blocks, out);
    add_devices(history, &curve, blocks, out);
    rb_lines_add(out, RB_LOOK_TALK, "%*s  steps %" PRId64 " to %" PRId64, AXIS - 2, "",
                 history->row[0].step, history->row[history->n - 1].step);
    rb_freep(&curve.column);
}
