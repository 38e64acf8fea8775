/* SPDX-License-Identifier: Apache-2.0 */
/* IDX, the files of MNIST: 0, 0, element type, number of axes; big-endian u32 axes; elements. */
#include "data/column.h"

enum { U8 = 0x08, I8, I16 = 0x0b, F64 = 0x0e };

bool rb_idx_match(const struct rb_map *map)
{
    const uint8_t *bytes = map->data;

    return map->size >= 4 && !bytes[0] && !bytes[1] &&
           (bytes[2] == U8 || bytes[2] == I8 || (bytes[2] >= I16 && bytes[2] <= F64)) &&
           bytes[3] >= 1 && bytes[3] <= RB_MAX_RANK + 1;
}

int rb_idx_open(const struct rb_map *map, const char *path, enum rb_column_use use,
                struct rb_column *ret, struct rb_why *why)
{
    struct rb_column column = {.stored = rb_stored_find("u1")};
    const uint8_t *bytes = map->data;
    int64_t axes[RB_MAX_RANK + 1];
    size_t header;
    int err;

    if (map->size < 4 || bytes[0] || bytes[1])
        return rb_why_set(why, RB_EINVAL, "%s is no IDX file: expected it to start with two zeros",
                          path);
    if (bytes[2] != U8)
        return rb_why_set(
            why, RB_EUNSUPPORTED,
            "%s holds elements of IDX type 0x%02x; expected 0x08 (unsigned bytes): save it as .npy",
            path, bytes[2]);
    if (bytes[3] < 1 || bytes[3] > RB_MAX_RANK + 1)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s has %d axes; expected 1 to %d", path, bytes[3],
                          RB_MAX_RANK + 1);
    header = 4 + 4 * (size_t)bytes[3];
    if (map->size < header)
        return rb_why_set(why, RB_EINVAL, "%s ends inside its header: %zu bytes, expected %zu",
                          path, map->size, header);
    for (int i = 0; i < bytes[3]; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;

        axes[i] = (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
    }
    err = rb_column_shape(&column, path, axes, bytes[3], map->size - header, why);
    if (err)
        return err;
    column.data = bytes + header;
    column.type.dtype = use == RB_FLOATS ? RB_F32 : RB_I64;
    column.convert = use == RB_FLOATS ? rb_convert_unit : column.stored->to_i64;
    *ret = column;
    return 0;
}
