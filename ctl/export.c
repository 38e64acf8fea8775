/* SPDX-License-Identifier: Apache-2.0 */
/* The weights come in pieces into a temporary file, which gets its name when all are there. */
#include "base/arena.h"
#include "base/file.h"
#include "ctl/human.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUIET_MS = 600000 };

struct target {
    const char *path; /* as the user said it, for errors */
    char *temporary;
    int fd;
    uint64_t bytes;
};

static int failed(const char *verb, const char *path, struct rb_why *why)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

static int write_piece(void *context, const void *bytes, size_t size, struct rb_why *why)
{
    struct target *target = context;

    for (size_t at = 0; at < size;) {
        ssize_t put = write(target->fd, (const char *)bytes + at, size - at);

        if (put < 0 && errno != EINTR)
            return failed("write", target->path, why);
        at += put > 0 ? (size_t)put : 0;
    }
    target->bytes += size;
    return 0;
}

static int fetch(const struct rb_session *session, const char *job, struct target *target,
                 json_t **ret_reply, struct rb_why *why)
{
    json_t *body = json_pack("{s:s}", "job", job);
    struct rb_client_call call = {
        .endpoint = session->endpoint,
        .interrupt_fd = session->interrupt_fd,
        .method = "export",
        .node = "leader",
        .body = body,
        .quiet_ms = QUIET_MS,
        .piece = write_piece,
        .context = target,
    };
    int err = rb_client_call(&call, ret_reply, why);

    json_decref(body);
    if (!err && rb_value_integer(*ret_reply, "bytes", -1) != (int64_t)target->bytes) {
        err = rb_why_set(why, RB_EIO, "%" PRIu64 " bytes came of %" PRId64, target->bytes,
                         rb_value_integer(*ret_reply, "bytes", 0));
        json_decref(*ret_reply);
    }
    return err;
}

/* On disk, under its name, and the name on disk. */
static int settle(struct target *target, struct rb_why *why)
{
    const char *path = target->path;
    RB_CLEANUP(rb_freep) char *folder = rb_string(path);
    char *slash = strrchr(folder, '/');

    if (fsync(target->fd) < 0 && errno != EINVAL)
        return failed("write", path, why);
    if (rename(target->temporary, path) < 0)
        return failed("rename", path, why);
    if (slash)
        slash[slash == folder] = '\0';
    return rb_file_sync_folder(slash ? folder : ".", why);
}

int rb_export(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *path = rb_arguments_value(arguments, "out"), *job = arguments->word[0];
    struct target target = {.path = path, .fd = -1};
    char text[RB_HUMAN_SIZE];
    json_t *reply = NULL;
    struct rb_why why = {0};
    int err = 0;

    if (!path || !path[0])
        return rb_session_usage(session, "--out says where to");
    target.temporary = rb_format("%s.%d.tmp", path, (int)getpid());
    target.fd = open(target.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (target.fd < 0)
        err = failed("create", path, &why);
    if (!err)
        err = fetch(session, job, &target, &reply, &why);
    if (!err)
        err = settle(&target, &why);
    if (err && target.fd >= 0)
        unlink(target.temporary);
    if (target.fd >= 0)
        close(target.fd);
    free(target.temporary);
    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else
        fprintf(session->out, "%s: step %" PRId64 " of %s, %s\n", path,
                rb_value_integer(reply, "step", 0), job,
                rb_human_bytes((double)target.bytes, text));
    json_decref(reply);
    return RB_EXIT_DONE;
}
