/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/progress.h"

#include "base/clock.h"
#include "ctl/human.h"
#include "ctl/value.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

enum { LINE_MS = 10000 };

void rb_progress_line(const json_t *status, struct rb_buffer *out)
{
    int64_t step = rb_value_integer(status, "step", 0),
            steps = rb_value_integer(status, "steps", 0);
    double rate = rb_value_real(status, "throughput", 0);
    double samples = rb_value_real(status, "samples", 0);
    const char *phase = rb_value_text(status, "phase", "?");
    int64_t devices = rb_value_count(status, "devices");
    char text[RB_HUMAN_SIZE];

    if (strcmp(phase, "Running") != 0)
        rb_buffer_format(out, "%s | ", phase);
    rb_buffer_format(out, "step %" PRId64 "/%" PRId64, step, steps);
    if (rb_value_there(status, "loss"))
        rb_buffer_format(out, " | loss %s",
                         rb_human_real(rb_value_real(status, "loss", NAN), text));
    if (rate > 0)
        rb_buffer_format(out, " | %s samples/s", rb_human_count(rate, text));
    rb_buffer_format(out, " | %" PRId64 " device%s", devices, devices == 1 ? "" : "s");
    if (rate > 0 && step > 0 && samples > 0 && steps > step && devices > 0) {
        double left = (double)(steps - step) * samples / (double)step / rate;

        rb_buffer_format(out, " | eta %s", rb_human_span(left, text));
    }
}

/* Width of a line that is drawn over the one before: text that wraps to the next row would stay.
 * Some terminals wrap after the last column. */
static int width_of(FILE *terminal)
{
    struct winsize size;

    return ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1
                                                                              : INT_MAX;
}

void rb_progress_show(struct rb_progress *progress, const json_t *status)
{
    struct rb_buffer line = {0};
    uint64_t now = rb_clock_ns();

    if (!progress->session->terminal && now < progress->next)
        return;
    progress->next = now + (uint64_t)LINE_MS * 1000000;
    rb_progress_line(status, &line);
    if (progress->session->terminal)
        fprintf(progress->session->err, "\r\033[K%.*s", width_of(progress->session->err),
                line.data);
    else
        fprintf(progress->session->err, "%s\n", line.data);
    fflush(progress->session->err);
    progress->open = progress->session->terminal;
    rb_buffer_done(&line);
}

void rb_progress_end(struct rb_progress *progress)
{
    if (progress->open)
        fputs("\n", progress->session->err);
    progress->open = false;
}
