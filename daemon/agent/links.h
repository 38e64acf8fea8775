/* SPDX-License-Identifier: Apache-2.0 */
/* What the links from this node to others carry: measured by short bursts between rubatods.
 *
 * facts > [links] > the node's fact > planner
 *
 * A node asks a few others, those behind it in the order of names, so that nobody is asked by all.
 * Each sends it bytes, three times each and four times as many as before until they take long
 * enough.  The quickest of the others says what this node's own link can do, now or 1 s, 10 s, a
 * minute and then each 10 minutes later: who lacks a core now, as nodes that start do, cannot show
 * what a link can do, and no link can while a job uses it.  So of the last rounds the best counts
 * (link_rounds.h).  Nodes of one host are not asked: they share its memory. */
#ifndef RB_DAEMON_AGENT_LINKS_H
#define RB_DAEMON_AGENT_LINKS_H

#include "facts.pb-c.h"

struct rb_daemon;
struct rb_links;

/* changed: rb_links_tell would say something else now. */
struct rb_links *rb_links_new(struct rb_daemon *daemon, void (*changed)(void *context),
                              void *context);
void rb_links_free(struct rb_links *links);

/* Set what was measured, in two digits, in the node's fact. */
void rb_links_tell(const struct rb_links *links, Rb__Node *node);

#endif
