/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/blobs.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "daemon/rpc/server.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGEST = 32 };

static const uint64_t blob_most = (uint64_t)1 << 33;

/* One fetch at a time of a digest; all that ask for it wait for the same. */
struct waiter {
    struct waiter *next;
    void (*done)(int err, const struct rb_why *why, void *context);
    void *context;
};

struct fetch {
    struct fetch *next;
    struct rb_blobs *blobs;
    char digest[DIGEST + 1];
    struct rb_client_call *call;
    struct rb_buffer bytes;
    bool too_large;
    struct waiter *waiters;
};

struct hold {
    struct hold *next;
    char digest[DIGEST + 1];
};

struct rb_blobs {
    char *folder;
    char *path;
    struct fetch *fetches;
    struct hold *holds;
};

/* What a rubatod was writing as it was killed: "DIGEST.NUMBER.tmp". */
static void remove_half_done(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        size_t length = strlen(entry->d_name);
        if (strspn(entry->d_name, "0123456789abcdef") == DIGEST && entry->d_name[DIGEST] == '.' &&
            length > 4 && !strcmp(entry->d_name + length - 4, ".tmp"))
            unlinkat(dirfd(listing), entry->d_name, 0);
    }
    if (listing)
        closedir(listing);
}

int rb_blobs_open(const char *folder, struct rb_blobs **ret_blobs, struct rb_why *why)
{
    int err = rb_file_make_folder(folder, why);
    if (err)
        return err;
    remove_half_done(folder);
    struct rb_blobs *blobs = rb_alloc(sizeof(*blobs));
    blobs->folder = rb_string(folder);
    *ret_blobs = blobs;
    return RB_OK;
}

static void fetch_free(struct fetch *fetch)
{
    for (struct waiter *waiter; (waiter = fetch->waiters);) {
        fetch->waiters = waiter->next;
        free(waiter);
    }
    rb_buffer_done(&fetch->bytes);
    free(fetch);
}

void rb_blobs_close(struct rb_blobs *blobs)
{
    if (!blobs)
        return;
    for (struct fetch *fetch; (fetch = blobs->fetches);) {
        blobs->fetches = fetch->next;
        rb_client_cancel(fetch->call);
        fetch_free(fetch);
    }
    for (struct hold *hold; (hold = blobs->holds);) {
        blobs->holds = hold->next;
        free(hold);
    }
    free(blobs->folder);
    free(blobs->path);
    free(blobs);
}

bool rb_blobs_digest_valid(const char *digest)
{
    return strlen(digest) == DIGEST && strspn(digest, "0123456789abcdef") == DIGEST;
}

const char *rb_blobs_path(struct rb_blobs *blobs, const char *digest)
{
    free(blobs->path);
    blobs->path =
        rb_format("%s/%s", blobs->folder, rb_blobs_digest_valid(digest) ? digest : "no-such-blob");
    return blobs->path;
}

bool rb_blobs_has(const struct rb_blobs *blobs, const char *digest)
{
    if (!rb_blobs_digest_valid(digest))
        return false;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", blobs->folder, digest);
    return !access(path, R_OK);
}

int rb_blobs_write(const char *folder, const void *bytes, size_t size, char ret_digest[33],
                   struct rb_why *why)
{
    char digest[DIGEST + 1];
    rb_hash_digest(bytes, size, digest);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, digest);
    int err = access(path, R_OK) ? rb_file_write(path, bytes, size, why) : RB_OK;
    if (!err)
        memcpy(ret_digest, digest, sizeof(digest));
    return err;
}

const char *rb_blobs_folder(const struct rb_blobs *blobs)
{
    return blobs->folder;
}

int rb_blobs_put(struct rb_blobs *blobs, const void *bytes, size_t size, char ret_digest[33],
                 struct rb_why *why)
{
    return rb_blobs_write(blobs->folder, bytes, size, ret_digest, why);
}

/* ---- Keeping ----------------------------------------------------------------------------------*/

void rb_blobs_hold(struct rb_blobs *blobs, const char *digest)
{
    struct hold *hold = rb_alloc(sizeof(*hold));
    strncpy(hold->digest, digest, DIGEST);
    hold->next = blobs->holds;
    blobs->holds = hold;
}

static struct hold **find_hold(struct rb_blobs *blobs, const char *digest)
{
    struct hold **at = &blobs->holds;
    while (*at && strcmp((*at)->digest, digest))
        at = &(*at)->next;
    return at;
}

void rb_blobs_release(struct rb_blobs *blobs, const char *digest)
{
    struct hold **at = find_hold(blobs, digest), *hold = *at;
    if (!hold)
        return;
    *at = hold->next;
    free(hold);
}

void rb_blobs_remove(struct rb_blobs *blobs, const char *digest)
{
    if (rb_blobs_digest_valid(digest) && !*find_hold(blobs, digest))
        rb_file_remove(rb_blobs_path(blobs, digest), NULL);
}

/* ---- Fetching -------------------------------------------------------------------------------- */

static void on_piece(const void *data, size_t size, void *context)
{
    struct fetch *fetch = context;
    if (size > blob_most - fetch->bytes.size)
        fetch->too_large = true;
    if (!fetch->too_large)
        rb_buffer_add(&fetch->bytes, data, size);
}

static int keep(struct fetch *fetch, struct rb_why *why)
{
    char digest[DIGEST + 1];
    if (fetch->too_large)
        return rb_why_set(why, RB_ELIMIT, "blob %s is too large", fetch->digest);
    rb_hash_digest(fetch->bytes.data, fetch->bytes.size, digest);
    if (strcmp(digest, fetch->digest))
        return rb_why_set(why, RB_EINVAL, "blob %s came as another", fetch->digest);
    return rb_blobs_put(fetch->blobs, fetch->bytes.data, fetch->bytes.size, digest, why);
}

static void on_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct fetch *fetch = context;
    struct rb_why reason = why ? *why : (struct rb_why){0};
    (void)body;
    if (!err)
        err = keep(fetch, &reason);
    if (err)
        rb_why_add(&reason, err, "fetching blob %s", fetch->digest);
    struct fetch **at = &fetch->blobs->fetches;
    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    for (struct waiter *waiter = fetch->waiters; waiter; waiter = waiter->next)
        waiter->done(err, &reason, waiter->context);
    fetch_free(fetch);
}

void rb_blobs_fetch(struct rb_blobs *blobs, struct rb_server *server, const char *node,
                    const char *digest,
                    void (*done)(int err, const struct rb_why *why, void *context), void *context)
{
    struct fetch *fetch = blobs->fetches;
    while (fetch && strcmp(fetch->digest, digest))
        fetch = fetch->next;
    if (!fetch) {
        fetch = rb_alloc(sizeof(*fetch));
        fetch->blobs = blobs;
        strncpy(fetch->digest, digest, DIGEST);
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
}
