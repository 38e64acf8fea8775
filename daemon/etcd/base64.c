/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/json.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *rb_base64_encode(struct rb_arena *arena, const void *bytes, size_t size)
{
    const unsigned char *in = bytes;
    char *text = rb_arena_alloc(arena, (size + 2) / 3 * 4 + 1);
    char *out = text;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t group = (uint32_t)in[i] << 16;
        if (i + 1 < size)
            group |= (uint32_t)in[i + 1] << 8;
        if (i + 2 < size)
            group |= in[i + 2];
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = i + 1 < size ? digits[group >> 6 & 63] : '=';
        *out++ = i + 2 < size ? digits[group & 63] : '=';
    }
    return text;
}

/* -1 for what is no digit. */
static int digit_value(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int rb_base64_decode(struct rb_arena *arena, const char *text, char **ret, size_t *ret_size)
{
    size_t length = strlen(text);
    if (length % 4)
        return RB_EINVAL;
    size_t pad = length && text[length - 1] == '=' ? 1 : 0;
    if (pad && text[length - 2] == '=')
        pad = 2;
    char *bytes = rb_arena_alloc(arena, length / 4 * 3 + 1);
    size_t size = 0;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t group = 0;
        for (size_t j = 0; j < 4; j++) {
            bool padding = i + j >= length - pad;
            int value = padding ? 0 : digit_value(text[i + j]);
            if (value < 0)
                return RB_EINVAL;
            group = group << 6 | (uint32_t)value;
        }
        for (int shift = 16; shift >= 0; shift -= 8)
            bytes[size++] = (char)(group >> shift & 255);
    }
    size -= pad;
    bytes[size] = 0;
    *ret = bytes;
    *ret_size = size;
    return RB_OK;
}
