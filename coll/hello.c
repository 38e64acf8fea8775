/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hello.h"

#include <stdio.h>
#include <string.h>

enum { FIXED = 32, WELCOME_TEXT = 16 };

static const char hello_magic[8] = {'R', 'B', 'H', 'E', 'L', 'L', 'O', '1'};
static const char welcome_magic[8] = {'R', 'B', 'W', 'E', 'L', 'C', 'M', '1'};
_Static_assert(FIXED + 3 * (2 + RB_HELLO_TEXT) <= RB_HELLO_MAX, "the longest hello fits");
_Static_assert(WELCOME_TEXT + sizeof((struct rb_welcome *)0)->text <= RB_WELCOME_SIZE, "it fits");

static void put32(uint8_t *at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t get32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static size_t put_text(uint8_t *at, const char *text)
{
    size_t size = strnlen(text, RB_HELLO_TEXT - 1);

    at[0] = (uint8_t)size;
    at[1] = (uint8_t)(size >> 8);
    memcpy(at + 2, text, size);
    return 2 + size;
}

size_t rb_hello_encode(const struct rb_hello *hello, uint8_t bytes[RB_HELLO_MAX])
{
    size_t size = FIXED;

    memcpy(bytes, hello_magic, sizeof hello_magic);
    put32(bytes + 12, hello->configuration);
    put32(bytes + 16, hello->rank);
    put32(bytes + 20, hello->to);
    put32(bytes + 24, hello->size);
    put32(bytes + 28, hello->flags | (uint32_t)hello->dialect << 16);
    size += put_text(bytes + size, hello->job);
    size += put_text(bytes + size, hello->digest);
    size += put_text(bytes + size, hello->worker);
    put32(bytes + 8, (uint32_t)size);
    return size;
}

/* One text at *at; moves *at behind it. */
static bool get_text(const uint8_t *bytes, size_t size, size_t *at, char ret[RB_HELLO_TEXT])
{
    size_t length;

    if (size - *at < 2)
        return false;
    length = bytes[*at] | (size_t)bytes[*at + 1] << 8;
    *at += 2;
    if (length >= RB_HELLO_TEXT || length > size - *at || memchr(bytes + *at, 0, length))
        return false;
    memcpy(ret, bytes + *at, length);
    ret[length] = '\0';
    *at += length;
    return true;
}

int rb_hello_decode(const uint8_t *bytes, size_t size, struct rb_hello *ret, struct rb_why *why)
{
    size_t known = size < sizeof hello_magic ? size : sizeof hello_magic, all, at = FIXED;
    struct rb_hello hello = {0};

    if (memcmp(bytes, hello_magic, known))
        return rb_why_set(why, RB_EINVAL, "what came is no hello");
    if (size < 12)
        return RB_EAGAIN;
    all = get32(bytes + 8);
    if (all < FIXED || all > RB_HELLO_MAX)
        return rb_why_set(why, RB_EINVAL, "a hello says that it has %zu bytes", all);
    if (size > all)
        return rb_why_set(why, RB_EINVAL, "a hello of %zu bytes is followed by others", all);
    if (size < all)
        return RB_EAGAIN;
    hello.configuration = get32(bytes + 12);
    hello.rank = get32(bytes + 16);
    hello.to = get32(bytes + 20);
    hello.size = get32(bytes + 24);
    hello.flags = (uint16_t)get32(bytes + 28);
    hello.dialect = (uint16_t)(get32(bytes + 28) >> 16);
    if (!get_text(bytes, all, &at, hello.job) || !get_text(bytes, all, &at, hello.digest) ||
        !get_text(bytes, all, &at, hello.worker) || at != all)
        return rb_why_set(why, RB_EINVAL, "a hello's texts do not fill it");
    *ret = hello;
    return 0;
}

void rb_welcome_encode(const struct rb_welcome *welcome, uint8_t bytes[RB_WELCOME_SIZE])
{
    memset(bytes, 0, RB_WELCOME_SIZE);
    memcpy(bytes, welcome_magic, sizeof welcome_magic);
    put32(bytes + 8, (uint32_t)welcome->err);
    put32(bytes + 12, welcome->shared);
    memcpy(bytes + WELCOME_TEXT, welcome->text, strnlen(welcome->text, sizeof welcome->text - 1));
}

int rb_welcome_decode(const uint8_t bytes[RB_WELCOME_SIZE], struct rb_welcome *ret)
{
    struct rb_welcome welcome = {0};

    if (memcmp(bytes, welcome_magic, sizeof welcome_magic))
        return RB_EINVAL;
    welcome.err = (int32_t)get32(bytes + 8);
    if (welcome.err > 0)
        return RB_EINVAL;
    welcome.shared = get32(bytes + 12) != 0;
    memcpy(welcome.text, bytes + WELCOME_TEXT, sizeof welcome.text - 1);
    for (char *at = welcome.text; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = '?';
    *ret = welcome;
    return 0;
}
