/* SPDX-License-Identifier: Apache-2.0 */
/* An arena: memory with one lifetime, given back all at once.
 *
 * graph, plan, decoded messages > [arena]
 *
 * Small memory that runs out ends the process (a dead worker or daemon is an ordinary event of
 * this system); large memory (tensors, files) is asked for with malloc and checked. */
#ifndef RB_BASE_ARENA_H
#define RB_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct rb_arena {
    struct rb_arena_chunk *chunk; /* newest first; all zero is an empty arena */
    size_t used;                  /* bytes handed out in all */
};

/* `size` zeroed bytes, 16-byte aligned, never NULL. */
void *rb_arena_alloc(struct rb_arena *arena, size_t size);
void *rb_arena_copy(struct rb_arena *arena, const void *bytes, size_t size);
char *rb_arena_string(struct rb_arena *arena, const char *text);
char *rb_arena_format(struct rb_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define RB_ARENA_NEW(arena, type, count)                                                           \
    ((type *)rb_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* Give everything back; the arena may be used again. */
void rb_arena_done(struct rb_arena *arena);

/* malloc, realloc, strdup, asprintf that end the process when memory runs out. */
void *rb_alloc(size_t size);     /* zeroed */
void *rb_alloc_raw(size_t size); /* not zeroed: large, and written before it is read */
void *rb_realloc(void *old, size_t size);
char *rb_string(const char *text);
char *rb_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *rb_format_list(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

/* For RB_CLEANUP: free what a `char *` or other owned pointer points to. */
void rb_freep(void *pointer_to_pointer);

#endif
