/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of data files: by name, by content, and the reader of each.
 *
 * series > [format] > text, tokens, npy, idx */
#ifndef RB_DATA_FORMAT_H
#define RB_DATA_FORMAT_H

#include "data/column.h"

enum rb_format { RB_FORMAT_TEXT, RB_FORMAT_TOKENS, RB_FORMAT_NPY, RB_FORMAT_IDX };

const char *rb_format_text(enum rb_format format);

/* RB_EINVAL: there is none of that name. */
int rb_format_find(const char *name, enum rb_format *ret, struct rb_why *why);

/* Format by format (npy, tokens, idx): by the content, then by the name. */
int rb_format_guess(const struct rb_map *map, const char *path, enum rb_format *ret,
                    struct rb_why *why);

/* Are samples cut from one sequence of elements, or does the file say what a sample is? */
bool rb_format_is_sequence(enum rb_format format);

int rb_format_open(enum rb_format format, const struct rb_map *map, const char *path,
                   enum rb_column_use use, struct rb_column *ret, struct rb_why *why);

#endif
