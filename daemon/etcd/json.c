/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/json.h"

#include "daemon/facts/writes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Requests ---------------------------------------------------------------------------------*/

static void set_bytes(json_t *object, const char *name, const char *bytes)
{
    struct rb_arena arena = {0};
    json_object_set_new(object, name, json_string(rb_base64_encode(&arena, bytes, strlen(bytes))));
    rb_arena_done(&arena);
}

static void set_number(json_t *object, const char *name, int64_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, number);
    json_object_set_new(object, name, json_string(text));
}

static char *finish(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!text)
        abort(); /* memory is out: small memory ends the process */
    return text;
}

char *rb_etcd_prefix_end(struct rb_arena *arena, const char *prefix)
{
    char *end = rb_arena_string(arena, prefix);
    size_t length = strlen(end);
    /* Prefixes end in '/' or a letter, never in the byte 255. */
    if (length)
        end[length - 1]++;
    return end;
}

char *rb_etcd_range_text(const char *key, const char *end, int64_t revision, int64_t limit)
{
    json_t *range = json_object();
    set_bytes(range, "key", key);
    if (end)
        set_bytes(range, "range_end", end);
    if (revision)
        set_number(range, "revision", revision);
    if (limit)
        set_number(range, "limit", limit);
    return finish(range);
}

char *rb_etcd_newest_text(const char *key, const char *end)
{
    json_t *range = json_object();
    set_bytes(range, "key", key);
    set_bytes(range, "range_end", end);
    set_number(range, "limit", 1);
    json_object_set_new(range, "sort_order", json_string("DESCEND"));
    json_object_set_new(range, "sort_target", json_string("MOD"));
    json_object_set_new(range, "keys_only", json_true());
    return finish(range);
}

static json_t *compare(const char *key, const char *target, const char *field, int64_t value)
{
    json_t *object = json_object();
    set_bytes(object, "key", key);
    json_object_set_new(object, "target", json_string(target));
    json_object_set_new(object, "result", json_string("EQUAL"));
    set_number(object, field, value);
    return object;
}

static json_t *operation(const char *key, const struct rb_write *write, int64_t lease)
{
    json_t *body = json_object();
    set_bytes(body, "key", key);
    const char *name = "request_delete_range";
    if (write->kind == RB_WRITE_PUT) {
        name = "request_put";
        set_bytes(body, "value", write->value);
        if (write->leased)
            set_number(body, "lease", lease);
    } else if (write->kind == RB_WRITE_DELETE_ALL) {
        struct rb_arena arena = {0};
        set_bytes(body, "range_end", rb_etcd_prefix_end(&arena, key));
        rb_arena_done(&arena);
    }
    json_t *object = json_object();
    json_object_set_new(object, name, body);
    return object;
}

/* The key gets a new revision; its value and lease stay. */
static json_t *touch(const char *key)
{
    json_t *body = json_object(), *object = json_object();
    set_bytes(body, "key", key);
    json_object_set_new(body, "ignore_value", json_true());
    json_object_set_new(body, "ignore_lease", json_true());
    json_object_set_new(object, "request_put", body);
    return object;
}

static void add_fence(json_t *compares, const char *key, const struct rb_fence *fence)
{
    json_array_append_new(compares, compare(key, "CREATE", "create_revision", fence->created));
    if (fence->revision)
        json_array_append_new(compares, compare(key, "MOD", "mod_revision", fence->revision));
}

char *rb_etcd_txn_text(const char *prefix, const struct rb_write *writes, size_t n, int64_t lease,
                       const struct rb_fence *fence)
{
    struct rb_arena arena = {0};
    json_t *compares = json_array(), *operations = json_array();
    const char *fenced = fence ? rb_arena_format(&arena, "%s%s", prefix, fence->key) : NULL;
    if (fence)
        add_fence(compares, fenced, fence);
    for (size_t i = 0; i < n; i++) {
        const char *key = rb_arena_format(&arena, "%s%s", prefix, writes[i].key);
        /* A key that is not there has create_revision 0, and mod_revision 0 too. */
        if (writes[i].revision != RB_ANY_REVISION)
            json_array_append_new(compares,
                                  compare(key, "MOD", "mod_revision", writes[i].revision));
        if (writes[i].kind != RB_WRITE_GUARD)
            json_array_append_new(operations, operation(key, &writes[i], lease));
    }
    if (fence && fence->revision) /* last, so that a watch told of it knows of all the others */
        json_array_append_new(operations, touch(fenced));
    rb_arena_done(&arena);
    json_t *txn = json_object();
    json_object_set_new(txn, "compare", compares);
    json_object_set_new(txn, "success", operations);
    return finish(txn);
}

