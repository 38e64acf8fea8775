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

int rb_why_set(struct rb_why *why, int err, const char *format, ...)
{
    va_list args;

    if (!why)
        return err;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return err;
}

int rb_why_add(struct rb_why *why, int err, const char *format, ...)
{
    char rest[sizeof why->text];
    va_list args;
    int used;

    if (!why)
        return err;
    snprintf(rest, sizeof rest, "%s", why->text[0] ? why->text : rb_error_text(err));
    va_start(args, format);
    used = vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used + 2 < sizeof why->text)
        snprintf(why->text + used, sizeof why->text - (size_t)used, ": %.*s",
                 (int)(sizeof rest - (size_t)used - 3), rest);
    return err;
}
