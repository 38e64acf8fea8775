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

/* The rows of one reply; those of steps that are done again take the place of the old ones. */
void rb_history_add(struct rb_history *history, const json_t *columns, const json_t *rows);

/* The job fell back to this step: rows behind it do not count any more. */
void rb_history_fall_back(struct rb_history *history, int64_t step);

/* ms that half of the newest configuration's steps took at most, and 99 of 100; NAN: no step. */
void rb_history_times(const struct rb_history *history, double *ret_median, double *ret_slow);

void rb_history_done(struct rb_history *history);

#endif
