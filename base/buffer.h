/* SPDX-License-Identifier: Apache-2.0 */
/* A growing run of bytes, for text and for messages.  All zero is an empty buffer. */
#ifndef RB_BASE_BUFFER_H
#define RB_BASE_BUFFER_H

#include <stddef.h>

struct rb_buffer {
    char *data; /* NUL-terminated whenever not NULL */
    size_t size, room;
};

void rb_buffer_add(struct rb_buffer *buffer, const void *bytes, size_t size);
void rb_buffer_text(struct rb_buffer *buffer, const char *text);
void rb_buffer_format(struct rb_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Make room for `size` more bytes and return where they go; add them to ->size yourself. */
char *rb_buffer_reserve(struct rb_buffer *buffer, size_t size);

/* Drop the first `size` bytes. */
void rb_buffer_drop(struct rb_buffer *buffer, size_t size);

void rb_buffer_clear(struct rb_buffer *buffer); /* keeps the memory */
void rb_buffer_done(struct rb_buffer *buffer);

/* Hand the text on; the caller frees it.  Never NULL. */
char *rb_buffer_take(struct rb_buffer *buffer);

#endif
