/* SPDX-License-Identifier: Apache-2.0 */
/*   listing --> watching --+
 *      ^           ^       | the stream ends, or is behind: wait (back-off), watch on
 *      |           +-------+
 *      +-- compacted, or etcd has lost its past
 *
 * Every PROBE_MS etcd is asked whether the watch still tells everything (level.h). */
#include "daemon/etcd/watch.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/etcd/backoff.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/json.h"
#include "daemon/etcd/level.h"
#include "daemon/facts/mirror.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 500,
    LIST_MS = 5000,
    PROBE_MS = 2000,
};

struct rb_watch {
    struct rb_etcd *etcd;
    void (*changed)(void *context);
    void *context;
    uv_timer_t retry; /* list or watch again */
    uv_timer_t probe;
    struct rb_backoff backoff;
    struct rb_mirror *mirror;
    int64_t revision;       /* the mirror is level with etcd up to here; 0: must be listed */
    struct rb_mirror *next; /* being listed */
    int64_t listed;         /* the revision of the list under way */
    char *prefix_end;
    struct rb_arena arena;
    struct rb_etcd_call *call, *question;
    struct rb_level level;
    bool synced, connected, complained;
    int closing;
};

/* ---- Lost and found -------------------------------------------------------------------------- */

static void connect_again(uv_timer_t *timer);

static void set_connected(struct rb_watch *watch, bool connected)
{
    if (watch->connected == connected)
        return;
    watch->connected = connected;
    watch->changed(watch->context);
}

static void lost(struct rb_watch *watch, const struct rb_why *why)
{
    set_connected(watch, false);
    uint64_t wait = rb_backoff_next(&watch->backoff);
    if (!watch->complained && wait >= 400) {
        watch->complained = true;
        rb_log(RB_LOG_WARN, "%s; trying again", why->text[0] ? why->text : "etcd is lost");
    }
    uv_timer_start(&watch->retry, connect_again, wait, 0);
}

static void found(struct rb_watch *watch)
{
    if (watch->complained)
        rb_log(RB_LOG_INFO, "etcd is back");
    watch->complained = false;
    set_connected(watch, true);
    rb_backoff_reset(&watch->backoff);
}

/* ---- Watching -------------------------------------------------------------------------------- */

static void take_kv(struct rb_mirror *mirror, const struct rb_etcd_kv *kv)
{
    struct rb_why why = {0};
    size_t prefix = strlen(RB_FACTS_PREFIX);
    if (strncmp(kv->key, RB_FACTS_PREFIX, prefix))
        return;
    if (rb_mirror_put(mirror, kv->key + prefix, kv->value, kv->size, kv->revision, kv->created,
                      kv->lease, &why))
        rb_log(RB_LOG_WARN, "etcd: left out %s", why.text);
}

static void on_watch_line(const json_t *message, void *context)
{
    struct rb_watch *watch = context;
    struct rb_arena arena = {0};
    struct rb_etcd_watch told;
    struct rb_why why = {0};
    size_t prefix = strlen(RB_FACTS_PREFIX);
    int err = rb_etcd_watch_read(message, &arena, &told, &why);
    bool past_is_gone =
        !err &&
        (told.compacted || (told.created && !told.canceled && told.revision < watch->revision));
    if (err || told.canceled || past_is_gone) {
        if (past_is_gone)
            watch->revision = 0;
        rb_etcd_cancel(watch->call);
        watch->call = NULL;
        lost(watch, &why);
    } else if (told.created) {
        watch->level.expected = 0;
        found(watch);
    } else if (told.n) {
        for (size_t i = 0; i < told.n; i++) {
            const struct rb_etcd_kv *kv = &told.events[i].kv;
            if (!told.events[i].deleted)
                take_kv(watch->mirror, kv);
            else if (!strncmp(kv->key, RB_FACTS_PREFIX, prefix))
                rb_mirror_delete(watch->mirror, kv->key + prefix);
        }
        if (!told.fragment) {
            watch->revision = told.revision;
            rb_level_heard(&watch->level, told.revision);
            rb_mirror_set_revision(watch->mirror, told.revision);
            watch->changed(watch->context);
        }
    }
    if (!err && told.progress)
        rb_level_heard(&watch->level, told.revision);
    rb_arena_done(&arena);
}

static void on_watch_ended(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_watch *watch = context;
    (void)err;
    (void)answer;
    watch->call = NULL;
    lost(watch, why);
}

/* From the newest revision that the mirror has, not from the one behind it: a compaction at the
 * first revision of a watch is not told, and takes the deletions of that revision with it.  What is
 * taken twice changes nothing. */
static void follow(struct rb_watch *watch)
{
    watch->call = rb_etcd_watch(
        watch->etcd, rb_etcd_watch_text(RB_FACTS_PREFIX, watch->prefix_end, watch->revision),
        on_watch_line, on_watch_ended, watch);
}

/* ---- Is it level? ---------------------------------------------------------------------------- */

/* The watch stands but does not tell: look at the next endpoint. */
static void give_up_watch(struct rb_watch *watch, const char *what)
{
    struct rb_why why = {0};
    rb_why_set(&why, RB_ETIMEOUT, "etcd at %s: %s", rb_etcd_names(watch->etcd), what);
    rb_etcd_cancel(watch->call);
    watch->call = NULL;
    watch->level.unanswered = 0;
    rb_etcd_turn(watch->etcd);
    lost(watch, &why);
}

