/* SPDX-License-Identifier: Apache-2.0 */
/*   listing --> watching --+
 *      ^           ^       | the stream ends, or is behind: wait (back-off), watch on
 *      |           +-------+
 *      +-- compacted, or etcd has lost its past
 *
 * Is a silent watch one with nothing to say?  A small question every PROBE_MS tells how far etcd
 * is; a watch that has not come so far by the next one is opened anew. */
#include "daemon/etcd/store.h"

#include "base/log.h"
#include "daemon/etcd/backoff.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 500,
    CALL_MS = 5000,
    PROBE_MS = 2000,
    PROBES_LOST = 2,    /* unanswered ones that end the watch */
    CATCH_UP_MS = 2000, /* how long a commit waits for the watch to bring what it wrote */
    WATCHERS_MOST = 16,
    VALUE_MOST = 1 << 20,
};

struct commit {
    struct commit *next;
    struct rb_store *store;
    struct rb_writes writes;
    size_t first, end; /* the transaction under way */
    char *guard;
    int64_t guard_created;
    int64_t revision; /* of the newest transaction made */
    uint64_t deadline;
    bool finished; /* nothing is under way any more */
    int err;
    struct rb_why why;
    struct rb_etcd_call *call;
    rb_store_committed *done;
    void *context;
};

struct rb_store {
    uv_loop_t *loop;
    struct rb_etcd *etcd;
    uv_timer_t retry; /* list or watch again */
    uv_timer_t probe;
    uv_timer_t notify; /* tells watchers and ends commits: never from within etcd's callbacks */
    struct rb_backoff backoff;
    struct rb_mirror *mirror;
    int64_t revision;       /* the mirror is level with etcd up to here; 0: must be listed */
    struct rb_mirror *next; /* being listed */
    int64_t listed;         /* the revision of the list under way */
    char *prefix_end;
    struct rb_arena arena;
    struct rb_etcd_call *call, *question;
    int64_t heard;    /* the watch has told everything up to here */
    int64_t expected; /* what the last question said: the watch must be there by the next */
    unsigned unanswered;
    bool synced, connected, changed, complained;
    int64_t lease;
    struct commit *commits;
    struct {
        void (*changed)(void *context);
        void *context;
    } watchers[WATCHERS_MOST];
    size_t n_watchers;
    int closing;
};

/* ---- Telling --------------------------------------------------------------------------------- */

static void on_notify(uv_timer_t *timer);

static void notify_in(struct rb_store *store, uint64_t ms)
{
    if (!uv_is_active((uv_handle_t *)&store->notify) || uv_timer_get_due_in(&store->notify) > ms)
        uv_timer_start(&store->notify, on_notify, ms, 0);
}

static void commit_free(struct commit *commit)
{
    rb_etcd_cancel(commit->call);
    rb_writes_done(&commit->writes);
    free(commit->guard);
    free(commit);
}

/* Take one commit that is over off the list; NULL when there is none.  Otherwise *ret_next says how
 * long the first of the others still waits. */
static struct commit *take_finished(struct rb_store *store)
{
    uint64_t now = uv_now(store->loop), wait = UINT64_MAX;
    for (struct commit **at = &store->commits; *at; at = &(*at)->next) {
        struct commit *commit = *at;
        if (!commit->finished)
            continue;
        if (commit->revision <= store->revision || now >= commit->deadline) {
            *at = commit->next;
            return commit;
        }
        if (commit->deadline - now < wait)
            wait = commit->deadline - now;
    }
    if (wait != UINT64_MAX)
        notify_in(store, wait);
    return NULL;
}

static void on_notify(uv_timer_t *timer)
{
    struct rb_store *store = timer->data;
    for (struct commit *commit; (commit = take_finished(store));) {
        if (commit->done)
            commit->done(commit->err, &commit->why, commit->context);
        commit_free(commit);
    }
    if (!store->changed)
        return;
    store->changed = false;
    for (size_t i = 0; i < store->n_watchers; i++)
        store->watchers[i].changed(store->watchers[i].context);
}

static void facts_changed(struct rb_store *store)
{
    store->changed = true;
    notify_in(store, 0);
}

/* ---- Listing and watching -------------------------------------------------------------------- */

static void connect_again(uv_timer_t *timer);

