/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/together.h"

void rb_together_enter(struct rb_together *together, const struct rb_runner *runner,
                       uint32_t microbatch)
{
    const struct rb_model *model = together->model;
    const Rb__Model *message = model->message;
    struct rb_batch batch =
        rb_batch_of(message->global_batch, message->micro_batch, model->state.level, microbatch);
    int e = together->n++;

    together->microbatches[e] = microbatch;
    together->runners[e] = runner;
    together->programs[e] = runner->program;
    together->keys[e] = (struct rb_key){message->seed, (uint64_t)model->state.level, microbatch};
    rb_batch_fill(&runner->slots, model->train, message->seed, &batch);
}

static void add(struct rb_together *together, const Rb__Contribution *contribution)
{
    struct rb_fixed into[RB_KERNEL_EACH];

    for (int e = 0; e < together->n; e++) {
        into[e] = rb_model_summand(together->model, contribution, together->microbatches[e]);
        together->model->fresh[contribution->variable] = false;
    }
    rb_program_add_each(together->programs, together->n, (int)contribution->tensor, into);
}

void rb_together_add(int instruction, void *context)
{
    struct rb_together *together = context;
    const struct rb_runner *runner = together->runners[0];

    while (together->next < runner->message->n_contributions &&
           runner->contributions[together->next]->after <= (uint32_t)instruction + 1)
        add(together, runner->contributions[together->next++]);
}
