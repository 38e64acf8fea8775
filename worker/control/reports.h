/* SPDX-License-Identifier: Apache-2.0 */
/* Reports to the agent, kept until they are out of date, so that an agent that comes later learns
 * the same.
 *
 * step, preparing and saving threads > [reports] > control thread > agent
 *
 * Of a kind of report of which only the newest matters, a new report replaces the old one.  Rows
 * are kept in a ring.  Each agent says, when it comes and from time to time, up to which step it
 * has rows.  It also says how long a row may wait for others, so that steps of a few milliseconds
 * and less are not interrupted for each; no row waits behind a report.  All calls are safe from any
 * thread. */
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

/* Readable when there is something new (an eventfd). */
int rb_reports_fd(const struct rb_reports *reports);
void rb_reports_quiet(struct rb_reports *reports);
/* From now on nothing waits any longer; makes the descriptor readable even without anything new. */
void rb_reports_hurry(struct rb_reports *reports);

/* Post a message with one of ready, unready, flipped, frozen, saved, done, failed set.
 *
 * ready cancels an unready and the other way round; flipped cancels both, and frozen.  A report
 * about a later configuration stays. */
void rb_reports_post(struct rb_reports *reports, const Rb__FromWorker *message);
void rb_reports_row(struct rb_reports *reports, uint32_t rank, const Rb__Row *row);

/* ---- The control thread's side ---------------------------------------------------------------*/

/* A new agent: everything is new to it, and it gets no rows before it has said which it has. */
void rb_reports_restart(struct rb_reports *reports);
void rb_reports_rows_after(struct rb_reports *reports, int64_t step);
/* How long a row may wait after the last rows were taken; 0 until an agent says so. */
void rb_reports_rows_wait(struct rb_reports *reports, uint32_t ms);
/* No agent will ask for rows up to this step. */
void rb_reports_rows_known(struct rb_reports *reports, int64_t step);

/* In how many ms something must be sent; 0: now, -1: there is nothing. */
int rb_reports_due_ms(struct rb_reports *reports);

/* Append frames of what the agent was not sent yet, at most about 1 MiB.  False: there is
 * nothing. */
bool rb_reports_take(struct rb_reports *reports, struct rb_buffer *out);

#endif
