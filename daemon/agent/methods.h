/* SPDX-License-Identifier: Apache-2.0 */
/* RPC methods of the node that has the worker or the file (daemon/agent/agent.h).
 *
 * server > [methods] > files; Save > worker, what it saved > [methods] > reply */
#ifndef RB_DAEMON_AGENT_METHODS_H
#define RB_DAEMON_AGENT_METHODS_H

#include "control.pb-c.h"
#include "daemon/rpc/server.h"

struct rb_worker;

extern const struct rb_server_method rb_agent_methods[];
void rb_agent_saved(struct rb_worker *worker, const Rb__Saved *saved);
void rb_agent_saves_lost(struct rb_worker *worker);

#endif
