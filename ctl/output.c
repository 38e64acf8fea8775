/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/output.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_FILES "/proc/self/fd"

static int failed(const char *verb, const char *path, struct rb_why *why)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

static char *folder_of(const struct rb_output *output)
{
    const char *slash = strrchr(output->target, '/');
    const size_t size = slash ? (size_t)(slash - output->target) : 0;

    return slash ? rb_format("%.*s", size ? (int)size : 1, output->target) : rb_string(".");
}

/* Where the file system allows, the file has no name until it is whole, so that nothing is left
 * behind however the process ends. */
static int open_unnamed(const struct rb_output *output)
{
    RB_CLEANUP(rb_freep) char *folder = folder_of(output);

    return access(OWN_FILES, F_OK) ? -1 : open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
}

/* A new name that no other process can have prepared: O_EXCL follows no link. */
static int open_temporary(struct rb_output *output, const struct stat *old, struct rb_why *why)
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, 0) < 0)
        return failed("create", output->path, why);
    output->temporary = rb_format("%s.%016" PRIx64 ".tmp", output->target, random);
    output->fd = open_unnamed(output);
    output->unnamed = output->fd >= 0;
    if (!output->unnamed)
        output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (output->fd < 0)
        return failed("create", output->path, why);
    if (!old || fchmod(output->fd, old->st_mode & 07777) == 0)
        return 0;
    failed("create", output->path, why);
    unlink(output->temporary);
    close(output->fd);
    return RB_EIO;
}

static int open_path(struct rb_output *output, struct rb_why *why)
{
    struct stat status;
    bool there = stat(output->path, &status) == 0;

    if (there && S_ISREG(status.st_mode))
        output->target = realpath(output->path, NULL);
    else if (!there && lstat(output->path, &status) < 0)
        output->target = rb_string(output->path);
    if (output->target)
        return open_temporary(output, there ? &status : NULL, why);
    /* no regular file, or a link to a missing file */
    output->fd = open(output->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return output->fd < 0 ? failed("create", output->path, why) : 0;
}

int rb_output_open(struct rb_session *session, const char *path, struct rb_output *ret,
                   struct rb_why *why)
{
    struct rb_output output = {.path = path, .fd = -1};
    int err = 0;

    if (strcmp(path, "-") == 0) {
        fflush(session->out);
        session->out = session->err;
        output.path = "stdout";
        output.fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
        err = output.fd < 0 ? failed("open", output.path, why) : 0;
    } else {
        err = open_path(&output, why);
    }
    if (err) {
        free(output.target);
        free(output.temporary);
        return err;
    }
    *ret = output;
    return 0;
}

int rb_output_add(struct rb_output *output, const void *bytes, size_t size, struct rb_why *why)
{
    return rb_file_put(output->fd, bytes, size) < 0 ? failed("write", output->path, why) : 0;
}

/* Sync the file, give it its name, and sync the name. */
static int settle(const struct rb_output *output, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *folder = folder_of(output);
    RB_CLEANUP(rb_freep) char *own = rb_format(OWN_FILES "/%d", output->fd);

    if (fsync(output->fd) < 0 && errno != EINVAL)
        return failed("write", output->path, why);
    if (output->unnamed &&
        linkat(AT_FDCWD, own, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW) < 0)
        return failed("name", output->path, why);
    if (rename(output->temporary, output->target) < 0)
        return failed("rename", output->path, why);
    return rb_file_sync_folder(folder, why);
}

int rb_output_close(struct rb_output *output, int err, struct rb_why *why)
{
    if (!err && output->temporary)
        err = settle(output, why);
    if (err && output->temporary)
        unlink(output->temporary);
    if (close(output->fd) < 0 && !err)
        err = failed("write", output->path, why);
    free(output->target);
    free(output->temporary);
    return err;
}

int rb_output_write(struct rb_session *session, const char *path, const void *bytes, size_t size,
                    struct rb_why *why)
{
    struct rb_output output;
    int err = rb_output_open(session, path, &output, why);

    if (err)
        return err;
    return rb_output_close(&output, rb_output_add(&output, bytes, size, why), why);
}
