/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: a line of text for each committed step of a job, as its workers here have told it.
 *
 * worker rows > [rows] > STATE/jobs/ID/metrics > node-metrics
 *
 * Every worker tells every step; the first telling counts.  A step that is committed again by a
 * later configuration (after a fall back to a checkpoint) gets another line, and the newest line
 * counts; the earlier ones tell what was lost.  The file is the log; where each line starts is kept
 * in memory. */
#ifndef RB_DAEMON_AGENT_ROWS_H
#define RB_DAEMON_AGENT_ROWS_H

#include "base/error.h"
#include "control.pb-c.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct rb_rows;

/* The columns of a line and of a JSON row, NULL-terminated: step, time, loss, grad_norm, lr,
 * step_ms, devices, configuration, first_sample, samples, skipped (0 or 1), redone, eval_loss,
 * eval_accuracy (null where there was none; loss and grad_norm are null where they are not finite),
 * compute_ms, slowest_ms, variation (of what each rank took to compute: mean, most, and standard
 * deviation over mean; null where it was not measured), stolen (microbatches). */
extern const char *const rb_rows_columns[];

/* Opens or makes the file; half a line at its end is cut off. */
int rb_rows_open(const char *path, struct rb_rows **ret_rows, struct rb_why *why);
void rb_rows_close(struct rb_rows *rows);

/* *ret_new: the row was not known yet.  It is an error if the disk does not take the row, but the
 * row stays in memory and is written once the disk does; only RB_EFULL says that the row is lost.
 */
int rb_rows_add(struct rb_rows *rows, const Rb__Row *row, bool *ret_new, struct rb_why *why);

int64_t rb_rows_last(const struct rb_rows *rows); /* newest step; 0: none */

/* Every step from the first known one up to this one is here: a worker need not tell them again. */
int64_t rb_rows_unbroken(const struct rb_rows *rows);

/* An array of rows by step, beyond `after`, at most `limit`.  `lost`: also rows that a later one of
 * the same step has replaced, which come before it and do not count towards the limit. */
int rb_rows_read(struct rb_rows *rows, int64_t after, size_t limit, bool lost, json_t **ret,
                 struct rb_why *why);

#endif
