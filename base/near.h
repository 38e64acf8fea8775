/* SPDX-License-Identifier: Apache-2.0 */
/* How far a word is from a known one: for "did you mean". */
#ifndef RB_BASE_NEAR_H
#define RB_BASE_NEAR_H

#include <stdbool.h>
#include <stddef.h>

enum { RB_NEAR_MOST = 64 }; /* bytes of a known word */

/* Letters to change, add or leave out between the n bytes of `word` and `known`, in either case. */
size_t rb_near_distance(const char *word, size_t n, const char *known);

/* Whether a word of n bytes at this distance may well have been meant. */
bool rb_near_enough(size_t distance, size_t n);

#endif
