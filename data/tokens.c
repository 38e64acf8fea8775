/* SPDX-License-Identifier: Apache-2.0 */
/* Token files: llm.c's, a header of 256 int32 (magic, version, count) and u16 or u32 tokens;
 * nanoGPT's, bare u16. */
#include "data/column.h"

#include <string.h>

enum {
    HEADER = 1024,
    MAGIC_U16 = 20240520,
    VERSION_U16 = 1,
    MAGIC_U32 = 20240801,
    VERSION_U32 = 7,
};

static int32_t word(const struct rb_map *map, int i)
{
    int32_t x;

    memcpy(&x, map->data + 4 * i, sizeof x);
    return x;
}

bool rb_tokens_match(const struct rb_map *map)
{
    return map->size >= 4 && (word(map, 0) == MAGIC_U16 || word(map, 0) == MAGIC_U32);
}

/* Check an llm.c header and set where its tokens lie. */
static int read_header(const struct rb_map *map, const char *path, struct rb_column *column,
                       struct rb_why *why)
{
    bool wide = word(map, 0) == MAGIC_U32;
    int32_t expected = wide ? VERSION_U32 : VERSION_U16;

    if (map->size < HEADER)
        return rb_why_set(why, RB_EINVAL, "%s ends inside its header: %zu bytes, expected %d", path,
                          map->size, HEADER);
    if (word(map, 1) != expected)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s is a token file of version %d; expected %d",
                          path, word(map, 1), expected);
    column->stored = rb_stored_find(wide ? "u4" : "u2");
    column->data = map->data + HEADER;
    column->elements = word(map, 2);
    if (column->elements < 0 ||
        (uint64_t)column->elements * column->stored->size != map->size - HEADER)
        return rb_why_set(why, RB_EINVAL,
                          "%s is damaged: its header counts %lld tokens of %zu bytes, found %zu "
                          "bytes after it",
                          path, (long long)column->elements, column->stored->size,
                          map->size - HEADER);
    return 0;
}

int rb_tokens_open(const struct rb_map *map, const char *path, struct rb_column *ret,
                   struct rb_why *why)
{
    struct rb_column column = {
        .stored = rb_stored_find("u2"),
        .data = map->data,
        .elements = (int64_t)(map->size / 2),
    };
    int err = 0;

    if (rb_tokens_match(map))
        err = read_header(map, path, &column, why);
    else if (map->size % 2)
        err = rb_why_set(why, RB_EINVAL,
                         "%s has %zu bytes; expected an even number (u16 tokens) or a header of "
                         "llm.c",
                         path, map->size);
    if (!err)
        *ret = column;
    return err;
}
