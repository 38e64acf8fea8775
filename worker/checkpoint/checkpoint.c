/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/checkpoint.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/safetensors.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/prune.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Tensors of a file ----------------------------------------------------------------------*/

static struct rb_tensor_type type_of(const Rb__Variable *variable)
{
    struct rb_tensor_type type = {(enum rb_dtype)variable->dtype, (int)variable->n_dims, {0}};

    for (size_t i = 0; i < variable->n_dims; i++)
        type.dim[i] = variable->dims[i];
    return type;
}

static void add_tensor(struct rb_safetensor *tensors, int *n, const char *prefix,
                       const Rb__Variable *variable, const void *data)
{
    tensors[(*n)++] = (struct rb_safetensor){
        .name = rb_format("%s%s", prefix, variable->name),
        .type = type_of(variable),
        .data = data,
    };
}

int rb_checkpoint_tensors(const Rb__Model *model, const struct rb_state *state,
                          enum rb_checkpoint_file file, struct rb_safetensor **ret_tensors)
{
    struct rb_safetensor *tensors = rb_alloc(2 * model->n_variables * sizeof *tensors);
    const char *first = state->v ? "exp_avg." : "momentum_buffer.";
    int n = 0;

    for (size_t i = 0; i < model->n_variables; i++) {
        const Rb__Variable *variable = model->variables[i];
        bool fixed = variable->role == RB__VARIABLE__ROLE__FIXED;

        if (file == RB_CHECKPOINT_WEIGHTS)
            add_tensor(tensors, &n, "", variable,
                       fixed ? (const void *)(state->fixed + variable->offset)
                             : (const void *)(state->w + variable->offset));
        else if (variable->role == RB__VARIABLE__ROLE__TRAINED) {
            if (state->m)
                add_tensor(tensors, &n, first, variable, state->m + variable->offset);
            if (state->v)
                add_tensor(tensors, &n, "exp_avg_sq.", variable, state->v + variable->offset);
        }
    }
    *ret_tensors = tensors;
    return n;
}

/* The note that loaders of other frameworks look for, and the names that share a tensor with
 * another. */
static int weight_notes(const Rb__Model *model, struct rb_safetensor_note **ret_notes)
{
    struct rb_safetensor_note *notes = rb_alloc((model->n_aliases + 1) * sizeof *notes);
    int n = 0;

    notes[n++] = (struct rb_safetensor_note){"format", "pt"};
    for (size_t i = 0; i < model->n_aliases; i++)
        if (strcmp(model->aliases[i]->name, "format") != 0)
            notes[n++] =
                (struct rb_safetensor_note){model->aliases[i]->name, model->aliases[i]->kept};
    *ret_notes = notes;
    return n;
}

void rb_checkpoint_tensors_free(struct rb_safetensor *tensors, int n)
{
    for (int i = 0; i < n; i++)
        free((void *)tensors[i].name);
    free(tensors);
}

/* ---- Files ----------------------------------------------------------------------------------*/

static int fail(struct rb_why *why, const char *verb, const char *path)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

/* Digest of what the disk returns, not of what was meant to be written. */
static int digest_file(const char *path, uint64_t bytes, char ret_digest[33], struct rb_why *why)
{
    uint64_t there;
    int err = rb_hash_file(path, ret_digest, &there, why);

    if (!err && there != bytes)
        err = rb_why_set(why, RB_EIO, "%s has %" PRIu64 " bytes, %" PRIu64 " were written", path,
                         there, bytes);
    return err;
}

static int write_tensors(const Rb__Model *model, const struct rb_state *state,
                         enum rb_checkpoint_file file, const char *path, uint64_t *ret_bytes,
                         struct rb_why *why)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    RB_CLEANUP(rb_freep) struct rb_safetensor_note *notes = NULL;
    struct rb_safetensor *tensors;
    int n, n_notes = 0, err;

    if (fd < 0)
        return fail(why, "create", path);
    n = rb_checkpoint_tensors(model, state, file, &tensors);
    if (file == RB_CHECKPOINT_WEIGHTS)
        n_notes = weight_notes(model, &notes);
    err = rb_safetensors_write(fd, tensors, n, notes, n_notes, ret_bytes, why);
    rb_checkpoint_tensors_free(tensors, n);
    if (close(fd) < 0 && !err)
        err = fail(why, "write", path);
    return err ? rb_why_add(why, err, "%s", path) : 0;
}

static int write_file(const Rb__Model *model, const struct rb_state *state,
                      enum rb_checkpoint_file file, const char *folder,
                      struct rb_manifest_file *ret_file, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = NULL;
    int err;

    ret_file->name = file == RB_CHECKPOINT_WEIGHTS ? RB_CHECKPOINT_MODEL : RB_CHECKPOINT_OPTIMIZER;
    path = rb_format("%s/%s", folder, ret_file->name);
    err = write_tensors(model, state, file, path, &ret_file->bytes, why);
    return err ? err : digest_file(path, ret_file->bytes, ret_file->digest, why);
}

