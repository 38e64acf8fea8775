/* SPDX-License-Identifier: Apache-2.0 */
/* A step, as in worker/step/step.c: compute, reduce, vote, update.  Records and decisions come from
 * the product's rules. */
#include "sim_worker.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SPEED_LASTS = 64 }; /* steps, on average */

static struct rb_vote_shape shape_of(const struct sim_process *process)
{
    return (struct rb_vote_shape){process->job->microbatches, 1,
                                  process->active->as.placement.sharded ? SIM_BLOCKS : 0};
}

/* ---- Attempts ---------------------------------------------------------------------------------*/

/* Are the sums of the attempt before the crash of use, as count_kept in rb_step_run has it? */
static bool keeps_sums(const struct sim_process *process)
{
    const struct sim_conf *conf = process->active;
    bool any = false;

    if (process->kept < 0 || process->kept != process->state.level || process->kept_redone)
        return false;
    for (uint32_t m = 0; m < process->job->microbatches; m++) {
        if (!rb_vote_holds(process->record, m))
            continue;
        if (conf->owners[m] != (int32_t)conf->rank && process->sim->broken != SIM_NO_RUNS)
            return false;
        any = true;
    }
    return any;
}

static void start_attempt(struct sim_process *process, bool keeps)
{
    struct rb_vote_shape shape = shape_of(process);

    process->kept = process->pending = -1;
    process->microbatch = 0;
    process->stage = SIM_STAGE_BEGINS;
    if (keeps) {
        rb_vote_again(process->record, process->active->rank, process->state.level,
                      process->attempt);
        return;
    }
    memset(process->sums, 0, sizeof process->sums);
    rb_vote_start(&shape, process->record, process->active->rank, process->state.level,
                  process->attempt);
}

void sim_step_start(struct sim_process *process)
{
    process->attempt = 0;
    process->committed = false;
    if (!process->steady && !sim_chance(process->sim, SPEED_LASTS))
        process->slowness = 2 + (uint32_t)sim_chance(process->sim, 3);
    process->carrying = 0;
    start_attempt(process, keeps_sums(process));
}

/* ---- Orders of a step -------------------------------------------------------------------------*/

static void add_microbatch(struct sim_process *process)
{
    struct rb_vote_shape shape = shape_of(process);
    uint32_t m = process->microbatch;
    bool wild = sim_skips(process->job, process->state.level);

    for (unsigned b = 0; b < SIM_BLOCKS; b++)
        process->sums[b] += sim_gradient(&process->state, m, b);
    rb_vote_microbatch(&shape, process->record, m, wild ? NAN : 1.0 + m, 4, 0);
}

/* RB_OK: the sums have all microbatches of this rank. */
static int compute(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;

    if (process->stage == SIM_STAGE_COMPUTES) {
        if (!process->timer_over)
            return RB_EAGAIN;
        add_microbatch(process);
        process->microbatch++;
        process->stage = SIM_STAGE_BEGINS;
    }
    for (; process->microbatch < process->job->microbatches; process->microbatch++) {
        if (conf->owners[process->microbatch] != (int32_t)conf->rank ||
            rb_vote_holds(process->record, process->microbatch))
            continue;
        process->stage = SIM_STAGE_COMPUTES;
        sim_wait(process,
                 (process->job->step_us / 2 + sim_chance(process->sim, process->job->step_us)) *
                     process->slowness / 2);
        return RB_EAGAIN;
    }
    return RB_OK;
}

static int settle(const struct sim_process *process)
{
    return process->active->feed ? sim_feed_settle(process->active->feed) : RB_OK;
}

static int reduce(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;
    uint64_t all[SIM_RANKS][SIM_BLOCKS];
    int err = settle(process);

    if (!err)
        err =
            sim_gather(process->sim, conf->group, conf->rank,
                       sim_tag(SIM_TAG_REDUCE, (uint64_t)process->state.level, process->attempt, 0),
                       process->sums, all, sizeof *all);
    if (err)
        return err;
    memset(process->reduced, 0, sizeof process->reduced);
    for (uint32_t r = 0; r < conf->size; r++)
        for (unsigned b = 0; b < SIM_BLOCKS; b++)
            if (rb_held_follows(process->state.held[b]))
                process->reduced[b] += all[r][b];
    return RB_OK;
}

static int decide(struct sim_process *process, const uint8_t *records, uint32_t ranks)
{
    struct rb_vote_shape shape = shape_of(process);
    struct rb_exponent exponent = {.history = 1, .known = true};
    int32_t limit = rb_exponent_limit(process->job->microbatches);
    uint32_t largest;
    struct rb_why why = {{0}};
    int err = rb_vote_decide(&shape, records, ranks, process->state.level, process->attempt,
                             &exponent, &limit, &process->decision, &largest, &why);

    if (err)
        sim_fail(process->sim, "%s: %s", process->name, why.text);
    return err;
}

