/* SPDX-License-Identifier: Apache-2.0 */
/* What the links from this node to others carry: measured by short bursts between rubatods.
 *
 * facts > [links] > the node's fact > planner
 *
 * A node asks a few others, those behind it in the order of names, so that no node is asked by all.
 * Each of them sends it bursts, three of each size, and each size is four times the one before,
 * until a burst takes long enough.  The quickest peer says what this node's own link can do.  There
 * is a round now, and again 1 s, 10 s, a minute and then each 10 minutes later: a node that lacks a
 * core now, as nodes that start do, cannot show what a link can do, and no link can while a job
 * uses it.  So the best of the last rounds counts (link_rounds.h).  Nodes of one host are not
 * asked: they share its memory. */
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
