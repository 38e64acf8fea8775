/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/prune.h"

#include "base/arena.h"
#include "base/file.h"
#include "proto/digested.h"
#include "worker/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum rb_prune_owner rb_prune_owner(const char *path, const Rb__Model *model)
{
    enum rb_prune_owner owner = RB_PRUNE_UNKNOWN;
    json_t *manifest = NULL;
    const char *digest;

    if (rb_digested_open(path, &manifest, NULL))
        return owner;
    digest = json_string_value(json_object_get(manifest, "specDigest"));
    if (digest)
        owner = strcmp(digest, model->spec_digest) ? RB_PRUNE_OTHERS : RB_PRUNE_OWN;
    json_decref(manifest);
    return owner;
}

static int fail(struct rb_why *why, const char *verb, const char *path)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

/* Is it a checkpoint of ours, of at most `step`?  *ret_step is its step. */
static bool counts(const char *folder, const char *name, const Rb__Model *model, int64_t step,
                   int64_t *ret_step)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);

    *ret_step = rb_checkpoint_step(name);
    return *ret_step >= 0 && *ret_step <= step && rb_prune_owner(path, model) == RB_PRUNE_OWN;
}

static int falling(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;

    return (*left < *right) - (*left > *right);
}

/* Remove what a dead process left.  A worker that left the job may still be writing its last
 * checkpoint: then it holds a lock on the folder.  A writer that has just made a folder, and has no
 * lock yet, finds the folder gone when it gets the lock. */
static int remove_half_done(const char *folder, const char *name, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        err = rb_file_remove(path, why);
    if (fd >= 0)
        close(fd);
    return err;
}

/* Rename the folder first, so that a death in the middle leaves no half of a checkpoint. */
static int remove_step(const char *folder, const char *half_done, int64_t step, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *name = rb_checkpoint_name(step);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    RB_CLEANUP(rb_freep) char *aside = rb_format("%s/%sremoved-%" PRId64, folder, half_done, step);
    int err = rb_file_remove(aside, why);

    if (err)
        return err;
    if (rename(path, aside) < 0)
        return errno == ENOENT ? 0 : fail(why, "rename", path);
    return rb_file_remove(aside, why);
}

int rb_prune(const char *folder, const Rb__Model *model, const char *job, int64_t step,
             int64_t keep, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *half_done = rb_format(".tmp-%s-", job);
    RB_CLEANUP(rb_freep) int64_t *steps = NULL;
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int64_t n = 0;
    int err = 0;

    if (!listing)
        return fail(why, "open", folder);
    while (!err && (entry = readdir(listing)) != NULL) {
        int64_t one;

        if (strncmp(entry->d_name, half_done, strlen(half_done)) == 0)
            err = remove_half_done(folder, entry->d_name, why);
        if (!counts(folder, entry->d_name, model, step, &one))
            continue;
        steps = rb_realloc(steps, (size_t)(n + 1) * sizeof *steps);
        steps[n++] = one;
    }
    closedir(listing);
    if (n)
        qsort(steps, (size_t)n, sizeof *steps, falling);
    for (int64_t i = keep < 1 ? n : keep; !err && i < n; i++)
        err = remove_step(folder, half_done, steps[i], why);
    return err;
}
