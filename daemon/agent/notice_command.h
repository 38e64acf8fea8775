/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the command that is asked whether this node will be taken away.
 *
 * settings > [notice_command] > notice
 *
 * No shell: the words between blanks are the program and its arguments.  The program gets 10 s and
 * no input, and the first 64 bytes of its output are looked at.  When it ends, or its time is over,
 * whatever it has started in its process group is killed. */
#ifndef RB_DAEMON_AGENT_NOTICE_COMMAND_H
#define RB_DAEMON_AGENT_NOTICE_COMMAND_H

#include "base/error.h"

#include <stdbool.h>
#include <uv.h>

enum { RB_NOTICE_COMMAND_MS = 10000, RB_NOTICE_OUTPUT = 64 };

struct rb_notice_command;

/* status: the exit status; -1: it was killed, or ended by a signal.  Runs once. */
typedef void rb_notice_command_done(int status, const char *output, void *context);

/* *ret: for rb_notice_command_stop; gone once `done` has run. */
int rb_notice_command_run(uv_loop_t *loop, const char *command, uint64_t timeout_ms,
                          rb_notice_command_done *done, void *context,
                          struct rb_notice_command **ret, struct rb_why *why);

/* Kill it; `done` does not run. */
void rb_notice_command_stop(struct rb_notice_command *command);

/* What the output of a command that ended well says: the seconds until the node is taken away; -1
 * where it says nothing.  RB_EINVAL for anything but one number. */
int rb_notice_command_read(const char *output, double *ret_seconds);

#endif
