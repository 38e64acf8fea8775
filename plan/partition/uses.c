/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/uses.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* By variable: the stages that make summands of its gradient, and those that read it (1 << stage).
 */
static void find(const Rb__Model *model, const Rb__Course *course, uint64_t *ret_gives,
                 uint64_t *ret_reads)
{
    const Rb__Program *program = model->programs[course->program];

    memset(ret_gives, 0, model->n_variables * sizeof *ret_gives);
    memset(ret_reads, 0, model->n_variables * sizeof *ret_reads);
    for (size_t i = 0; i < program->n_instructions; i++)
        for (size_t k = 0; k < program->instructions[i]->n_inputs; k++) {
            int32_t t = program->instructions[i]->inputs[k];

            if (t >= 0 && program->tensors[t]->space == RB__TENSOR__SPACE__VARIABLE)
                ret_reads[program->tensors[t]->offset] |= course->stages[i];
        }
    for (size_t c = 0; c < program->n_contributions; c++) {
        const Rb__Contribution *one = program->contributions[c];
        uint64_t made = course->stages[one->after ? one->after - 1 : 0];

        ret_gives[one->variable] |= made & -made; /* of several makers the first gives it */
    }
}

int rb_uses_separate(const Rb__Model *model, const Rb__Course *course, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint64_t *gives = rb_alloc((model->n_variables + 1) * sizeof *gives);
    RB_CLEANUP(rb_freep) uint64_t *reads = rb_alloc((model->n_variables + 1) * sizeof *reads);

    find(model, course, gives, reads);
    for (size_t v = 0; v < model->n_variables; v++) {
        uint64_t maker = gives[v] ? gives[v] & -gives[v] : 1;

        if (model->variables[v]->role != RB__VARIABLE__ROLE__FIXED &&
            ((gives[v] | reads[v]) & ~maker))
            return rb_why_set(why, RB_EUNSUPPORTED,
                              "'%.80s' is needed in %d stages, and each of them would update it by "
                              "itself; schedule 1f1b can run this model",
                              model->variables[v]->name, __builtin_popcountll(gives[v] | reads[v]));
    }
    return 0;
}
