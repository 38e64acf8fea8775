/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/blobs_inside.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "daemon/rpc/server.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t blob_most = (uint64_t)1 << 33;

struct waiter {
    struct waiter *next;
    void (*done)(int err, const struct rb_why *why, void *context);
    void *context;
};

/* There is one fetch at a time of a digest; all callers that ask for it wait for the same.  The
 * bytes are hashed and written on a thread: for a large model that takes longer than this node's
 * lease. */
struct rb_blobs_fetch {
    struct rb_blobs_fetch *next;
    struct rb_blobs *blobs; /* NULL: they are closed */
    char digest[RB_BLOBS_DIGEST + 1];
    struct rb_client_call *call; /* NULL: it has ended */
    struct rb_buffer bytes;
    bool too_large;
    bool wanted;
    struct waiter *waiters;

    uv_work_t work;
    char *folder; /* the thread's own, as is the outcome */
    int err;
    struct rb_why why;
};

static struct rb_blobs_fetch *find(struct rb_blobs *blobs, const char *digest)
{
    struct rb_blobs_fetch *fetch = blobs->fetches;
    while (fetch && strcmp(fetch->digest, digest))
        fetch = fetch->next;
    return fetch;
}

static void fetch_free(struct rb_blobs_fetch *fetch)
{
    for (struct waiter *waiter; (waiter = fetch->waiters);) {
        fetch->waiters = waiter->next;
        free(waiter);
    }
    rb_buffer_done(&fetch->bytes);
    free(fetch->folder);
    free(fetch);
}

static void finish(struct rb_blobs_fetch *fetch, int err)
{
    struct rb_blobs_fetch **at = &fetch->blobs->fetches;
    if (err)
        rb_why_add(&fetch->why, err, "fetching blob %s", fetch->digest);
    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    for (struct waiter *waiter = fetch->waiters; waiter; waiter = waiter->next)
        waiter->done(err, &fetch->why, waiter->context);
    fetch_free(fetch);
}

static int refuse_unwanted(struct rb_blobs_fetch *fetch)
{
    return rb_why_set(&fetch->why, RB_ECANCELED, "nobody wants it any more");
}

/* ---- What has come ---------------------------------------------------------------------------*/

static void keep(uv_work_t *work)
{
    struct rb_blobs_fetch *fetch = work->data;
    char digest[RB_BLOBS_DIGEST + 1];
    rb_hash_digest(fetch->bytes.data, fetch->bytes.size, digest);
    fetch->err = strcmp(digest, fetch->digest)
                     ? rb_why_set(&fetch->why, RB_EINVAL, "blob %s came as another", fetch->digest)
                     : rb_blobs_write(fetch->folder, fetch->bytes.data, fetch->bytes.size, digest,
                                      NULL, &fetch->why);
}

static void kept(uv_work_t *work, int status)
{
    struct rb_blobs_fetch *fetch = work->data;
    int err = status ? RB_ECANCELED : fetch->err;
    if (!fetch->blobs) {
        fetch_free(fetch);
        return;
    }
    if (!err && !fetch->wanted) {
        rb_blobs_remove(fetch->blobs, fetch->digest);
        err = refuse_unwanted(fetch);
    }
    finish(fetch, err);
}

static void on_piece(const void *data, size_t size, void *context)
{
    struct rb_blobs_fetch *fetch = context;
    if (size > blob_most - fetch->bytes.size)
        fetch->too_large = true;
    if (!fetch->too_large)
        rb_buffer_add(&fetch->bytes, data, size);
}

static void on_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_blobs_fetch *fetch = context;
    (void)body;
    fetch->call = NULL;
    if (why)
        fetch->why = *why;
    if (!err && fetch->too_large)
        err = rb_why_set(&fetch->why, RB_ELIMIT, "blob %s is too large", fetch->digest);
    if (!err && !fetch->wanted)
        err = refuse_unwanted(fetch);
    if (!err && uv_queue_work(fetch->blobs->loop, &fetch->work, keep, kept))
        err = rb_why_set(&fetch->why, RB_EINTERNAL, "cannot start a thread's work");
    if (err)
        finish(fetch, err);
}

/* ---- Asking ----------------------------------------------------------------------------------*/

void rb_blobs_fetch(struct rb_blobs *blobs, struct rb_server *server, const char *node,
                    const char *digest,
                    void (*done)(int err, const struct rb_why *why, void *context), void *context)
{
    struct rb_blobs_fetch *fetch = find(blobs, digest);
    if (!fetch) {
        fetch = rb_alloc(sizeof(*fetch));
        fetch->blobs = blobs;
        fetch->folder = rb_string(blobs->folder);
        fetch->work.data = fetch;
        strncpy(fetch->digest, digest, RB_BLOBS_DIGEST);
        fetch->next = blobs->fetches;
        blobs->fetches = fetch;
        fetch->call = rb_server_call(server, &(struct rb_client_options){
                                                 .method = "blob",
                                                 .body = json_pack("{ss}", "digest", digest),
                                                 .node = node,
                                                 .piece = on_piece,
                                                 .done = on_done,
                                                 .context = fetch,
                                             });
    }
    struct waiter *waiter = rb_alloc(sizeof(*waiter));
    waiter->done = done;
    waiter->context = context;
    waiter->next = fetch->waiters;
    fetch->waiters = waiter;
    fetch->wanted = true;
}

void rb_blobs_fetch_want(struct rb_blobs *blobs, const char *digest, bool wanted)
{
    struct rb_blobs_fetch *fetch = find(blobs, digest);
    if (fetch)
        fetch->wanted = wanted;
}

void rb_blobs_fetches_close(struct rb_blobs *blobs)
{
    for (struct rb_blobs_fetch *fetch; (fetch = blobs->fetches);) {
        blobs->fetches = fetch->next;
        fetch->blobs = NULL;
        if (!fetch->call)
            continue; /* the thread calls back once more, and that frees */
        rb_client_cancel(fetch->call);
        fetch_free(fetch);
    }
}
