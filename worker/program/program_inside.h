/* SPDX-License-Identifier: Apache-2.0 */
/* A program from inside: for program*.c alone.
 *
 * program: preparing > program_tensors        program_pass: tapes > program_run: instructions */
#ifndef RB_WORKER_PROGRAM_PROGRAM_INSIDE_H
#define RB_WORKER_PROGRAM_PROGRAM_INSIDE_H

#include "worker/program/program.h"

#include "base/arena.h"
#include "worker/program/spare.h"

struct step {
    struct rb_kernel *kernel;
    bool gradient; /* its output is a contribution, which may be added without being written */
    const void **in;
    void **out;
};

/* A gradient to be added after an instruction. */
struct sum {
    int instruction, tensor;
};

/* What is told to the device once. */
struct replay {
    struct rb_tape *tape;
    bool seen; /* it ran before: kernels are loaded, which no tape may do */
};

struct rb_program {
    struct rb_device *device;
    struct rb_arena arena; /* all the tables */
    int n_steps, once;
    bool borrows; /* kernels are a twin's */
    bool defers;  /* steps with `gradient` are left to rb_program_add */
    struct step *steps;
    int n_tensors;
    void **addresses; /* of tensors; NULL for absent ones */
    size_t *bytes;    /* of tensors */
    int *makers;      /* of tensors: the step that is left to rb_program_add; -1: none */
    int n_inputs;
    void **inputs; /* the device's memory, filled by the caller */
    size_t *input_bytes;
    struct rb_extent *written; /* of the arena, ascending and apart */
    size_t n_written;
    uint64_t working; /* bytes: rb_program_working */

    /* Tapes (rb_program_keep), and what `after` asked for of a run that is played. */
    bool keeps;
    struct replay replays[2]; /* of whole runs, and without the instructions run once; of passes */
    struct rb_why refused;    /* why there are no tapes; empty: there may be */
    bool collects;
    int instruction; /* after which `after` is being called */
    struct sum *sums;
    struct rb_fixed *into; /* of the sums alone, as tapes want them */
    size_t n_sums, most_sums;
};

/* ---- While it runs ---------------------------------------------------------------------------*/

/* Adds at once, not by a tape. */
void rb_program_add_now(struct rb_program *program, int tensor, const struct rb_fixed *into);

/* ---- While it is prepared --------------------------------------------------------------------*/

/* What preparing needs at hand. */
struct rb_program_build {
    struct rb_program *program;
    const Rb__Model *model;
    const Rb__Program *from;
    const struct rb_program_memory *memory;
    struct rb_tensor_type *types;
    size_t *bytes;
    const struct rb_spare *spares; /* by instruction; NULL: kernels may use nothing of the arena */
    struct rb_why *why;
};

/* Is [offset, offset + bytes) inside `size`? */
static inline bool rb_program_inside(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return offset <= size && bytes <= size - offset;
}

/* Finds what runs write, once it is known which gradients they do not write. */
void rb_program_find_written(const struct rb_program_build *b, struct rb_arena *scratch);

/* Makes types and addresses of all tensors, and memory for inputs. */
int rb_program_make_tensors(const struct rb_program_build *b);

static inline struct rb_reads rb_program_reads(const struct rb_program_build *b)
{
    return (struct rb_reads){b->from, b->program->addresses, b->bytes};
}

/* By instruction, in `scratch`; NULL where no kernel may use anything of the arena, or none would
 * want to.  Tensors have their addresses; nothing else has been checked yet. */
const struct rb_spare *rb_program_find_spares(const struct rb_program_build *b,
                                              struct rb_arena *scratch);

#endif
