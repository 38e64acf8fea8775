/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of two jobs, step by step: where they first differ in a column that no device may change.
 *
 * replies to `metrics` > [same_rows] > verify
 *
 * Pure.  Numbers come with all of their digits, so equal numbers have equal bits. */
#ifndef RB_CTL_SAME_ROWS_H
#define RB_CTL_SAME_ROWS_H

#include <jansson.h>
#include <stdint.h>

/* On how many devices steps were done; 0 and 0: there was no step. */
struct rb_devices_seen {
    int64_t least, most;
};

/* All zero except `after` at the start. */
struct rb_same_rows {
    int64_t after;                       /* steps up to here were looked at */
    int64_t rows, first, last;           /* steps that both have */
    struct rb_devices_seen there, again; /* devices of these steps */
    int64_t step;                        /* the first that differs; 0: none */
    char column[32];                     /* the column that differs: "loss" */
    json_t *value_there, *value_again;
};

/* Continue with a page of each job, both of rows behind `after`, up to step `until`. */
void rb_same_rows_add(struct rb_same_rows *same, const json_t *there, const json_t *again,
                      int64_t until);

void rb_same_rows_done(struct rb_same_rows *same);

#endif