static void lost(struct rb_store *store, const struct rb_why *why)
{
    if (store->connected)
        facts_changed(store);
    store->connected = false;
    uint64_t wait = rb_backoff_next(&store->backoff);
    if (!store->complained && wait >= 400) {
        store->complained = true;
        rb_log(RB_LOG_WARN, "%s; trying again", why->text[0] ? why->text : "etcd is lost");
    }
    uv_timer_start(&store->retry, connect_again, wait, 0);
}

static void found(struct rb_store *store)
{
    if (store->complained)
        rb_log(RB_LOG_INFO, "etcd is back");
    store->complained = false;
    if (!store->connected)
        facts_changed(store);
    store->connected = true;
    rb_backoff_reset(&store->backoff);
}

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
    struct rb_store *store = context;
    struct rb_arena arena = {0};
    struct rb_etcd_watch watch;
    struct rb_why why = {0};
    size_t prefix = strlen(RB_FACTS_PREFIX);
    int err = rb_etcd_watch_read(message, &arena, &watch, &why);
    bool past_is_gone =
        !err &&
        (watch.compacted || (watch.created && !watch.canceled && watch.revision < store->revision));
    if (err || watch.canceled || past_is_gone) {
        if (past_is_gone)
            store->revision = 0;
        rb_etcd_cancel(store->call);
        store->call = NULL;
        lost(store, &why);
    } else if (watch.created) {
        store->expected = 0;
        found(store);
    } else if (watch.n) {
        for (size_t i = 0; i < watch.n; i++) {
            const struct rb_etcd_kv *kv = &watch.events[i].kv;
            if (!watch.events[i].deleted)
                take_kv(store->mirror, kv);
            else if (!strncmp(kv->key, RB_FACTS_PREFIX, prefix))
                rb_mirror_delete(store->mirror, kv->key + prefix);
        }
        if (!watch.fragment) {
            store->revision = store->heard = watch.revision;
            rb_mirror_set_revision(store->mirror, watch.revision);
            facts_changed(store);
        }
    }
    if (!err && watch.progress && watch.revision > store->heard)
        store->heard = watch.revision;
    rb_arena_done(&arena);
}

static void on_watch_ended(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_store *store = context;
    (void)err;
    (void)answer;
    store->call = NULL;
    lost(store, why);
}

/* The watch stands but does not tell: look at the next endpoint. */
static void give_up_watch(struct rb_store *store, const char *what)
{
    struct rb_why why = {0};
    rb_why_set(&why, RB_ETIMEOUT, "etcd at %s: %s", rb_etcd_names(store->etcd), what);
    rb_etcd_cancel(store->call);
    store->call = NULL;
    store->unanswered = 0;
    rb_etcd_turn(store->etcd);
    lost(store, &why);
}

static void on_answer(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_store *store = context;
    struct rb_arena arena = {0};
    struct rb_etcd_range range = {0};
    struct rb_why ignored;
    (void)why;
    store->question = NULL;
    if (!err)
        err = rb_etcd_range_read(answer, &arena, &range, &ignored);
    rb_arena_done(&arena);
    if (!store->connected)
        return;
    store->unanswered = err ? store->unanswered + 1 : 0;
    if (store->unanswered >= PROBES_LOST) {
        give_up_watch(store, "it does not answer");
    } else if (!err && store->expected > store->heard) {
        /* What others write elsewhere in the same etcd moves its revision too: a new watch that has
         * nothing to tell is level with it. */
        store->heard = store->expected;
        give_up_watch(store, "the watch is behind");
    } else if (!err) {
        store->expected = range.revision;
    }
}

static void ask(uv_timer_t *timer)
{
    struct rb_store *store = timer->data;
    if (store->connected && !store->question)
        store->question = rb_etcd_post(store->etcd, "/v3/kv/range",
                                       rb_etcd_range_text(RB_FACTS_PREFIX, NULL, 0, 1), PROBE_MS,
                                       on_answer, store);
}

/* From the newest revision that the mirror has, not from the one behind it: a compaction at the
 * first revision of a watch is not told, and takes the deletions of that revision with it.  What is
 * taken twice changes nothing. */
