/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices each job should have, given the devices that exist, the order of the jobs and what
 * each job asks for.
 *
 * facts > [allocate] > shares > job rules
 *
 * A device serves one job.  Jobs are served by priority, then age; each gets its `min` before any
 * job gets more, then free devices up to `want`.  Where that does not suffice, jobs of a lower
 * priority give what they have above their `min`, the lowest and youngest first: their share
 * shrinks, and the job that waits gets the device once it is free.  Jobs of equal priority take
 * nothing from each other.  A share keeps the job's own devices in their order of rank.  Newcomers
 * come behind them: on nodes that the job uses already, then by name.  Pure. */
#ifndef RB_DAEMON_DECIDE_ALLOCATE_H
#define RB_DAEMON_DECIDE_ALLOCATE_H

#include "base/arena.h"
#include "daemon/facts/facts.h"

struct rb_place {
    const char *node;
    uint32_t device;
};

struct rb_share {
    struct rb_place *places;
    size_t n;
    size_t kept;        /* how many places, from the first on, are members now */
    size_t leaving;     /* members on nodes that must be left */
    size_t fitting;     /* devices that could serve the job if they were free */
    size_t free;        /* how many of those are */
    size_t foreign;     /* devices of the right kind but of another numeric class */
    const char *needs;  /* a node that holds the job's state and has no device for it; or NULL */
    bool needs_foreign; /* it has some, of another numeric class (Rubato was upgraded, say) */
    bool needs_gone;    /* that node is not there */
    uint64_t wake_ms;   /* when a device may be tried again; UINT64_MAX: none waits */
    size_t given;       /* devices that the job has and gives to jobs of a higher priority, */
    const char *to;     /* of which the last one that takes any is named here; or NULL */
    const char *taken;  /* why the job has no more: "; gpt has a:0, a:1"; or "" */
};

/* One share for each of facts->jobs, in that order; all in `arena`. */
struct rb_share *rb_allocate(const struct rb_facts *facts, uint64_t now_ms, struct rb_arena *arena);

/* "waits for 2 devices: 1 of 3 is free; gpt has a:1, node b is drained" */
const char *rb_share_reason(const struct rb_share *share, const struct rb_job_facts *job,
                            uint32_t devices, struct rb_arena *arena);

bool rb_place_is(const struct rb_place *place, const char *node, uint32_t device);

#endif
