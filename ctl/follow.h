/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a job: the goal, how far the job is, when to stop.
 *
 * submit --wait, wait > [follow] > status, again and again */
#ifndef RB_CTL_FOLLOW_H
#define RB_CTL_FOLLOW_H

#include "ctl/session.h"

#include <stdint.h>

struct rb_goal {
    enum { RB_GOAL_DONE, RB_GOAL_RUNNING, RB_GOAL_PAUSED, RB_GOAL_STEP, RB_GOAL_DEVICES } kind;
    int64_t number;
};

enum rb_goal_state {
    RB_GOAL_AHEAD,
    RB_GOAL_REACHED,
    RB_GOAL_MISSED, /* the job is over, so the goal cannot be reached any more */
};

/* "done", "running", "paused", "step=N", "devices=N". */
int rb_goal_parse(const char *text, struct rb_goal *ret, struct rb_why *why);

/* RB_EREFUSED where a job with this status will never have so many steps or devices. */
int rb_goal_check(const struct rb_goal *goal, const json_t *status, struct rb_why *why);

/* What a reply to `status` says about the goal. */
enum rb_goal_state rb_goal_look(const struct rb_goal *goal, const json_t *status);

/* Ask until the goal is reached or missed, showing progress on stderr; then print which.  Returns
 * the exit code.  id: the job's; NULL: the id of the job that has this name now.  deadline:
 * rb_clock_ns; 0: none. */
int rb_follow(const struct rb_session *session, const char *job, const char *id,
              const struct rb_goal *goal, uint64_t deadline);

#endif