static void write_record(struct sim_process *process)
{
    struct rb_vote_shape shape = shape_of(process);
    struct rb_vote_ready ready = {0};
    bool flags = process->attempt == 0 && sim_redoes(process->job, process->state.level);

    rb_vote_variable(&shape, process->record, 0, 1, flags);
    process->pending = process->state.level;
    process->pending_attempt = process->attempt;
    sim_mailbox_ready(process, &ready);
    sim_say_shards(process, &ready);
    rb_vote_finish(process->record, (uint64_t)process->state.level, &ready);
}

static int vote(struct sim_process *process)
{
    struct rb_vote_shape shape = shape_of(process);
    const struct sim_conf *conf = process->active;
    size_t bytes = rb_vote_bytes(&shape);
    uint8_t records[SIM_RANKS * SIM_RECORD];
    uint64_t tag = sim_tag(SIM_TAG_VOTE, (uint64_t)process->state.level, process->attempt, 0);
    int err;

    if (conf->group->seats[conf->rank].gathering != tag)
        write_record(process);
    err = sim_gather(process->sim, conf->group, conf->rank, tag, process->record, records, bytes);
    if (err == RB_EAGAIN && process->alive && process->sim->broken == SIM_NO_VOTE) {
        process->decision = (struct rb_vote_decision){.verdict = RB_VOTE_COMMIT, .collector = -1};
        process->active->group->seats[conf->rank].gathering = 0;
        return RB_OK;
    }
    if (err != RB_EAGAIN)
        sim_mailbox_voted(process);
    if (!err)
        err = decide(process, records, conf->size);
    for (uint32_t r = 0; !err && r < conf->size; r++) {
        rb_vote_takes(&shape, records, r, &process->takes[r]);
        process->stays[r] = process->decision.flip && rb_vote_stays(&shape, records, r);
    }
    return err;
}

void sim_update(struct sim_process *process, bool skip)
{
    struct sim_state *state = &process->state;

    sim_settle(state);
    for (unsigned b = 0; b < SIM_BLOCKS; b++)
        if (rb_held_follows(state->held[b]))
            sim_apply(state, b, state->level, process->reduced[b], skip);
        else
            state->torn = true;
    state->level++;
    process->applied = state->level;
    process->applied_attempt = process->pending_attempt;
    process->applied_skip = skip;
    process->applied_by = process->number;
    process->pending = -1;
}

static void update(struct sim_process *process)
{
    bool skip = process->decision.verdict == RB_VOTE_SKIP;

    process->committed = true;
    process->job->stepped = process->sim->now;
    sim_update(process, skip);
    sim_feed_log(process, skip, process->decision.flip ? process->decision.number : 0);
    sim_check_commit(process->sim, process);
    sim_check_once(process->sim, process);
    sim_check_stands(process->sim, process);
}

/* After the update, where the state is in shards. */
static int exchange(struct sim_process *process)
{
    int err = RB_OK;

    if (process->stage == SIM_STAGE_GATHERS) {
        err = sim_gather_weights(process);
        process->stage += !err;
    }
    if (process->stage == SIM_STAGE_TAKES) {
        err = sim_take_blocks(process);
        process->stage += !err;
    }
    if (process->stage == SIM_STAGE_HANDS && process->decision.flip)
        err = sim_hand_over(process);
    return err;
}

/* ---- The whole --------------------------------------------------------------------------------*/

static int run(struct sim_process *process)
{
    int err;

    for (;;) {
        if (process->stage >= SIM_STAGE_GATHERS)
            return exchange(process);
        if (process->leave && !sim_mailbox_hears_out(process))
            return RB_ECANCELED;
        if (process->stage <= SIM_STAGE_COMPUTES) {
            err = compute(process);
            if (err)
                return err;
            process->stage = SIM_STAGE_REDUCES;
        }
        if (process->stage == SIM_STAGE_REDUCES) {
            err = reduce(process);
            if (err)
                return err;
            process->stage = SIM_STAGE_VOTES;
        }
        err = vote(process);
        if (err)
            return err;
        if (process->decision.verdict != RB_VOTE_REDO) {
            update(process);
            if (!process->active->as.placement.sharded)
                return RB_OK;
            process->stage = SIM_STAGE_GATHERS;
            continue;
        }
        process->attempt++;
        start_attempt(process, false);
    }
}

int sim_step_run(struct sim_process *process)
{
    int err = run(process);

    if (err == RB_EPEER && !process->committed) {
        process->kept = process->state.level;
        process->kept_redone = process->attempt > 0;
    }
    return process->alive ? err : RB_EAGAIN;
}