/* etcd's revision, and that of the first key of the answer; false: there is no answer. */
static bool read_revisions(int err, const json_t *answer, int64_t *ret_revision, int64_t *ret_first)
{
    struct rb_arena arena = {0};
    struct rb_etcd_range range = {0};
    struct rb_why ignored;
    if (!err)
        err = rb_etcd_range_read(answer, &arena, &range, &ignored);
    *ret_revision = err ? 0 : range.revision;
    *ret_first = !err && range.n ? range.kvs[0].revision : 0;
    rb_arena_done(&arena);
    return !err;
}

static void on_newest(int err, const struct rb_why *why, const json_t *answer, void *context);

static void act(struct rb_watch *watch, enum rb_level_next next)
{
    switch (next) {
    case RB_LEVEL_ASK:
        watch->question = rb_etcd_post(watch->etcd, "/v3/kv/range",
                                       rb_etcd_newest_text(RB_FACTS_PREFIX, watch->prefix_end),
                                       LIST_MS, on_newest, watch);
        break;
    case RB_LEVEL_BEHIND:
        give_up_watch(watch, "the watch is behind");
        break;
    case RB_LEVEL_SILENT:
        give_up_watch(watch, "it does not answer");
        break;
    default:
        break;
    }
}

static void on_newest(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_watch *watch = context;
    int64_t revision, newest;
    bool answered = read_revisions(err, answer, &revision, &newest);
    (void)why;
    watch->question = NULL;
    if (watch->connected)
        act(watch, rb_level_newest(&watch->level, answered, newest));
}

static void on_answer(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_watch *watch = context;
    int64_t revision, first;
    bool answered = read_revisions(err, answer, &revision, &first);
    (void)why;
    watch->question = NULL;
    if (watch->connected)
        act(watch, rb_level_answer(&watch->level, answered, revision));
}

static void ask(uv_timer_t *timer)
{
    struct rb_watch *watch = timer->data;
    if (watch->connected && !watch->question)
        watch->question = rb_etcd_post(watch->etcd, "/v3/kv/range",
                                       rb_etcd_range_text(RB_FACTS_PREFIX, NULL, 0, 1), PROBE_MS,
                                       on_answer, watch);
}

/* ---- Listing --------------------------------------------------------------------------------- */

static void on_listed(int err, const struct rb_why *why, const json_t *answer, void *context);

static void list(struct rb_watch *watch, const char *from)
{
    watch->call = rb_etcd_post(watch->etcd, "/v3/kv/range",
                               rb_etcd_range_text(from, watch->prefix_end, watch->listed, PAGE),
                               LIST_MS, on_listed, watch);
}

static void list_over(struct rb_watch *watch)
{
    rb_mirror_free(watch->mirror);
    watch->mirror = RB_TAKE(watch->next);
    watch->revision = watch->level.heard = watch->listed;
    rb_mirror_set_revision(watch->mirror, watch->revision);
    watch->synced = true;
    watch->changed(watch->context);
    follow(watch);
}

static void on_listed(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_watch *watch = context;
    struct rb_arena arena = {0};
    struct rb_etcd_range range;
    struct rb_why reason = why ? *why : (struct rb_why){0};
    watch->call = NULL;
    if (!err)
        err = rb_etcd_range_read(answer, &arena, &range, &reason);
    if (err) {
        lost(watch, &reason);
        rb_arena_done(&arena);
        return;
    }
    for (size_t i = 0; i < range.n; i++)
        take_kv(watch->next, &range.kvs[i]);
    if (!watch->listed)
        watch->listed = range.revision;
    if (range.more && range.n) {
        /* The next key after this one in byte order is the one with a zero byte behind; base64 of a
         * C string cannot say that, so ask from the key itself: it is only taken twice. */
        list(watch, range.kvs[range.n - 1].key);
    } else {
        list_over(watch);
    }
    rb_arena_done(&arena);
}

static void connect_again(uv_timer_t *timer)
{
    struct rb_watch *watch = timer->data;
    if (watch->revision) {
        follow(watch);
        return;
    }
    rb_mirror_free(watch->next);
    watch->next = rb_mirror_new();
    watch->listed = 0;
    list(watch, RB_FACTS_PREFIX);
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_watch *rb_watch_new(uv_loop_t *loop, struct rb_etcd *etcd, void (*changed)(void *context),
                              void *context)
{
    struct rb_watch *watch = rb_alloc(sizeof(*watch));
    watch->etcd = etcd;
    watch->changed = changed;
    watch->context = context;
    watch->mirror = rb_mirror_new();
    watch->prefix_end = rb_etcd_prefix_end(&watch->arena, RB_FACTS_PREFIX);
    uv_timer_init(loop, &watch->retry);
    uv_timer_init(loop, &watch->probe);
    watch->retry.data = watch->probe.data = watch;
    uv_timer_start(&watch->probe, ask, PROBE_MS, PROBE_MS);
    uv_timer_start(&watch->retry, connect_again, 0, 0);
    return watch;
}

struct rb_mirror *rb_watch_mirror(const struct rb_watch *watch)
{
    return watch->mirror;
}

int64_t rb_watch_revision(const struct rb_watch *watch)
{
    return watch->revision;
}

bool rb_watch_synced(const struct rb_watch *watch)
{
    return watch->synced;
}

bool rb_watch_connected(const struct rb_watch *watch)
{
    return watch->connected;
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_watch *watch = handle->data;
    if (--watch->closing)
        return;
    rb_mirror_free(watch->mirror);
    rb_mirror_free(watch->next);
    rb_arena_done(&watch->arena);
    free(watch);
}

void rb_watch_free(struct rb_watch *watch)
{
    rb_etcd_cancel(watch->call);
    rb_etcd_cancel(watch->question);
    watch->call = watch->question = NULL;
    watch->closing = 2;
    uv_close((uv_handle_t *)&watch->probe, on_closed);
    uv_close((uv_handle_t *)&watch->retry, on_closed);
}
