/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the agent: its orders, and the reports to it.
 *
 * agent > [agent_link] > mailbox        reports > [agent_link] > agent
 *
 * One agent at a time, on the control thread (worker/control/control.h), which waits for the next
 * event.  Nothing here blocks.  A connection that ends, or that sends what cannot be understood, is
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
    uint64_t alone_since; /* ns; since when there is no agent */
    bool came;            /* there has been one */
    bool heard;           /* this agent has sent something, as one that will listen does at once */
};

/* An agent that has connected; takes the descriptor.  The previous connection is dropped. */
void rb_agent_link_take(struct rb_agent_link *link, int fd);

/* read: there is something to read.  write: there may be something to send, and room for it. */
void rb_agent_link_read(struct rb_agent_link *link);
void rb_agent_link_write(struct rb_agent_link *link);

/* Has an agent been sent everything?  A caller that only asks who is there, and hangs up, does not
 * count. */
bool rb_agent_link_told(const struct rb_agent_link *link);

/* In how many ms there is something to send, if nothing else happens; -1: never. */
int rb_agent_link_due_ms(const struct rb_agent_link *link);

void rb_agent_link_done(struct rb_agent_link *link);

#endif
