/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "worker/carry.h"
#include "worker/exchange.h"
#include "worker/flight.h"
#include "worker/join/taking.h"
#include "worker/lap.h"
#include "worker/stealing.h"
#include "worker/update.h"

#include <stdlib.h>
#include <string.h>

/* A redo asks for exponents that fit; this many in a row mean that the arithmetic is broken. */
enum { ATTEMPTS_LIMIT = 8 };

uint64_t rb_tag(enum rb_tag purpose, int64_t level, uint32_t attempt, uint64_t part)
{
    uint64_t parts[4] = {(uint64_t)purpose, (uint64_t)level, attempt, part};

    return rb_hash64(parts, sizeof parts);
}

/* An attempt under way. */
struct attempt {
    const struct rb_step *step;
    struct rb_vote_shape shape;
    uint32_t number;
    bool laps;            /* it is one (worker/lap.h) */
    uint64_t computed_ns; /* its microbatches, */
    uint32_t computed;    /* so many; those that were kept are not among them */
    bool *stays;          /* by rank, where the vote flips: it goes on in the next configuration */
    struct rb_vote_ready *said; /* by rank: what it takes */
    /* of the microbatch that runs */
    uint32_t microbatch;
    const struct rb_runner *runner;
    size_t next;                 /* contribution to add next */
    const struct rb_runner *ran; /* the last one of this step: weights are as it left them */
};

static void add_contribution(struct attempt *attempt, const Rb__Contribution *contribution)
{
    struct rb_model *model = attempt->step->model;
    const Rb__Variable *variable = model->message->variables[contribution->variable];
    uint32_t v = contribution->variable;
    struct rb_fixed into = {
        .sum = model->local + variable->offset + contribution->first,
        .fresh = model->fresh[v],
        .weight = 1,
        .exponent = model->exponents[v].exponent,
        .limit = model->limits[v],
        .largest = &model->largest[v],
        .overflow = &model->overflow[v],
    };

    if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
        into.weight =
            rb_exponent_statistic(variable->momentum, model->microbatches, attempt->microbatch);
    model->fresh[v] = false;
    rb_program_add(attempt->runner->program, (int)contribution->tensor, &into);
}

/* Where several contributions are parts of a variable, no single one is its first. */
static void clear_all(struct rb_model *model)
{
    rb_device_discard(model->device, model->local,
                      (size_t)model->message->state_elements * sizeof *model->local);
    memset(model->fresh, false, model->message->n_variables * sizeof *model->fresh);
}

/* Zeros where no microbatch of this rank has added anything. */
static void clear_fresh(struct rb_model *model)
{
    for (size_t v = 0; v < model->message->n_variables; v++) {
        const Rb__Variable *variable = model->message->variables[v];

        if (model->fresh[v] && variable->role != RB__VARIABLE__ROLE__FIXED)
            rb_device_discard(model->device, model->local + variable->offset,
                              (size_t)variable->elements * sizeof *model->local);
        model->fresh[v] = false;
    }
}

/* Behind each instruction: what is ready is added at once, its memory may be used again. */
static void after_instruction(int instruction, void *context)
{
    struct attempt *attempt = context;
    const struct rb_runner *runner = attempt->runner;

    while (attempt->next < runner->message->n_contributions &&
           runner->contributions[attempt->next]->after <= (uint32_t)instruction + 1)
        add_contribution(attempt, runner->contributions[attempt->next++]);
}

/* What the program of a microbatch has come to, into the record. */
static int say_results(struct attempt *attempt, uint32_t microbatch, const struct rb_runner *runner,
                       struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    const double *loss = rb_program_result(runner->program, runner->message->loss);
    const int64_t *count = rb_program_result(runner->program, runner->message->count);
    const int64_t *correct = NULL;
    int err;

    if (runner->message->correct >= 0)
        correct = rb_program_result(runner->program, runner->message->correct);
    err = rb_device_check(model->device, why);
    if (err)
        return err;
    rb_vote_microbatch(&attempt->shape, model->record, microbatch, *loss, *count,
                       correct ? *correct : 0);
    rb_fault("worker.computed");
    return 0;
}

