/* SPDX-License-Identifier: Apache-2.0 */
/* Which instructions read what an instruction writes.
 *
 * Program, addresses > [reads] > program
 *
 * Tensors share memory: what counts is where they lie, not which they are. */
#ifndef RB_WORKER_PROGRAM_READS_H
#define RB_WORKER_PROGRAM_READS_H

#include "plan.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* A program whose tensors have their places. */
struct rb_reads {
    const Rb__Program *program;
    void *const *addresses; /* by tensor */
    const size_t *bytes;
};

/* Do tensors x and y (-1: absent) share memory? */
bool rb_reads_overlap(const struct rb_reads *reads, int32_t x, int32_t y);

/* Is the first output of `instruction` a contribution that is ready right after it, and read by
 * nothing else? */
bool rb_reads_gradient(const struct rb_reads *reads, size_t instruction);

/* The last instruction that `out` of `instruction` must outlive, because that instruction reads it,
 * or a contribution does right after that instruction.  Behind all instructions where `out` is read
 * when the program has ended, or by its next run. */
size_t rb_reads_last(const struct rb_reads *reads, size_t instruction, int32_t out);

#endif
