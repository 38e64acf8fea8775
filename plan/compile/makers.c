/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/makers.h"

#include "base/arena.h"

int *rb_makers_find(const Rb__Program *program)
{
    int *makers = rb_alloc((program->n_tensors + 1) * sizeof *makers);

    for (size_t t = 0; t < program->n_tensors; t++)
        makers[t] = -1;
    for (size_t i = 0; i < program->n_instructions; i++)
        for (size_t k = 0; k < program->instructions[i]->n_outputs; k++)
            if (program->instructions[i]->outputs[k] >= 0)
                makers[program->instructions[i]->outputs[k]] = (int)i;
    return makers;
}

int rb_makers_of(const Rb__Program *program, const int *makers, int tensor, int before)
{
    const Rb__Tensor *wanted = program->tensors[tensor];

    if (wanted->space != RB__TENSOR__SPACE__ARENA)
        return -1;
    if (makers[tensor] >= 0)
        return makers[tensor];
    for (int i = before - 1; i >= 0; i--) {
        const Rb__Instruction *one = program->instructions[i];

        for (size_t k = 0; k < one->n_outputs; k++) {
            const Rb__Tensor *made = one->outputs[k] < 0 ? NULL : program->tensors[one->outputs[k]];

            if (made && made->space == RB__TENSOR__SPACE__ARENA && made->offset == wanted->offset)
                return i;
        }
    }
    return -1;
}

uint32_t rb_makers_forward(const Rb__Program *program, const int *makers)
{
    if (program->loss < 0 || (size_t)program->loss >= program->n_tensors)
        return 0;
    return (uint32_t)(makers[program->loss] + 1);
}