static int compute(uint32_t microbatch, void *owner, struct rb_why *why)
{
    struct attempt *attempt = owner;
    struct rb_model *model = attempt->step->model;
    const Rb__Model *message = model->message;
    struct rb_key key = {message->seed, (uint64_t)model->state.level, microbatch};
    struct rb_batch batch =
        rb_batch_of(message->global_batch, message->micro_batch, model->state.level, microbatch);
    const struct rb_runner *runner = rb_model_runner(model, microbatch);
    uint64_t started = rb_clock_ns();
    int err;

    if (rb_vote_holds(model->record, microbatch))
        return 0; /* kept from the attempt before */
    attempt->runner = runner;
    attempt->microbatch = microbatch;
    attempt->next = 0;
    rb_batch_fill(&runner->slots, model->train, message->seed, &batch);
    err = (attempt->ran == runner ? rb_program_again : rb_program_run)(
        runner->program, &key, attempt->step->stop, after_instruction, attempt);
    if (err)
        return rb_why_set(why, err, "stopped");
    attempt->ran = runner;
    err = say_results(attempt, microbatch, runner, why);
    attempt->computed_ns += rb_clock_ns() - started;
    attempt->computed++;
    return err;
}

/* Not only what is planned for this rank: see worker/steal.h. */
static int compute_shared(struct attempt *attempt, struct rb_why *why)
{
    struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_stealing stealing = {
        .steal = configuration->steal,
        .coll = configuration->coll,
        .tag = rb_tag(RB_TAG_STEAL, attempt->step->model->state.level, attempt->number, 0),
        .stop = attempt->step->stop,
        .compute = compute,
        .owner = attempt,
    };
    int err = rb_configuration_settle(configuration, why);

    rb_steal_begin(configuration->steal);
    return err ? err : rb_stealing_run(&stealing, why);
}

/* ---- Stages ---------------------------------------------------------------------------------*/

static void add_of_stage(const struct rb_flight *flight, const Rb__Contribution *contribution,
                         void *owner)
{
    struct attempt *attempt = owner;

    attempt->runner = &flight->runner;
    attempt->microbatch = flight->microbatch;
    add_contribution(attempt, contribution);
}

static int forward(struct attempt *attempt, const struct rb_pilot *pilot, uint32_t microbatch,
                   struct rb_why *why)
{
    int err = rb_configuration_settle(attempt->step->configuration, why);

    return err ? err : rb_flight_forward(pilot, microbatch, why);
}

static int backward(struct attempt *attempt, const struct rb_pilot *pilot, uint32_t microbatch,
                    struct rb_why *why)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    const struct rb_flight *flight;
    int err = rb_flight_backward(pilot, microbatch, &flight, why);

    if (err)
        return err;
    if (stage->mine + 1 == stage->stages)
        return say_results(attempt, microbatch, &flight->runner, why);
    rb_vote_microbatch(&attempt->shape, attempt->step->model->record, microbatch, 0, 0, 0);
    rb_fault("worker.computed");
    return 0;
}

static int run_lap(const struct rb_step *step, const Rb__Order *order, struct rb_why *why)
{
    struct rb_lap_run run = {
        .model = step->model,
        .configuration = step->configuration,
        .stop = step->stop,
        .watch = step->watch,
        .owner = step->owner,
    };

    return (order->kind == RB__ORDER__KIND__FORWARD ? rb_lap_forward : rb_lap_backward)(&run, order,
                                                                                        why);
}

