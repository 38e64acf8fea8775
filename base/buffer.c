/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

char *rb_buffer_reserve(struct rb_buffer *buffer, size_t size)
{
    size_t need = buffer->size + size + 1;

    if (need > buffer->room) {
        size_t room = buffer->room * 2 > need ? buffer->room * 2 : need + 64;

        buffer->data = rb_realloc(buffer->data, room);
        buffer->room = room;
    }
    buffer->data[buffer->size] = '\0';
    return buffer->data + buffer->size;
}

void rb_buffer_add(struct rb_buffer *buffer, const void *bytes, size_t size)
{
    char *end = rb_buffer_reserve(buffer, size);

    if (size)
        memcpy(end, bytes, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
}

void rb_buffer_text(struct rb_buffer *buffer, const char *text)
{
    rb_buffer_add(buffer, text, strlen(text));
}

void rb_buffer_format(struct rb_buffer *buffer, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = rb_format_list(format, args);
    va_end(args);
    rb_buffer_text(buffer, text);
    free(text);
}

void rb_buffer_drop(struct rb_buffer *buffer, size_t size)
{
    if (size >= buffer->size) {
        rb_buffer_clear(buffer);
        return;
    }
    memmove(buffer->data, buffer->data + size, buffer->size - size + 1);
    buffer->size -= size;
}

void rb_buffer_clear(struct rb_buffer *buffer)
{
    buffer->size = 0;
    if (buffer->data)
        buffer->data[0] = '\0';
}

void rb_buffer_done(struct rb_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct rb_buffer){0};
}

char *rb_buffer_take(struct rb_buffer *buffer)
{
    rb_buffer_reserve(buffer, 0);
    buffer->size = buffer->room = 0;
    return RB_TAKE(buffer->data);
}
