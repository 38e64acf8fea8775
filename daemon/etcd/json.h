/* SPDX-License-Identifier: Apache-2.0 */
/* What etcd's HTTP gateway speaks: requests as JSON text, answers as values.
 *
 * store, lease, presence > [json] > etcd
 *
 * Pure.  64-bit numbers travel as strings, keys and values as base64, and fields that are zero,
 * false or empty are left out. */
#ifndef RB_DAEMON_ETCD_JSON_H
#define RB_DAEMON_ETCD_JSON_H

#include "base/arena.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rb_fence;
struct rb_write;

/* ---- Requests: the caller frees the text ------------------------------------------------------*/

/* All keys from `key` to before `end` (NULL: this key alone) as of `revision` (0: now), by key. */
char *rb_etcd_range_text(const char *key, const char *end, int64_t revision, int64_t limit);

/* Of all keys from `key` to before `end`, the one that was written last, without its value. */
char *rb_etcd_newest_text(const char *key, const char *end);

/* The end of the range of all keys that start with `prefix`. */
char *rb_etcd_prefix_end(struct rb_arena *arena, const char *prefix);

/* One transaction: `n` writes with their guards, behind `fence` (NULL: none); keys are below
 * `prefix`. */
char *rb_etcd_txn_text(const char *prefix, const struct rb_write *writes, size_t n, int64_t lease,
                       const struct rb_fence *fence);

char *rb_etcd_watch_text(const char *key, const char *end, int64_t start_revision);
char *rb_etcd_grant_text(int64_t ttl_s);
char *rb_etcd_lease_text(int64_t lease); /* keep alive, revoke */

/* ---- Answers: strings are the arena's ---------------------------------------------------------*/

struct rb_etcd_kv {
    const char *key;
    const char *value; /* NUL-terminated */
    size_t size;
    int64_t created, revision, lease;
};

struct rb_etcd_range {
    int64_t revision;
    struct rb_etcd_kv *kvs;
    size_t n;
    bool more;
};
int rb_etcd_range_read(const json_t *json, struct rb_arena *arena, struct rb_etcd_range *ret,
                       struct rb_why *why);

struct rb_etcd_txn {
    bool succeeded;
    int64_t revision;
};
int rb_etcd_txn_read(const json_t *json, struct rb_etcd_txn *ret, struct rb_why *why);

struct rb_etcd_event {
    bool deleted;
    struct rb_etcd_kv kv; /* deleted: key and revision only */
};
struct rb_etcd_watch {
    bool created, canceled, progress, fragment;
    int64_t compacted; /* the start revision is gone: list again */
    int64_t revision;
    struct rb_etcd_event *events;
    size_t n;
};
/* One line of a watch.  An error object is RB_EUNREACHABLE. */
int rb_etcd_watch_read(const json_t *json, struct rb_arena *arena, struct rb_etcd_watch *ret,
                       struct rb_why *why);

struct rb_etcd_lease {
    int64_t id;
    int64_t ttl_s; /* 0: there is no such lease */
    int64_t revision;
};
int rb_etcd_lease_read(const json_t *json, struct rb_etcd_lease *ret, struct rb_why *why);

/* The error of an answer with another status than 200: RB_ENOTFOUND for a lease that is gone,
 * RB_ESTALE for a compacted revision, RB_EFULL for no space, RB_EUNREACHABLE for no leader, ... */
int rb_etcd_error_read(long status, const json_t *json, struct rb_why *why);

/* Padded base64.  Decoding is strict; ret is the arena's, NUL-terminated. */
char *rb_base64_encode(struct rb_arena *arena, const void *bytes, size_t size);
int rb_base64_decode(struct rb_arena *arena, const char *text, char **ret, size_t *ret_size);

#endif
