/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *rb_error_text(int err)
{
    switch (err) {
    case RB_OK:
        return "ok";
#define X(number, name, text)                                                                      \
    case RB_##name:                                                                                \
        return text;
        RB_ERR_MAP(X)
#undef X
    }
    return "unknown error";
}

int rb_error_from_errno(int number)
{
    switch (number) {
    case 0:
        return RB_OK;
    case ENOENT:
    case ENOTDIR:
        return RB_ENOTFOUND;
    case ENOMEM:
        return RB_ENOMEM;
    case ENOSPC:
    case EDQUOT:
        return RB_EFULL;
    case EEXIST:
    case EADDRINUSE:
        return RB_EEXISTS;
    case EACCES:
    case EPERM:
        return RB_EREFUSED;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return RB_EUNREACHABLE;
    case ECONNRESET:
    case EPIPE:
        return RB_EPEER;
    case ETIMEDOUT:
        return RB_ETIMEOUT;
    case EINVAL:
        return RB_EINVAL;
    }
    return RB_EIO;
}

int rb_error_fit(const char *text, int most)
{
    const int n = (int)strnlen(text, (size_t)most);
    int last = n - 1;
    unsigned char first;

    if (n < most)
        return n;
    while (last > 0 && n - last < 4 && ((unsigned char)text[last] & 0xc0) == 0x80)
        last--;
    first = n ? (unsigned char)text[last] : 0;
    return last + (first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1) > n ? last : n;
}

/* Writes what `format` says, all of it or up to the last whole character that fits. */
static int fill(struct rb_why *why, const char *format, va_list args)
{
    const int room = sizeof why->text - 1,
              used = vsnprintf(why->text, sizeof why->text, format, args);

    if (used <= room)
        return used < 0 ? 0 : used;
    why->text[rb_error_fit(why->text, room)] = '\0';
    return room;
}

int rb_why_set(struct rb_why *why, int err, const char *format, ...)
{
    va_list args;

    if (!why)
        return err;
    va_start(args, format);
    fill(why, format, args);
    va_end(args);
    return err;
}

int rb_why_add(struct rb_why *why, int err, const char *format, ...)
{
    char rest[sizeof why->text];
    va_list args;
    int used, room;

    if (!why)
        return err;
    snprintf(rest, sizeof rest, "%s", why->text[0] ? why->text : rb_error_text(err));
    va_start(args, format);
    used = fill(why, format, args);
    va_end(args);
    room = (int)sizeof why->text - used - 3;
    if (room > 0)
        snprintf(why->text + used, sizeof why->text - (size_t)used, ": %.*s",
                 rb_error_fit(rest, room), rest);
    return err;
}
