/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the agent: what it orders, and what it is told.
 *
 * agent > [agent_link] > mailbox        reports > [agent_link] > agent
 *
 * One agent at a time, on the control thread (worker/control/control.h), which waits for what comes
 * next.  Nothing here blocks.  A connection that ends, or that says what cannot be understood, is
 * closed; the next agent is greeted with what this worker is, and told everything anew. */
#ifndef RB_WORKER_CONTROL_AGENT_LINK_H
#define RB_WORKER_CONTROL_AGENT_LINK_H

#include "base/buffer.h"
#include "coll/coll.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"
#include "worker/control/reports.h"

struct rb_agent_link {
    const struct rb_worker_options *options;
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    const struct rb_listener *peers;
    int fd; /* -1: no agent */
    struct rb_buffer in, out;
    uint64_t alone_since; /* ns; when there is no agent */
    bool came;            /* there has been one */
    bool heard;           /* this one has said something, as whoever will listen does at once */
};

/* An agent that has connected; takes the descriptor.  The one before is dropped. */
void rb_agent_link_take(struct rb_agent_link *link, int fd);

/* There is something to read; there may be something to send, and room for it. */
void rb_agent_link_read(struct rb_agent_link *link);
void rb_agent_link_write(struct rb_agent_link *link);

/* Has an agent been sent everything?  Not whoever only asks who is there, and hangs up. */
bool rb_agent_link_told(const struct rb_agent_link *link);

/* In how many ms there is something to send, should nothing else happen; -1: never. */
int rb_agent_link_due_ms(const struct rb_agent_link *link);

void rb_agent_link_done(struct rb_agent_link *link);

#endif
