/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's filters of microbatches, there and back, with those of others in between.
 *
 * All ranks compute as many at once: else one would wait for what another only makes behind what it
 * waits for itself. */
#include "worker/step/attempt.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/lanes.h"
#include "worker/stages/exchange.h"
#include "worker/step/together.h"
#include "worker/tag.h"

void rb_attempt_end_part(struct rb_attempt *attempt, uint32_t microbatch,
                         const struct rb_runner *runner)
{
    const struct rb_stage *stage = attempt->step->configuration->stage;

    if (stage->mine + 1 == stage->stages) {
        rb_attempt_keep(attempt, microbatch, runner);
        return;
    }
    rb_vote_microbatch(&attempt->shape, attempt->step->model->record, microbatch, 0, 0, 0);
    rb_fault("worker.computed");
}

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

/* The fewest that any of them has. */
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
    configuration->lanes = least ? least : 1;
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

static void find_exchange(const struct rb_attempt *attempt, const struct rb_together *together,
                          int e, struct rb_exchange *ret_exchange)
{
    struct rb_model *model = attempt->step->model;
    uint32_t microbatch = together->microbatches[e];

    *ret_exchange = (struct rb_exchange){
        .stage = attempt->step->configuration->stage,
        .coll = attempt->step->configuration->coll,
        .device = model->device,
        .message = together->runners[e]->message,
        .program = together->programs[e],
        .tag = rb_tag(RB_TAG_STAGE, model->state.level, attempt->number, microbatch),
        .microbatch = microbatch,
    };
}

/* Microbatches on their way through a program. */
struct way {
    const Rb__Program *message;
    struct rb_exchange exchanges[RB_KERNEL_EACH]; /* by microbatch */
    int n;
    int *ready;  /* rb_exchange_ready */
    size_t next; /* to give */
};

/* All that can be given behind instruction `i`. */
static int give(struct way *way, int i, struct rb_why *why)
{
    int err = 0;

    for (; !err && way->next < way->message->n_instructions; way->next++) {
        if (!rb_program_exchanges(way->message->instructions[way->next]))
            continue;
        if (way->ready[way->next] > i)
            break;
        for (int e = 0; !err && e < way->n; e++)
            err = rb_exchange_give(&way->exchanges[e], way->next, why);
    }
    return err;
}

static int run_one(struct way *way, struct rb_together *together, size_t i, struct rb_why *why)
{
    int err = 0;

    if (rb_program_exchanges(way->message->instructions[i])) {
        for (int e = 0; !err && e < way->n; e++)
            err = rb_exchange_take(&way->exchanges[e], i, why);
        return err;
    }
    rb_program_step_each(together->programs, together->n, (int)i, together->keys);
    rb_together_add((int)i, together);
    return 0;
}

static int run(struct rb_attempt *attempt, struct rb_together *together, struct rb_why *why)
{
    const Rb__Program *message = together->runners[0]->message;
    RB_CLEANUP(rb_freep) int *ready = rb_alloc((message->n_instructions + 1) * sizeof *ready);
    struct way way = {.message = message, .n = together->n, .ready = ready};
    int err;

    for (int e = 0; e < together->n; e++)
        find_exchange(attempt, together, e, &way.exchanges[e]);
    rb_exchange_ready(message, ready);
    rb_program_start_each(together->programs, together->n);
    err = give(&way, -1, why);
    for (size_t i = 0; !err && i < message->n_instructions; i++) {
        if (atomic_load_explicit(attempt->step->stop, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "stopped");
        err = run_one(&way, together, i, why);
        err = err ? err : give(&way, (int)i, why);
        err = err ? err : rb_coll_nudge(way.exchanges[0].coll, why);
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
    uint32_t n = rb_attempt_next(attempt, at, odd_last, configuration->lanes, microbatches);
    int err = rb_configuration_settle(configuration, why);

    if (err || !n)
        return err;
    for (uint32_t e = 0; e < n; e++) {
        bool odd = odd_last && microbatches[e] + 1 == model->microbatches;

        rb_together_take(&together,
                         odd ? &model->runners[stage->last_program] : &model->lanes[e].runner,
                         microbatches[e]);
    }
    err = run(attempt, &together, why);
    for (int e = 0; !err && e < together.n; e++)
        rb_attempt_end_part(attempt, together.microbatches[e], together.runners[e]);
    return err;
}
