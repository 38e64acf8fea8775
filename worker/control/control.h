/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread: one agent at a time on a unix socket, and SIGTERM.
 *
 * [control] > agent_link > mailbox        reports > agent_link > agent
 *
 * A new connection takes the place of the old one.  The loss of its agent changes nothing for a
 * worker that trains.  A worker without state ends when its agent never came or went away. */
#ifndef RB_WORKER_CONTROL_CONTROL_H
#define RB_WORKER_CONTROL_CONTROL_H

#include "coll/coll.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"
#include "worker/control/reports.h"

struct rb_control;

/* Block the signals that the control thread handles; call it before any other thread is started. */
void rb_control_block_signals(void);

/* Listen on RUN_DIR/WORKER.sock and start the thread. */
int rb_control_open(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                    struct rb_reports *reports, const struct rb_listener *peers,
                    struct rb_control **ret_control, struct rb_why *why);

/* Wait until an agent has been sent everything; a worker that was not told to leave yet waits only
 * until it is. */
void rb_control_wait_told(struct rb_control *control);

/* Send what is left to a connected agent, for at most a second; then remove the socket. */
void rb_control_close(struct rb_control *control);

#endif