/* Orders of a stage: the half of a microbatch. */
static int run_stage(struct attempt *attempt, const Rb__Order *order, struct rb_why *why)
{
    struct rb_pilot pilot = {
        .model = attempt->step->model,
        .configuration = attempt->step->configuration,
        .weights = attempt->step->model->state.w,
        .attempt = attempt->number,
        .stop = attempt->step->stop,
        .add = add_of_stage,
        .owner = attempt,
    };

    if (attempt->laps)
        return run_lap(attempt->step, order, why);
    return (order->kind == RB__ORDER__KIND__FORWARD ? forward : backward)(attempt, &pilot,
                                                                          order->argument, why);
}

/* ---- Parts of the filters --------------------------------------------------------------------*/

/* The runner of this part, made ready when it is first needed. */
static int part_runner(struct rb_model *model, const struct rb_stage *stage, uint32_t microbatch,
                       const struct rb_runner **ret_runner, struct rb_why *why)
{
    uint32_t p = microbatch + 1 == model->microbatches ? stage->last_program : stage->program;
    struct rb_runner *runner = &model->runners[p];

    *ret_runner = runner;
    if (runner->program)
        return 0;
    runner->message = model->message->programs[p];
    return rb_runner_prepare(model, runner, model->state.w, model->arena, model->train, why);
}

/* This rank's filters of a microbatch, there and back, with those of others in between. */
static int run_part(struct attempt *attempt, uint32_t microbatch, const struct rb_runner *runner,
                    struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    struct rb_key key = {model->message->seed, (uint64_t)model->state.level, microbatch};
    struct rb_exchange exchange = {
        .stage = attempt->step->configuration->stage,
        .coll = attempt->step->configuration->coll,
        .device = model->device,
        .message = runner->message,
        .program = runner->program,
        .tag = rb_tag(RB_TAG_STAGE, model->state.level, attempt->number, microbatch),
        .microbatch = microbatch,
    };
    int err = 0;

    rb_program_start(runner->program);
    for (size_t i = 0; !err && i < runner->message->n_instructions; i++) {
        if (atomic_load_explicit(attempt->step->stop, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "stopped");
        if (rb_program_exchanges(runner->message->instructions[i])) {
            err = rb_exchange_run(&exchange, i, why);
            continue;
        }
        rb_program_step(runner->program, (int)i, &key);
        after_instruction((int)i, attempt);
        err = rb_coll_nudge(exchange.coll, why);
    }
    return err;
}

static int compute_part(struct attempt *attempt, uint32_t microbatch, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    const struct rb_stage *stage = attempt->step->configuration->stage;
    struct rb_batch batch = rb_batch_of(model->message->global_batch, model->message->micro_batch,
                                        model->state.level, microbatch);
    int err = rb_configuration_settle(attempt->step->configuration, why);

    if (!err)
        err = part_runner(model, stage, microbatch, &attempt->runner, why);
    if (err)
        return err;
    attempt->microbatch = microbatch;
    attempt->next = 0;
    rb_batch_fill(&attempt->runner->slots, model->train, model->message->seed, &batch);
    err = run_part(attempt, microbatch, attempt->runner, why);
    if (err)
        return err;
    if (stage->mine + 1 == stage->stages)
        return say_results(attempt, microbatch, attempt->runner, why);
    rb_vote_microbatch(&attempt->shape, model->record, microbatch, 0, 0, 0);
    rb_fault("worker.computed");
    return 0;
}

/* ---- Sums -----------------------------------------------------------------------------------*/

/* To whoever holds them: each rank's `reduced` is whole in the blocks that it holds. */
static int sum_shards(struct attempt *attempt, uint64_t tag, const Rb__Bucket *bucket,
                      struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;
    RB_CLEANUP(rb_freep)
    struct rb_coll_range *ranges =
        rb_alloc(rb_placement_most(&configuration->placement) * sizeof *ranges);
    size_t n = rb_placement_ranges(&configuration->placement, (size_t)bucket->first,
                                   (size_t)bucket->count, ranges);

    if (!configuration->stage)
        return rb_coll_sum_ranges(configuration->coll, tag, model->local, model->reduced, ranges, n,
                                  why);
    RB_CLEANUP(rb_freep) struct rb_coll_range *cut = NULL;

    n = rb_stage_ranges(configuration->stage, model->message, ranges, n, &cut);
    return rb_coll_sum_ranges(configuration->coll, tag, model->local, model->reduced, cut, n, why);
}

static bool is_over(void *context)
{
    const struct rb_step *step = context;

    return atomic_load(step->stop) || rb_coll_over(step->configuration->coll);
}

/* Through the host, to everyone or to whoever holds them. */
static int sum_by_links(struct attempt *attempt, uint64_t tag, const Rb__Bucket *range,
                        struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;
    int err;

    rb_device_pull(model->device, model->local + range->first,
                   (size_t)range->count * sizeof *model->local);
    err = rb_device_check(model->device, why);
    if (!err && configuration->placement.sharded)
        err = sum_shards(attempt, tag, range, why);
    else if (!err)
        err = rb_coll_sum(configuration->coll, tag, model->local + range->first,
                          model->reduced + range->first, (size_t)range->count, why);
    if (!err)
        rb_device_push(model->device, model->reduced + range->first,
                       (size_t)range->count * sizeof *model->reduced);
    return err;
}

static int reduce(struct attempt *attempt, uint32_t bucket, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    const struct rb_configuration *configuration = attempt->step->configuration;
    const Rb__Bucket *range = model->message->buckets[bucket];
    uint64_t tag = rb_tag(RB_TAG_REDUCE, model->state.level, attempt->number, bucket);
    int err = rb_configuration_settle(configuration, why);

    if (err)
        return err;
    if (attempt->laps)
        return rb_lap_share(model, configuration, bucket, why);
    rb_fault("worker.reduce");
    clear_fresh(model);
    /* A rank alone has complete sums: see take_alone. */
    if (configuration->circle)
        err = rb_circle_sum(configuration->circle, model->local + range->first,
                            model->reduced + range->first, (size_t)range->count, is_over,
                            (void *)(uintptr_t)attempt->step, why);
    else if (configuration->placement.sharded || configuration->size > 1)
        err = sum_by_links(attempt, tag, range, why);
    rb_fault("worker.reduced");
    return err;
}

/* A rank alone has nothing to keep its local sums for. */
static void take_alone(struct rb_model *model)
{
    int32_t *sums = model->local;

    model->local = model->reduced;
    model->reduced = sums;
}

/* The squares that all need for the norm: what this rank says of its blocks. */
static void say_squares(struct attempt *attempt)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;

    if (!attempt->shape.blocks)
        return;
    rb_update_squares(model, configuration->placement.primary, configuration->rank);
    rb_vote_squares(&attempt->shape, model->record, model->squares);
}

