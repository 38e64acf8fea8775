/* SPDX-License-Identifier: Apache-2.0 */
/* The newest rows of a job's metrics, for curves.
 *
 * metrics' replies > [history] > chart, top_view
 *
 * Pure.  All zero is no rows. */
#ifndef RB_CTL_HISTORY_H
#define RB_CTL_HISTORY_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { RB_HISTORY_ROWS = 4096 };

struct rb_history {
    struct rb_history_row {
        int64_t step, devices, configuration;
        double loss, ms;
    } * row; /* by step, up to RB_HISTORY_ROWS of them */
    size_t n;
};

/* Add the rows of one reply; rows of steps that are done again replace the old ones. */
void rb_history_add(struct rb_history *history, const json_t *columns, const json_t *rows);

/* The job fell back to this step: rows behind it do not count any more. */
void rb_history_fall_back(struct rb_history *history, int64_t step);

/* The median and the 99th percentile of ms of the newest configuration's steps; NAN: no step. */
void rb_history_times(const struct rb_history *history, double *ret_median, double *ret_slow);

void rb_history_done(struct rb_history *history);

#endif
