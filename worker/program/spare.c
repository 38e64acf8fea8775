/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/program/spare.h"

#include "base/arena.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* Bytes of the arena, and the instructions during which a tensor has them. */
struct life {
    uint64_t first, end;
    size_t from, to;
};

static int by_place(const void *a, const void *b)
{
    const struct life *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static size_t find_lives(const struct rb_reads *reads, const void *arena, struct life *lives)
{
    const Rb__Program *program = reads->program;
    size_t n = 0;

    for (size_t i = 0; i < program->n_instructions; i++)
        for (size_t o = 0; o < program->instructions[i]->n_outputs; o++) {
            int32_t out = program->instructions[i]->outputs[o];
            uint64_t first;

            if (out < 0 || !reads->bytes[out] ||
                program->tensors[out]->space != RB__TENSOR__SPACE__ARENA)
                continue;
            first = (uint64_t)((const char *)reads->addresses[out] - (const char *)arena);
            lives[n++] = (struct life){first / ALIGNMENT * ALIGNMENT, first + reads->bytes[out], i,
                                       rb_reads_last(reads, i, out)};
        }
    qsort(lives, n, sizeof *lives, by_place);
    return n;
}

static size_t count_outputs(const Rb__Program *program)
{
    size_t n = 0;

    for (size_t i = 0; i < program->n_instructions; i++)
        n += program->instructions[i]->n_outputs;
    return n;
}

static void widen(struct rb_spare *spare, uint64_t first, uint64_t end)
{
    if (end > first && end - first > spare->bytes)
        *spare = (struct rb_spare){first, end - first};
}

void rb_spare_find(const struct rb_reads *reads, const void *arena, struct rb_spare *ret_spares)
{
    const Rb__Program *program = reads->program;
    struct life *lives = rb_alloc((count_outputs(program) + 1) * sizeof *lives);
    size_t n = find_lives(reads, arena, lives);

    for (size_t i = 0; i < program->n_instructions; i++) {
        uint64_t at = 0;

        ret_spares[i] = (struct rb_spare){0};
        for (size_t k = 0; k < n; k++) {
            if (lives[k].from > i || lives[k].to < i)
                continue;
            widen(&ret_spares[i], at, lives[k].first);
            if (lives[k].end > at)
                at = (lives[k].end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        widen(&ret_spares[i], at, program->arena_bytes);
    }
    free(lives);
}
