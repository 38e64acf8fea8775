/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/stealing.h"

#include "base/arena.h"
#include "base/clock.h"

enum { SLICE_MS = 50 };

static uint64_t since(const struct rb_stealing *stealing)
{
    return (rb_clock_ns() - stealing->steal->judged_ns) / 1000;
}

static int post(const struct rb_stealing *stealing, uint32_t to, struct rb_steal_message message,
                struct rb_why *why)
{
    return rb_coll_post(stealing->coll, stealing->tag, (int)to, &message, sizeof message, why);
}

static int post_to_all(const struct rb_stealing *stealing, struct rb_steal_message message,
                       struct rb_why *why)
{
    int err = 0;

    for (uint32_t r = 0; !err && r < stealing->steal->ranks; r++)
        if (r != stealing->steal->rank)
            err = post(stealing, r, message, why);
    return err;
}

/* Say all that is due, also while a microbatch is about to be computed. */
static int speak(const struct rb_stealing *stealing, bool computing, struct rb_why *why)
{
    struct rb_steal_message message;
    int err = 0, whom;

    while (!err && rb_steal_tell(stealing->steal, computing, &message))
        err = post_to_all(stealing, message, why);
    whom = err ? -1 : rb_steal_ask(stealing->steal, computing, since(stealing), &message);
    return whom < 0 ? err : post(stealing, (uint32_t)whom, message, why);
}

static int hear_one(const struct rb_stealing *stealing, int rank, struct rb_why *why)
{
    struct rb_steal_message said, answer;
    bool answers;
    int err = rb_coll_receive(stealing->coll, stealing->tag, rank, &said, sizeof said, why);

    if (!err)
        err = rb_steal_hear(stealing->steal, (uint32_t)rank, said, since(stealing), &answers,
                            &answer, why);
    return err || !answers ? err : post(stealing, (uint32_t)rank, answer, why);
}

/* Hear all that has come; with a timeout, wait for the first message.  Waiting sends nothing, and
 * that message may be the answer to a post that a full link has kept: so posts are pushed first. */
static int hear(const struct rb_stealing *stealing, int timeout_ms, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) bool *from = rb_alloc(stealing->steal->ranks * sizeof *from);
    int rank = 0, err = 0;

    while (!err && rank >= 0) {
        for (uint32_t r = 0; r < stealing->steal->ranks; r++)
            from[r] = !stealing->steal->over[r];
        err = rb_coll_nudge(stealing->coll, why);
        if (!err)
            err = rb_coll_wait(stealing->coll, from, -1, timeout_ms, &rank, why);
        if (!err && rank >= 0)
            err = hear_one(stealing, rank, why);
        timeout_ms = 0;
    }
    return err;
}

int rb_stealing_run(const struct rb_stealing *stealing, struct rb_why *why)
{
    int err = 0;

    while (!err) {
        uint32_t microbatch;
        uint64_t started;
        bool has;

        if (atomic_load(stealing->stop))
            return rb_why_set(why, RB_ECANCELED, "stopped");
        err = hear(stealing, 0, why);
        if (err)
            break;
        has = rb_steal_next(stealing->steal, &microbatch);
        err = speak(stealing, has, why);
        if (err || (!has && rb_steal_ended(stealing->steal)))
            break;
        started = rb_clock_ns();
        err = has ? stealing->compute(microbatch, stealing->owner, why)
                  : hear(stealing, SLICE_MS, why);
        if (has)
            rb_steal_took(stealing->steal, (rb_clock_ns() - started) / 1000);
    }
    return err;
}
