/* SPDX-License-Identifier: Apache-2.0 */
/* A microbatch of this rank: all of it, or its stage. */
#include "worker/step/attempt.h"

#include "worker/lanes.h"
#include "worker/stages/flight.h"
#include "worker/stages/lap.h"
#include "worker/step/stealing.h"
#include "worker/step/together.h"
#include "worker/tag.h"

/* ---- All of it ------------------------------------------------------------------------------*/

static void add_contribution(struct rb_attempt *attempt, const Rb__Contribution *contribution)
{
    struct rb_model *model = attempt->step->model;
    struct rb_fixed into = rb_model_summand(model, contribution, attempt->microbatch);

    model->fresh[contribution->variable] = false;
    rb_program_add(attempt->runner->program, (int)contribution->tensor, &into);
}

/* After each instruction: add what is ready at once, as its memory may be used again. */
static void after_instruction(int instruction, void *context)
{
    struct rb_attempt *attempt = context;
    const struct rb_runner *runner = attempt->runner;

    while (attempt->next < runner->message->n_contributions &&
           runner->contributions[attempt->next]->after <= (uint32_t)instruction + 1)
        add_contribution(attempt, runner->contributions[attempt->next++]);
}

int rb_attempt_compute(uint32_t microbatch, void *owner, struct rb_why *why)
{
    struct rb_attempt *attempt = owner;
    struct rb_model *model = attempt->step->model;
    const Rb__Model *message = model->message;
    struct rb_key key = {message->seed, (uint64_t)model->state.level, microbatch};
    struct rb_batch batch =
        rb_batch_of(message->global_batch, message->micro_batch, model->state.level, microbatch);
    const struct rb_runner *runner = rb_model_runner(model, microbatch);
    int err;

    if (rb_vote_holds(model->record, microbatch))
        return 0; /* kept from the attempt before */
    /* On a GPU only the first fill takes time, whatever the rank's share: the others run beside the
     * computing. */
    if (!rb_device_tapes(model->device))
        rb_attempt_begin(attempt);
    attempt->runner = runner;
    attempt->microbatch = microbatch;
    attempt->next = 0;
    rb_batch_fill(&runner->slots, model->train, message->seed, &batch);
    rb_attempt_begin(attempt);
    err = (attempt->ran == runner ? rb_program_again : rb_program_run)(
        runner->program, &key, attempt->step->stop, after_instruction, attempt);
    if (err)
        return rb_why_set(why, err, "stopped");
    attempt->ran = runner;
    rb_attempt_keep(attempt, microbatch, runner);
    attempt->computed++;
    return 0;
}

/* ---- Several at once (worker/lanes.h) -------------------------------------------------------*/

static int compute_together(struct rb_attempt *attempt, const uint32_t *microbatches, uint32_t n,
                            struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    struct rb_together together = {.model = model};
    int err;

    rb_attempt_begin(attempt);
    for (uint32_t e = 0; e < n; e++)
        rb_together_enter(&together, &model->lanes[e].runner, microbatches[e]);
    err = rb_program_run_each(together.programs, together.n, together.keys, attempt->step->stop,
                              rb_together_add, &together);
    if (err)
        return rb_why_set(why, err, "stopped");
    for (uint32_t e = 0; e < n; e++)
        rb_attempt_keep(attempt, microbatches[e], &model->lanes[e].runner);
    attempt->computed += n;
    return 0;
}

uint32_t rb_attempt_group(const struct rb_attempt *attempt, size_t *at, bool odd_last,
                          uint32_t most, uint32_t *ret_microbatches)
{
    const Rb__RankPlan *orders = attempt->step->configuration->orders;
    const struct rb_model *model = attempt->step->model;
    bool odd = false; /* the ones found run the last one's program */
    uint32_t n = 0;

    for (; n < most && *at < orders->n_orders; ++*at) {
        const Rb__Order *order = orders->orders[*at];
        bool last = odd_last && order->argument + 1 == model->microbatches;

        if (order->kind != RB__ORDER__KIND__COMPUTE || (n && last != odd))
            break;
        if (rb_vote_holds(model->record, order->argument))
            continue;
        odd = last;
        ret_microbatches[n++] = order->argument;
    }
    --*at;
    return n;
}

int rb_attempt_planned(struct rb_attempt *attempt, size_t *at, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    uint32_t microbatches[RB_KERNEL_EACH];
    uint32_t n = rb_attempt_group(attempt, at, model->last_runner != model->runner, model->n_lanes,
                                  microbatches);

    if (n > 1)
        return compute_together(attempt, microbatches, n, why);
    return n ? rb_attempt_compute(microbatches[0], attempt, why) : 0;
}

/* A microbatch that is queued cannot be given away any more, so none is queued before the last one
 * is done. */
static int compute_shared(uint32_t microbatch, void *owner, struct rb_why *why)
{
    int err = rb_attempt_compute(microbatch, owner, why);

    return err ? err : rb_attempt_say(owner, why);
}

/* Not only what is planned for this rank: see worker/step/steal.h. */
int rb_attempt_shared(struct rb_attempt *attempt, struct rb_why *why)
{
    struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_stealing stealing = {
        .steal = configuration->steal,
        .coll = configuration->coll,
        .tag = rb_tag(RB_TAG_STEAL, attempt->step->model->state.level, attempt->number, 0),
        .stop = attempt->step->stop,
        .compute = compute_shared,
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
    struct rb_attempt *attempt = owner;

    attempt->runner = &flight->runner;
    attempt->microbatch = flight->microbatch;
    add_contribution(attempt, contribution);
}

static int forward(struct rb_attempt *attempt, const struct rb_pilot *pilot, uint32_t microbatch,
                   struct rb_why *why)
{
    int err = rb_configuration_settle(attempt->step->configuration, why);

    return err ? err : rb_flight_forward(pilot, microbatch, why);
}

static int backward(struct rb_attempt *attempt, const struct rb_pilot *pilot, uint32_t microbatch,
                    struct rb_why *why)
{
    const struct rb_flight *flight;
    int err = rb_flight_backward(pilot, microbatch, &flight, why);

    if (err)
        return err;
    rb_attempt_end_part(attempt, microbatch, &flight->runner);
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

/* An order of a stage: one half of a microbatch. */
int rb_attempt_stage(struct rb_attempt *attempt, const Rb__Order *order, struct rb_why *why)
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
