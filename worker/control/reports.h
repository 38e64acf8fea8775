/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent is told: kept until it is out of date, so that an agent that comes later learns
 * the same.
 *
 * step, preparing and saving threads > [reports] > control thread > agent
 *
 * Reports of a kind that only the newest matters of replace each other.  Rows are kept in a ring;
 * each agent says up to which step it has them, when it comes and from time to time.  It also says
 * how long a row may wait for others, so that steps of a few milliseconds and less are not
 * interrupted for each; no row waits behind a report.  All calls are safe from any thread. */
#ifndef RB_WORKER_CONTROL_REPORTS_H
#define RB_WORKER_CONTROL_REPORTS_H

#include "base/buffer.h"
#include "base/error.h"
#include "control.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_reports;

enum {
    RB_REPORTS_ROWS = 65536, /* the oldest are dropped beyond */
    RB_REPORTS_SAVED = 64,
};

struct rb_reports *rb_reports_new(void);
void rb_reports_free(struct rb_reports *reports);

/* Readable when something new is there (an eventfd). */
int rb_reports_fd(const struct rb_reports *reports);
void rb_reports_quiet(struct rb_reports *reports);
/* Nothing is to wait any longer; readable also without anything new. */
void rb_reports_hurry(struct rb_reports *reports);

/* Post a message with one of ready, unready, flipped, frozen, saved, done, failed set.
 *
 * ready takes an unready back and the other way round; flipped takes back both, and frozen.  What
 * is said of a later configuration stays. */
void rb_reports_post(struct rb_reports *reports, const Rb__FromWorker *message);
void rb_reports_row(struct rb_reports *reports, uint32_t rank, const Rb__Row *row);

/* ---- The control thread's side ---------------------------------------------------------------*/

/* A new agent: everything is new to it; no rows before it has said which it has. */
void rb_reports_restart(struct rb_reports *reports);
void rb_reports_rows_after(struct rb_reports *reports, int64_t step);
/* How long a row may wait behind those that were taken last; 0 until an agent says so. */
void rb_reports_rows_wait(struct rb_reports *reports, uint32_t ms);
/* Nobody will ask for rows up to this step. */
void rb_reports_rows_known(struct rb_reports *reports, int64_t step);

/* In how many ms something has to be sent; 0: now, -1: there is nothing. */
int rb_reports_due_ms(struct rb_reports *reports);

/* Append frames of what the agent has not been sent, at most about 1 MiB.  False: nothing. */
bool rb_reports_take(struct rb_reports *reports, struct rb_buffer *out);

#endif
