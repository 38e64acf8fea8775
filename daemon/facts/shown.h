/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown of a job: to rubatoctl and in metrics alike, so that the two agree.
 *
 * facts > [shown] > RPC methods, metrics
 *
 * Pure. */
#ifndef RB_DAEMON_FACTS_SHOWN_H
#define RB_DAEMON_FACTS_SHOWN_H

#include "daemon/facts/facts.h"

/* Is the job all there, and not being deleted?  The functions below are for such jobs. */
bool rb_job_shown(const struct rb_job_facts *job);

/* The configuration that trains, or NULL. */
const Rb__Configuration *rb_job_active(const struct rb_job_facts *job);

/* The configuration that trains, or was the last one that did; NULL: none. */
const Rb__Configuration *rb_job_last(const struct rb_job_facts *job);

/* Steps done. */
int64_t rb_job_step(const struct rb_job_facts *job);

/* Samples a second; 0: the job does not train, or has not told of a step since it was started
 * anew. */
double rb_job_pace(const struct rb_job_facts *job);

/* Why a checkpoint behind the newest could not be written; NULL: none failed that is known of. */
const Rb__Event *rb_job_checkpoint_failed(const struct rb_facts *facts,
                                          const struct rb_job_facts *job);

const char *rb_phase_text(Rb__Phase phase); /* "Running" */

#endif
