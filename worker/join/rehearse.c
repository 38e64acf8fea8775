/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/rehearse.h"

#include <string.h>

static void rehearse(struct rb_model *model, const struct rb_runner *runner, uint32_t microbatch,
                     const atomic_bool *stop)
{
    const Rb__Model *message = model->message;
    struct rb_key key = {message->seed, 0, microbatch};
    struct rb_batch batch = rb_batch_of(message->global_batch, message->micro_batch, 0, microbatch);

    rb_batch_fill(&runner->slots, model->train, message->seed, &batch);
    rb_program_run(runner->program, &key, stop, NULL, NULL);
}

void rb_rehearse(struct rb_model *model, bool whole, const atomic_bool *stop)
{
    size_t bytes = (size_t)model->message->state_elements * sizeof *model->local;

    memset(model->local, 0, bytes);
    if (whole)
        memset(model->reduced, 0, bytes);
    rehearse(model, model->runner, 0, stop);
    if (model->last_runner != model->runner)
        rehearse(model, model->last_runner, model->microbatches - 1, stop);
}
