/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/needs.h"

#include <string.h>

size_t rb_needs_block(const Rb__Model *model, uint64_t at)
{
    size_t low = 0, high = model->n_blocks;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (model->blocks[middle]->first + model->blocks[middle]->count > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Mark that `stages` need the elements of a variable from `first` on, as many as `tensor` has. */
static void mark(const Rb__Model *model, uint64_t variable, uint64_t first,
                 const Rb__Tensor *tensor, uint64_t stages, uint64_t *by_block)
{
    uint64_t elements = 1;

    if (variable >= model->n_variables ||
        model->variables[variable]->role == RB__VARIABLE__ROLE__FIXED)
        return;
    for (size_t d = 0; d < tensor->n_dims; d++)
        elements *= (uint64_t)tensor->dims[d];
    first += model->variables[variable]->offset;
    for (size_t b = rb_needs_block(model, first);
         b < model->n_blocks && model->blocks[b]->first < first + elements; b++)
        by_block[b] |= stages;
}

/* Of a gradient that several stages make, only the first stage's counts.  stages: by instruction;
 * NULL: `part` runs all of the program. */
static void mark_gives(const Rb__Model *model, const Rb__Program *program, const uint64_t *stages,
                       uint64_t part, uint64_t *gives)
{
    for (size_t c = 0; c < program->n_contributions; c++) {
        const Rb__Contribution *one = program->contributions[c];
        uint32_t made = one->after ? one->after - 1 : 0;

        if (made < program->n_instructions && one->tensor < program->n_tensors)
            mark(model, one->variable, one->first, program->tensors[one->tensor],
                 stages ? stages[made] & -stages[made] : part, gives);
    }
}

static void mark_reads(const Rb__Model *model, const Rb__Program *program, const uint64_t *stages,
                       uint64_t part, uint64_t *reads)
{
    for (size_t i = 0; i < program->n_instructions; i++)
        for (size_t k = 0; k < program->instructions[i]->n_inputs; k++) {
            int32_t t = program->instructions[i]->inputs[k];
            const Rb__Tensor *tensor =
                t < 0 || (size_t)t >= program->n_tensors ? NULL : program->tensors[t];

            if (tensor && tensor->space == RB__TENSOR__SPACE__VARIABLE)
                mark(model, tensor->offset, tensor->first, tensor, stages ? stages[i] : part,
                     reads);
        }
}

static void mark_program(const Rb__Model *model, const Rb__Program *program, const uint64_t *stages,
                         uint64_t part, uint64_t *gives, uint64_t *reads)
{
    mark_gives(model, program, stages, part, gives);
    if (reads)
        mark_reads(model, program, stages, part, reads);
}

void rb_needs_find(const Rb__Model *model, const Rb__Plan *plan, uint64_t *ret_gives,
                   uint64_t *ret_reads)
{
    memset(ret_gives, 0, model->n_blocks * sizeof *ret_gives);
    if (ret_reads)
        memset(ret_reads, 0, model->n_blocks * sizeof *ret_reads);
    for (size_t c = 0; !plan->split && c < plan->n_courses; c++) {
        const Rb__Program *program = model->programs[plan->courses[c]->program];

        if (program->recomputes == plan->recomputes)
            mark_program(model, program, plan->courses[c]->stages, 0, ret_gives, ret_reads);
    }
    for (size_t p = 0; plan->split && p < model->n_programs; p++)
        if (model->programs[p]->parts == plan->stages)
            mark_program(model, model->programs[p], NULL, UINT64_C(1) << model->programs[p]->part,
                         ret_gives, ret_reads);
}
