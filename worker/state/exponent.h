/* SPDX-License-Identifier: Apache-2.0 */
/* Exponents of the fixed-point sums: a power of two a variable, chosen from history.
 *
 * maxima of a vote > [exponent] > rb_fixed_add, rb_apply_*
 *
 * Pure.  h = max(largest |g| of the step, h * 2^-0.25); the exponent leaves room for all summands
 * of the step and HEADROOM bits beside.  Without history the attempt is flagged, unless all
 * gradients were zero. */
#ifndef RB_WORKER_STATE_EXPONENT_H
#define RB_WORKER_STATE_EXPONENT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RB_EXPONENT_LOWEST = -96,
    RB_EXPONENT_HIGHEST = 96,
    RB_EXPONENT_HEADROOM = 3,
    RB_EXPONENT_INFINITE = 0x7f800000, /* bits of |g| from here on are no number */
};

/* What travels with the state, for each variable. */
struct rb_exponent {
    double history;
    int32_t exponent;
    bool known; /* there is history */
};

/* The largest rounded summand: (2^31-1) / summands. */
int32_t rb_exponent_limit(uint64_t summands);

/* The exponent at which `largest` fits the limit with the headroom left, clamped. */
int32_t rb_exponent_for(double largest, int32_t limit);

/* Does the variable forbid that this attempt is committed?  largest: bits of |g| over all ranks. */
bool rb_exponent_flagged(const struct rb_exponent *exponent, uint32_t largest, bool overflow);

/* Is `largest` a number, but one that no exponent in range can hold? */
bool rb_exponent_beyond(uint32_t largest, int32_t limit);

/* After a vote for redo: what the maxima ask for. */
void rb_exponent_redo(struct rb_exponent *exponent, uint32_t largest, int32_t limit);

/* After a commit.  Where all gradients were zero, nothing changes. */
void rb_exponent_commit(struct rb_exponent *exponent, uint32_t largest, int32_t limit);

/* base^n by squaring, the same on any machine. */
double rb_exponent_power(double base, uint64_t n);

/* A running statistic takes (1 - momentum) of each microbatch in turn.  As a sum: microbatch
 * `index` of `count` has this weight, and the old value keeps momentum^count. */
float rb_exponent_statistic(float momentum, uint32_t count, uint32_t index);
float rb_exponent_keep(float momentum, uint32_t count);

#endif