static void hear_squares(struct attempt *attempt, const void *records)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;

    for (size_t b = 0; b < attempt->shape.blocks; b++)
        model->squares[b] =
            rb_vote_square(&attempt->shape, records, configuration->placement.primary[b], b);
}

/* All come to the same, from the same records. */
static void judge_stealing(struct attempt *attempt, const void *records, uint64_t voted_ns,
                           struct rb_vote_decision *decision)
{
    struct rb_steal *steal = attempt->step->configuration->steal;

    if (!steal)
        return;
    for (uint32_t r = 0; r < steal->ranks; r++)
        steal->paces[r] = rb_vote_pace(&attempt->shape, records, r);
    decision->moved = rb_vote_moved(&attempt->shape, records, steal->owners);
    steal->judged_ns = voted_ns;
    rb_steal_judge(steal, decision->times.mean, decision->times.most, decision->moved);
}

static int vote(struct attempt *attempt, struct rb_vote_decision *ret_decision, struct rb_why *why)
{
    const struct rb_step *step = attempt->step;
    struct rb_model *model = step->model;
    size_t bytes = rb_vote_bytes(&attempt->shape);
    RB_CLEANUP(rb_freep) uint8_t *records = rb_alloc(bytes * step->configuration->size);
    struct rb_vote_ready ready = {0};
    uint64_t voted_ns;
    int err = rb_configuration_settle(step->configuration, why);

    if (!err && attempt->laps)
        err = rb_lap_report(model, step->configuration, why);
    if (err)
        return err;
    if (step->configuration->size == 1)
        take_alone(model);
    rb_device_pull(model->device, model->largest,
                   attempt->shape.variables * sizeof *model->largest);
    rb_device_pull(model->device, model->overflow,
                   attempt->shape.variables * sizeof *model->overflow);
    for (uint32_t v = 0; v < attempt->shape.variables; v++)
        rb_vote_variable(&attempt->shape, model->record, v, model->largest[v], model->overflow[v]);
    say_squares(attempt);
    err = rb_device_check(model->device, why);
    if (err)
        return err;
    model->pending = (struct rb_pending){model->state.level, attempt->number,
                                         attempt->laps ? model->lap->steps : 0};
    rb_pace_note(&model->pace, attempt->computed_ns, attempt->computed);
    rb_vote_computed(model->record, attempt->computed_ns, rb_pace_us(&model->pace));
    step->ready(&ready, step->owner);
    rb_vote_finish(model->record, rb_state_agreement(&model->state), &ready);
    rb_fault("worker.vote");
    err = rb_coll_gather(step->configuration->coll,
                         rb_tag(RB_TAG_VOTE, model->state.level, attempt->number, 0), model->record,
                         records, bytes, why);
    if (err)
        return err;
    voted_ns = rb_clock_ns();
    rb_fault("worker.voted");
    err = rb_vote_decide(&attempt->shape, records, step->configuration->size, model->state.level,
                         attempt->number, model->exponents, model->limits, ret_decision,
                         model->largest, why);
    if (!err)
        judge_stealing(attempt, records, voted_ns, ret_decision);
    if (!err && attempt->laps)
        ret_decision->verdict = RB_VOTE_COMMIT; /* each stage has decided, step by step */
    if (!err && ret_decision->verdict == RB_VOTE_COMMIT)
        hear_squares(attempt, records);
    for (uint32_t r = 0; !err && r < step->configuration->size; r++) {
        rb_vote_takes(&attempt->shape, records, r, &attempt->said[r]);
        attempt->stays[r] = ret_decision->flip && rb_vote_stays(&attempt->shape, records, r);
    }
    return err;
}

