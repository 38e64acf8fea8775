/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/versions.h"

#include "base/arena.h"
#include "base/error.h"

#include <math.h>
#include <stdbool.h>

enum { TICKS = 11 }; /* bits of the longest pass */

/* A pass of a minibatch through a stage. */
struct pass {
    double start, end;
    bool done;
};

/* While a lap is played: passes by stage * minibatches + minibatch. */
struct lap {
    uint32_t stages, minibatches;
    struct pass *forward, *backward;
};

static size_t at(const struct lap *lap, uint32_t stage, uint32_t minibatch)
{
    return (size_t)stage * lap->minibatches + minibatch;
}

/* What the pass must wait for in another stage; NULL: nothing. */
static const struct pass *source_of(const struct lap *lap, uint32_t stage, uint32_t minibatch,
                                    bool goes)
{
    if (goes)
        return stage ? &lap->forward[at(lap, stage - 1, minibatch)] : NULL;
    return stage + 1 < lap->stages ? &lap->backward[at(lap, stage + 1, minibatch)] : NULL;
}

/* Where a stage has come to. */
struct hand {
    uint32_t f, b; /* minibatches gone forward, and come back */
    double clock;
};

/* Play the stage's next pass, if what the pass waits for is done. */
static bool play_pass(struct lap *lap, uint32_t stage, struct hand *hand, double forward,
                      double backward)
{
    bool goes = hand->f < lap->minibatches && hand->f - hand->b < lap->stages - stage;
    uint32_t minibatch = goes ? hand->f : hand->b;
    const struct pass *source = source_of(lap, stage, minibatch, goes);
    struct pass *pass = &(goes ? lap->forward : lap->backward)[at(lap, stage, minibatch)];

    if (hand->b == lap->minibatches || (source && !source->done))
        return false;
    pass->start = source && source->end > hand->clock ? source->end : hand->clock;
    pass->end = pass->start + (goes ? forward : backward);
    pass->done = true;
    hand->clock = pass->end;
    ++*(goes ? &hand->f : &hand->b);
    return true;
}

static void play(struct lap *lap, const double *forward, const double *backward)
{
    RB_CLEANUP(rb_freep) struct hand *hands = rb_alloc(lap->stages * sizeof *hands);
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t k = 0; k < lap->stages; k++)
            while (play_pass(lap, k, &hands[k], forward[k], backward[k]))
                moved = true;
    }
}

/* Updates of a stage that have ended by `time`; its backward passes end one after the other. */
static uint32_t ended(const struct lap *lap, uint32_t stage, double time)
{
    uint32_t low = 0, high = lap->minibatches;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (lap->backward[at(lap, stage, middle)].end <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Updates by other minibatches that ended behind `after`, up to `until`. */
static uint32_t count(const struct lap *lap, uint32_t stage, uint32_t minibatch, double after,
                      double until)
{
    double own = lap->backward[at(lap, stage, minibatch)].end;

    return ended(lap, stage, until) - ended(lap, stage, after) - (own > after && own <= until);
}

static struct rb_versions count_pass(const struct lap *lap, uint32_t stage, uint32_t minibatch)
{
    double forward = lap->forward[at(lap, stage, minibatch)].start;
    double backward = lap->backward[at(lap, stage, minibatch)].start;
    double aim = lap->backward[at(lap, 0, minibatch)].end;

    return (struct rb_versions){
        .forward = count(lap, stage, minibatch, forward, aim),
        .backward = count(lap, stage, minibatch, backward, aim),
        .stale = count(lap, stage, minibatch, forward, backward),
    };
}

/* Times in whole ticks, one or two thousand for the longest: stages that are alike end at the same
 * time, whatever the order in which their times are added up. */
static void round_times(struct lap *lap, const double *forward, const double *backward,
                        double *ret_ticks)
{
    double most = 0;
    int exponent;

    for (uint32_t k = 0; k < lap->stages; k++)
        most = fmax(most, fmax(forward[k], backward[k]));
    frexp(most, &exponent);
    for (uint32_t k = 0; k < lap->stages; k++) {
        ret_ticks[k] = fmax(1, nearbyint(ldexp(forward[k], TICKS - exponent)));
        ret_ticks[lap->stages + k] = fmax(1, nearbyint(ldexp(backward[k], TICKS - exponent)));
    }
}

static void lap_done(struct lap *lap)
{
    rb_freep(&lap->forward);
    rb_freep(&lap->backward);
}

static struct lap play_new(const double *forward, const double *backward, uint32_t stages,
                           uint32_t minibatches)
{
    size_t passes = (size_t)stages * minibatches;
    struct lap lap = {
        .stages = stages,
        .minibatches = minibatches,
        .forward = rb_alloc((passes + 1) * sizeof(struct pass)),
        .backward = rb_alloc((passes + 1) * sizeof(struct pass)),
    };
    RB_CLEANUP(rb_freep) double *ticks = rb_alloc(2 * (size_t)stages * sizeof *ticks);

    round_times(&lap, forward, backward, ticks);
    play(&lap, ticks, ticks + stages);
    return lap;
}

void rb_versions_lap(const double *forward, const double *backward, uint32_t stages,
                     uint32_t minibatches, struct rb_versions *ret)
{
    struct lap lap = play_new(forward, backward, stages, minibatches);

    for (uint32_t k = 0; k < stages; k++)
        for (uint32_t i = 0; i < minibatches; i++)
            ret[at(&lap, k, i)] = count_pass(&lap, k, i);
    lap_done(&lap);
}

/* The busy part of the time, over the middle third of the minibatches. */
static double busy(const struct lap *lap)
{
    uint32_t from = lap->minibatches / 3, to = 2 * lap->minibatches / 3;
    double most = 0, took = lap->backward[at(lap, 0, to)].end - lap->backward[at(lap, 0, from)].end;

    for (uint32_t k = 0; k < lap->stages; k++) {
        const struct pass *f = &lap->forward[at(lap, k, 0)], *b = &lap->backward[at(lap, k, 0)];

        most = fmax(most, f->end - f->start + b->end - b->start);
    }
    return most * (to - from) / took;
}

void rb_versions_count(const double *forward, const double *backward, uint32_t stages,
                       struct rb_versions *ret, double *ret_busy)
{
    struct lap lap = play_new(forward, backward, stages, 12 * stages + 12);

    for (uint32_t k = 0; k < stages; k++)
        ret[k] = count_pass(&lap, k, lap.minibatches / 2);
    *ret_busy = busy(&lap);
    lap_done(&lap);
}

struct rb_versions rb_versions_paper(uint32_t stages, uint32_t stage)
{
    return (struct rb_versions){
        .forward = stage / 2 + stages - 1 - stage,
        .backward = stage / 2,
        .stale = stages - 1 - stage,
    };
}
