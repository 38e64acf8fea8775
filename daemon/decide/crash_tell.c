/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a loss: which members are lost, in events and to the rule that gives out devices
 * (allocate.c), and which node is waited for. */
#include "daemon/decide/turn.h"

#include <string.h>

const char *rb_decide_recovery_reason(const Rb__Configuration *conf)
{
    return conf->n_blamed ? "recovers from the loss of a worker"
                          : "brings its workers together again";
}

const char *rb_decide_missed_reason(struct rb_turn *turn, const struct rb_roll *roll,
                                    const char *node)
{
    return rb_turn_text(turn, "waits for node %s, which %s and has %s", node,
                        rb_turn_silent(turn, node) ? "does not answer" : "is out of reach",
                        roll->holders ? "a part of its state" : "its state");
}

void rb_decide_tell_missed(struct rb_turn *turn, const struct rb_roll *roll, const char *node)
{
    rb_turn_reason(turn, rb_decide_missed_reason(turn, roll, node));
}

void rb_decide_tell_wait(struct rb_turn *turn, const struct rb_roll *roll)
{
    for (size_t i = 0; i < roll->n && !roll->whole; i++)
        if (roll->at[i].life == RB_LIFE_AWAY) {
            rb_decide_tell_missed(turn, roll, roll->at[i].member->node);
            return;
        }
}

bool rb_decide_blames(const Rb__Configuration *conf, const char *place)
{
    for (size_t i = 0; i < conf->n_blamed; i++)
        if (!strcmp(conf->blamed[i], place))
            return true;
    return false;
}

bool rb_decide_is_on(const Rb__Configuration *conf, const Rb__Member *member)
{
    for (size_t m = 0; m < conf->n_members; m++)
        if (conf->members[m]->device == member->device &&
            !strcmp(conf->members[m]->node, member->node))
            return true;
    return false;
}

/* A configuration that was foreseen says who died, also where the report of a death is still on its
 * way. */
static bool is_lost(const struct rb_roll_entry *entry, const Rb__Configuration *conf)
{
    if (conf->left_of)
        return !rb_decide_is_on(conf, entry->member);
    return entry->life == RB_LIFE_GONE || entry->life == RB_LIFE_AWAY;
}

/* Has another lost member on the same node been told of already? */
static bool is_told(const struct rb_roll *roll, size_t i, const Rb__Configuration *conf)
{
    const char *node = roll->at[i].member->node;

    while (i-- > 0)
        if (!strcmp(roll->at[i].member->node, node) && is_lost(&roll->at[i], conf) &&
            roll->at[i].life == RB_LIFE_AWAY)
            return true;
    return false;
}

/* The last recovery that did not come to an end, or is given up now; NULL: there is none since a
 * configuration took over. */
static const Rb__Configuration *last_given_up(struct rb_turn *turn)
{
    const struct rb_fact_list *confs = &turn->in->configurations;
    const Rb__Configuration *next = rb_turn_next(turn);

    if (next && !strcmp(next->cause, "crash"))
        return rb_turn_edit(turn, next);
    for (size_t i = confs->n; i-- > 0;) {
        const Rb__Configuration *conf = confs->at[i].configuration;

        if (rb_configuration_took_over(conf))
            break;
        if (conf->state == RB__CONFIGURATION__STATE__ABANDONED && !strcmp(conf->cause, "crash"))
            return conf;
    }
    return NULL;
}

/* Was this loss told of with `before`?  It was not where the entry is a member of `before` for
 * whose silence `before` was given up. */
static bool was_told(const struct rb_roll_entry *entry, const char *place,
                     const Rb__Configuration *before, const Rb__Configuration *conf)
{
    return before && rb_decide_blames(before, place) &&
           (before->has_failed || conf->left_of || entry->life == RB_LIFE_GONE ||
            !rb_decide_is_on(before, entry->member));
}

void rb_decide_blame_lost(struct rb_turn *turn, const struct rb_roll *roll, Rb__Configuration *conf)
{
    const Rb__Configuration *before = last_given_up(turn);

    conf->blamed = RB_ARENA_NEW(turn->arena, char *, roll->n + 1);
    for (size_t i = 0; i < roll->n; i++) {
        const struct rb_roll_entry *entry = &roll->at[i];
        const char *place = rb_turn_place(turn, entry->member->node, entry->member->device);

        if (!is_lost(entry, conf))
            continue;
        conf->blamed[conf->n_blamed++] = rb_arena_string(turn->arena, place);
        if (was_told(entry, place, before, conf))
            continue;
        if (conf->left_of || entry->life == RB_LIFE_GONE)
            rb_turn_event(
                turn, entry->member->node, "worker-died", "the worker on %s ended: %s", place,
                entry->report && entry->report->reason ? entry->report->reason : "no reason known");
        else if (!is_told(roll, i, conf))
            rb_turn_event(turn, entry->member->node, "node-lost",
                          rb_turn_silent(turn, entry->member->node) ? "node %s does not answer"
                                                                    : "node %s is out of reach",
                          entry->member->node);
    }
}
