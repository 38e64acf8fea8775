/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/steal.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum {
    SCORE_ON = 2,
    SCORE_MOST = 4,
    NEEDED_MOST = 64,
    GAIN_NS = 100000, /* the last rank must be so far behind the mean: messages take time too */
};

static const double spread = 1.05; /* and so many times the mean */

struct rb_steal *rb_steal_new(uint32_t rank, uint32_t ranks, const int32_t *owners,
                              uint32_t microbatches)
{
    struct rb_steal *steal = rb_alloc(sizeof *steal);

    steal->rank = rank;
    steal->ranks = ranks;
    steal->microbatches = microbatches;
    steal->needed = SCORE_ON;
    steal->owners = rb_alloc(microbatches * sizeof *steal->owners);
    memcpy(steal->owners, owners, microbatches * sizeof *steal->owners);
    steal->shares = rb_alloc(ranks * sizeof *steal->shares);
    steal->paces = rb_alloc(ranks * sizeof *steal->paces);
    steal->mine.at = rb_alloc(microbatches * sizeof *steal->mine.at);
    steal->taken.at = rb_alloc(microbatches * sizeof *steal->taken.at);
    steal->left = rb_alloc(ranks * sizeof *steal->left);
    steal->over = rb_alloc(ranks * sizeof *steal->over);
    for (uint32_t m = 0; m < microbatches; m++)
        steal->spare |= ++steal->shares[owners[m]] > 1;
    for (uint32_t r = 0; r < ranks; r++)
        steal->owning += steal->shares[r] > 0;
    return steal;
}

void rb_steal_free(struct rb_steal *steal)
{
    if (!steal)
        return;
    free(steal->owners);
    free(steal->shares);
    free(steal->paces);
    free(steal->mine.at);
    free(steal->taken.at);
    free(steal->left);
    free(steal->over);
    free(steal);
}

/* A rank that has nothing to compute cannot have been measured: it counts as the slowest until it
 * has taken something.  Returns whether all paces are known then. */
static bool know_paces(struct rb_steal *steal)
{
    uint32_t slowest = 0;
    bool known = true;

    for (uint32_t r = 0; r < steal->ranks; r++)
        slowest = steal->paces[r] > slowest ? steal->paces[r] : slowest;
    for (uint32_t r = 0; r < steal->ranks; r++) {
        if (!steal->paces[r] && !steal->shares[r])
            steal->paces[r] = slowest;
        known = known && steal->paces[r];
    }
    return known;
}

/* While stealing is off, a rank that owns nothing computes nothing, and is left out of the mean. */
static bool uneven(const struct rb_steal *steal, double mean_ns, double most_ns)
{
    double mean = mean_ns * steal->ranks / steal->owning;

    return most_ns > spread * mean && most_ns - mean > GAIN_NS;
}

void rb_steal_judge(struct rb_steal *steal, double mean_ns, double most_ns, uint32_t moved)
{
    bool was = steal->on, known = know_paces(steal);
    bool pays = was ? moved > 0 : uneven(steal, mean_ns, most_ns);

    if (pays && steal->score < (was ? SCORE_MOST : steal->needed))
        steal->score++;
    else if (!pays && steal->score)
        steal->score--;
    if (was && pays)
        steal->needed = SCORE_ON / 2; /* doubled when it ends */
    steal->on = known && steal->spare && steal->score >= (was ? 1 : steal->needed);
    if (steal->on && !was)
        steal->score = SCORE_ON;
    if (was && !steal->on && steal->needed < NEEDED_MOST)
        steal->needed *= 2;
}

void rb_steal_begin(struct rb_steal *steal)
{
    steal->mine.next = steal->mine.end = steal->taken.next = steal->taken.end = 0;
    steal->spent = steal->computed = 0;
    steal->asked = -1;
    steal->said_empty = steal->said_over = false;
    for (uint32_t r = 0; r < steal->ranks; r++) {
        steal->left[r] = steal->shares[r];
        steal->over[r] = false;
    }
    for (uint32_t m = 0; m < steal->microbatches; m++)
        if (steal->owners[m] == (int32_t)steal->rank)
            steal->mine.at[steal->mine.end++] = m;
}

static uint32_t size_of(const struct rb_steal_list *list)
{
    return list->end - list->next;
}

bool rb_steal_next(struct rb_steal *steal, uint32_t *ret_microbatch)
{
    struct rb_steal_list *list = size_of(&steal->mine) ? &steal->mine : &steal->taken;

    if (!size_of(list))
        return false;
    *ret_microbatch = list->at[list->next++];
    return true;
}

void rb_steal_took(struct rb_steal *steal, uint64_t us)
{
    steal->spent += us;
    steal->computed++;
}

/* This rank's pace: that of this step, once there is one. */
static uint64_t own_pace(const struct rb_steal *steal)
{
    uint64_t us = steal->computed ? steal->spent / steal->computed : steal->paces[steal->rank];

    return us ? us : 1;
}

/* How long until this rank is done with all that it has not begun. */
static uint64_t busy_us(const struct rb_steal *steal)
{
    return (size_of(&steal->mine) + (uint64_t)size_of(&steal->taken)) * own_pace(steal);
}

