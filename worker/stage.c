/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stage.h"

#include "worker/stage_state.h"

#include "base/arena.h"
#include "proto/dtype.h"
#include "worker/batch.h"

#include <stdlib.h>

enum { MOST_STAGES = 64 };

/* ---- Orders ----------------------------------------------------------------------------------*/

static const uint32_t nobody = UINT32_MAX;

/* The forward or backward orders of a rank: each of a microbatch that nobody else has, ascending,
 * so that messages between two ranks come in the order in which they are waited for. */
static int read_orders(struct rb_stage *stage, const Rb__RankPlan *plan, uint32_t rank,
                       struct rb_why *why)
{
    uint32_t *owners = stage->owners + (size_t)plan->stage * stage->microbatches;
    int64_t forward = -1, backward = -1;
    uint32_t left = 0;

    for (size_t i = 0; i < plan->n_orders; i++) {
        const Rb__Order *order = plan->orders[i];
        bool goes = order->kind == RB__ORDER__KIND__FORWARD;

        if (!goes && order->kind != RB__ORDER__KIND__BACKWARD)
            continue;
        if (order->argument >= stage->microbatches ||
            (int64_t)order->argument <= (goes ? forward : backward) ||
            (goes ? owners[order->argument] != nobody : owners[order->argument] != rank))
            return rb_why_set(why, RB_EINVAL,
                              "plan, rank %u: microbatch %u is out of turn in stage %u", rank,
                              order->argument, plan->stage);
        *(goes ? &forward : &backward) = order->argument;
        owners[order->argument] = rank;
        left += goes ? 1 : -1;
        stage->flights = left > stage->flights ? left : stage->flights;
    }
    if (left)
        return rb_why_set(why, RB_EINVAL, "plan, rank %u: %u microbatches do not come back", rank,
                          left);
    return 0;
}

/* Of a part of the filters: each of a microbatch, ascending, so that ranks which are in a
 * microbatch together come to it without waiting for each other in a circle. */
static int read_computes(struct rb_stage *stage, const Rb__RankPlan *plan, uint32_t rank,
                         struct rb_why *why)
{
    uint32_t *owners = stage->owners + (size_t)plan->stage * stage->microbatches;
    int64_t last = -1;

    for (size_t i = 0; i < plan->n_orders; i++) {
        const Rb__Order *order = plan->orders[i];

        if (order->kind != RB__ORDER__KIND__COMPUTE)
            continue;
        if (order->argument >= stage->microbatches || (int64_t)order->argument <= last ||
            owners[order->argument] != nobody)
            return rb_why_set(why, RB_EINVAL,
                              "plan, rank %u: microbatch %u is out of turn in part %u", rank,
                              order->argument, plan->stage);
        last = order->argument;
        owners[order->argument] = rank;
    }
    return 0;
}

/* ---- Do ranks wait for each other? -----------------------------------------------------------*/

/* While a step is played. */
struct play {
    const struct rb_stage *stage;
    const Rb__Plan *plan;
    size_t *next;             /* by rank: the order that it has come to */
    bool *forward, *backward; /* by stage * microbatches + microbatch: done */
};

/* Are all stages in front of (behind) `one` done with the microbatch? */
static bool is_due(const struct play *play, uint32_t one, const Rb__Order *order)
{
    const struct rb_stage *stage = play->stage;
    bool goes = order->kind == RB__ORDER__KIND__FORWARD;

    for (uint32_t k = goes ? 0 : one + 1; k < (goes ? one : stage->stages); k++)
        if (!(goes ? play->forward
                   : play->backward)[(size_t)k * stage->microbatches + order->argument])
            return false;
    return true;
}

/* As far as rank `r` gets. */
static bool play_rank(struct play *play, size_t r)
{
    const Rb__RankPlan *plan = play->plan->ranks[r];
    size_t before = play->next[r];

    for (; play->next[r] < plan->n_orders; play->next[r]++) {
        const Rb__Order *order = plan->orders[play->next[r]];
        bool goes = order->kind == RB__ORDER__KIND__FORWARD;

        if (!goes && order->kind != RB__ORDER__KIND__BACKWARD)
            continue;
        if (!is_due(play, plan->stage, order))
            break;
        (goes ? play->forward
              : play->backward)[(size_t)plan->stage * play->stage->microbatches + order->argument] =
            true;
    }
    return play->next[r] > before;
}

