/* SPDX-License-Identifier: Apache-2.0 */
/* What the last rounds of measuring a link have found, of which the best is what it can do.
 *
 * links > [link_rounds] > the node's fact
 *
 * Pure.  Jobs that train on the link take from what a burst sees, but not in each of so many
 * rounds: between its sums a job computes.  A link that has become slow shows in all of them. */
#ifndef RB_DAEMON_AGENT_LINK_ROUNDS_H
#define RB_DAEMON_AGENT_LINK_ROUNDS_H

enum { RB_LINK_ROUNDS = 6 };

struct rb_link_round {
    double bandwidth, latency; /* bytes a second, seconds; 0: not measured */
};

struct rb_link_rounds {
    struct rb_link_round at[RB_LINK_ROUNDS];
    unsigned now; /* the round under way; it replaces the oldest */
};

/* Nothing is known of the next round yet. */
void rb_link_rounds_next(struct rb_link_rounds *rounds);

/* Of a peer in this round: the better of it and of the others counts. */
void rb_link_rounds_note(struct rb_link_rounds *rounds, double bandwidth, double latency);

/* Of all rounds. */
struct rb_link_round rb_link_rounds_best(const struct rb_link_rounds *rounds);

#endif
