/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/link_rounds.h"

static void improve(struct rb_link_round *round, double bandwidth, double latency)
{
    if (bandwidth > round->bandwidth)
        round->bandwidth = bandwidth;
    if (latency > 0 && (round->latency <= 0 || latency < round->latency))
        round->latency = latency;
}

void rb_link_rounds_next(struct rb_link_rounds *rounds)
{
    rounds->now = (rounds->now + 1) % RB_LINK_ROUNDS;
    rounds->at[rounds->now] = (struct rb_link_round){0};
}

void rb_link_rounds_note(struct rb_link_rounds *rounds, double bandwidth, double latency)
{
    improve(&rounds->at[rounds->now], bandwidth, latency);
}

struct rb_link_round rb_link_rounds_best(const struct rb_link_rounds *rounds)
{
    struct rb_link_round best = {0};

    for (unsigned i = 0; i < RB_LINK_ROUNDS; i++)
        improve(&best, rounds->at[i].bandwidth, rounds->at[i].latency);
    return best;
}
