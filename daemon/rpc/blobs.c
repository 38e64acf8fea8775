/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/blobs_inside.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hold {
    struct hold *next;
    char digest[RB_BLOBS_DIGEST + 1];
};

/* Remove what a rubatod was writing as it was killed: "DIGEST.NUMBER.tmp". */
static void remove_half_done(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        size_t length = strlen(entry->d_name);
        if (strspn(entry->d_name, "0123456789abcdef") == RB_BLOBS_DIGEST &&
            entry->d_name[RB_BLOBS_DIGEST] == '.' && length > 4 &&
            !strcmp(entry->d_name + length - 4, ".tmp"))
            unlinkat(dirfd(listing), entry->d_name, 0);
    }
    if (listing)
        closedir(listing);
}

int rb_blobs_open(uv_loop_t *loop, const char *folder, struct rb_blobs **ret_blobs,
                  struct rb_why *why)
{
    int err = rb_file_make_folder(folder, RB_FOLDER_OWN, why);
    if (err)
        return err;
    remove_half_done(folder);
    struct rb_blobs *blobs = rb_alloc(sizeof(*blobs));
    blobs->loop = loop;
    blobs->folder = rb_string(folder);
    *ret_blobs = blobs;
    return RB_OK;
}

void rb_blobs_close(struct rb_blobs *blobs)
{
    if (!blobs)
        return;
    rb_blobs_fetches_close(blobs);
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
    return strlen(digest) == RB_BLOBS_DIGEST &&
           strspn(digest, "0123456789abcdef") == RB_BLOBS_DIGEST;
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
                   bool *ret_new, struct rb_why *why)
{
    char digest[RB_BLOBS_DIGEST + 1];
    rb_hash_digest(bytes, size, digest);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, digest);
    bool is_new = access(path, R_OK) != 0;
    int err = is_new ? rb_file_write(path, bytes, size, why) : RB_OK;
    if (err)
        return err;
    memcpy(ret_digest, digest, sizeof(digest));
    if (ret_new)
        *ret_new = is_new;
    return RB_OK;
}

const char *rb_blobs_folder(const struct rb_blobs *blobs)
{
    return blobs->folder;
}

int rb_blobs_put(struct rb_blobs *blobs, const void *bytes, size_t size, char ret_digest[33],
                 struct rb_why *why)
{
    return rb_blobs_write(blobs->folder, bytes, size, ret_digest, NULL, why);
}

/* ---- Keeping ----------------------------------------------------------------------------------*/

void rb_blobs_hold(struct rb_blobs *blobs, const char *digest)
{
    struct hold *hold = rb_alloc(sizeof(*hold));
    strncpy(hold->digest, digest, RB_BLOBS_DIGEST);
    hold->next = blobs->holds;
    blobs->holds = hold;
    rb_blobs_fetch_want(blobs, digest, true);
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
    if (!rb_blobs_digest_valid(digest) || *find_hold(blobs, digest))
        return;
    rb_blobs_fetch_want(blobs, digest, false);
    rb_file_remove(rb_blobs_path(blobs, digest), NULL);
}
