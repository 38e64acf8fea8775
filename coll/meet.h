/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting: from addresses to one link to each other rank.
 *
 * rb_coll_open > [meet] > listener, hello, link
 *
 * Rank i calls the ranks below it and waits for the ranks above it.  The caller says hello and is
 * answered once the other rank opens the same configuration.  An address that fails is tried again
 * until the time is up, because its process may only be starting. */
#ifndef RB_COLL_MEET_H
#define RB_COLL_MEET_H

#include "coll/coll.h"
#include "coll/link.h"

/* Fill link[] by rank (NULL at first and for this rank).  After an error the caller closes the
 * links that are there. */
int rb_meet_all(struct rb_listener *listener, const struct rb_group *group, int timeout_ms,
                const atomic_bool *cancel, struct rb_link **link, struct rb_why *why);

#endif