static int check_waits(const struct rb_stage *stage, const Rb__Plan *plan, struct rb_why *why)
{
    size_t cells = (size_t)stage->stages * stage->microbatches + 1;
    RB_CLEANUP(rb_freep) size_t *next = rb_alloc((plan->n_ranks + 1) * sizeof *next);
    RB_CLEANUP(rb_freep) bool *forward = rb_alloc(cells * sizeof *forward);
    RB_CLEANUP(rb_freep) bool *backward = rb_alloc(cells * sizeof *backward);
    struct play play = {stage, plan, next, forward, backward};
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t r = 0; r < plan->n_ranks; r++)
            moved |= play_rank(&play, r);
    }
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (next[r] < plan->ranks[r]->n_orders)
            return rb_why_set(why, RB_EINVAL, "plan: rank %zu waits for ever", r);
    return 0;
}

static int read_ranks(struct rb_stage *stage, const Rb__Plan *plan, struct rb_why *why)
{
    size_t cells = (size_t)stage->stages * stage->microbatches;
    int err = 0;

    stage->of_rank = rb_alloc((plan->n_ranks + 1) * sizeof *stage->of_rank);
    stage->owners = rb_alloc((cells + 1) * sizeof *stage->owners);
    for (size_t i = 0; i < cells; i++)
        stage->owners[i] = nobody;
    for (uint32_t r = 0; !err && r < stage->ranks; r++) {
        if (plan->ranks[r]->stage >= stage->stages)
            return rb_why_set(why, RB_EINVAL, "plan, rank %u: stage %u of %u", r,
                              plan->ranks[r]->stage, stage->stages);
        stage->of_rank[r] = plan->ranks[r]->stage;
        err = (stage->split ? read_computes : read_orders)(stage, plan->ranks[r], r, why);
    }
    for (size_t i = 0; !err && i < cells; i++)
        if (stage->owners[i] == nobody)
            err = rb_why_set(why, RB_EINVAL, "plan: nobody runs microbatch %zu in stage %zu",
                             i % stage->microbatches, i / stage->microbatches);
    return err || stage->split ? err : check_waits(stage, plan, why);
}

/* ---- Courses ---------------------------------------------------------------------------------*/

/* 0: a size that none may have. */
static size_t tensor_bytes(const Rb__Tensor *tensor)
{
    size_t bytes = rb_dtype_size((enum rb_dtype)tensor->dtype);

    for (size_t i = 0; i < tensor->n_dims; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, (size_t)tensor->dims[i], &bytes))
            return 0;
    return bytes;
}

static int check_crossing(const struct rb_stage *stage, const Rb__Course *course,
                          const Rb__Program *program, const Rb__Crossing *one, struct rb_why *why)
{
    uint64_t from, to;
    bool goes = one->made < course->forward;

    if (one->tensor >= program->n_tensors || one->from >= stage->stages ||
        one->to >= stage->stages || one->from == one->to || one->made >= program->n_instructions ||
        one->read <= one->made || one->read > program->n_instructions ||
        program->tensors[one->tensor]->space != RB__TENSOR__SPACE__ARENA)
        return rb_why_set(why, RB_EINVAL,
                          "tensor %u crosses from stage %u to stage %u out of place", one->tensor,
                          one->from, one->to);
    from = course->stages[one->made] >> one->from & 1;
    to = one->read == program->n_instructions || (course->stages[one->read] >> one->to & 1);
    /* what is made backward does not go forward, and what is read forward does not come back */
    if (!from || !to || (one->from < one->to ? !goes : one->read < course->forward))
        return rb_why_set(why, RB_EINVAL, "tensor %u goes from stage %u to stage %u the wrong way",
                          one->tensor, one->from, one->to);
    return 0;
}

