/* SPDX-License-Identifier: Apache-2.0 */
/* Which configuration may publish.  Any may compute, but only the one that trains, or was the last
 * one that did, may put what it made into facts.  A checkpoint may also come from a configuration
 * whose state that one went on with.
 *
 * facts, what a worker told > [publish] > agent: write it behind a guard on the job's state
 *
 * Pure. */
#ifndef RB_DAEMON_FACTS_PUBLISH_H
#define RB_DAEMON_FACTS_PUBLISH_H

#include "daemon/facts/facts.h"

enum rb_publish {
    RB_PUBLISH_NOW,
    RB_PUBLISH_LATER, /* its configuration has not taken over in facts */
    RB_PUBLISH_NEVER, /* another has, or facts know of something newer */
};

enum rb_publish rb_publish_progress(const struct rb_job_facts *job, const Rb__Progress *progress);
enum rb_publish rb_publish_checkpoint(const struct rb_job_facts *job,
                                      const Rb__Checkpoint *checkpoint);

/* What facts are to say of a process's microbatch_us, where they say `known` (NULL: they do not
 * speak of the process) and it measures `measured` (0: not yet): what they said, unless that is
 * more than a part in 32 off. */
uint32_t rb_publish_pace(const Rb__WorkerReport *known, uint32_t measured);

#endif
