/* SPDX-License-Identifier: Apache-2.0 */
/* What the last rounds of measuring a link have found: the best of them is what the link can do.
 *
 * links > [link_rounds] > the node's fact
 *
 * Pure.  A job that trains on the link takes some of it from a burst, but not in each of so many
 * rounds: between its sums a job computes.  A link that has become slow shows in all rounds. */
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

/* Begin the next round, of which nothing is known yet. */
void rb_link_rounds_next(struct rb_link_rounds *rounds);

/* Note what a peer showed in this round: the best of all its peers counts. */
void rb_link_rounds_note(struct rb_link_rounds *rounds, double bandwidth, double latency);

/* The best of all rounds. */
struct rb_link_round rb_link_rounds_best(const struct rb_link_rounds *rounds);

#endif
