/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's planner: models and profiles from the blobs, devices and links from facts, and
 * what the search says of them.
 *
 * facts, blobs > [planner] > decide
 *
 * On the loop's thread: a search is brief, and its answer is kept.  The same facts get the same
 * answer on every node that coordinates; a coordinator that lacks the blobs says nothing, and
 * fetches them. */
#ifndef RB_DAEMON_PLANNER_H
#define RB_DAEMON_PLANNER_H

#include "daemon/decide/decide.h"

struct rb_daemon;
struct rb_planner;

struct rb_planner *rb_planner_new(struct rb_daemon *daemon);
void rb_planner_free(struct rb_planner *planner);

/* For rb_decide_options. */
struct rb_decide_planner rb_planner_ask(struct rb_planner *planner);

#endif
