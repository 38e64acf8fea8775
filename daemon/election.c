/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/election.h"

enum { RETRY_MS = 200 };

static bool ours(const struct rb_election_view *view)
{
    const struct rb_fact *leader = &view->facts->leader;
    return view->lease && leader->message && leader->lease == view->lease;
}

/* Is there a node that does not stop?  Ours says so itself. */
static bool any_stays(const struct rb_facts *facts)
{
    for (size_t i = 0; i < facts->nodes.n; i++)
        if (!facts->nodes.at[i].node->leaving)
            return true;
    return false;
}

enum rb_election_action rb_election_step(struct rb_election *election,
                                         const struct rb_election_view *view)
{
    const struct rb_fact *leader = &view->facts->leader;
    switch (election->state) {
    case RB_ELECTION_LEADING:
        if (ours(view) && leader->created == election->fence)
            return RB_ELECTION_NOTHING;
        election->state = RB_ELECTION_WAITING;
        election->fence = 0;
        return RB_ELECTION_FOLLOW;
    case RB_ELECTION_WAITING:
    case RB_ELECTION_CAMPAIGNING:
        if (ours(view)) {
            election->state = RB_ELECTION_LEADING;
            election->fence = leader->created;
            return RB_ELECTION_LEAD;
        }
        if (election->state == RB_ELECTION_CAMPAIGNING || leader->message || !view->lease ||
            (view->leaving && any_stays(view->facts)) || view->now_ms < election->retry_ms)
            return RB_ELECTION_NOTHING;
        election->state = RB_ELECTION_CAMPAIGNING;
        return RB_ELECTION_CAMPAIGN;
    }
    return RB_ELECTION_NOTHING;
}

void rb_election_campaigned(struct rb_election *election, int err,
                            const struct rb_election_view *view)
{
    if (election->state != RB_ELECTION_CAMPAIGNING)
        return;
    election->state = RB_ELECTION_WAITING;
    if (err)
        election->retry_ms = view->now_ms + RETRY_MS / 4 + view->random % (RETRY_MS * 3 / 4);
}
