/* SPDX-License-Identifier: Apache-2.0 */
/* Election: which rubatod coordinates.  It is the one whose lease carries the leader key; the key's
 * revision of creation is the fence of everything that it orders.
 *
 * facts, lease > [election] > campaign, coordinator
 *
 * Pure: a table from what is seen to what to do.
 *
 *              key is absent: campaign           key has our lease
 *    WAITING ------------------------> CAMPAIGNING --------------> LEADING
 *       ^  ^                               |                          |
 *       |  +---- refused or unreachable ---+                          |
 *       +------------ key is gone or another's, or our lease is ------+ */
#ifndef RB_DAEMON_ELECTION_H
#define RB_DAEMON_ELECTION_H

#include "daemon/facts/facts.h"

enum rb_election_state { RB_ELECTION_WAITING, RB_ELECTION_CAMPAIGNING, RB_ELECTION_LEADING };

struct rb_election {
    enum rb_election_state state;
    int64_t fence;     /* LEADING: the key's revision of creation */
    uint64_t retry_ms; /* do not campaign before */
};

/* What is seen. */
struct rb_election_view {
    const struct rb_facts *facts;
    int64_t lease; /* ours; 0: none */
    bool leaving;  /* this node stops: it leads on, but does not start to while others stay */
    uint64_t now_ms;
    uint64_t random; /* spreads retries */
};

enum rb_election_action {
    RB_ELECTION_NOTHING,
    RB_ELECTION_CAMPAIGN, /* put the leader key, leased, if absent; then call _campaigned */
    RB_ELECTION_LEAD,     /* start to coordinate behind `fence` */
    RB_ELECTION_FOLLOW,   /* stop coordinating */
};

/* Look at what is there now.  To be called again until it says NOTHING. */
enum rb_election_action rb_election_step(struct rb_election *election,
                                         const struct rb_election_view *view);

/* How the campaign went.  A success shows in facts; a failure waits up to 200 ms. */
void rb_election_campaigned(struct rb_election *election, int err,
                            const struct rb_election_view *view);

#endif
