/* SPDX-License-Identifier: Apache-2.0 */
/* Writes: changes to facts, as values, before anyone makes them.
 *
 * decide, agent rules, RPC methods > [writes] > store > one etcd transaction each
 *
 * Pure.  A list is cut into transactions; each is applied whole, if all its guards hold, or not at
 * all.  Zero is an empty list. */
#ifndef RB_DAEMON_FACTS_WRITES_H
#define RB_DAEMON_FACTS_WRITES_H

#include "base/arena.h"
#include "facts.pb-c.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RB_WRITES_MOST = 100, /* writes and guards in one transaction; etcd takes 128 */
    RB_ANY_REVISION = -1, /* write whatever is there */
    RB_ABSENT = 0,        /* only if there is no such key */
};

enum rb_write_kind {
    RB_WRITE_PUT,
    RB_WRITE_DELETE,
    RB_WRITE_DELETE_ALL, /* every key that starts with `key`: "jobs/ab12/" */
    RB_WRITE_GUARD,      /* only look at the revision */
};

struct rb_write {
    enum rb_write_kind kind;
    int transaction; /* counts from 0 */
    const char *key;
    const char *value; /* JSON; PUT only */
    int64_t revision;  /* RB_ANY_REVISION, RB_ABSENT, or what the key's revision must be */
    bool leased;       /* the key goes when this rubatod does */
};

/* What each transaction of a list goes by beside its own guards: `key` came into being at revision
 * `created`.  With `revision`, the key was also touched last at that revision, and the transaction
 * touches it again, so that the next transaction must know of this one.  A writer with such a fence
 * never goes by facts that lack what it has written before, even where it never heard whether that
 * was made. */
struct rb_fence {
    const char *key;
    int64_t created;  /* RB_ABSENT: there is no such key */
    int64_t revision; /* 0: whenever */
};

struct rb_writes {
    struct rb_arena arena;
    struct rb_write *at;
    size_t n, room;
    int transaction;
};

/* `key` is a format without the prefix: rb_writes_put(w, fact->revision, &wish->base,
 * "jobs/%s/wish", id).  The message is written out at once and stays the caller's. */
void rb_writes_put(struct rb_writes *writes, int64_t revision, const ProtobufCMessage *message,
                   const char *key, ...) __attribute__((format(printf, 4, 5)));
void rb_writes_put_leased(struct rb_writes *writes, int64_t revision,
                          const ProtobufCMessage *message, const char *key, ...)
    __attribute__((format(printf, 4, 5)));
/* An event.  Its key is its time, so that keys are in the order of time, and behind that a text of
 * the format `apart`, which keeps it apart from others of the same millisecond. */
void rb_writes_event(struct rb_writes *writes, int64_t revision, const Rb__Event *event,
                     const char *apart, ...) __attribute__((format(printf, 4, 5)));
void rb_writes_delete(struct rb_writes *writes, int64_t revision, const char *key, ...)
    __attribute__((format(printf, 3, 4)));
void rb_writes_delete_all(struct rb_writes *writes, const char *prefix, ...)
    __attribute__((format(printf, 2, 3)));
void rb_writes_guard(struct rb_writes *writes, int64_t revision, const char *key, ...)
    __attribute__((format(printf, 3, 4)));

/* What follows is a transaction of its own (one a job, so that jobs do not wait for each other).
 * Without writes since the last call it does nothing. */
void rb_writes_next(struct rb_writes *writes);

void rb_writes_done(struct rb_writes *writes);

#endif
