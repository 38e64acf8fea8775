/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a call: is it well-formed, what do its attributes say, and how to refuse it.
 *
 * worker (bytes from outside) > device > [call] > backends
 *
 * A call may come from a file that nobody has to trust: everything is checked before memory is
 * touched.  Refusals read "MatMul(float32[2,3], float32[4,5]): the inner sizes 3 and 4 differ". */
#ifndef RB_KERNELS_CALL_H
#define RB_KERNELS_CALL_H

#include "kernels/device.h"

/* No tensor may be larger, so that sizes and offsets never overflow. */
#define RB_CALL_MAX_BYTES ((int64_t)1 << 46)

/* Operator, counts, attribute keys, dtypes, ranks and sizes. */
int rb_call_check(const struct rb_call *call, struct rb_why *why);

/* Is this a type that a tensor may have (sizes not negative, not over the limit)? */
bool rb_call_type_valid(const struct rb_tensor_type *type);

/* Write "Operator(types): sentence" and return `err`. */
int rb_call_refuse(const struct rb_call *call, int err, struct rb_why *why, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The type of an input or output; one of dtype RB_NONE where there is none. */
const struct rb_tensor_type *rb_call_in(const struct rb_call *call, int i);
const struct rb_tensor_type *rb_call_out(const struct rb_call *call, int i);
static inline bool rb_call_has_in(const struct rb_call *call, int i)
{
    return rb_call_in(call, i)->dtype != RB_NONE;
}
static inline bool rb_call_has_out(const struct rb_call *call, int i)
{
    return rb_call_out(call, i)->dtype != RB_NONE;
}

/* Exactly `n` integers, or `otherwise` in each place where the attribute is absent. */
int rb_call_ints(const struct rb_call *call, const char *key, int n, int64_t otherwise,
                 int64_t *ret_ints, struct rb_why *why);

/* An axis: an attribute of 0 <= value < rank. */
int rb_call_axis(const struct rb_call *call, const char *key, int rank, int *ret_axis,
                 struct rb_why *why);

/* All inputs and outputs that are there are of `dtype`. */
int rb_call_only(const struct rb_call *call, enum rb_dtype dtype, struct rb_why *why);

/* The types of a product: two factors of F32 or two of BF16, a bias of F32 behind them; the output
 * is F32, or BF16 as the factors are. */
int rb_call_product(const struct rb_call *call, struct rb_why *why);

/* All are F32, but the first output may be rounded to BF16. */
int rb_call_rounded(const struct rb_call *call, struct rb_why *why);

/* Sizes before, at and behind an axis: [outer, n, inner]. */
struct rb_call_split {
    int64_t outer, n, inner;
};
struct rb_call_split rb_call_split_at(const struct rb_tensor_type *type, int axis);

#endif
