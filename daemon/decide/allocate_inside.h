/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of allocate share: every device there is, and which job has it.
 *
 * Private to daemon/decide/allocate*.c. */
#ifndef RB_DAEMON_DECIDE_ALLOCATE_INSIDE_H
#define RB_DAEMON_DECIDE_ALLOCATE_INSIDE_H

#include "daemon/decide/allocate.h"

struct rb_slot {
    const Rb__Node *node;
    const Rb__Device *device;
    const char *had;    /* id of the job that has it, or NULL */
    const char *holder; /* the same, or the id of the job that is to have it */
    const char *heir;   /* id of the job that gets it when its holder has left it, or NULL */
    bool closed;        /* cordoned, drained, leaving or sick: takes no newcomer */
};

struct rb_pool {
    const struct rb_facts *facts;
    uint64_t now;
    struct rb_arena *arena;
    struct rb_slot *slots;
    size_t n;
};

/* A job that wants devices, and its share. */
struct rb_claimant {
    const struct rb_job_facts *job;
    struct rb_share *share;
};

struct rb_slot *rb_pool_find(const struct rb_pool *pool, const char *node, uint32_t device);

/* Could the device serve the job, were it free?  *ret_foreign: it could not, and only its numeric
 * class is why. */
bool rb_pool_fits(const struct rb_job_facts *job, const struct rb_slot *slot, bool *ret_foreign);

/* Until when this job leaves the device alone, because the device failed it; 0: it does not. */
uint64_t rb_pool_blamed_until(const struct rb_pool *pool, const struct rb_job_facts *job,
                              const char *node, uint32_t device);

bool rb_share_has(const struct rb_share *share, const char *node, uint32_t device);
uint32_t rb_share_min(const struct rb_job_facts *job);
uint32_t rb_share_want(const struct rb_job_facts *job);

/* allocate_give.c; claimants: by turn */

/* The claimant is below its min, and too few devices are free: other jobs give theirs, up to what
 * the claimant wants, if that gets it to its min. */
void rb_pool_make_room(struct rb_pool *pool, struct rb_claimant *claimants, size_t n,
                       const struct rb_claimant *claimant);

/* Let the job inherit up to `most` devices: first those that are being left anyway, then those that
 * jobs of a lower priority have above their min.  Returns how many devices the job is heir to. */
size_t rb_pool_bequeath(struct rb_pool *pool, struct rb_claimant *claimants, size_t n,
                        const struct rb_claimant *claimant, size_t most);

/* allocate_tell.c: sets share->taken. */
void rb_pool_tell_taken(struct rb_pool *pool, const struct rb_claimant *claimant);

#endif
