/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format.h"

#include <string.h>

static const char *const formats[] = {
    [RB_FORMAT_TEXT] = "text",
    [RB_FORMAT_TOKENS] = "tokens",
    [RB_FORMAT_NPY] = "npy",
    [RB_FORMAT_IDX] = "idx",
};

const char *rb_format_text(enum rb_format format)
{
    return formats[format];
}

int rb_format_find(const char *name, enum rb_format *ret, struct rb_why *why)
{
    for (size_t i = 0; i < RB_COUNT(formats); i++) {
        if (strcmp(formats[i], name))
            continue;
        *ret = (enum rb_format)i;
        return 0;
    }
    return rb_why_set(why, RB_EINVAL,
                      "data format %s is unknown; expected auto, text, tokens, npy or idx", name);
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);

    return size >= tail && !strcmp(text + size - tail, end);
}

/* A bare token file may begin with any bytes, so its name is asked before IDX's four bytes are. */
int rb_format_guess(const struct rb_map *map, const char *path, enum rb_format *ret,
                    struct rb_why *why)
{
    if (map->size >= 2 && map->data[0] == 0x1f && map->data[1] == 0x8b)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is compressed with gzip; expected plain data: unpack it with gunzip",
                          path);
    if (map->size >= 4 && !memcmp(map->data, "PK\3\4", 4))
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is an archive (.npz or .zip); expected one array: save it with "
                          "numpy.save",
                          path);
    if (rb_npy_match(map) || ends_with(path, ".npy"))
        *ret = RB_FORMAT_NPY;
    else if (rb_tokens_match(map) || ends_with(path, ".bin"))
        *ret = RB_FORMAT_TOKENS;
    else if (rb_idx_match(map) || ends_with(path, "-ubyte"))
        *ret = RB_FORMAT_IDX;
    else
        *ret = RB_FORMAT_TEXT;
    return 0;
}

bool rb_format_is_sequence(enum rb_format format)
{
    return format == RB_FORMAT_TEXT || format == RB_FORMAT_TOKENS;
}

int rb_format_open(enum rb_format format, const struct rb_map *map, const char *path,
                   enum rb_column_use use, struct rb_column *ret, struct rb_why *why)
{
    switch (format) {
    case RB_FORMAT_TEXT:
        rb_text_open(map, ret);
        return 0;
    case RB_FORMAT_TOKENS:
        return rb_tokens_open(map, path, ret, why);
    case RB_FORMAT_NPY:
        return rb_npy_open(map, path, use, ret, why);
    case RB_FORMAT_IDX:
        break;
    }
    return rb_idx_open(map, path, use, ret, why);
}