static int fill_folder(const Rb__Model *model, const struct rb_state *state, const char *folder,
                       uint64_t *ret_bytes, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    char *manifest = rb_format("%s/%s", folder, RB_CHECKPOINT_MANIFEST);
    RB_CLEANUP(rb_freep) char *text = NULL;
    struct rb_manifest_file files[2];
    int n = 0, err = write_file(model, state, RB_CHECKPOINT_WEIGHTS, folder, &files[n++], why);

    if (!err && state->m)
        err = write_file(model, state, RB_CHECKPOINT_MOMENTS, folder, &files[n++], why);
    if (!err)
        err = rb_manifest_text(model, state, files, n, &text, why);
    if (!err)
        err = rb_file_write(manifest, text, strlen(text), why);
    if (!err) {
        *ret_bytes = strlen(text);
        for (int i = 0; i < n; i++)
            *ret_bytes += files[i].bytes;
    }
    return err ? err : rb_file_sync_folder(folder, why);
}

enum { HOLD_TRIES = 10 };

/* Does `folder` still name the folder that is open as `fd`? */
static bool has_name(int fd, const char *folder)
{
    struct stat own, there;

    return fstat(fd, &own) == 0 && stat(folder, &there) == 0 && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
}

/* Make an empty folder, locked so that others know that a living process writes it (prune.c asks).
 * The lock ends with *ret_fd; -1: there are no locks.  Before the lock is taken, a pruner may take
 * the folder for one that a dead process left. */
static int make_held(const char *folder, int *ret_fd, struct rb_why *why)
{
    int fd = -1, locked = -1, err = 0;
    bool is_ours = false;

    for (int tries = 0; !err && !is_ours && tries < HOLD_TRIES; tries++) {
        if (fd >= 0)
            close(fd);
        err = rb_file_remove(folder, why);
        if (!err && mkdir(folder, 0777) < 0)
            err = fail(why, "make folder", folder);
        fd = err ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        do
            locked = fd < 0 ? -1 : flock(fd, LOCK_EX);
        while (locked < 0 && fd >= 0 && errno == EINTR);
        is_ours = fd < 0 ? errno != ENOENT : has_name(fd, folder);
    }
    if (fd >= 0 && locked < 0) {
        close(fd);
        fd = -1;
    }
    *ret_fd = fd;
    return err;
}

/* Where two folders cannot be exchanged: the old one is moved aside, and comes back if the new one
 * cannot take its place. */
static int replace(const char *temporary, const char *path, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *aside = rb_format("%s-old", temporary);
    int err = rb_file_remove(aside, why);

    if (err)
        return err;
    if (rename(path, aside) < 0)
        return fail(why, "replace", path);
    if (rename(temporary, path) < 0) {
        err = fail(why, "replace", path);
        return rename(aside, path) < 0 ? fail(why, "put back", path) : err;
    }
    return rb_file_remove(aside, why);
}

/* A checkpoint of this step may be there already, from before a restart: the new one replaces it,
 * but never a checkpoint of another job. */
static int put_in_place(const Rb__Model *model, const char *temporary, const char *path,
                        struct rb_why *why)
{
    if (rename(temporary, path) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail(why, "rename", temporary);
    if (rb_prune_owner(path, model) == RB_PRUNE_OTHERS)
        return rb_why_set(why, RB_EEXISTS, "%s is a checkpoint of another job", path);
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return rb_file_remove(temporary, why);
    return replace(temporary, path, why);
}

int rb_checkpoint_write(const Rb__Model *model, const struct rb_state *state, const char *folder,
                        const char *job, const char *worker, char **ret_path, uint64_t *ret_bytes,
                        struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *name = rb_checkpoint_name(state->level);
    RB_CLEANUP(rb_freep) char *temporary = rb_format("%s/.tmp-%s-%s-%s", folder, job, worker, name);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    RB_CLEANUP(rb_freep) char *latest = rb_format("%s/" RB_CHECKPOINT_LATEST, folder);
    RB_CLEANUP(rb_freep) char *line = rb_format("%s\n", name);
    uint64_t bytes = 0;
    int held, err = rb_file_make_folder(folder, RB_FOLDER_SHARED, why);

    err = err ? err : make_held(temporary, &held, why);
    if (err)
        return rb_why_add(why, err, "checkpoint of step %" PRId64, state->level);
    err = fill_folder(model, state, temporary, &bytes, why);
    rb_fault("worker.save.written");
    if (!err)
        err = put_in_place(model, temporary, path, why);
    rb_fault("worker.save.renamed");
    if (err)
        rb_file_remove(temporary, NULL);
    if (held >= 0)
        close(held);
    if (!err)
        err = rb_file_sync_folder(folder, why);
    if (!err)
        err = rb_file_write(latest, line, strlen(line), why);
    if (err)
        return rb_why_add(why, err, "checkpoint of step %" PRId64, state->level);
    *ret_path = RB_TAKE(path);
    *ret_bytes = bytes;
    return 0;
}

int rb_checkpoint_export(const Rb__Model *model, const struct rb_state *state, const char *folder,
                         uint64_t *ret_bytes, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, RB_CHECKPOINT_MODEL);
    RB_CLEANUP(rb_freep) char *temporary = rb_format("%s.%d.tmp", path, (int)getpid());
    int err = rb_file_make_folder(folder, RB_FOLDER_SHARED, why);

    if (err)
        return rb_why_add(why, err, "export of step %" PRId64, state->level);
    err = write_tensors(model, state, RB_CHECKPOINT_WEIGHTS, temporary, ret_bytes, why);
    if (!err && rename(temporary, path) < 0)
        err = fail(why, "rename", temporary);
    if (err)
        unlink(temporary);
    else
        err = rb_file_sync_folder(folder, why);
    return err ? rb_why_add(why, err, "export of step %" PRId64, state->level) : 0;
}
