/* SPDX-License-Identifier: Apache-2.0 */
/* What a run writes of its arena; gradients that go into sums from registers are not written. */
#include "worker/program/program_inside.h"

#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct rb_extent *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

/* Outputs of the instructions from `first` on. */
static size_t find_outputs(const struct rb_program_build *b, int first, struct rb_extent *ret)
{
    const struct rb_program *program = b->program;
    size_t n = 0;

    for (int i = first; i < program->n_steps; i++) {
        const Rb__Instruction *from = b->from->instructions[i];

        for (size_t o = 0; o < from->n_outputs && !program->steps[i].gradient; o++)
            if (from->outputs[o] >= 0 && n < (size_t)program->n_tensors)
                ret[n++] =
                    (struct rb_extent){(size_t)((char *)program->addresses[from->outputs[o]] -
                                                (char *)b->memory->arena),
                                       b->bytes[from->outputs[o]]};
    }
    return n;
}

/* Tensors share memory, so what is written is the union of where they lie: how many pieces. */
static size_t unite(struct rb_extent *outputs, size_t n, struct rb_extent *ret)
{
    size_t end = 0, pieces = 0;

    qsort(outputs, n, sizeof *outputs, by_place);
    for (size_t k = 0; k < n; k++) {
        size_t first = outputs[k].first > end ? outputs[k].first : end;
        size_t behind = outputs[k].first + outputs[k].bytes;

        if (behind <= first)
            continue;
        if (pieces && first == end)
            ret[pieces - 1].bytes += behind - first;
        else
            ret[pieces++] = (struct rb_extent){first, behind - first};
        end = behind;
    }
    return pieces;
}

/* A twin leaves the instructions that run once a step to the other program, where their outputs
 * lie. */
void rb_program_find_written(const struct rb_program_build *b, struct rb_arena *scratch)
{
    struct rb_program *program = b->program;
    struct rb_extent *outputs = RB_ARENA_NEW(scratch, struct rb_extent, program->n_tensors + 1);
    size_t n = find_outputs(b, program->once, outputs);

    program->written = RB_ARENA_NEW(&program->arena, struct rb_extent, program->n_tensors + 1);
    program->n_written = unite(outputs, n, program->written);
    for (size_t k = 0; k < program->n_written; k++)
        program->working += program->written[k].bytes;
    for (int slot = 0; slot < program->n_inputs; slot++)
        program->working += program->input_bytes[slot];
    if (program->once && !program->borrows)
        program->n_written = unite(outputs, find_outputs(b, 0, outputs), program->written);
}

uint64_t rb_program_working(const struct rb_program *program)
{
    return program->working;
}

void rb_program_expect(const struct rb_program *program, void *arena, size_t bytes)
{
    rb_device_expect(program->device, arena, bytes, program->written, program->n_written);
}
