/* SPDX-License-Identifier: Apache-2.0 */
/* A column: the samples of one slot inside a mapped file.  Each format has a source file that finds
 * them.
 *
 * format > [text, tokens, npy, idx] > series, convert
 *
 * A reader gets the whole file as hostile bytes and fills `ret` only when all of it is sound:
 * `elements`, and with them every sample that `samples` and `stride` promise, lie inside the file.
 * Text and tokens are elements alone, until rb_column_sequence cuts them. */
#ifndef RB_DATA_COLUMN_H
#define RB_DATA_COLUMN_H

#include "base/error.h"
#include "base/file.h"
#include "data/convert.h"
#include "proto/dtype.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_column {
    const struct rb_stored *stored;
    rb_convert *convert;
    const uint8_t *data;
    int64_t elements; /* from there to the end */
    int64_t samples;
    int64_t count;  /* elements in a sample */
    int64_t stride; /* elements from one sample to the next */
    struct rb_tensor_type type;
};

/* What a column is for decides its dtype: for a model that takes floats, bytes and truth values
 * become floats; for targets, and for a model that takes integers, they are numbers as they stand.
 */
enum rb_column_use {
    RB_FLOATS,
    RB_NUMBERS,
};

/* Set samples, count and stride from a file's `axes` (the first counts samples) and check that
 * exactly `bytes` hold them.  The caller has set stored, and sets dtype and convert. */
int rb_column_shape(struct rb_column *column, const char *path, const int64_t *axes, int n_axes,
                    uint64_t bytes, struct rb_why *why);

/* Cut column->elements into sequences, behind each of which one more element follows. */
int rb_column_sequence(struct rb_column *column, const char *path, int64_t seq_len,
                       struct rb_why *why);

void rb_text_open(const struct rb_map *map, struct rb_column *ret);
bool rb_tokens_match(const struct rb_map *map); /* has an llm.c header */
int rb_tokens_open(const struct rb_map *map, const char *path, struct rb_column *ret,
                   struct rb_why *why);
bool rb_npy_match(const struct rb_map *map);
int rb_npy_open(const struct rb_map *map, const char *path, enum rb_column_use use,
                struct rb_column *ret, struct rb_why *why);
bool rb_idx_match(const struct rb_map *map);
int rb_idx_open(const struct rb_map *map, const char *path, enum rb_column_use use,
                struct rb_column *ret, struct rb_why *why);

#endif
