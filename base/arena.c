/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CHUNK = 2 * 1024, LAST_CHUNK = 64 * 1024, ALIGN = 16 };

struct rb_arena_chunk {
    struct rb_arena_chunk *next;
    size_t size, used;
    _Alignas(ALIGN) unsigned char bytes[];
};

static void *or_die(void *memory)
{
    if (!memory) {
        fputs("rubato: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *rb_alloc(size_t size)
{
    return or_die(calloc(1, size ? size : 1));
}

void *rb_alloc_raw(size_t size)
{
    return or_die(malloc(size ? size : 1));
}

void *rb_realloc(void *old, size_t size)
{
    return or_die(realloc(old, size ? size : 1));
}

char *rb_string(const char *text)
{
    return or_die(strdup(text));
}

char *rb_format_list(const char *format, va_list args)
{
    char *text = NULL;

    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    return or_die(text);
}

char *rb_format(const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = rb_format_list(format, args);
    va_end(args);
    return text;
}

void rb_freep(void *pointer_to_pointer)
{
    void *pointer;

    memcpy(&pointer, pointer_to_pointer, sizeof pointer);
    free(pointer);
}

/* Most arenas stay small, and zeroing is not free. */
static size_t next_size(const struct rb_arena_chunk *chunk)
{
    if (!chunk)
        return FIRST_CHUNK;
    return chunk->size < LAST_CHUNK / 2 ? chunk->size * 2 : LAST_CHUNK;
}

void *rb_arena_alloc(struct rb_arena *arena, size_t size)
{
    struct rb_arena_chunk *chunk = arena->chunk;
    void *memory;

    if (size > SIZE_MAX / 2)
        or_die(NULL);
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!chunk || chunk->size - chunk->used < size) {
        size_t want = size > next_size(chunk) ? size : next_size(chunk);
        struct rb_arena_chunk *fresh = rb_alloc(sizeof *fresh + want);

        fresh->size = want;
        fresh->next = chunk;
        arena->chunk = chunk = fresh;
    }
    memory = chunk->bytes + chunk->used;
    chunk->used += size;
    arena->used += size;
    return memory;
}

void *rb_arena_copy(struct rb_arena *arena, const void *bytes, size_t size)
{
    void *memory = rb_arena_alloc(arena, size);

    if (size)
        memcpy(memory, bytes, size);
    return memory;
}

char *rb_arena_string(struct rb_arena *arena, const char *text)
{
    return rb_arena_copy(arena, text, strlen(text) + 1);
}

char *rb_arena_format(struct rb_arena *arena, const char *format, ...)
{
    va_list args;
    char *text, *kept;

    va_start(args, format);
    text = rb_format_list(format, args);
    va_end(args);
    kept = rb_arena_string(arena, text);
    free(text);
    return kept;
}

void rb_arena_done(struct rb_arena *arena)
{
    while (arena->chunk) {
        struct rb_arena_chunk *next = arena->chunk->next;

        free(arena->chunk);
        arena->chunk = next;
    }
    arena->used = 0;
}
