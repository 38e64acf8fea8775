/* SPDX-License-Identifier: Apache-2.0 */
/* Text: any bytes, each an element. */
#include "data/column.h"

int rb_text_open(const struct rb_map *map, const char *path, int64_t seq_len, struct rb_column *ret,
                 struct rb_why *why)
{
    struct rb_column column = {.stored = rb_stored_find("u1"), .data = map->data};
    int err = rb_column_sequence(&column, path, (int64_t)map->size, seq_len, why);

    if (!err)
        *ret = column;
    return err;
}
