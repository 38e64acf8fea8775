/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's rules: from facts and this node's own processes to what to do.
 *
 * facts, workers > [rules] > agent
 *
 * The rules are pure, and about the present only: called again after each change, they say again
 * what is still to be done, so nothing is lost when an action fails or rubatod is started anew.
 *
 *              spawn            Hello           configure, go
 *   (nothing) -------> starting -------> idle ---------------> training -+
 *                         |                |                      |      | leave: dismissed, or the
 *                         +---- ends ------+-------- ends --------+------+ job's saver
 *                                          v
 *                                        gone --> forgotten, once no live configuration and no
 *                                                 saver speaks of it
 *
 * When members of the active configuration are proven dead, the others prepare what is left of it
 * (daemon/facts/contingency.h) and go to it at once, whether facts have it or not.
 *
 * A worker that is no longer the job's saver is told to stay: it could not save, and the job goes
 * on with it.
 *
 * A node may be stopped as a whole: then no link ends.  So where no step gets done, and a member's
 * node has lost its lease and does not answer, the workers that wait for it are told to freeze, as
 * if a link had ended.  The coordinator decides what follows (daemon/decide/crash.c).
 *
 * A process that is stopped, or does not answer, is killed: its peers wait for it, and may go on
 * without it only when it has ended.  A process that is still here when the node must have been
 * left is killed, too, if its job can go on without it. */
#ifndef RB_DAEMON_AGENT_RULES_H
#define RB_DAEMON_AGENT_RULES_H

#include "daemon/facts/facts.h"

#include "base/arena.h"

/* What the agent knows of one process of its own. */
struct rb_agent_worker {
    const char *job, *worker;
    uint32_t device;
    uint32_t spawned_for;
    bool connected;   /* its Hello has come */
    bool gone;        /* reaped */
    uint64_t left;    /* when it was told to leave (ms); 0: not */
    bool saving;      /* ... with a folder to save in */
    uint64_t waited;  /* since when its Hello is waited for (ms) */
    uint64_t stepped; /* when it last said that it trains, or a step (ms); 0: it does not train */
    uint64_t step_ms; /* what the last step or lap took */
    const char *stopped; /* how its process is kept from running; NULL: it may run */
    unsigned unanswered; /* seconds for which it has not answered pings */
    uint32_t configured, went, abandoned; /* the newest number that it was told */
    uint32_t ready, unready, active;      /* what it said */
};

/* A worker of another node, whose agent has reaped it and told us so. */
struct rb_agent_death {
    const char *job, *worker;
};

struct rb_agent_view {
    const struct rb_facts *facts;
    const char *node;
    const struct rb_agent_worker *workers;
    size_t n;
    const struct rb_agent_death *deaths;
    size_t n_deaths;
    const char *const *silent; /* nodes that were asked, and do not answer (daemon/silence.h) */
    size_t n_silent;
    uint64_t now_ms;  /* any clock, the same as in the workers */
    uint64_t unix_ms; /* that of deadlines */
    bool (*has_blob)(const char *digest, void *context);
    void *context;
};

enum rb_agent_action_kind {
    RB_AGENT_SPAWN,         /* job, device, configuration: in the place of that job's dead there */
    RB_AGENT_FETCH,         /* digest, from node */
    RB_AGENT_CONFIGURE,     /* worker, configuration, rank; `foreseen`: and go to it at once */
    RB_AGENT_GO,            /* worker, number */
    RB_AGENT_ABANDON,       /* worker, number, text: the reason */
    RB_AGENT_LEAVE,         /* worker */
    RB_AGENT_LEAVE_SAVING,  /* worker */
    RB_AGENT_STAY,          /* worker: that was told to save and leave */
    RB_AGENT_FREEZE,        /* worker, node: the one that does not answer */
    RB_AGENT_ASK,           /* node: does it answer?  Asked for as long as each round says so */
    RB_AGENT_KILL,          /* worker, text: why; NULL: it was told to leave */
    RB_AGENT_FORGET,        /* worker: drop it, and its report */
    RB_AGENT_REPORT_DEAD,   /* job, report: of a process that is not here any more */
    RB_AGENT_REPORT_DELETE, /* job, report: of a process that is not needed any more */
};

/* Is it about a worker of the view? */
static inline bool rb_agent_action_of_worker(enum rb_agent_action_kind kind)
{
    return kind != RB_AGENT_SPAWN && kind != RB_AGENT_FETCH && kind != RB_AGENT_ASK &&
           kind != RB_AGENT_REPORT_DEAD && kind != RB_AGENT_REPORT_DELETE;
}

struct rb_agent_action {
    enum rb_agent_action_kind kind;
    const struct rb_job_facts *job;
    size_t worker; /* index into view->workers */
    uint32_t device;
    const Rb__Configuration *configuration;
    size_t rank;
    bool foreseen;
    uint32_t number;
    const char *text; /* digest, or reason */
    const char *node; /* to fetch from, or that is asked */
    const struct rb_fact *report;
};

struct rb_agent_actions {
    struct rb_agent_action *at; /* the arena's */
    size_t n, room;
    uint64_t wake_ms; /* look again then; UINT64_MAX: no need */
};

/* In the order in which they are to be done. */
void rb_agent_decide(const struct rb_agent_view *view, struct rb_arena *arena,
                     struct rb_agent_actions *ret_actions);

#endif
