/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that do not answer while a job waits for what is on them.
 *
 * facts, nodes to ask > [silence] > decide, the agent's rules
 *
 * A lease ends seconds after its node, and a node may live on without one.  So the node itself is
 * asked, at the address that it last had: by the coordinator, while a job misses members
 * (JobState.suspected; daemon/decide/crash.c), and by the agent of a worker that gets no further
 * (daemon/agent/rules.h).  A node from which nothing has come for a second is silent, until it
 * answers.  That proves no death. */
#ifndef RB_DAEMON_SILENCE_H
#define RB_DAEMON_SILENCE_H

#include "daemon/daemon.h"

struct rb_silence;

enum rb_silence_of {
    RB_SILENCE_LOST,    /* nothing listens there, or nothing comes */
    RB_SILENCE_STOPPED, /* nothing comes: a call that is refused shows that the machine runs */
};

/* changed: other nodes are silent than before; never runs from within a call of these functions. */
struct rb_silence *rb_silence_new(struct rb_daemon *daemon, enum rb_silence_of of,
                                  void (*changed)(void *context), void *context);

/* From now on ask these nodes, and no others; this node itself is never asked.  To be called again
 * when facts have changed: addresses are remembered for a day behind a lease's end, and reports of
 * workers have them too (WorkerReport.agent), for a rubatod that has started since. */
void rb_silence_ask(struct rb_silence *silence, const char *const *names, size_t n);

/* Names of the silent nodes, until the next call of any of these functions or a turn of the
 * loop. */
const char *const *rb_silence_names(struct rb_silence *silence, size_t *ret_n);

void rb_silence_free(struct rb_silence *silence); /* NULL is fine */

#endif
