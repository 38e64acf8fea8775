/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter: a Program made ready on a device, and run.
 *
 * Model > [program] > kernels
 *
 * Preparing creates every kernel and resolves every address; running is a loop over a table. */
#ifndef RB_WORKER_PROGRAM_PROGRAM_H
#define RB_WORKER_PROGRAM_PROGRAM_H

#include "base/error.h"
#include "kernels/device.h"
#include "plan.pb-c.h"

#include <stdatomic.h>

struct rb_program;

/* What programs of one model share. */
struct rb_program_memory {
    float *state; /* flat fp32 state: variables TRAINED and STATISTIC */
    void *fixed;  /* FIXED variables, at their byte offsets */
    const void *constants;
    void *arena; /* the largest arena_bytes of the programs that use it */
    /* Each program here runs as a whole, from first to last, so kernels may use what is free of the
     * arena meanwhile.  False: some code looks at places while no tensor has them, or wants only
     * few of them touched. */
    bool spares;
    /* A prepared program of the same Program that lives longer, or NULL.  This one runs its kernels
     * and shares its outputs of the instructions that run once. */
    const struct rb_program *twin;
};

int rb_program_prepare(struct rb_device *device, const Rb__Model *model, const Rb__Program *program,
                       const struct rb_program_memory *memory, struct rb_program **ret_program,
                       struct rb_why *why);
void rb_program_free(struct rb_program *program);

/* Does the instruction go between devices?  Such instructions are not run here:
 * worker/stages/exchange.h runs them. */
bool rb_program_exchanges(const Rb__Instruction *instruction);

/* Make the `bytes` of its arena ready for runs (rb_device_expect) that leave gradients to
 * rb_program_add. */
void rb_program_expect(const struct rb_program *program, void *arena, size_t bytes);

/* From now on gradients that only their contribution reads are left to rb_program_add, where the
 * device can add them without writing them first: running the program does not make them. */
void rb_program_defer(struct rb_program *program, bool on);

/* From now on runs may be told to the device once and played (kernels/device.h), starting with the
 * second run.  `after` may then only call rb_program_add, with what it knows before the run; it is
 * called for all instructions before any of them runs.  Does nothing where the device has no
 * tapes. */
void rb_program_keep(struct rb_program *program);

/* Drops the tapes: copies, or the set of instructions, are different from now on. */
void rb_program_forget(struct rb_program *program);

/* Why runs are not played although they might be; NULL: nothing is wrong. */
const char *rb_program_refused(const struct rb_program *program);

/* Add contribution `tensor` to fixed-point sums: call it in `after` of the instruction behind which
 * the contribution is ready. */
void rb_program_add(struct rb_program *program, int tensor, const struct rb_fixed *into);

/* Where the program reads input `slot`: fill it before each run. */
void *rb_program_input(struct rb_program *program, int slot);

/* Address of a tensor of the program, for the device.  Not of tensors that are left to
 * rb_program_add. */
void *rb_program_tensor(struct rb_program *program, int tensor);

/* The same, for the host to read after a run (valid only if rb_device_check reports no error). */
const void *rb_program_result(struct rb_program *program, int tensor);

/* The same, queued as a copy to a place in the device's memory that the next run leaves alone. */
void rb_program_keep_result(struct rb_program *program, int tensor, void *to);

/* Run the whole program; `after(instruction, context)` (may be NULL) is called after each
 * instruction.  If another thread sets *stop (may be NULL), the run ends between two instructions:
 * RB_ECANCELED. */
int rb_program_run(struct rb_program *program, const struct rb_key *key, const atomic_bool *stop,
                   void (*after)(int instruction, void *context), void *context);

/* The same without the instructions that run once: right after another run, while weights have not
 * changed. */
int rb_program_again(struct rb_program *program, const struct rb_key *key, const atomic_bool *stop,
                     void (*after)(int instruction, void *context), void *context);

/* ---- Several at once: a program and twins of it, each with its inputs, on a device without tapes
 */

/* Is anything gained by running several at once? */
bool rb_program_gathers(const struct rb_program *program);
/* The bytes that a run has to itself: its inputs, and what it writes of its arena, except what is
 * made once for all.  For a program that leaves gradients to rb_program_add. */
uint64_t rb_program_working(const struct rb_program *program);

/* As rb_program_run of one after the other.  The first must not be a twin.  `after` is called when
 * all have run an instruction. */
int rb_program_run_each(struct rb_program *const *programs, int n, const struct rb_key *keys,
                        const atomic_bool *stop, void (*after)(int instruction, void *context),
                        void *context);
/* As rb_program_start and rb_program_step of one after the other; instructions that run once are
 * run only by the first. */
void rb_program_start_each(struct rb_program *const *programs, int n);
void rb_program_step_each(struct rb_program *const *programs, int n, int instruction,
                          const struct rb_key *keys);
/* As rb_program_add of one after the other. */
void rb_program_add_each(struct rb_program *const *programs, int n, int tensor,
                         const struct rb_fixed *into);

/* ---- In parts: what was filled into the inputs goes to the device; then instructions, in
 * ascending order, each when what it reads is in place ---- */
void rb_program_start(struct rb_program *program);
void rb_program_step(struct rb_program *program, int instruction, const struct rb_key *key);

/* Several instructions, played as runs are (rb_program_keep). */
struct rb_program_pass {
    int tape;         /* 0 or 1: the program keeps two */
    bool unplayed;    /* not to be played: `after` does more than add */
    int first, end;   /* instructions first .. end - 1, */
    const bool *runs; /* of which this is true; NULL: all */
    /* Called before each instruction that runs by itself, and before playing; a result other than 0
     * ends the pass with that result. */
    int (*go_on)(void *context);
    /* Copies within the device's memory (rb_device_copy), before and after an instruction.  A tape
     * keeps them, so these are not called each time. */
    void (*copy_in)(int instruction, void *context);
    void (*copy_out)(int instruction, void *context);
    void (*after)(int instruction, void *context); /* as of runs; these may all be NULL */
    void *context;
};
int rb_program_pass(struct rb_program *program, const struct rb_program_pass *pass,
                    const struct rb_key *key);

#endif
