/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that do not answer while a job waits to learn whom it has lost.
 *
 * facts > [silence] > decide
 *
 * A lease ends seconds after its node.  As long as a job misses somebody (JobState.suspected:
 * members have frozen, or all are out of reach) the coordinator asks the nodes of all members
 * itself, at the addresses that they last had; one from which nothing has come for a second is
 * silent, until it answers.  That proves no death; daemon/decide/crash.c says what follows. */
#ifndef RB_DAEMON_SILENCE_H
#define RB_DAEMON_SILENCE_H

#include "daemon/daemon.h"

struct rb_silence;

/* changed: other nodes are silent than before; never from within a call of these. */
struct rb_silence *rb_silence_new(struct rb_daemon *daemon, void (*changed)(void *context),
                                  void *context);

/* Facts may have changed.  leads: this rubatod coordinates, and so asks. */
void rb_silence_look(struct rb_silence *silence, bool leads);

/* Their names, until the next call of any of these or a turn of the loop. */
const char *const *rb_silence_names(struct rb_silence *silence, size_t *ret_n);

void rb_silence_free(struct rb_silence *silence); /* NULL is fine */

#endif
