/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a program goes: by instruction, by operator, and against what the device could
 * do.
 *
 * timing > [profile] > rubatoctl profile, plan, tests/bench
 *
 * Times are those of the device's own clock (rb_marks_between), and medians over runs. */
#ifndef RB_WORKER_TIMING_PROFILE_H
#define RB_WORKER_TIMING_PROFILE_H

#include "base/buffer.h"
#include "kernels/device.h"
#include "plan.pb-c.h"

/* ---- What a device can do, in units a nanosecond ---- */

struct rb_profile_speed {
    double flops; /* of a matrix product with factors of the program's type, 1,024 each way; of fp32
                   * and 512 in rb_profile_quickly */
    double bytes; /* of a copy of 4 MB: read and written */
};

/* On a GPU products and copies are made larger, until they keep it busy: up to 4,096 each way and
 * 256 MB.  RB_ENOMEM, or what the device reports. */
int rb_profile_measure(struct rb_device *device, const Rb__Program *program,
                       struct rb_profile_speed *ret_speed, struct rb_why *why);

/* The best of a twentieth of a second, in fp32: a starting rubatod has no more time. */
int rb_profile_quickly(struct rb_device *device, struct rb_profile_speed *ret_speed,
                       struct rb_why *why);

/* ---- Measuring ---- */

struct rb_profile;

struct rb_profile *rb_profile_new(const Rb__Program *program);
void rb_profile_free(struct rb_profile *profile);

/* ns of the thread since the last call of this or of rb_profile_instruction; counted for no
 * instruction. */
double rb_profile_pass(struct rb_profile *profile);

/* Counts all ns since then for this instruction, beside what it took before in this run. */
void rb_profile_instruction(struct rb_profile *profile, int instruction);

/* The same with ns that the caller has measured. */
void rb_profile_add(struct rb_profile *profile, size_t instruction, double ns);

/* A run has ended: one execution, or several that belong together. */
void rb_profile_end(struct rb_profile *profile);

/* The median of n numbers, which are sorted on the way; 0 of none. */
double rb_profile_median(double *values, size_t n);

/* An instruction's median over runs. */
double rb_profile_ns(const struct rb_profile *profile, size_t instruction);
double rb_profile_whole(const struct rb_profile *profile); /* the sum over all instructions */

/* All instructions of one operator. */
struct rb_profile_row {
    const char *name;
    uint32_t calls; /* in one execution */
    double ns, flops, bytes, floor;
};

/* The operators of the program, the longest first.  Free the list. */
struct rb_profile_row *rb_profile_rows(const struct rb_profile *profile,
                                       const struct rb_profile_speed *speed, size_t *ret_n);

/* An instruction that takes longer than its floor. */
struct rb_profile_loss {
    size_t instruction;
    double ns, lost; /* lost: beyond the floor */
};

/* Instructions by what they lose, the largest first.  executions: how often the program runs in one
 * run.  Free the list. */
struct rb_profile_loss *rb_profile_losses(const struct rb_profile *profile,
                                          const struct rb_profile_speed *speed, uint32_t executions,
                                          size_t *ret_n);

#endif
