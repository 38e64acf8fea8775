/* SPDX-License-Identifier: Apache-2.0 */
/* A commit is over when etcd has made or refused all of its transactions.  The caller is told when
 * the watch has brought what the commit wrote, or what it was refused for: a caller that tries
 * again goes by facts. */
#include "daemon/etcd/store.h"

#include "base/log.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/json.h"
#include "daemon/etcd/watch.h"
#include "daemon/facts/mirror.h"

#include <stdlib.h>
#include <string.h>

enum {
    CALL_MS = 5000,
    CATCH_UP_MS = 2000, /* how long a commit waits for the watch to bring what it wrote, */
    STALE_MS = 100,     /* and what it was refused for, which may be of keys that are not ours */
    REFUSED_MS = 30000, /* how long a refusal tells of etcd: what matters is tried again sooner */
    WATCHERS_MOST = 16,
    VALUE_MOST = 1 << 20,
};

struct commit {
    struct commit *next;
    struct rb_store *store;
    struct rb_writes writes;
    size_t first, end;     /* the transaction under way */
    struct rb_fence fence; /* key NULL: none */
    int64_t revision;      /* of the newest transaction */
    bool made;             /* at least one transaction was made */
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
    struct rb_watch *watch;
    uv_timer_t notify; /* tells watchers and ends commits: never from within etcd's callbacks */
    bool changed;
    int64_t lease;
    bool full;           /* etcd had no room for the last put, */
    struct rb_why room;  /* for this reason, */
    uint64_t refused_ms; /* by the loop's clock */
    struct commit *commits;
    struct {
        void (*changed)(void *context);
        void *context;
    } watchers[WATCHERS_MOST];
    size_t n_watchers;
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
    free((char *)commit->fence.key);
    free(commit);
}

/* Take one commit that is over, and can be told of, off the list.  NULL: there is none; the timer
 * looks again when the first of the others has waited long enough. */
static struct commit *take_finished(struct rb_store *store)
{
    uint64_t now = uv_now(store->loop), wait = UINT64_MAX;
    for (struct commit **at = &store->commits; *at; at = &(*at)->next) {
        struct commit *commit = *at;
        if (!commit->finished)
            continue;
        if (commit->revision <= rb_watch_revision(store->watch) || now >= commit->deadline) {
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

static void on_changed(void *context)
{
    struct rb_store *store = context;
    store->changed = true;
    notify_in(store, 0);
}

/* ---- Commits --------------------------------------------------------------------------------- */

static void commit_next(struct commit *commit);

static void commit_over(struct commit *commit)
{
    commit->finished = true;
    commit->deadline = uv_now(commit->store->loop) +
                       (commit->err == RB_ESTALE && !commit->made ? STALE_MS : CATCH_UP_MS);
    notify_in(commit->store, 0);
}

static void commit_failed(struct commit *commit, int err, const struct rb_why *why)
{
    if (commit->err)
        return;
    commit->err = err;
    commit->why = *why;
}

/* Etcd out of room takes deletions still. */
static bool has_put(const struct commit *commit)
{
    for (size_t i = commit->first; i < commit->end; i++)
        if (commit->writes.at[i].value)
            return true;
    return commit->fence.key != NULL; /* which is touched */
}

/* Watch and reads go on while etcd has no room, so nothing else would show it. */
static void look_for_room(const struct commit *commit, int err, const struct rb_why *why)
{
    struct rb_store *store = commit->store;

    if (err == RB_EFULL) {
        if (!store->full)
            rb_log(RB_LOG_ERROR,
                   "etcd takes no writes: %s: compact and defragment it, then disarm its alarm "
                   "(etcdctl); trying again",
                   why->text);
        store->full = true;
        store->room = *why;
        store->refused_ms = uv_now(store->loop);
    } else if (!err && store->full && has_put(commit)) {
        rb_log(RB_LOG_INFO, "etcd takes writes again");
        store->full = false;
    }
}

static void on_txn(int err, const struct rb_why *why, const json_t *answer, void *context)
{
    struct commit *commit = context;
    struct rb_etcd_txn txn;
    struct rb_why reason = why ? *why : (struct rb_why){0};
    commit->call = NULL;
    if (!err)
        err = rb_etcd_txn_read(answer, &txn, &reason);
    look_for_room(commit, err, &reason);
    if (err) {
        commit_failed(commit, err, &reason);
        if (err == RB_EUNREACHABLE || err == RB_ETIMEOUT) {
            commit_over(commit);
            return;
        }
    } else if (!txn.succeeded) { /* told once the facts that it went by have changed */
        commit->revision = txn.revision;
        rb_why_set(&reason, RB_ESTALE, "%s has changed meanwhile",
                   commit->writes.at[commit->first].key);
        commit_failed(commit, RB_ESTALE, &reason);
    } else {
        commit->revision = txn.revision;
        commit->made = true;
        if (commit->fence.revision)
            commit->fence.revision = txn.revision;
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
                                              commit->fence.key ? &commit->fence : NULL),
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

void rb_store_commit(struct rb_store *store, const struct rb_writes *writes,
                     const struct rb_fence *fence, rb_store_committed *done, void *context)
{
    struct commit *commit = rb_alloc(sizeof(*commit));
    commit->store = store;
    copy_writes(&commit->writes, writes);
    if (fence) {
        commit->fence = *fence;
        commit->fence.key = rb_string(fence->key);
    }
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
    uv_timer_init(loop, &store->notify);
    store->notify.data = store;
    store->watch = rb_watch_new(loop, etcd, on_changed, store);
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
    return rb_mirror_facts(rb_watch_mirror(store->watch));
}

bool rb_store_synced(const struct rb_store *store)
{
    return rb_watch_synced(store->watch);
}

bool rb_store_connected(const struct rb_store *store)
{
    return rb_watch_connected(store->watch);
}

const char *rb_store_refused(const struct rb_store *store)
{
    return store->full && uv_now(store->loop) - store->refused_ms < REFUSED_MS ? store->room.text
                                                                               : NULL;
}

int64_t rb_store_lease(const struct rb_store *store)
{
    return store->lease;
}

void rb_store_set_lease(struct rb_store *store, int64_t lease)
{
    store->lease = lease;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_store_free(struct rb_store *store)
{
    if (!store)
        return;
    store->n_watchers = 0;
    for (struct commit *commit; (commit = store->commits);) {
        struct rb_why why = {0};
        store->commits = commit->next;
        if (commit->done)
            commit->done(rb_why_set(&why, RB_ECANCELED,
                                    "rubatod is stopping: whether it was done is not known"),
                         &why, commit->context);
        commit_free(commit);
    }
    rb_watch_free(store->watch);
    uv_close((uv_handle_t *)&store->notify, on_closed);
}
