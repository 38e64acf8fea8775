/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as its files see it: what it has of this node, and its rounds.
 *
 * facts, what workers say > rb_agent_poke > rules > [act] > workers, reports */
#ifndef RB_DAEMON_AGENT_INSIDE_H
#define RB_DAEMON_AGENT_INSIDE_H

#include "daemon/agent/agent.h"
#include "daemon/daemon.h"

#include <uv.h>

struct rb_agent_action;
struct rb_agent_check;
struct rb_agent_copy;
struct rb_agent_job;
struct rb_agent_known_death; /* of a worker: ours, or one whose agent told us */
struct rb_agent_save;
struct rb_arena;
struct rb_silence;
struct rb_worker;

enum { RB_AGENT_RETRY_MS = 500 };

struct rb_agent {
    struct rb_daemon *daemon;
    const char *node;
    char *run_folder, *jobs_folder, *worker_program, *host;
    uv_timer_t soon;  /* act on what has changed */
    uv_timer_t clock; /* progress, retries, patience */
    uv_timer_t watch; /* looks at the processes, while there are any */
    unsigned looks;
    uint64_t looked; /* last, loop time */
    struct rb_agent_job *jobs;
    int64_t deletions_heard; /* up to this revision */
    struct rb_worker *workers;
    struct rb_agent_known_death *deaths;
    struct rb_silence *silence; /* of nodes whose workers ours may wait for in vain */
    struct rb_agent_save *saves;
    struct rb_agent_check *checks; /* checkpoints.c */
    struct rb_agent_copy *copies;  /* copy_parked.c */
    uint64_t next_save;
    unsigned events; /* told so far; part of their keys, as several may share a millisecond */
    uint64_t fence;
    uint32_t fetches; /* tries in vain: they say which node is asked next */
    bool started;
    int closing;
};

/* agent.c: run a round of the rules, soon or in `ms` milliseconds */
void rb_agent_poke(struct rb_agent *agent);
void rb_agent_poke_in(struct rb_agent *agent, uint64_t ms);

/* act.c: carry out an action; `worker`, of an action that is about one, may be gone behind it */
void rb_agent_act(struct rb_agent *agent, const struct rb_agent_action *action,
                  struct rb_worker *worker, struct rb_arena *arena);

/* adopt.c */
int rb_agent_adopt(struct rb_agent *agent, struct rb_why *why);

#endif
