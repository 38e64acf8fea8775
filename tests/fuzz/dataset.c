/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a data file: a file that opens must be readable to the last sample. */
#include "base/arena.h"
#include "data/column.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_all(const struct rb_column *column)
{
    void *to = rb_alloc((size_t)column->count * 8);

    for (int64_t i = 0; i < column->samples; i++)
        column->convert(column->data + (size_t)(i * column->stride) * column->stored->size,
                        column->count, to);
    if (column->stored->integer)
        column->stored->extremes(column->data, column->samples * column->count);
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct rb_map map = {bytes, size};
    struct rb_column column;

    if (!size)
        return 0;
    for (int use = RB_FLOATS; use <= RB_NUMBERS; use++) {
        if (!rb_npy_open(&map, "npy", (enum rb_column_use)use, &column, NULL))
            read_all(&column);
        if (!rb_idx_open(&map, "idx", (enum rb_column_use)use, &column, NULL))
            read_all(&column);
    }
    if (!rb_tokens_open(&map, "tokens", &column, NULL) &&
        !rb_column_sequence(&column, "tokens", 3, NULL))
        read_all(&column);
    rb_text_open(&map, &column);
    if (!rb_column_sequence(&column, "text", 3, NULL))
        read_all(&column);
    return 0;
}
