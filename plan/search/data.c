/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism: with all of the state everywhere or in shards, with even shares or shares by
 * speed. */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/partition/balance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void rb_search_even(const struct rb_search_work *work, uint32_t n, uint32_t *ret_shares)
{
    for (uint32_t r = 0; r < n; r++)
        ret_shares[r] = work->total / n + (r < work->total % n);
}

static int price(struct rb_search_work *work, struct rb_search_candidate *one,
                 const uint32_t *shares, uint32_t copies)
{
    const struct rb_search_how *how = work->how;
    struct rb_predict_how step = {how->model, how->cluster, how->profile,   work->devices,
                                  shares,     copies,       one->recomputes};
    struct rb_predict_step found;
    int err = rb_predict_data(&step, &found, work->why);

    if (err)
        return err;
    one->seconds = found.seconds;
    one->sent = found.sent;
    one->idle = found.idle;
    one->computing = found.computing;
    one->summing = found.summing;
    one->updating = found.updating;
    one->gathering = found.gathering;
    one->simulate = found.simulate;
    one->moves = how->from && how->from <= how->cluster->n_devices;
    if (one->moves)
        rb_move_price(how->model, how->cluster, (struct rb_move_side){how->from, copies},
                      (struct rb_move_side){work->devices, copies}, found.seconds, &one->move);
    return 0;
}

/* The candidate may be chosen if a submit takes as many copies or leaves them open. */
static void note_open(struct rb_search_work *work, struct rb_search_candidate *one)
{
    for (uint32_t i = 0; i < work->n_copies && !one->open; i++)
        if (rb_search_same_copies(work->copies[i], one->way.copies, work->devices)) {
            one->open = true;
            one->way.copies = work->copies[i];
            if (!i)
                work->data = (size_t)(one - work->search->candidates);
        }
}

/* fits: it fits with activations kept, so the planner may not choose to compute them again. */
static int try_set(struct rb_search_work *work, const uint32_t *shares, uint32_t copies, bool even,
                   bool recomputes, bool fits)
{
    struct rb_footprint footprint = rb_footprint_of(work->how->model);
    struct rb_search_candidate *one;
    char state[48];

    rb_search_state_text(copies, work->devices, state, sizeof state);
    one = rb_search_add(work, RB_SEARCH_RUNS, "data parallel x%" PRIu32 "%s%s%s", work->devices,
                        state, even ? "" : ", shares by speed",
                        recomputes ? ", activations computed again" : "");
    one->way.copies = copies;
    one->recomputes = recomputes;
    one->memory = (double)rb_footprint_total(&footprint, recomputes, copies, work->devices);
    if (work->pinned || work->split) {
        rb_search_say(one, "spec.parallel.%s",
                      work->pinned ? "pipeline asks for stages" : "hypergraph asks for parts");
    } else if (even != work->even) {
        rb_search_say(one, even ? "a job has it as long as it has not measured its devices"
                                : "spec.parallel.balance asks for even shares");
    } else if (fits) {
        rb_search_say(one, "activations that are kept fit");
    } else {
        note_open(work, one);
    }
    rb_search_check_memory(work, one);
    return price(work, one, shares, copies);
}

static int try_data(struct rb_search_work *work, const uint32_t *shares, uint32_t copies, bool even)
{
    int err = try_set(work, shares, copies, even, false, false);
    bool fits = work->search->candidates[work->search->n - 1].verdict != RB_SEARCH_MISFIT;

    return err || !rb_search_again(work) ? err : try_set(work, shares, copies, even, true, fits);
}

static double *find_speeds(const struct rb_search_work *work)
{
    double *speeds = rb_alloc(work->devices * sizeof *speeds);

    for (uint32_t r = 0; r < work->devices; r++)
        speeds[r] = 1 / work->microbatch[r];
    return speeds;
}

/* Try all of the state everywhere, and shards. */
static int try_shares(struct rb_search_work *work, const uint32_t *shares, bool even)
{
    int err = try_data(work, shares, 0, even);

    for (uint32_t copies = 2; !err && copies; copies--)
        if (work->devices > copies)
            err = try_data(work, shares, copies, even);
    return err;
}

static int try_open(struct rb_search_work *work, const uint32_t *shares)
{
    int err = 0;

    for (uint32_t i = 0; !err && i < work->n_copies; i++)
        err = try_data(work, shares, work->copies[i], work->even);
    return err;
}

int rb_search_data(struct rb_search_work *work)
{
    const Rb__ParallelSpec *parallel = work->how->spec->parallel;
    RB_CLEANUP(rb_freep) uint32_t *shares = rb_alloc(work->devices * sizeof *shares);
    RB_CLEANUP(rb_freep) uint32_t *balanced = rb_alloc(work->devices * sizeof *balanced);
    RB_CLEANUP(rb_freep) double *speeds = find_speeds(work);
    bool worth;
    int err;

    rb_search_even(work, work->devices, shares);
    rb_balance_shares(work->total, speeds, work->devices, balanced);
    worth = rb_balance_worth(rb_balance_excess(shares, speeds, work->devices),
                             rb_balance_excess(balanced, speeds, work->devices));
    work->even = !worth || (parallel && !strcmp(parallel->balance, "even"));
    if (work->how->brief)
        return try_open(work, work->even ? shares : balanced);
    err = try_shares(work, shares, true);
    return err || !worth ? err : try_shares(work, balanced, false);
}