static int by_at(const void *a, const void *b)
{
    const struct rb_cargo *left = a, *right = b;

    if (left->at != right->at)
        return left->at < right->at ? -1 : 1;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Both sides go through all crossings in the plan's order, so offsets are the same. */
static int load(const struct rb_stage *stage, const Rb__Course *course, struct rb_part *part,
                struct rb_why *why)
{
    for (size_t c = 0; c < course->n_crossings; c++) {
        const Rb__Crossing *one = course->crossings[c];
        int err = check_crossing(stage, course, part->message, one, why);
        struct rb_cargo cargo = {.tensor = one->tensor};

        if (err)
            return err;
        cargo.bytes = tensor_bytes(part->message->tensors[one->tensor]);
        if (one->from == stage->mine) {
            cargo.at = one->made;
            cargo.peer = one->to;
            cargo.offset = part->out_bytes[one->to];
            part->out_bytes[one->to] += cargo.bytes;
            part->out[part->n_out++] = cargo;
        } else if (one->to == stage->mine) {
            cargo.at = one->read;
            cargo.peer = one->from;
            cargo.offset = part->in_bytes[one->from];
            part->in_bytes[one->from] += cargo.bytes;
            part->in[part->n_in++] = cargo;
        }
    }
    if (part->n_in)
        qsort(part->in, part->n_in, sizeof *part->in, by_at);
    if (part->n_out)
        qsort(part->out, part->n_out, sizeof *part->out, by_at);
    return 0;
}

/* Contributions of what several stages make are the first one's. */
static void read_runs(const struct rb_stage *stage, const Rb__Course *course, struct rb_part *part)
{
    for (size_t i = 0; i < part->message->n_instructions; i++) {
        part->runs[i] = course->stages[i] >> stage->mine & 1;
        part->adds[i] =
            course->stages[i] && (uint32_t)__builtin_ctzll(course->stages[i]) == stage->mine;
    }
}

static int read_course(struct rb_stage *stage, const Rb__Course *course, const Rb__Model *model,
                       struct rb_why *why)
{
    const Rb__Program *program =
        course->program < model->n_programs ? model->programs[course->program] : NULL;
    struct rb_part *part;

    if (!program || !program->train || stage->parts[course->program].message ||
        course->n_stages != program->n_instructions || course->forward > program->n_instructions)
        return rb_why_set(why, RB_EINVAL, "plan: the course of program %u is none",
                          course->program);
    part = &stage->parts[course->program];
    part->message = program;
    part->forward = course->forward;
    part->runs = rb_alloc(program->n_instructions + 1);
    part->adds = rb_alloc(program->n_instructions + 1);
    part->in = rb_alloc((course->n_crossings + 1) * sizeof *part->in);
    part->out = rb_alloc((course->n_crossings + 1) * sizeof *part->out);
    part->in_bytes = rb_alloc(stage->stages * sizeof *part->in_bytes);
    part->out_bytes = rb_alloc(stage->stages * sizeof *part->out_bytes);
    read_runs(stage, course, part);
    return load(stage, course, part, why);
}

static int read_courses(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model,
                        struct rb_why *why)
{
    int err = 0;

    stage->n_parts = model->n_programs;
    stage->parts = rb_alloc((model->n_programs + 1) * sizeof *stage->parts);
    for (size_t c = 0; !err && c < plan->n_courses; c++)
        err = read_course(stage, plan->courses[c], model, why);
    for (size_t p = 0; !err && p < model->n_programs; p++)
        if (model->programs[p]->train && !stage->parts[p].message)
            err = rb_why_set(why, RB_EINVAL, "plan: program %zu has no course", p);
    return err;
}

/* ---- Programs of parts -----------------------------------------------------------------------*/

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

/* ---- The whole -------------------------------------------------------------------------------*/

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
    err = read_ranks(stage, plan, why);
    if (!err)
        err =
            stage->split ? find_programs(stage, model, why) : read_courses(stage, plan, model, why);
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
    free(stage->gives);
    free(stage->reads);
    free(stage->senders);
    free(stage);
}
