/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/evaluate.h"

#include "base/arena.h"
#include "worker/tag.h"

#include <math.h>

struct outcome {
    double loss;
    int64_t count, correct; /* correct -1: the loss does not know it */
};

static int run_chunk(struct rb_model *model, uint32_t index, const atomic_bool *stop,
                     struct outcome *ret_outcome)
{
    const struct rb_chunk *chunk = &model->chunks[index];
    const struct rb_runner *runner = chunk->runner;
    struct rb_key key = {model->message->seed, (uint64_t)model->state.level, index};
    int err;

    rb_batch_fill_plain(&runner->slots, model->eval, &chunk->batch);
    err = rb_program_run(runner->program, &key, stop, NULL, NULL);
    if (err)
        return err;
    ret_outcome->loss = *(const double *)rb_program_result(runner->program, runner->message->loss);
    ret_outcome->count =
        *(const int64_t *)rb_program_result(runner->program, runner->message->count);
    ret_outcome->correct = -1;
    if (runner->message->correct >= 0)
        ret_outcome->correct =
            *(const int64_t *)rb_program_result(runner->program, runner->message->correct);
    return 0;
}

int rb_evaluate(struct rb_model *model, const struct rb_configuration *configuration,
                const atomic_bool *stop, struct rb_evaluation *ret_evaluation, struct rb_why *why)
{
    uint32_t size = configuration->size, each = (model->n_chunks + size - 1) / size;
    RB_CLEANUP(rb_freep) struct outcome *mine = rb_alloc(each * sizeof *mine);
    RB_CLEANUP(rb_freep) struct outcome *all = rb_alloc((size_t)each * size * sizeof *all);
    struct outcome sum = {0};
    int err = rb_source_check(model->eval, why);

    for (uint32_t c = configuration->rank; !err && c < model->n_chunks; c += size)
        err = run_chunk(model, c, stop, &mine[c / size]);
    if (!err)
        err = rb_device_check(model->device, why);
    if (!err)
        err = rb_coll_gather(configuration->coll, rb_tag(RB_TAG_EVALUATE, model->state.level, 0, 0),
                             mine, all, each * sizeof *mine, why);
    if (err)
        return rb_why_add(why, err, "evaluation after step %lld", (long long)model->state.level);
    for (uint32_t c = 0; c < model->n_chunks; c++) {
        const struct outcome *one = &all[(size_t)(c % size) * each + c / size];

        sum.loss += one->loss;
        sum.count += one->count;
        sum.correct += one->correct;
    }
    *ret_evaluation = (struct rb_evaluation){
        .loss = sum.count ? sum.loss / (double)sum.count : (double)NAN,
        .accuracy = sum.count ? (double)sum.correct / (double)sum.count : 0,
        .counted = sum.count > 0 && sum.correct >= 0,
    };
    return 0;
}
