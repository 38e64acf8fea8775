/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have written, until facts have them, and what workers have left of
 * unfinished ones.
 *
 * Saved, or a folder found > [checkpoints, parked, half_saved, copy_parked] > commit > facts */
#ifndef RB_DAEMON_AGENT_CHECKPOINTS_H
#define RB_DAEMON_AGENT_CHECKPOINTS_H

#include "control.pb-c.h"
#include "daemon/agent/inside.h"

struct rb_agent_job;
struct rb_job_facts;
struct rb_request;
struct rb_worker;

/* checkpoints.c */
void rb_agent_take_checkpoint(struct rb_worker *worker, const Rb__Saved *saved);
Rb__Checkpoint *rb_agent_checkpoint_of(const struct rb_agent *agent, const Rb__Saved *saved,
                                       uint32_t configuration);
void rb_agent_publish_checkpoints(struct rb_agent_job *job, const struct rb_job_facts *facts);
void rb_agent_checks_drop(struct rb_agent *agent); /* checks under way end without the agent */

/* half_saved.c: remove what the worker has half written or half removed. */
void rb_agent_remove_half_saved(const struct rb_worker *worker);

/* parked.c: the state that this job's saver has parked and could not report; NULL: there is no new
 * one, or `worker` is not the saver. */
Rb__Checkpoint *rb_agent_find_parked(const struct rb_agent *agent, const struct rb_job_facts *job,
                                     const char *worker, uint32_t configuration);

/* copy_parked.c: what a job without processes has parked here, as a checkpoint below `folder`.
 * Answers the request as node-save does. */
void rb_agent_copy_parked(struct rb_agent *agent, const char *job, const Rb__Checkpoint *parked,
                          const char *folder, struct rb_request *request);
/* Remove what an earlier rubatod has left of such copies of the job. */
void rb_agent_remove_half_copied(struct rb_agent *agent, const struct rb_job_facts *job);
bool rb_agent_copies(const struct rb_agent *agent, const char *job); /* is one under way? */
void rb_agent_copies_drop(struct rb_agent *agent); /* copies under way answer no request any more */

#endif
