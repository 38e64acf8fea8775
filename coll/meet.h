/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting: from addresses to one link to each other rank.
 *
 * rb_coll_open > [meet] > listener, hello, link
 *
 * Rank i calls those below it and waits for those above it.  Who calls says hello and is answered
 * once the other opens the same configuration; an address that fails is tried again, until the
 * time is up, for its process may only be starting. */
#ifndef RB_COLL_MEET_H
#define RB_COLL_MEET_H

#include "coll/coll.h"
#include "coll/link.h"

/* Fill link[] by rank (NULL at first and for our own); what is there on an error is the caller's
 * to close. */
int rb_meet_all(struct rb_listener *listener, const struct rb_group *group, int timeout_ms,
                const atomic_bool *cancel, struct rb_link **link, struct rb_why *why);

#endif
