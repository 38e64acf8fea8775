/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/program/program_inside.h"

#include <stdlib.h>

void *rb_program_input(struct rb_program *program, int slot)
{
    return slot >= 0 && slot < program->n_inputs ? program->inputs[slot] : NULL;
}

void *rb_program_tensor(struct rb_program *program, int tensor)
{
    return tensor >= 0 && tensor < program->n_tensors ? program->addresses[tensor] : NULL;
}

const void *rb_program_result(struct rb_program *program, int tensor)
{
    void *address = rb_program_tensor(program, tensor);

    if (address)
        rb_device_pull(program->device, address, program->bytes[tensor]);
    return address;
}

void rb_program_keep_result(struct rb_program *program, int tensor, void *to)
{
    void *address = rb_program_tensor(program, tensor);

    if (address)
        rb_device_copy(program->device, to, address, program->bytes[tensor]);
}

void rb_program_start(struct rb_program *program)
{
    for (int i = 0; i < program->n_inputs; i++)
        rb_device_push(program->device, program->inputs[i], program->input_bytes[i]);
}

void rb_program_step(struct rb_program *program, int instruction, const struct rb_key *key)
{
    struct step *step = &program->steps[instruction];

    if (step->kernel && (!program->defers || !step->gradient))
        rb_kernel_run(step->kernel, step->in, step->out, key);
}

void rb_program_defer(struct rb_program *program, bool on)
{
    program->defers = on;
}

void rb_program_add_now(struct rb_program *program, int tensor, const struct rb_fixed *into)
{
    int maker = program->defers ? program->makers[tensor] : -1;

    if (maker >= 0)
        rb_kernel_sum(program->steps[maker].kernel, program->steps[maker].in, into);
    else if (into->fresh)
        rb_fixed_set(program->device, into->sum, program->addresses[tensor],
                     program->bytes[tensor] / sizeof(float), into->weight, into->exponent,
                     into->limit, into->largest, into->overflow);
    else
        rb_fixed_add(program->device, into->sum, program->addresses[tensor],
                     program->bytes[tensor] / sizeof(float), into->weight, into->exponent,
                     into->limit, into->largest, into->overflow);
}

void rb_program_add(struct rb_program *program, int tensor, const struct rb_fixed *into)
{
    if (!program->collects) {
        rb_program_add_now(program, tensor, into);
    } else if (program->n_sums < program->most_sums) {
        program->sums[program->n_sums] = (struct sum){program->instruction, tensor};
        program->into[program->n_sums++] = *into;
    }
}

/* ---- Several at once -------------------------------------------------------------------------*/

bool rb_program_gathers(const struct rb_program *program)
{
    for (int i = 0; i < program->n_steps; i++)
        if (program->steps[i].kernel && rb_kernel_gathers(program->steps[i].kernel))
            return true;
    return false;
}

void rb_program_start_each(struct rb_program *const *programs, int n)
{
    for (int e = 0; e < n; e++)
        rb_program_start(programs[e]);
}

void rb_program_step_each(struct rb_program *const *programs, int n, int instruction,
                          const struct rb_key *keys)
{
    const struct step *first = &programs[0]->steps[instruction];
    const void *const *in[RB_KERNEL_EACH];
    void *const *out[RB_KERNEL_EACH];

    if (!first->kernel || (programs[0]->defers && first->gradient))
        return;
    if (instruction < programs[0]->once)
        n = 1;
    for (int e = 0; e < n; e++) {
        in[e] = programs[e]->steps[instruction].in;
        out[e] = programs[e]->steps[instruction].out;
    }
    rb_kernel_run_each(first->kernel, n, in, out, keys);
}

int rb_program_run_each(struct rb_program *const *programs, int n, const struct rb_key *keys,
                        const atomic_bool *stop, void (*after)(int instruction, void *context),
                        void *context)
{
    rb_program_start_each(programs, n);
    for (int i = 0; i < programs[0]->n_steps; i++) {
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            return RB_ECANCELED;
        rb_program_step_each(programs, n, i, keys);
        if (after)
            after(i, context);
    }
    return 0;
}

void rb_program_add_each(struct rb_program *const *programs, int n, int tensor,
                         const struct rb_fixed *into)
{
    int maker = programs[0]->defers ? programs[0]->makers[tensor] : -1;
    const void *const *in[RB_KERNEL_EACH];

    for (int e = 0; e < n && maker >= 0; e++)
        in[e] = programs[e]->steps[maker].in;
    if (maker >= 0)
        rb_kernel_sum_each(programs[0]->steps[maker].kernel, n, in, into);
    for (int e = 0; e < n && maker < 0; e++)
        rb_program_add_now(programs[e], tensor, &into[e]);
}