static void watch(struct rb_store *store)
{
    store->call = rb_etcd_watch(
        store->etcd, rb_etcd_watch_text(RB_FACTS_PREFIX, store->prefix_end, store->revision),
        on_watch_line, on_watch_ended, store);
}

static void on_listed(int err, const struct rb_why *why, const json_t *answer, void *context);

static void list(struct rb_store *store, const char *from)
{
    store->call = rb_etcd_post(store->etcd, "/v3/kv/range",
                               rb_etcd_range_text(from, store->prefix_end, store->listed, PAGE),
                               CALL_MS, on_listed, store);
}

static void list_over(struct rb_store *store)
{
    rb_mirror_free(store->mirror);
    store->mirror = RB_TAKE(store->next);
    store->revision = store->heard = store->listed;
    rb_mirror_set_revision(store->mirror, store->revision);
    store->synced = true;
    facts_changed(store);
    watch(store);
}

static void on_listed(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct rb_store *store = context;
    struct rb_arena arena = {0};
    struct rb_etcd_range range;
    struct rb_why reason = why ? *why : (struct rb_why){0};
    store->call = NULL;
    if (!err)
        err = rb_etcd_range_read(answer, &arena, &range, &reason);
    if (err) {
        lost(store, &reason);
        rb_arena_done(&arena);
        return;
    }
    for (size_t i = 0; i < range.n; i++)
        take_kv(store->next, &range.kvs[i]);
    if (!store->listed)
        store->listed = range.revision;
    if (range.more && range.n) {
        /* The next key after this one in byte order is the one with a zero byte behind; base64 of a
         * C string cannot say that, so ask from the key itself: it is only taken twice. */
        list(store, range.kvs[range.n - 1].key);
    } else {
        list_over(store);
    }
    rb_arena_done(&arena);
}

static void connect_again(uv_timer_t *timer)
{
    struct rb_store *store = timer->data;
    if (store->revision) {
        watch(store);
        return;
    }
    rb_mirror_free(store->next);
    store->next = rb_mirror_new();
    store->listed = 0;
    list(store, RB_FACTS_PREFIX);
}

/* ---- Commits --------------------------------------------------------------------------------- */

static void commit_next(struct commit *commit);

static void commit_over(struct commit *commit)
{
    commit->finished = true;
    commit->deadline = uv_now(commit->store->loop) + CATCH_UP_MS;
    notify_in(commit->store, 0);
}

static void commit_failed(struct commit *commit, int err, const struct rb_why *why)
{
    if (commit->err)
        return;
    commit->err = err;
    commit->why = *why;
}

static void on_txn(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct commit *commit = context;
    struct rb_etcd_txn txn;
    struct rb_why reason = why ? *why : (struct rb_why){0};
    commit->call = NULL;
    if (!err)
        err = rb_etcd_txn_read(answer, &txn, &reason);
    if (err) {
        commit_failed(commit, err, &reason);
        if (err == RB_EUNREACHABLE || err == RB_ETIMEOUT) {
            commit_over(commit);
            return;
        }
    } else if (!txn.succeeded) {
        rb_why_set(&reason, RB_ESTALE, "%s has changed meanwhile",
                   commit->writes.at[commit->first].key);
        commit_failed(commit, RB_ESTALE, &reason);
    } else {
        commit->revision = txn.revision;
    }
    commit->first = commit->end;
    commit_next(commit);
}

static int check_transaction(const struct rb_store *store, const struct commit *commit,
                             struct rb_why *why)
{
    if (commit->end - commit->first > RB_WRITES_MOST)
        return rb_why_set(why, RB_ELIMIT, "%zu writes in one transaction",
                          commit->end - commit->first);
    size_t size = 0;
    for (size_t i = commit->first; i < commit->end; i++) {
        const struct rb_write *write = &commit->writes.at[i];
        size += write->value ? strlen(write->value) : 0;
        if (size > VALUE_MOST)
            return rb_why_set(why, RB_ELIMIT, "%s: more than 1 MiB in one transaction", write->key);
        if (write->leased && !store->lease)
            return rb_why_set(why, RB_EUNREACHABLE, "there is no lease for %s yet", write->key);
    }
    return RB_OK;
}