/* ---- Hearing --------------------------------------------------------------------------------*/

/* As many of our last ones as let both ranks be done at the same time; half of them, as others may
 * ask too. */
static struct rb_steal_message answer(struct rb_steal *steal, uint32_t from, uint64_t from_busy)
{
    uint64_t ours = busy_us(steal), own = own_pace(steal), pace = steal->paces[from], count;
    struct rb_steal_list *list = &steal->mine;

    if (!size_of(list) || ours <= from_busy + pace)
        return (struct rb_steal_message){.kind = RB_STEAL_NONE};
    count = (ours - from_busy - 1) / (2 * (own + pace)) + 1;
    count = count > size_of(list) ? size_of(list) : count;
    list->end -= (uint32_t)count;
    return (struct rb_steal_message){RB_STEAL_GIVE, list->at[list->end], (uint32_t)count, 0};
}

/* Lists are in order, so the message means the giver's microbatches from the first one on. */
static int take(struct rb_steal *steal, uint32_t from, struct rb_steal_message given,
                struct rb_why *why)
{
    uint32_t count = 0, end = steal->taken.end;

    for (uint32_t m = given.value; m < steal->microbatches && count < given.count; m++)
        if (steal->owners[m] == (int32_t)from && end < steal->microbatches) {
            steal->taken.at[end++] = m;
            count++;
        }
    if (steal->asked != (int)from || !count || count != given.count || count > steal->left[from] ||
        steal->owners[given.value] != (int32_t)from)
        return rb_why_set(why, RB_EINTERNAL,
                          "rank %u gives %u microbatches from %u on, which are not its to give",
                          from, given.count, given.value);
    steal->asked = -1;
    steal->taken.end = end;
    steal->left[from] -= count;
    return 0;
}

static void lacks(struct rb_steal *steal, uint32_t from)
{
    if (steal->asked == (int)from)
        steal->asked = -1;
    steal->left[from] = 0;
}

int rb_steal_hear(struct rb_steal *steal, uint32_t from, struct rb_steal_message said, uint64_t now,
                  bool *ret_answers, struct rb_steal_message *ret_answer, struct rb_why *why)
{
    *ret_answers = false;
    if (steal->over[from])
        return rb_why_set(why, RB_EINTERNAL, "rank %u speaks behind its last word", from);
    switch (said.kind) {
    case RB_STEAL_ASK:
        *ret_answers = !steal->said_empty; /* else EMPTY was the answer */
        if (*ret_answers)
            *ret_answer = answer(steal, from, said.value > now ? said.value - now : 0);
        return 0;
    case RB_STEAL_GIVE:
        return take(steal, from, said, why);
    case RB_STEAL_OVER:
        steal->over[from] = true;
        lacks(steal, from);
        return 0;
    case RB_STEAL_NONE:
    case RB_STEAL_EMPTY:
        lacks(steal, from);
        return 0;
    default:
        return rb_why_set(why, RB_EINTERNAL, "rank %u says %u, which means nothing", from,
                          said.kind);
    }
}

/* ---- Speaking -------------------------------------------------------------------------------*/

/* The rank that has most to do still; -1: none has anything. */
static int busiest(const struct rb_steal *steal)
{
    uint64_t most = 0;
    int found = -1;

    for (uint32_t r = 0; r < steal->ranks; r++) {
        uint64_t us = (uint64_t)steal->left[r] * steal->paces[r];

        if (r != steal->rank && us > most) {
            most = us;
            found = (int)r;
        }
    }
    return found;
}

/* A rank answers when it is done with the microbatch that it computes: so it is asked that long
 * before. */
int rb_steal_ask(struct rb_steal *steal, bool computing, uint64_t now,
                 struct rb_steal_message *ret_ask)
{
    uint64_t busy = busy_us(steal) + (computing ? own_pace(steal) : 0);
    int whom = busiest(steal);

    if (steal->asked >= 0 || whom < 0 || busy > steal->paces[whom])
        return -1;
    *ret_ask = (struct rb_steal_message){
        .kind = RB_STEAL_ASK,
        .value = now + busy < UINT32_MAX ? (uint32_t)(now + busy) : UINT32_MAX,
    };
    steal->asked = whom;
    return whom;
}

bool rb_steal_tell(struct rb_steal *steal, bool computing, struct rb_steal_message *ret_message)
{
    if (size_of(&steal->mine))
        return false;
    if (!steal->said_empty) {
        steal->said_empty = true;
        *ret_message = (struct rb_steal_message){.kind = RB_STEAL_EMPTY};
        return true;
    }
    if (computing || steal->said_over || size_of(&steal->taken) || steal->asked >= 0 ||
        busiest(steal) >= 0)
        return false;
    steal->said_over = true;
    steal->over[steal->rank] = true;
    *ret_message = (struct rb_steal_message){.kind = RB_STEAL_OVER};
    return true;
}

bool rb_steal_ended(const struct rb_steal *steal)
{
    for (uint32_t r = 0; r < steal->ranks; r++)
        if (!steal->over[r])
            return false;
    return true;
}
