/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/writes.h"

#include "proto/reflect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *format_key(struct rb_writes *writes, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    char *key = rb_arena_alloc(&writes->arena, (size_t)(size < 0 ? 0 : size) + 1);
    vsnprintf(key, (size_t)(size < 0 ? 0 : size) + 1, format, again);
    va_end(again);
    return key;
}

static struct rb_write *append(struct rb_writes *writes, enum rb_write_kind kind, int64_t revision,
                               const char *key, va_list args)
{
    if (writes->n == writes->room) {
        writes->room = writes->room ? writes->room * 2 : 16;
        writes->at = rb_realloc(writes->at, writes->room * sizeof(*writes->at));
    }
    struct rb_write *write = &writes->at[writes->n++];
    *write = (struct rb_write){
        .kind = kind,
        .transaction = writes->transaction,
        .key = format_key(writes, key, args),
        .revision = revision,
    };
    return write;
}

static char *message_text(struct rb_writes *writes, const ProtobufCMessage *message)
{
    char *text = rb_reflect_to_text(message);
    char *copy = rb_arena_string(&writes->arena, text);
    free(text);
    return copy;
}

void rb_writes_put(struct rb_writes *writes, int64_t revision, const ProtobufCMessage *message,
                   const char *key, ...)
{
    va_list args;
    va_start(args, key);
    append(writes, RB_WRITE_PUT, revision, key, args)->value = message_text(writes, message);
    va_end(args);
}

void rb_writes_put_leased(struct rb_writes *writes, int64_t revision,
                          const ProtobufCMessage *message, const char *key, ...)
{
    va_list args;
    va_start(args, key);
    struct rb_write *write = append(writes, RB_WRITE_PUT, revision, key, args);
    write->value = message_text(writes, message);
    write->leased = true;
    va_end(args);
}

void rb_writes_event(struct rb_writes *writes, int64_t revision, const Rb__Event *event,
                     const char *apart, ...)
{
    va_list args;
    va_start(args, apart);
    rb_writes_put(writes, revision, &event->base, "events/%013" PRIu64 "-%s", event->time,
                  format_key(writes, apart, args));
    va_end(args);
}

void rb_writes_delete(struct rb_writes *writes, int64_t revision, const char *key, ...)
{
    va_list args;
    va_start(args, key);
    append(writes, RB_WRITE_DELETE, revision, key, args);
    va_end(args);
}

void rb_writes_delete_all(struct rb_writes *writes, const char *prefix, ...)
{
    va_list args;
    va_start(args, prefix);
    append(writes, RB_WRITE_DELETE_ALL, RB_ANY_REVISION, prefix, args);
    va_end(args);
}

void rb_writes_guard(struct rb_writes *writes, int64_t revision, const char *key, ...)
{
    va_list args;
    va_start(args, key);
    append(writes, RB_WRITE_GUARD, revision, key, args);
    va_end(args);
}

void rb_writes_next(struct rb_writes *writes)
{
    if (writes->n && writes->at[writes->n - 1].transaction == writes->transaction)
        writes->transaction++;
}

void rb_writes_done(struct rb_writes *writes)
{
    rb_arena_done(&writes->arena);
    free(writes->at);
    *writes = (struct rb_writes){0};
}
