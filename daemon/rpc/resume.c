/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/resume.h"

#include "base/arena.h"
#include "base/file.h"
#include "daemon/rpc/differs.h"
#include "proto/checkpoint_folder.h"
#include "proto/digested.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a folder's name in a sentence that has more to say (bytes). */
enum { FOLDER_MOST = 150 };

struct found {
    int64_t step;
    char *name; /* "step-00001200" */
};

struct folder {
    const char *path;
    struct found *at; /* newest first */
    size_t n;
};

/* "step-00001200" gives 1200, and so does what a user may name "step-1200"; anything else -1. */
static int64_t step_of(const char *name)
{
    char *end;
    long long step;

    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    step = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : step;
}

static int newest_first(const void *a, const void *b)
{
    int64_t left = ((const struct found *)a)->step, right = ((const struct found *)b)->step;

    return (left < right) - (left > right);
}

static int list(struct folder *folder, struct rb_why *why)
{
    DIR *listing = opendir(folder->path);
    struct dirent *entry;
    int err = errno;

    if (!listing)
        return err == ENOENT ? 0
                             : rb_why_set(why, rb_error_from_errno(err), "checkpoint.path %s: %s",
                                          folder->path, strerror(err));
    while ((entry = readdir(listing))) {
        int64_t step = step_of(entry->d_name);

        if (step < 0)
            continue;
        folder->at = rb_realloc(folder->at, (folder->n + 1) * sizeof *folder->at);
        folder->at[folder->n++] = (struct found){step, rb_string(entry->d_name)};
    }
    closedir(listing);
    if (folder->n)
        qsort(folder->at, folder->n, sizeof *folder->at, newest_first);
    return 0;
}

static void folder_done(struct folder *folder)
{
    for (size_t i = 0; i < folder->n; i++)
        free(folder->at[i].name);
    free(folder->at);
    folder->at = NULL;
    folder->n = 0;
}

static int check_files(const char *path, const json_t *manifest, struct rb_why *why)
{
    const char *name;
    json_t *listed;

    json_object_foreach(json_object_get(manifest, "files"), name, listed)
    {
        int err = rb_digested_file(path, name, manifest, why);

        if (err)
            return err;
    }
    return 0;
}

static int refuse_others(const char *folder, const char *name, const json_t *manifest,
                         const Rb__Model *model, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *differences = rb_differs_say(manifest, model);

    return rb_why_set(why, RB_EREFUSED,
                      "checkpoint.path %.*s holds checkpoints of another job (%s: %s): name "
                      "another folder, or remove them",
                      rb_error_fit(folder, FOLDER_MOST), folder, name, differences);
}

/* What a checkpoint has to be of. */
struct wanted {
    const Rb__Model *model;
    bool any_class;
};

/* ret_class: the checkpoint's class, where that is another one; free. */
static int check_job(const char *folder, const char *name, const json_t *manifest,
                     const struct wanted *wanted, char **ret_class, struct rb_why *why)
{
    const Rb__Model *model = wanted->model;
    const char *digest = json_string_value(json_object_get(manifest, "specDigest"));
    const char *class = json_string_value(json_object_get(manifest, "numericClass"));

    if (!digest || strcmp(digest, model->spec_digest) != 0)
        return refuse_others(folder, name, manifest, model, why);
    if (!class || strcmp(class, model->numeric_class) == 0)
        return 0;
    if (!wanted->any_class)
        return rb_why_set(why, RB_EREFUSED,
                          "%.*s/%s is of numeric class %s, and the devices here of %s: other bits "
                          "follow from it. To go on nevertheless: --set "
                          "spec.checkpoint.numericClass=any; to start anew name another "
                          "checkpoint.path",
                          rb_error_fit(folder, FOLDER_MOST), folder, name, class,
                          model->numeric_class);
    *ret_class = rb_string(class);
    return 0;
}

/* RB_ENOTFOUND: it is no checkpoint; RB_EREFUSED: it is not this job's; else it is damaged: a
 * folder is whole before workers give it such a name. */
static int check(const char *folder, const char *name, const struct wanted *wanted,
                 char **ret_class, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    json_t *manifest = NULL;
    int err = rb_digested_open(path, &manifest, why);

    if (err)
        return err == RB_ENOTFOUND && rb_checkpoint_step(name) >= 0 ? RB_EUNREADABLE : err;
    err = check_job(folder, name, manifest, wanted, ret_class, why);
    if (!err && check_files(path, manifest, why))
        err = RB_EUNREADABLE;
    json_decref(manifest);
    return err;
}

