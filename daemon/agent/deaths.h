/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths of which every agent of a job must know at once.
 *
 * reaped workers, member-dead from other agents > [deaths] > rules */
#ifndef RB_DAEMON_AGENT_DEATHS_H
#define RB_DAEMON_AGENT_DEATHS_H

#include "daemon/agent/inside.h"
#include "daemon/agent/rules.h"
#include "daemon/rpc/server.h"

extern const struct rb_server_method rb_agent_death_methods[];
void rb_agent_deaths_tell(struct rb_agent *agent);
const struct rb_agent_death *rb_agent_deaths_known(const struct rb_agent *agent,
                                                   struct rb_arena *arena, size_t *ret_n);
void rb_agent_deaths_free(struct rb_agent *agent);

#endif