static void update(const struct rb_step *step, struct rb_step_result *result)
{
    struct rb_update done = {0};

    step->changing(step->owner);
    if (rb_lap_runs(step->model, step->configuration)) {
        rb_lap_commit(step->model);
        result->lap = result->committed = true;
        return;
    }
    if (result->decision.verdict == RB_VOTE_SKIP)
        done = rb_update_skip(step->model, &result->decision);
    else
        done = rb_update_commit(step->model, &result->decision,
                                step->configuration->placement.sharded);
    result->grad_norm = done.grad_norm;
    result->lr = done.lr;
    result->committed = true;
}

/* Does each rank get by with the weights that its stage reads?  All come to the same. */
static bool reads_part(const struct attempt *attempt, const struct rb_step_result *result)
{
    const struct rb_step *step = attempt->step;
    bool takes = false;

    for (uint32_t r = 0; r < step->configuration->size; r++)
        takes |= attempt->said[r].takes != 0;
    return step->configuration->stage && !takes && !result->decision.flip &&
           result->decision.collector < 0 && !step->reads_all(step->owner);
}

/* Weights of the blocks that are held elsewhere. */
static int gather(struct attempt *attempt, const struct rb_step_result *result, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_placement *placement = &configuration->placement;
    struct rb_state *state = &attempt->step->model->state;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(rb_placement_gifts(placement) * sizeof *moves);
    RB_CLEANUP(rb_freep) struct rb_coll_move *cut = NULL;
    size_t n = rb_placement_spread(placement, state->w, moves);
    bool part = reads_part(attempt, result);
    int err;

    rb_fault("worker.gather");
    if (part)
        n = rb_stage_moves(configuration->stage, attempt->step->model->message, state->w, moves, n,
                           &cut);
    err = rb_carry(state->device, configuration->coll, rb_tag(RB_TAG_GATHER, state->level, 0, 0),
                   part ? cut : moves, n, why);
    if (!err)
        state->torn = part;
    rb_fault("worker.gathered");
    return err;
}

