/* SPDX-License-Identifier: Apache-2.0 */
/* What microbatches came to.  A device that has work queued does not wait for the host after each
 * microbatch: results stay on the device, one behind the other, until the last microbatch is
 * queued, and are pulled together.  No rank is told of any of them before that, and when the first
 * sums are sent the record holds all microbatches that the sums hold. */
#include "worker/step/attempt.h"

#include "base/clock.h"
#include "base/fault.h"

void rb_attempt_begin(struct rb_attempt *attempt)
{
    if (!attempt->began_ns)
        attempt->began_ns = rb_clock_ns();
}

void rb_attempt_keep(struct rb_attempt *attempt, uint32_t microbatch,
                     const struct rb_runner *runner)
{
    const Rb__Program *message = runner->message;
    struct rb_result *result = &attempt->step->model->results[attempt->n_unsaid];

    rb_program_keep_result(runner->program, message->loss, &result->loss);
    rb_program_keep_result(runner->program, message->count, &result->count);
    rb_program_keep_result(runner->program, message->correct, &result->correct);
    attempt->unsaid[attempt->n_unsaid++] = (struct rb_unsaid){microbatch, message->correct >= 0};
    rb_fault("worker.computed");
}

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

int rb_attempt_say(struct rb_attempt *attempt, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    int err;

    if (!attempt->n_unsaid)
        return 0;
    rb_device_pull(model->device, model->results, attempt->n_unsaid * sizeof *model->results);
    err = rb_device_check(model->device, why);
    if (err)
        return err;
    for (uint32_t i = 0; i < attempt->n_unsaid; i++) {
        const struct rb_result *result = &model->results[i];

        rb_vote_microbatch(&attempt->shape, model->record, attempt->unsaid[i].microbatch,
                           result->loss, result->count,
                           attempt->unsaid[i].correct ? result->correct : 0);
    }
    attempt->n_unsaid = 0;
    /* All microbatches are timed together: the host's clock cannot tell one from the next. */
    if (attempt->began_ns)
        attempt->computed_ns += rb_clock_ns() - attempt->began_ns;
    attempt->began_ns = 0;
    return 0;
}
