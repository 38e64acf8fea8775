/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to facts: reports of workers, events, and how far a job is.
 *
 * what workers said > [report, progress] > commit > store */
#ifndef RB_DAEMON_AGENT_REPORT_H
#define RB_DAEMON_AGENT_REPORT_H

#include "control.pb-c.h"
#include "daemon/agent/inside.h"
#include "daemon/facts/writes.h"

struct rb_agent_job;
struct rb_job_facts;
struct rb_worker;

/* commit.c: a commit may end when its job or worker is gone, so both are known by name */
struct rb_agent_about {
    struct rb_agent *agent;
    const char *job, *worker; /* worker: or NULL */
    int64_t step;
};
typedef void rb_agent_committed(int err, const struct rb_agent_about *about);
/* `about` is copied; `done` runs once, but not where rubatod is stopping. */
void rb_agent_commit(const struct rb_writes *writes, const struct rb_agent_about *about,
                     rb_agent_committed *done);

/* report.c */
void rb_agent_report_all(struct rb_agent *agent);
void rb_agent_tell(struct rb_worker *worker, const char *kind, const char *text); /* an event */

/* progress.c */
void rb_agent_take_row(struct rb_worker *worker, const Rb__Row *row, bool rank_0);
void rb_agent_publish_progress(struct rb_agent_job *job, const struct rb_job_facts *facts);
/* Will no further row come?  The worker is done, has saved what is parked, or is gone and no other
 * worker of its job is here. */
bool rb_agent_rows_end(const struct rb_worker *worker);

#endif