/* Who leaves gives what only leavers have to those who stay: where it was not taken before. */
static int hand_over(struct attempt *attempt, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_placement *placement = &configuration->placement;
    struct rb_state *state = &attempt->step->model->state;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(placement->n_shards * RB_STATE_PARTS * sizeof *moves);
    size_t n = 0;
    int err;

    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];
        int heir = rb_placement_heir(placement, attempt->stays, i);

        if (heir >= 0)
            n += rb_placement_move(state, shard->first, shard->count, shard->ranks[0],
                                   (uint32_t)heir, moves + n);
    }
    err = rb_carry(state->device, configuration->coll, rb_tag(RB_TAG_GATHER, state->level, 1, 0),
                   moves, n, why);
    pthread_mutex_lock(&state->window->lock);
    for (size_t i = 0; !err && i < placement->n_shards; i++)
        if (rb_placement_heir(placement, attempt->stays, i) == (int)configuration->rank)
            memset(state->held + placement->shards[i].first_block, RB_HELD_TAKEN,
                   placement->shards[i].n_blocks);
    pthread_mutex_unlock(&state->window->lock);
    return err;
}

static int take(struct attempt *attempt, struct rb_step_result *result, struct rb_why *why)
{
    uint64_t started = rb_clock_ns();
    int err = rb_taking_run(attempt->step->model, attempt->step->configuration, attempt->said,
                            &result->taken, why);

    result->taking_ns = rb_clock_ns() - started;
    return err;
}

/* ---- Attempts -------------------------------------------------------------------------------*/

static bool ordered(const Rb__RankPlan *orders, uint32_t microbatch)
{
    for (size_t i = 0; i < orders->n_orders; i++)
        if (orders->orders[i]->kind == RB__ORDER__KIND__COMPUTE &&
            orders->orders[i]->argument == microbatch)
            return true;
    return false;
}

/* How many microbatches of the sums in the model can be taken over as they are? */
static uint32_t count_kept(const struct rb_step *step)
{
    const struct rb_model *model = step->model;
    uint32_t kept = 0;

    if (model->kept < 0 || model->kept != model->state.level || step->configuration->stage)
        return 0;
    for (size_t v = 0; v < model->state.variables; v++)
        if (model->exponents[v].exponent != model->state.exponents[v].exponent)
            return 0;
    for (uint32_t m = 0; m < model->microbatches; m++) {
        if (!rb_vote_holds(model->record, m))
            continue;
        if (!ordered(step->configuration->orders, m))
            return 0; /* another rank counts it now: sums cannot be taken apart */
        kept++;
    }
    return kept;
}

static int start_attempt(struct attempt *attempt, uint32_t kept, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    size_t variables = model->message->n_variables;

    model->kept = model->pending.level = -1;
    attempt->computed_ns = attempt->computed = 0;
    if (attempt->step->configuration->stage)
        rb_flights_land(model);
    else
        rb_flights_free(model); /* their memory may be wanted elsewhere */
    if (kept) {
        rb_vote_again(model->record, attempt->step->configuration->rank, model->state.level,
                      attempt->number);
        return 0;
    }

    memset(model->fresh, true, variables * sizeof *model->fresh);
    rb_device_discard(model->device, model->largest, variables * sizeof *model->largest);
    rb_device_discard(model->device, model->overflow, variables * sizeof *model->overflow);
    if (attempt->step->configuration->stage && attempt->step->configuration->stage->split)
        clear_all(model);
    rb_vote_start(&attempt->shape, model->record, attempt->step->configuration->rank,
                  model->state.level, attempt->number);
    return attempt->laps ? rb_lap_begin(model, attempt->step->configuration, why) : 0;
}

