/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/resume.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MOST = 16 << 20 };

/* "step-00001200" gives 1200, anything else -1. */
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

static json_t *read_manifest(const char *folder)
{
    RB_CLEANUP(rb_freep) char *file = rb_format("%s/state.json", folder);
    struct rb_buffer bytes = {0};
    json_t *manifest = NULL;

    if (!rb_file_read(file, MANIFEST_MOST, &bytes, NULL) && bytes.size)
        manifest = json_loadb(bytes.data, bytes.size, JSON_REJECT_DUPLICATES, NULL);
    rb_buffer_done(&bytes);
    return manifest;
}

/* The newest folder in `path` that has a readable manifest. */
static int newest(const char *path, char **ret_folder, int64_t *ret_step, json_t **ret_manifest,
                  struct rb_why *why)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int err = errno;

    *ret_folder = NULL;
    *ret_step = -1;
    *ret_manifest = NULL;
    if (!folder)
        return err == ENOENT ? 0
                             : rb_why_set(why, rb_error_from_errno(err), "checkpoint.path %s: %s",
                                          path, strerror(err));
    while ((entry = readdir(folder))) {
        int64_t step = step_of(entry->d_name);
        char *each;
        json_t *manifest;

        if (step <= *ret_step)
            continue;
        each = rb_format("%s/%s", path, entry->d_name);
        manifest = read_manifest(each);
        if (!manifest) {
            free(each);
            continue;
        }
        json_decref(*ret_manifest);
        free(*ret_folder);
        *ret_manifest = manifest;
        *ret_folder = each;
        *ret_step = step;
    }
    closedir(folder);
    return 0;
}

int rb_resume_find(const char *path, const char *spec_digest, const char *numeric_class,
                   char **ret_folder, int64_t *ret_step, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *folder = NULL;
    const char *digest, *class;
    json_t *manifest;
    int64_t step;
    int err = newest(path, &folder, &step, &manifest, why);

    if (err)
        return err;
    digest = json_string_value(json_object_get(manifest, "specDigest"));
    class = json_string_value(json_object_get(manifest, "numericClass"));
    if (manifest && (!digest || strcmp(digest, spec_digest) != 0))
        err = rb_why_set(why, RB_EREFUSED,
                         "checkpoint.path %s holds checkpoints of another job (%s: its model, data "
                         "or training settings differ): name another folder, or remove them",
                         path, strrchr(folder, '/') + 1);
    else if (manifest && class && strcmp(class, numeric_class) != 0)
        err = rb_why_set(why, RB_EREFUSED,
                         "%s was written by devices of numeric class %s and those here are of %s: "
                         "going on from it would give other bits; name another checkpoint.path",
                         folder, class, numeric_class);
    json_decref(manifest);
    if (err)
        return err;
    *ret_folder = RB_TAKE(folder);
    *ret_step = *ret_folder ? step : 0;
    return 0;
}
