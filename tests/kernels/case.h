/* SPDX-License-Identifier: Apache-2.0 */
/* Operator cases as text, so that a new case is a line:
 *
 *     Conv f32[2,3,8,8] f32[4,3,3,3] - > f32[2,4,8,8] pads=1,1,1,1 epsilon=1e-5
 *
 * "-" is an absent input or output; a number with a point or an exponent is a float.  Among whole
 * numbers the name of an operator or of a type stands for its number. */
#ifndef RB_TESTS_KERNELS_CASE_H
#define RB_TESTS_KERNELS_CASE_H

#include "kernels/device.h"

enum { CASE_TENSORS = 8, CASE_ATTRIBUTES = 8, CASE_NUMBERS = 96 };

struct rb_case {
    struct rb_call call;
    struct rb_tensor_type in[CASE_TENSORS], out[CASE_TENSORS];
    struct rb_attribute attributes[CASE_ATTRIBUTES];
    char keys[CASE_ATTRIBUTES][24];
    int64_t ints[CASE_ATTRIBUTES][CASE_NUMBERS];
    float floats[CASE_ATTRIBUTES][CASE_NUMBERS];
};

/* Aborts on a text that cannot be read: the texts are the tests' own. */
void rb_case_read(const char *text, struct rb_case *ret_case);

/* Random contents that suit the operator: no division by 0, targets that are classes. */
void rb_case_fill(const struct rb_case *c, int input, uint64_t seed, void *data);

/* Every operator on several shapes. */
extern const char *const rb_cases[];
extern const size_t rb_cases_count;

size_t rb_case_bytes(const struct rb_tensor_type *type);

/* The largest difference as a part of the largest number; infinite where either has a NaN. */
double rb_case_error(const struct rb_tensor_type *type, const void *got, const void *want);

/* Is the poison (0xff) around an output whole, for `margin` bytes before and behind it? */
bool rb_case_margin(const struct rb_tensor_type *type, const void *out, size_t margin);

#endif
