/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/stage_inside.h"

#include "base/arena.h"
#include "worker/batch.h"
#include "worker/stages/exchange.h"

#include <stdlib.h>

enum { MOST_STAGES = 64 };

static int find_program(const struct rb_stage *stage, const Rb__Model *model, uint32_t part,
                        uint32_t batch, uint32_t *ret_program, struct rb_why *why)
{
    for (uint32_t p = 0; p < model->n_programs; p++)
        if (model->programs[p]->train && model->programs[p]->parts == stage->stages &&
            model->programs[p]->part == part && model->programs[p]->batch == batch) {
            *ret_program = p;
            return 0;
        }
    return rb_why_set(why, RB_EINVAL, "plan: the model has no part %u of %u for %u samples", part,
                      stage->stages, batch);
}

static int find_programs(struct rb_stage *stage, const Rb__Model *model, struct rb_why *why)
{
    uint32_t last =
        rb_batch_of(model->global_batch, model->micro_batch, 0, stage->microbatches - 1).samples;
    int err = find_program(stage, model, stage->mine,
                           rb_batch_of(model->global_batch, model->micro_batch, 0, 0).samples,
                           &stage->program, why);

    return err ? err : find_program(stage, model, stage->mine, last, &stage->last_program, why);
}

/* Pieces in one of the two programs are enough: both add to the same sums. */
static void find_pieced(struct rb_stage *stage, const Rb__Model *model)
{
    const uint32_t programs[] = {stage->program, stage->last_program};

    stage->pieced = rb_alloc(model->n_variables * sizeof *stage->pieced + 1);
    for (size_t p = 0; p < RB_COUNT(programs); p++) {
        const Rb__Program *program = model->programs[programs[p]];
        RB_CLEANUP(rb_freep) bool *seen = rb_alloc(model->n_variables * sizeof *seen + 1);

        for (size_t c = 0; c < program->n_contributions; c++) {
            uint32_t v = program->contributions[c]->variable;

            stage->pieced[v] |= seen[v];
            seen[v] = true;
        }
    }
}

static int *find_ready(const Rb__Program *program)
{
    int *ready = rb_alloc((program->n_instructions + 1) * sizeof *ready);

    rb_exchange_ready(program, ready);
    return ready;
}

int rb_stage_read(const Rb__Plan *plan, const Rb__Model *model, uint32_t rank,
                  struct rb_stage **ret_stage, struct rb_why *why)
{
    struct rb_stage *stage;
    int err;

    *ret_stage = NULL;
    if (!plan->stages)
        return 0;
    if (plan->stages > MOST_STAGES || rank >= plan->n_ranks)
        return rb_why_set(why, RB_EINVAL, "a pipeline of %u stages: at most %d are possible",
                          plan->stages, MOST_STAGES);
    if (plan->split && model->asynchronous)
        return rb_why_set(why, RB_EINVAL, "parts of the filters do not run by themselves");
    stage = rb_alloc(sizeof *stage);
    stage->stages = plan->stages;
    stage->ranks = (uint32_t)plan->n_ranks;
    stage->microbatches = rb_batch_count(model->global_batch, model->micro_batch) *
                          (model->asynchronous ? model->asynchronous->lap : 1);
    stage->mine = plan->ranks[rank]->stage;
    stage->split = plan->split;
    stage->laps = model->asynchronous;
    err = rb_stage_read_orders(stage, plan, why);
    if (!err)
        err = stage->split ? find_programs(stage, model, why)
                           : rb_stage_read_courses(stage, plan, model, why);
    if (!err && stage->split) {
        find_pieced(stage, model);
        stage->ready = find_ready(model->programs[stage->program]);
        stage->last_ready = find_ready(model->programs[stage->last_program]);
    }
    if (!err)
        rb_stage_find_blocks(stage, plan, model);
    if (!err && model->asynchronous)
        err = rb_stage_separate(stage, model, why);
    if (err) {
        rb_stage_free(stage);
        return err;
    }
    *ret_stage = stage;
    return 0;
}

void rb_stage_free(struct rb_stage *stage)
{
    if (!stage)
        return;
    for (size_t p = 0; stage->parts && p < stage->n_parts; p++) {
        struct rb_part *part = &stage->parts[p];

        free(part->runs);
        free(part->adds);
        free(part->in);
        free(part->out);
        free(part->in_bytes);
        free(part->out_bytes);
    }
    free(stage->parts);
    free(stage->of_rank);
    free(stage->owners);
    free(stage->pieced);
    free(stage->ready);
    free(stage->last_ready);
    free(stage->gives);
    free(stage->reads);
    free(stage->senders);
    free(stage);
}
