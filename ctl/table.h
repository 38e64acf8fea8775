/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned columns.
 *
 * verbs > [table] > stdout */
#ifndef RB_CTL_TABLE_H
#define RB_CTL_TABLE_H

#include "base/buffer.h"

#include <stddef.h>

struct rb_table {
    char **cells; /* row by row; the first row is the head, if there is one */
    size_t n_cells;
    int columns;
};

/* Append one cell, copied; a row ends after `columns` of them. */
void rb_table_add(struct rb_table *table, const char *text);

/* Columns are as wide as their widest cell and two spaces apart; columns whose letter in `align` is
 * 'r' are right-aligned.  Widths count characters, not bytes; control characters become '?'. */
void rb_table_print(const struct rb_table *table, const char *align, struct rb_buffer *out);
void rb_table_done(struct rb_table *table);

#endif
