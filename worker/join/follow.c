/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/follow_inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "worker/join/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void open_follow(struct follow *follow, const struct rb_configuration *configuration)
{
    const struct rb_roster *roster = configuration->roster;
    const struct rb_state *state = &follow->model->state;

    follow->coll = configuration->coll;
    follow->roster = roster;
    follow->placement = &configuration->placement;
    follow->rank = configuration->rank;
    follow->index = (uint32_t)rb_roster_newcomer(roster, configuration->rank);
    follow->answered = -1;
    follow->answered_at = rb_clock_ns();
    follow->from = rb_alloc(configuration->size * sizeof *follow->from);
    follow->sources = rb_alloc(roster->n_sources * sizeof *follow->sources);
    follow->streams = rb_alloc(roster->n_sources * sizeof *follow->streams);
    for (uint32_t s = 0; s < roster->n_sources; s++) {
        struct source *source = &follow->sources[s];

        source->rank = roster->sources[s];
        source->next = rb_follow_next(follow, s, 0);
        source->counters = rb_alloc(rb_state_counters_size(state));
        source->fixed = state->fixed_bytes;
        follow->from[source->rank] = true;
        follow->streams[s].level = -1;
        for (size_t b = source->next; b < roster->blocks; b = rb_follow_next(follow, s, b + 1))
            follow->streams[s].missing++;
        if (rb_roster_other(roster, follow->index) == s) {
            source->fixed = 0;
            follow->streams[s].missing += (state->fixed_bytes + RB_WIRE_PIECE - 1) / RB_WIRE_PIECE;
        }
    }
}

static void close_follow(struct follow *follow)
{
    for (uint32_t s = 0; s < follow->roster->n_sources; s++) {
        rb_parcels_close(&follow->sources[s].parcels);
        free(follow->sources[s].counters);
    }
    free(follow->sources);
    free(follow->streams);
    free(follow->from);
    free(follow->bytes);
}

/* All sources took the same step with the same counters. */
static int agree(struct follow *follow, struct rb_why *why)
{
    size_t size = rb_state_counters_size(&follow->model->state);
    const struct source *first = &follow->sources[0];

    for (uint32_t s = 1; s < follow->roster->n_sources; s++)
        if (follow->streams[s].level != follow->streams[0].level ||
            memcmp(follow->sources[s].counters, first->counters, size))
            return rb_why_set(why, RB_EINTERNAL,
                              "ranks %u and %u flip with different levels or counters", first->rank,
                              follow->sources[s].rank);
    rb_state_counters_unpack(&follow->model->state, first->counters);
    rb_model_hold(follow->model, follow->placement->holds + follow->rank * follow->roster->blocks);
    follow->model->applied.level = -1;
    if (follow->model->state.level == follow->streams[0].level)
        return 0;
    return rb_why_set(why, RB_EINTERNAL, "state of level %" PRId64 " came as level %" PRId64,
                      follow->streams[0].level, follow->model->state.level);
}

static bool all_flipped(const struct follow *follow)
{
    for (uint32_t s = 0; s < follow->roster->n_sources; s++)
        if (!follow->sources[s].flipped)
            return false;
    return true;
}

int rb_follow_run(struct rb_model *model, const struct rb_configuration *configuration,
                  uint64_t *ret_bytes, struct rb_why *why)
{
    struct follow follow = {.model = model};
    int rank, err = 0;

    open_follow(&follow, configuration);
    while (!err && !all_flipped(&follow)) {
        err = rb_coll_wait(follow.coll, follow.from, -1, RB_FOLLOW_ALIVE_MS, &rank, why);
        if (!err && rank >= 0)
            err = rb_follow_take(&follow, (uint32_t)rank, why);
        if (!err)
            err = rb_follow_answer_if_due(&follow, why);
    }
    rb_fault("worker.followed");
    if (!err)
        err = rb_device_check(model->device, why);
    if (!err)
        err = agree(&follow, why);
    if (err) {
        model->state.level = -1;
        rb_state_clear_moments(&model->state);
    }
    *ret_bytes = follow.received + follow.parcelled;
    if (follow.parcelled)
        rb_log(RB_LOG_INFO,
               "configuration %u: of the state %" PRIu64 " bytes came from GPU to GPU, %" PRIu64
               " through the hosts",
               configuration->number, follow.parcelled, follow.received);
    close_follow(&follow);
    return err ? rb_why_add(why, err, "following into configuration %u", configuration->number) : 0;
}
