/* SPDX-License-Identifier: Apache-2.0 */
/* Text: any bytes, each an element. */
#include "data/column.h"

void rb_text_open(const struct rb_map *map, struct rb_column *ret)
{
    *ret = (struct rb_column){
        .stored = rb_stored_find("u1"),
        .data = map->data,
        .elements = (int64_t)map->size,
    };
}