static void commit_next(struct commit *commit)
{
    const struct rb_writes *writes = &commit->writes;
    struct rb_store *store = commit->store;
    while (commit->first < writes->n) {
        struct rb_why why = {0};
        commit->end = commit->first;
        while (commit->end < writes->n &&
               writes->at[commit->end].transaction == writes->at[commit->first].transaction)
            commit->end++;
        int err = check_transaction(store, commit, &why);
        if (!err) {
            commit->call =
                rb_etcd_post(store->etcd, "/v3/kv/txn",
                             rb_etcd_txn_text(RB_FACTS_PREFIX, &writes->at[commit->first],
                                              commit->end - commit->first, store->lease,
                                              commit->guard, commit->guard_created),
                             CALL_MS, on_txn, commit);
            return;
        }
        commit_failed(commit, err, &why);
        commit->first = commit->end;
    }
    commit_over(commit);
}

static void copy_writes(struct rb_writes *to, const struct rb_writes *from)
{
    to->at = rb_alloc((from->n + 1) * sizeof(*to->at));
    to->n = to->room = from->n;
    for (size_t i = 0; i < from->n; i++) {
        to->at[i] = from->at[i];
        to->at[i].key = rb_arena_string(&to->arena, from->at[i].key);
        if (from->at[i].value)
            to->at[i].value = rb_arena_string(&to->arena, from->at[i].value);
    }
}

void rb_store_commit(struct rb_store *store, const struct rb_writes *writes, const char *guard,
                     int64_t guard_created, rb_store_committed *done, void *context)
{
    struct commit *commit = rb_alloc(sizeof(*commit));
    commit->store = store;
    copy_writes(&commit->writes, writes);
    commit->guard = guard ? rb_string(guard) : NULL;
    commit->guard_created = guard_created;
    commit->done = done;
    commit->context = context;
    struct commit **last = &store->commits;
    while (*last)
        last = &(*last)->next;
    *last = commit;
    commit_next(commit);
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_store *rb_store_new(uv_loop_t *loop, struct rb_etcd *etcd)
{
    struct rb_store *store = rb_alloc(sizeof(*store));
    store->loop = loop;
    store->etcd = etcd;
    store->mirror = rb_mirror_new();
    store->prefix_end = rb_etcd_prefix_end(&store->arena, RB_FACTS_PREFIX);
    uv_timer_init(loop, &store->retry);
    uv_timer_init(loop, &store->notify);
    uv_timer_init(loop, &store->probe);
    store->retry.data = store->notify.data = store->probe.data = store;
    uv_timer_start(&store->probe, ask, PROBE_MS, PROBE_MS);
    uv_timer_start(&store->retry, connect_again, 0, 0);
    return store;
}

void rb_store_watch(struct rb_store *store, void (*changed)(void *context), void *context)
{
    if (store->n_watchers == WATCHERS_MOST)
        abort(); /* rubatod has a handful */
    store->watchers[store->n_watchers].changed = changed;
    store->watchers[store->n_watchers++].context = context;
}

const struct rb_facts *rb_store_facts(struct rb_store *store)
{
    return rb_mirror_facts(store->mirror);
}

bool rb_store_synced(const struct rb_store *store)
{
    return store->synced;
}

bool rb_store_connected(const struct rb_store *store)
{
    return store->connected;
}

void rb_store_set_lease(struct rb_store *store, int64_t lease)
{
    store->lease = lease;
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_store *store = handle->data;
    if (--store->closing)
        return;
    rb_mirror_free(store->mirror);
    rb_mirror_free(store->next);
    rb_arena_done(&store->arena);
    free(store);
}

void rb_store_free(struct rb_store *store)
{
    if (!store)
        return;
    rb_etcd_cancel(store->call);
    rb_etcd_cancel(store->question);
    store->call = store->question = NULL;
    store->n_watchers = 0;
    for (struct commit *commit; (commit = store->commits);) {
        struct rb_why why = {0};
        store->commits = commit->next;
        if (commit->done)
            commit->done(rb_why_set(&why, RB_ECANCELED, "rubatod is stopping"), &why,
                         commit->context);
        commit_free(commit);
    }
    store->closing = 3;
    uv_close((uv_handle_t *)&store->probe, on_closed);
    uv_close((uv_handle_t *)&store->retry, on_closed);
    uv_close((uv_handle_t *)&store->notify, on_closed);
}
