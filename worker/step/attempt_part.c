/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's filters of microbatches, forward and backward, with exchanges between the parts.
 *
 * All ranks compute the same number of microbatches at once: else a rank would wait for what
 * another makes only after something that it waits for itself. */
#include "worker/step/attempt.h"

#include "base/arena.h"
#include "worker/lanes.h"
#include "worker/stages/exchange.h"
#include "worker/step/together.h"
#include "worker/tag.h"

enum { LOOK_NS = 250000 }; /* parts wait for each other ten times a step */

/* ---- Before the first ------------------------------------------------------------------------*/

/* The runner of a program, made ready when it is first needed. */
static int prepare(struct rb_model *model, uint32_t program, struct rb_why *why)
{
    struct rb_runner *runner = &model->runners[program];

    if (runner->program)
        return 0;
    runner->message = model->message->programs[program];
    return rb_runner_prepare(model, runner, model->state.w, model->arena, model->train, why);
}

/* All use the fewest lanes that any rank has. */
static int agree_lanes(struct rb_configuration *configuration, uint32_t mine, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint32_t *all = rb_alloc(configuration->size * sizeof *all);
    uint32_t least = mine;
    int err = rb_configuration_settle(configuration, why);

    if (!err)
        err = rb_coll_gather(configuration->coll, rb_tag(RB_TAG_LANES, configuration->number, 0, 0),
                             &mine, all, sizeof mine, why);
    if (err)
        return err;
    for (uint32_t r = 0; r < configuration->size; r++)
        least = all[r] < least ? all[r] : least;
    configuration->lanes = least;
    rb_coll_look_for(configuration->coll, LOOK_NS);
    return 0;
}

int rb_attempt_part_begin(struct rb_attempt *attempt, struct rb_why *why)
{
    struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_stage *stage = configuration->stage;
    struct rb_model *model = attempt->step->model;
    int err = prepare(model, stage->program, why);

    err = err ? err : prepare(model, stage->last_program, why);
    if (!err)
        err = rb_lanes_open(model, &model->runners[stage->program],
                            &model->runners[stage->last_program], why);
    if (!err && !configuration->lanes)
        err = agree_lanes(configuration, model->n_lanes, why);
    return err;
}

/* ---- Microbatches ----------------------------------------------------------------------------*/

static void open_exchange(const struct rb_attempt *attempt, const struct rb_together *together,
                          struct rb_exchange *ret_exchange)
{
    const struct rb_model *model = attempt->step->model;
    const struct rb_stage *stage = attempt->step->configuration->stage;
    bool last = together->runners[0] == &model->runners[stage->last_program];

    *ret_exchange = (struct rb_exchange){
        .stage = stage,
        .coll = attempt->step->configuration->coll,
        .device = model->device,
        .message = together->runners[0]->message,
        .ready = last ? stage->last_ready : stage->ready,
        .n = together->n,
    };
    for (int e = 0; e < together->n; e++) {
        uint32_t microbatch = together->microbatches[e];

        ret_exchange->of[e].program = together->programs[e];
        ret_exchange->of[e].tag =
            rb_tag(RB_TAG_STAGE, model->state.level, attempt->number, microbatch);
        ret_exchange->of[e].microbatch = microbatch;
    }
}

static int run_one(struct rb_exchange *exchange, struct rb_together *together, int i,
                   struct rb_why *why)
{
    if (rb_program_exchanges(exchange->message->instructions[i]))
        return rb_exchange_take(exchange, i, why);
    rb_program_step_each(together->programs, together->n, i, together->keys);
    rb_together_add(i, together);
    return 0;
}

static int run(struct rb_attempt *attempt, struct rb_together *together, struct rb_why *why)
{
    size_t n = together->runners[0]->message->n_instructions;
    struct rb_exchange exchange;
    int err;

    open_exchange(attempt, together, &exchange);
    rb_program_start_each(together->programs, together->n);
    err = rb_exchange_give(&exchange, -1, why);
    for (int i = 0; !err && i < (int)n; i++) {
        if (atomic_load_explicit(attempt->step->stop, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "stopped");
        err = run_one(&exchange, together, i, why);
        err = err ? err : rb_exchange_give(&exchange, i, why);
        err = err ? err : rb_coll_nudge(exchange.coll, why);
    }
    return err;
}

int rb_attempt_part(struct rb_attempt *attempt, size_t *at, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_stage *stage = configuration->stage;
    struct rb_model *model = attempt->step->model;
    struct rb_together together = {.model = model};
    bool odd_last = stage->last_program != stage->program;
    uint32_t microbatches[RB_KERNEL_EACH];
    uint32_t n = rb_attempt_group(attempt, at, odd_last, configuration->lanes, microbatches);
    int err = rb_configuration_settle(configuration, why);

    if (err || !n)
        return err;
    for (uint32_t e = 0; e < n; e++) {
        bool odd = odd_last && microbatches[e] + 1 == model->microbatches;

        rb_together_enter(&together,
                          odd ? &model->runners[stage->last_program] : &model->lanes[e].runner,
                          microbatches[e]);
    }
    err = run(attempt, &together, why);
    for (int e = 0; !err && e < together.n; e++)
        rb_attempt_end_part(attempt, together.microbatches[e], together.runners[e]);
    return err;
}