char *rb_etcd_watch_text(const char *key, const char *end, int64_t start_revision)
{
    json_t *create = json_object();
    set_bytes(create, "key", key);
    if (end)
        set_bytes(create, "range_end", end);
    set_number(create, "start_revision", start_revision);
    json_object_set_new(create, "progress_notify", json_true());
    json_object_set_new(create, "fragment", json_true());
    json_t *request = json_object();
    json_object_set_new(request, "create_request", create);
    return finish(request);
}

char *rb_etcd_grant_text(int64_t ttl_s)
{
    json_t *grant = json_object();
    set_number(grant, "TTL", ttl_s);
    return finish(grant);
}

char *rb_etcd_lease_text(int64_t lease)
{
    json_t *body = json_object();
    set_number(body, "ID", lease);
    return finish(body);
}

/* ---- Answers ----------------------------------------------------------------------------------*/

/* A 64-bit number that may be a string, a number or absent (0). */
static int read_number(const json_t *object, const char *name, int64_t *ret, struct rb_why *why)
{
    const json_t *value = json_object_get(object, name);
    if (!value) {
        *ret = 0;
        return RB_OK;
    }
    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return RB_OK;
    }
    const char *text = json_string_value(value);
    char *end = NULL;
    errno = 0;
    long long number = text ? strtoll(text, &end, 10) : 0;
    if (!text || !*text || *end || errno)
        return rb_why_set(why, RB_EINVAL, "etcd: %s is not a number", name);
    *ret = number;
    return RB_OK;
}

static int read_revision(const json_t *json, int64_t *ret, struct rb_why *why)
{
    return read_number(json_object_get(json, "header"), "revision", ret, why);
}

static int read_bytes(const json_t *object, const char *name, struct rb_arena *arena,
                      const char **ret, size_t *ret_size, struct rb_why *why)
{
    const json_t *value = json_object_get(object, name);
    char *bytes = NULL;
    size_t size = 0;
    const char *text = value ? json_string_value(value) : "";
    if (!text || rb_base64_decode(arena, text, &bytes, &size))
        return rb_why_set(why, RB_EINVAL, "etcd: %s is not base64", name);
    *ret = bytes;
    *ret_size = size;
    return RB_OK;
}

static int read_kv(const json_t *json, struct rb_arena *arena, struct rb_etcd_kv *ret,
                   struct rb_why *why)
{
    size_t length;
    int err = read_bytes(json, "key", arena, &ret->key, &length, why);
    if (!err && (!length || strlen(ret->key) != length))
        err = rb_why_set(why, RB_EINVAL, "etcd: a key is empty or has a zero byte");
    if (!err)
        err = read_bytes(json, "value", arena, &ret->value, &ret->size, why);
    if (!err)
        err = read_number(json, "create_revision", &ret->created, why);
    if (!err)
        err = read_number(json, "mod_revision", &ret->revision, why);
    if (!err)
        err = read_number(json, "lease", &ret->lease, why);
    return err;
}

int rb_etcd_range_read(const json_t *json, struct rb_arena *arena, struct rb_etcd_range *ret,
                       struct rb_why *why)
{
    struct rb_etcd_range range = {0};
    const json_t *kvs = json_object_get(json, "kvs");
    int err = read_revision(json, &range.revision, why);
    range.more = json_is_true(json_object_get(json, "more"));
    range.n = json_array_size(kvs);
    range.kvs = RB_ARENA_NEW(arena, struct rb_etcd_kv, range.n + 1);
    for (size_t i = 0; i < range.n && !err; i++)
        err = read_kv(json_array_get(kvs, i), arena, &range.kvs[i], why);
    if (!err)
        *ret = range;
    return err;
}

