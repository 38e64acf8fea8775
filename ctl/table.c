/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include "base/arena.h"
#include "base/error.h"
#include "ctl/human.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void rb_table_add(struct rb_table *table, const char *text)
{
    table->cells = rb_realloc(table->cells, (table->n_cells + 1) * sizeof *table->cells);
    table->cells[table->n_cells++] = rb_human_plain(rb_string(text));
}

/* Characters of UTF-8: all bytes but the continuing ones. */
static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static void pad(struct rb_buffer *out, size_t n)
{
    while (n--)
        rb_buffer_text(out, " ");
}

void rb_table_print(const struct rb_table *table, const char *align, struct rb_buffer *out)
{
    size_t columns = (size_t)table->columns;
    RB_CLEANUP(rb_freep) size_t *widths = rb_alloc(columns * sizeof *widths);

    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = width_of(table->cells[i]);

        if (width > widths[i % columns])
            widths[i % columns] = width;
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t column = i % columns, space = widths[column] - width_of(table->cells[i]);
        bool right = column < strlen(align) && align[column] == 'r';

        if (right)
            pad(out, space);
        rb_buffer_text(out, table->cells[i]);
        if (column + 1 == columns) {
            rb_buffer_text(out, "\n");
            continue;
        }
        if (!right)
            pad(out, space);
        pad(out, 2);
    }
}

void rb_table_done(struct rb_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct rb_table){0};
}
