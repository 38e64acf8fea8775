/* SPDX-License-Identifier: Apache-2.0 */
/* How elements are stored in files, and how they become F32 or I64.
 *
 * text, tokens, npy, idx > column > [convert] > a slot's memory
 *
 * Files are little-endian as the machines that read them; elements need no alignment. */
#ifndef RB_DATA_CONVERT_H
#define RB_DATA_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void rb_convert(const uint8_t *from, int64_t count, void *to);

/* The least and the largest of some integers, and the second ones: a label that does not count may
 * be the least or the largest. */
struct rb_extremes {
    int64_t least, second_least; /* equal: all integers are equal */
    int64_t second_most, most;
};

/* The extremes of the integers of both. */
struct rb_extremes rb_extremes_join(struct rb_extremes a, struct rb_extremes b);

/* One kind of stored element, named as in .npy files without the byte order. */
struct rb_stored {
    const char *name; /* "f4", "u1" */
    size_t size;
    bool integer;
    rb_convert *to_f32;
    rb_convert *to_i64;                                                 /* NULL for floats */
    struct rb_extremes (*extremes)(const uint8_t *from, int64_t count); /* likewise; count > 0 */
};

/* NULL for an unknown one. */
const struct rb_stored *rb_stored_find(const char *name);

/* u1 to F32 in 0..1: value / 255. */
void rb_convert_unit(const uint8_t *from, int64_t count, void *to);

#endif
