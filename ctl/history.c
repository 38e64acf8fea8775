/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/history.h"

#include "base/arena.h"
#include "base/error.h"
#include "ctl/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void rb_history_fall_back(struct rb_history *history, int64_t step)
{
    while (history->n && history->row[history->n - 1].step > step)
        history->n--;
}

static void add_row(struct rb_history *history, const json_t *cells)
{
    const struct rb_history_row row = {
        .step = rb_value_integer(cells, "step", 0),
        .devices = rb_value_integer(cells, "devices", 0),
        .configuration = rb_value_integer(cells, "configuration", 0),
        .loss = rb_value_real(cells, "loss", NAN),
        .ms = rb_value_real(cells, "step_ms", NAN),
    };

    rb_history_fall_back(history, row.step - 1);
    history->row[history->n++] = row;
}

void rb_history_add(struct rb_history *history, const json_t *columns, const json_t *rows)
{
    const json_t *row;
    size_t i, more;

    history->row =
        rb_realloc(history->row, (history->n + json_array_size(rows) + 1) * sizeof *history->row);
    json_array_foreach(rows, i, row)
    {
        json_t *cells = rb_value_row(columns, row);

        add_row(history, cells);
        json_decref(cells);
    }
    more = history->n > RB_HISTORY_ROWS ? history->n - RB_HISTORY_ROWS : 0;
    history->n -= more;
    memmove(history->row, history->row + more, history->n * sizeof *history->row);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void rb_history_times(const struct rb_history *history, double *ret_median, double *ret_slow)
{
    RB_CLEANUP(rb_freep) double *ms = rb_alloc((history->n + 1) * sizeof *ms);
    size_t n = 0;

    for (size_t i = history->n; i-- > 0;) {
        if (history->row[i].configuration != history->row[history->n - 1].configuration)
            break;
        if (isfinite(history->row[i].ms))
            ms[n++] = history->row[i].ms;
    }
    qsort(ms, n, sizeof *ms, compare);
    *ret_median = n ? ms[n / 2] : NAN;
    *ret_slow = n ? ms[n - 1 - n / 100] : NAN;
}

void rb_history_done(struct rb_history *history)
{
    free(history->row);
    *history = (struct rb_history){0};
}
