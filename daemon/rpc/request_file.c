/* SPDX-License-Identifier: Apache-2.0 */
/* Answering with a file: it is opened, looked at and read on libuv's threads, as a folder on a
 * network may hang, and goes on its way piece by piece, as fast as the caller takes them. */
#include "base/arena.h"
#include "base/file.h"
#include "daemon/rpc/request.h"
#include "proto/digested.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 << 10 };

struct rb_sending {
    uv_work_t work;
    struct rb_request *request; /* NULL: it is gone */
    char *path, **folders;      /* folders: below one of which it must lie, or be; NULL: anywhere */
    size_t n_folders;
    int fd; /* -1: not open */
    int err;
    struct rb_why why;
    char *piece;
    ssize_t size; /* of the piece */
    uint64_t bytes;
    bool listed;     /* it has to be what the manifest beside it lists */
    bool busy, held; /* busy: a thread has it; held: the caller takes no more now */
};

static void sending_free(struct rb_sending *sending)
{
    if (sending->fd >= 0)
        close(sending->fd);
    for (size_t i = 0; i < sending->n_folders; i++)
        free(sending->folders[i]);
    free(sending->folders);
    free(sending->path);
    free(sending->piece);
    free(sending);
}

/* ---- On a thread ----------------------------------------------------------------------------- */

/* Is the file in one of the folders, with all links followed? */
static bool is_allowed(const struct rb_sending *sending)
{
    RB_CLEANUP(rb_freep) char *path = rb_file_real(sending->path);

    for (size_t i = 0; i < sending->n_folders; i++) {
        RB_CLEANUP(rb_freep) char *folder = rb_file_real(sending->folders[i]);
        const size_t length = strlen(folder);

        if (!strncmp(path, folder, length) && (path[length] == '/' || !path[length]))
            return true;
    }
    return !sending->folders;
}

static int open_file(struct rb_sending *sending, struct rb_why *why)
{
    struct stat stat;

    sending->fd = open(sending->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (sending->fd < 0)
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", sending->path,
                          strerror(errno));
    if (!is_allowed(sending))
        return rb_why_set(why, RB_EREFUSED, "%s is not where this job keeps files", sending->path);
    if (fstat(sending->fd, &stat) || !S_ISREG(stat.st_mode))
        return rb_why_set(why, RB_EINVAL, "%s is not a file", sending->path);
    return RB_OK;
}

/* RB_ENOTFOUND: the file, or its manifest, is not there; RB_EUNREADABLE: it is damaged. */
static int check_listed(const struct rb_sending *sending, struct rb_why *why)
{
    const char *slash = strrchr(sending->path, '/');
    RB_CLEANUP(rb_freep)
    char *folder = rb_format("%.*s", slash ? (int)(slash - sending->path) : 0, sending->path);
    json_t *manifest = NULL;
    int err = rb_digested_open(folder, &manifest, why);

    if (!err)
        err = rb_digested_file(folder, slash ? slash + 1 : sending->path, manifest, why);
    json_decref(manifest);
    if (err && err != RB_ENOTFOUND)
        err = rb_why_add(why, RB_EUNREADABLE, "%s", folder);
    return err;
}

static void read_piece(uv_work_t *work)
{
    struct rb_sending *sending = work->data;

    if (sending->fd < 0) {
        sending->err = open_file(sending, &sending->why);
        if (!sending->err && sending->listed)
            sending->err = check_listed(sending, &sending->why);
    }
    if (sending->err)
        return;
    do
        sending->size = read(sending->fd, sending->piece, PIECE);
    while (sending->size < 0 && errno == EINTR);
    if (sending->size < 0)
        sending->err = rb_why_set(&sending->why, rb_error_from_errno(errno), "%s: %s",
                                  sending->path, strerror(errno));
}

/* ---- On the loop ----------------------------------------------------------------------------- */

static void go_on(struct rb_sending *sending);

static void finish(struct rb_sending *sending)
{
    struct rb_request *request = sending->request;
    struct rb_why why = sending->why;
    const int err = sending->err;
    const json_int_t bytes = (json_int_t)sending->bytes;

    request->sending = NULL;
    sending_free(sending);
    if (err)
        rb_request_fail(request, err, &why);
    else
        rb_request_reply(request, json_pack("{s:I}", "bytes", bytes));
}

static void on_read(uv_work_t *work, int status)
{
    struct rb_sending *sending = work->data;

    sending->busy = false;
    if (!sending->request) {
        sending_free(sending);
        return;
    }
    if (status && !sending->err)
        sending->err = rb_why_set(&sending->why, RB_EINTERNAL, "%s", uv_strerror(status));
    if (!sending->err && rb_request_gone(sending->request))
        sending->err = rb_why_set(&sending->why, RB_ECANCELED, "the caller has hung up");
    if (sending->err || !sending->size) {
        finish(sending);
        return;
    }
    sending->bytes += (uint64_t)sending->size;
    rb_request_piece(sending->request, sending->piece, (size_t)sending->size);
    go_on(sending);
}

static void go_on(struct rb_sending *sending)
{
    if (sending->busy || sending->held || rb_request_is_full(sending->request))
        return;
    sending->busy = true;
    uv_queue_work(sending->request->server->loop, &sending->work, read_piece, on_read);
}

static void send_file(struct rb_request *request, const char *path, const char *const *folders,
                      bool listed)
{
    struct rb_sending *sending = rb_alloc(sizeof *sending);

    sending->work.data = sending;
    sending->request = request;
    sending->path = rb_string(path);
    sending->listed = listed;
    sending->fd = -1;
    sending->piece = rb_alloc(PIECE);
    for (; folders && folders[sending->n_folders]; sending->n_folders++) {
        const size_t n = sending->n_folders;

        sending->folders = rb_realloc(sending->folders, (n + 1) * sizeof *sending->folders);
        sending->folders[n] = rb_string(folders[n]);
    }
    request->sending = sending;
    go_on(sending);
}

void rb_request_file(struct rb_request *request, const char *path, const char *const *folders)
{
    send_file(request, path, folders, false);
}

void rb_request_listed_file(struct rb_request *request, const char *path,
                            const char *const *folders)
{
    send_file(request, path, folders, true);
}

void rb_sending_hold(struct rb_sending *sending, bool held)
{
    sending->held = held;
    go_on(sending);
}

void rb_sending_drop(struct rb_sending *sending)
{
    if (!sending)
        return;
    sending->request = NULL;
    if (!sending->busy)
        sending_free(sending);
}