/* All orders up to the update; or to the vote, where that says redo. */
static int run_attempt(struct attempt *attempt, struct rb_step_result *result, struct rb_why *why)
{
    const Rb__RankPlan *orders = attempt->step->configuration->orders;
    const struct rb_steal *steal = attempt->step->configuration->steal;
    bool shared = steal && steal->on; /* before the vote, which judges anew */
    int err = shared ? compute_shared(attempt, why) : 0;

    for (size_t i = 0; !err && i < orders->n_orders; i++) {
        const Rb__Order *order = orders->orders[i];

        if (atomic_load(attempt->step->stop) && !result->committed &&
            order->kind != RB__ORDER__KIND__UPDATE)
            return rb_why_set(why, RB_ECANCELED, "stopped");
        switch (order->kind) {
        case RB__ORDER__KIND__COMPUTE:
            if (attempt->step->configuration->stage)
                err = compute_part(attempt, order->argument, why);
            else if (!shared)
                err = compute(order->argument, attempt, why);
            break;
        case RB__ORDER__KIND__FORWARD:
        case RB__ORDER__KIND__BACKWARD:
            err = run_stage(attempt, order, why);
            break;
        case RB__ORDER__KIND__REDUCE:
            err = reduce(attempt, order->argument, why);
            break;
        case RB__ORDER__KIND__VOTE:
            err = vote(attempt, &result->decision, why);
            if (!err && result->decision.verdict == RB_VOTE_REDO)
                return 0;
            break;
        case RB__ORDER__KIND__UPDATE:
            update(attempt->step, result);
            err = rb_device_check(attempt->step->model->device, why);
            break;
        default:
            err = gather(attempt, result, why);
            if (!err)
                err = take(attempt, result, why);
            if (!err && result->decision.flip)
                err = hand_over(attempt, why);
        }
    }
    return err;
}

int rb_step_run(const struct rb_step *step, struct rb_step_result *ret_result, struct rb_why *why)
{
    struct rb_model *model = step->model;
    const struct rb_stage *stage = step->configuration->stage;
    struct attempt attempt = {
        .step = step,
        .laps = rb_lap_runs(model, step->configuration),
        .shape = {model->microbatches, (uint32_t)model->message->n_variables,
                  step->configuration->placement.sharded ? model->message->n_blocks : 0,
                  stage ? stage->stages : 0, stage ? stage->of_rank : NULL},
    };
    RB_CLEANUP(rb_freep) bool *stays = rb_alloc(step->configuration->size * sizeof *stays);
    RB_CLEANUP(rb_freep)
    struct rb_vote_ready *said = rb_alloc(step->configuration->size * sizeof *said);
    struct rb_step_result result = {.kept = count_kept(step)};
    int err = 0;

    attempt.stays = stays;
    attempt.said = said;
    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    if (attempt.laps) /* what came of it is not in the vote */
        attempt.shape.microbatches = attempt.shape.variables = attempt.shape.blocks = 0;
    for (uint32_t kept = result.kept; !err; kept = 0) {
        err = start_attempt(&attempt, kept, why);
        if (!err)
            err = run_attempt(&attempt, &result, why);
        if (err || result.decision.verdict != RB_VOTE_REDO)
            break;
        if (++attempt.number == ATTEMPTS_LIMIT)
            err = rb_why_set(why, RB_EINTERNAL, "%d attempts were voted down", ATTEMPTS_LIMIT);
        result.redone++;
        for (size_t v = 0; v < model->message->n_variables; v++)
            rb_exponent_redo(&model->exponents[v], model->largest[v], model->limits[v]);
    }
    if (err == RB_EPEER && !result.committed && !stage)
        model->kept = model->state.level; /* no microbatch is in them in part */
    *ret_result = result;
    return err ? rb_why_add(why, err, "step %lld",
                            (long long)model->state.level + !result.committed)
               : 0;
}