struct look {
    const struct found *whole;   /* the newest that is; NULL: none */
    const struct found *damaged; /* the newest that is, of those that are newer; NULL: none */
    struct rb_why what;          /* is wrong with it */
    char *class;                 /* of the whole one, where that is another; free */
};

static void look_done(struct look *look)
{
    free(look->class);
    *look = (struct look){0};
}

static int tell_damaged(const char *path, const struct look *look, struct rb_buffer *ret_notes,
                        struct rb_why *why)
{
    if (!look->whole)
        return rb_why_set(why, RB_EREFUSED,
                          "checkpoint.path %s: %s cannot be loaded (%s), and there is no older "
                          "one that can: name another folder, or remove it to start anew",
                          path, look->damaged->name, look->what.text);
    rb_buffer_format(ret_notes, "checkpoint.path: %s cannot be loaded (%s): goes on from %s\n",
                     look->damaged->name, look->what.text, look->whole->name);
    return 0;
}

static int find(const struct folder *folder, const struct wanted *wanted, struct look *ret,
                struct rb_why *why)
{
    look_done(ret);
    for (size_t i = 0; i < folder->n && !ret->whole; i++) {
        const struct found *each = &folder->at[i];
        struct rb_why own = {{0}};
        int err;

        free(RB_TAKE(ret->class));
        err = check(folder->path, each->name, wanted, &ret->class, &own);

        if (err == RB_EREFUSED)
            return rb_why_set(why, err, "%s", own.text);
        if (!err) {
            ret->whole = each;
        } else if (err != RB_ENOTFOUND && !ret->damaged) {
            ret->damaged = each;
            ret->what = own;
        }
    }
    return 0;
}

/* Where the folder can no longer be listed, the answer is yes. */
static bool is_listed(const char *path, const char *name)
{
    struct folder folder = {.path = path};
    bool found = list(&folder, NULL) != 0;

    for (size_t i = 0; i < folder.n && !found; i++)
        found = strcmp(folder.at[i].name, name) == 0;
    folder_done(&folder);
    return found;
}

/* Workers may be on other nodes, where the folder may be writable: so this is told, and not
 * refused. */
static void note_unwritable(const char *real, struct rb_buffer *ret_notes)
{
    RB_CLEANUP(rb_freep) char *there = rb_string(real);
    char *end;

    while (access(there, F_OK) && errno == ENOENT && (end = strrchr(there, '/')) && end > there)
        *end = '\0';
    if (eaccess(there, W_OK | X_OK))
        rb_buffer_format(ret_notes,
                         "checkpoint.path: %s cannot be written on the node that coordinates (%s): "
                         "where that is so for workers, too, nothing is saved\n",
                         there, strerror(errno));
}

static int check_step(const char *path, const struct look *look, const Rb__Model *model,
                      struct rb_why *why)
{
    if (!look->whole || look->whole->step <= model->steps)
        return 0;
    return rb_why_set(why, RB_EREFUSED,
                      "checkpoint.path %.*s: %s is beyond the last step of this job, %" PRId64
                      ": name another folder, or train more steps",
                      rb_error_fit(path, FOLDER_MOST), path, look->whole->name, model->steps);
}

static void tell_class(const struct look *look, const Rb__Model *model, struct rb_buffer *ret_notes)
{
    if (look->whole && look->class)
        rb_buffer_format(ret_notes,
                         "checkpoint.path: %s was written by devices of numeric class %s: what "
                         "follows is as those here make it, %s\n",
                         look->whole->name, look->class, model->numeric_class);
}

int rb_resume_find(const char *path, const Rb__Model *model, bool any_class, char **ret_folder,
                   int64_t *ret_step, struct rb_buffer *ret_notes, struct rb_why *why)
{
    const struct wanted wanted = {model, any_class};
    RB_CLEANUP(rb_freep) char *real = rb_file_real(path);
    struct folder folder = {.path = real};
    struct look look = {0};
    int err;

    do { /* a job that was just cancelled may save still, and remove what is old */
        folder_done(&folder);
        err = list(&folder, why);
        if (!err)
            err = find(&folder, &wanted, &look, why);
    } while (!err && look.damaged && !is_listed(real, look.damaged->name));
    if (!err && look.damaged)
        err = tell_damaged(real, &look, ret_notes, why);
    err = err ? err : check_step(real, &look, model, why);
    if (!err) {
        *ret_folder = look.whole ? rb_format("%s/%s", real, look.whole->name) : NULL;
        *ret_step = look.whole ? look.whole->step : 0;
        tell_class(&look, model, ret_notes);
        note_unwritable(real, ret_notes);
    }
    look_done(&look);
    folder_done(&folder);
    return err;
}