int rb_etcd_txn_read(const json_t *json, struct rb_etcd_txn *ret, struct rb_why *why)
{
    struct rb_etcd_txn txn = {.succeeded = json_is_true(json_object_get(json, "succeeded"))};
    int err = read_revision(json, &txn.revision, why);
    if (!err && !txn.revision)
        err = rb_why_set(why, RB_EINVAL, "etcd: the answer to a transaction has no revision");
    if (!err)
        *ret = txn;
    return err;
}

static int read_event(const json_t *json, struct rb_arena *arena, struct rb_etcd_event *ret,
                      struct rb_why *why)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    ret->deleted = type && !strcmp(type, "DELETE");
    if (type && !ret->deleted && strcmp(type, "PUT"))
        return rb_why_set(why, RB_EINVAL, "etcd: an event of unknown type '%s'", type);
    return read_kv(json_object_get(json, "kv"), arena, &ret->kv, why);
}

int rb_etcd_watch_read(const json_t *json, struct rb_arena *arena, struct rb_etcd_watch *ret,
                       struct rb_why *why)
{
    const json_t *error = json_object_get(json, "error");
    if (error) {
        const char *text = json_string_value(json_object_get(error, "message"));
        return rb_why_set(why, RB_EUNREACHABLE, "etcd: the watch ended: %s",
                          text ? text : "no reason given");
    }
    const json_t *result = json_object_get(json, "result");
    if (!json_is_object(result))
        return rb_why_set(why, RB_EINVAL, "etcd: a line of a watch without result");
    const json_t *events = json_object_get(result, "events");
    struct rb_etcd_watch watch = {
        .created = json_is_true(json_object_get(result, "created")),
        .canceled = json_is_true(json_object_get(result, "canceled")),
        .fragment = json_is_true(json_object_get(result, "fragment")),
        .n = json_array_size(events),
    };
    int err = read_revision(result, &watch.revision, why);
    if (!err)
        err = read_number(result, "compact_revision", &watch.compacted, why);
    watch.progress = !watch.created && !watch.canceled && !watch.n;
    watch.events = RB_ARENA_NEW(arena, struct rb_etcd_event, watch.n + 1);
    for (size_t i = 0; i < watch.n && !err; i++)
        err = read_event(json_array_get(events, i), arena, &watch.events[i], why);
    if (!err)
        *ret = watch;
    return err;
}

int rb_etcd_lease_read(const json_t *json, struct rb_etcd_lease *ret, struct rb_why *why)
{
    /* A keep-alive is one message of a stream. */
    const json_t *result = json_object_get(json, "result");
    const json_t *body = result ? result : json;
    struct rb_etcd_lease lease = {0};
    int err = read_number(body, "ID", &lease.id, why);
    if (!err)
        err = read_number(body, "TTL", &lease.ttl_s, why);
    if (!err)
        err = read_revision(body, &lease.revision, why);
    if (!err && json_object_get(json, "error"))
        err = rb_etcd_error_read(503, json_object_get(json, "error"), why);
    if (!err)
        *ret = lease;
    return err;
}

int rb_etcd_error_read(long status, const json_t *json, struct rb_why *why)
{
    /* gRPC's numbers. */
    static const struct {
        int64_t code;
        int err;
    } codes[] = {
        {3, RB_EINVAL},  {5, RB_ENOTFOUND},     {7, RB_EREFUSED},  {8, RB_EFULL},
        {11, RB_ESTALE}, {14, RB_EUNREACHABLE}, {16, RB_EREFUSED},
    };
    int64_t code = 0;
    struct rb_why ignored;
    (void)read_number(json, "code", &code, &ignored);
    const char *text = json_string_value(json_object_get(json, "message"));
    if (!text)
        text = json_string_value(json_object_get(json, "error"));
    int err = RB_EUNREACHABLE;
    for (size_t i = 0; i < RB_COUNT(codes); i++)
        if (codes[i].code == code)
            err = codes[i].err;
    if (err == RB_EFULL && !(text && strstr(text, "space exceeded")))
        err = RB_EUNREACHABLE; /* the same code says "too many requests" */
    return rb_why_set(why, err, "etcd answered %ld: %s", status, text ? text : "no reason given");
}
