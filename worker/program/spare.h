/* SPDX-License-Identifier: Apache-2.0 */
/* Where an arena is free while an instruction runs.
 *
 * Program, addresses > [spare] > program > kernels that need memory of their own for a while
 *
 * An arena is as large as its worst moment needs it: at all other moments some of it is free. */
#ifndef RB_WORKER_PROGRAM_SPARE_H
#define RB_WORKER_PROGRAM_SPARE_H

#include "worker/program/reads.h"

/* The largest free place: bytes from the start of the arena, a multiple of 64. */
struct rb_spare {
    uint64_t first, bytes;
};

/* ret_spares: by instruction.  All places lie in the program's arena_bytes, whatever the program
 * says. */
void rb_spare_find(const struct rb_reads *reads, const void *arena, struct rb_spare *ret_spares);

#endif
