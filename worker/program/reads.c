/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/program/reads.h"

#include "base/error.h"

bool rb_reads_overlap(const struct rb_reads *reads, int32_t x, int32_t y)
{
    const char *from, *to;

    if (x < 0 || y < 0 || reads->bytes[x] == 0 || reads->bytes[y] == 0)
        return false;
    from = reads->addresses[x];
    to = reads->addresses[y];
    return from < to + reads->bytes[y] && to < from + reads->bytes[x];
}

static bool any_overlaps(const struct rb_reads *reads, const int32_t *tensors, size_t n,
                         int32_t out)
{
    for (size_t i = 0; i < n; i++)
        if (rb_reads_overlap(reads, tensors[i], out))
            return true;
    return false;
}

enum taken { NOT_TAKEN, TAKEN_WHOLE, TAKEN_IN_PART };

/* Is `out` read by contributions that are ready after so many instructions? */
static enum taken taken_behind(const struct rb_reads *reads, int32_t out, size_t instructions)
{
    enum taken taken = NOT_TAKEN;

    for (size_t i = 0; i < reads->program->n_contributions; i++) {
        const Rb__Contribution *one = reads->program->contributions[i];
        int32_t tensor = (int32_t)one->tensor;

        if (one->after != instructions || !rb_reads_overlap(reads, tensor, out))
            continue;
        if (reads->addresses[tensor] != reads->addresses[out] ||
            reads->bytes[tensor] != reads->bytes[out])
            return TAKEN_IN_PART;
        taken = TAKEN_WHOLE;
    }
    return taken;
}

/* Is `out` among what is left when the program has ended? */
static bool is_result(const struct rb_reads *reads, int32_t out)
{
    const Rb__Program *program = reads->program;
    const int32_t results[] = {program->loss, program->count, program->correct};

    return any_overlaps(reads, results, RB_COUNT(results), out) ||
           any_overlaps(reads, program->outputs, program->n_outputs, out);
}

/* Is `out` of `instruction` read by anything but contributions right after it?  Nothing reads it
 * once its memory is used again. */
static bool is_read(const struct rb_reads *reads, size_t instruction, int32_t out)
{
    const Rb__Program *program = reads->program;

    for (size_t k = instruction + 1; k < program->n_instructions; k++) {
        const Rb__Instruction *next = program->instructions[k];

        if (any_overlaps(reads, next->inputs, next->n_inputs, out))
            return true;
        if (any_overlaps(reads, next->outputs, next->n_outputs, out))
            return false;
        if (taken_behind(reads, out, k + 1) != NOT_TAKEN)
            return true;
    }
    return is_result(reads, out);
}

bool rb_reads_gradient(const struct rb_reads *reads, size_t instruction)
{
    const Rb__Instruction *from = reads->program->instructions[instruction];

    return from->n_outputs > 0 &&
           taken_behind(reads, from->outputs[0], instruction + 1) == TAKEN_WHOLE &&
           !is_read(reads, instruction, from->outputs[0]);
}

size_t rb_reads_last(const struct rb_reads *reads, size_t instruction, int32_t out)
{
    const Rb__Program *program = reads->program;
    size_t last = instruction, n = program->n_instructions;

    if (instruction < program->once || is_result(reads, out))
        return n;
    for (size_t k = instruction; k < n; k++) {
        const Rb__Instruction *one = program->instructions[k];

        if (k > instruction && any_overlaps(reads, one->inputs, one->n_inputs, out))
            last = k;
        if (k > instruction && any_overlaps(reads, one->outputs, one->n_outputs, out))
            break;
        if (taken_behind(reads, out, k + 1) != NOT_TAKEN)
            last = k;
    }
    return last;
}
