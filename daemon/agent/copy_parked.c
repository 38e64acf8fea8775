/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a job without processes has parked on this node, as a checkpoint: what another job
 * can go on from.
 *
 *     STATE/jobs/ID/park/step-N > copy > FOLDER/.tmp-ID-parked-step-N > rename > FOLDER/step-N
 *
 * On a thread, as folders may be on a network; whoever asks for the same again waits for it, and
 * finds it there.  It is not registered in facts: only who trains may do that, and the job itself
 * goes on from what is parked. */
#include "daemon/agent/checkpoints.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "daemon/rpc/server.h"
#include "proto/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_MOST = 64 << 20, PIECE = 1 << 20 };

struct rb_agent_copy {
    struct rb_agent_copy *next;
    uv_work_t work;
    struct rb_agent *agent; /* NULL: it ends, and the request with it */
    struct rb_request *request;
    char *from, *folder, *name, *temporary, *to;
    bool waits; /* for one that goes there, too */
    int64_t step;
    uint64_t bytes;
    int err;
    struct rb_why why;
};

/* ---- On a thread -----------------------------------------------------------------------------*/

static int fail(struct rb_agent_copy *copy, const char *verb, const char *path)
{
    int number = errno;

    return rb_why_set(&copy->why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

/* As far as the kernel copies by itself, which it does not from one kind of file system to another,
 * and the rest. */
static int copy_bytes(struct rb_agent_copy *copy, const char *from, int in, const char *to, int out)
{
    RB_CLEANUP(rb_freep) char *piece = rb_alloc(PIECE);
    ssize_t got;

    do
        got = copy_file_range(in, NULL, out, NULL, 1 << 30, 0);
    while (got > 0 || (got < 0 && errno == EINTR));
    while ((got = read(in, piece, PIECE)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0 && rb_file_put(out, piece, (size_t)got) < 0)
            return fail(copy, "write", to);
    if (got < 0)
        return fail(copy, "read", from);
    return fsync(out) < 0 ? fail(copy, "write", to) : 0;
}

static int copy_file(struct rb_agent_copy *copy, const char *name)
{
    RB_CLEANUP(rb_freep) char *from = rb_format("%s/%s", copy->from, name);
    RB_CLEANUP(rb_freep) char *to = rb_format("%s/%s", copy->temporary, name);
    int in = open(from, O_RDONLY | O_CLOEXEC), out, err;

    if (in < 0)
        return fail(copy, "open", from);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    err = out < 0 ? fail(copy, "create", to) : copy_bytes(copy, from, in, to, out);
    if (!err)
        copy->bytes += (uint64_t)lseek(out, 0, SEEK_CUR);
    close(in);
    if (out >= 0 && close(out) < 0 && !err)
        err = fail(copy, "write", to);
    return err;
}

static int copy_folder(struct rb_agent_copy *copy)
{
    DIR *listing = opendir(copy->from);
    const struct dirent *entry;
    int err = listing ? 0 : fail(copy, "open", copy->from);

    while (!err && (entry = readdir(listing)))
        if (entry->d_name[0] != '.')
            err = copy_file(copy, entry->d_name);
    if (listing)
        closedir(listing);
    return err ? err : rb_file_sync_folder(copy->temporary, &copy->why);
}

/* Of both the list of what is in them, with its digests. */
static bool is_in(const struct rb_agent_copy *copy, const char *folder)
{
    RB_CLEANUP(rb_freep) char *ours = rb_format("%s/" RB_CHECKPOINT_MANIFEST, copy->from);
    RB_CLEANUP(rb_freep) char *theirs = rb_format("%s/" RB_CHECKPOINT_MANIFEST, folder);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer a = {0}, b = {0};

    return !rb_file_read(ours, MANIFEST_MOST, &a, NULL) &&
           !rb_file_read(theirs, MANIFEST_MOST, &b, NULL) && a.size == b.size &&
           !memcmp(a.data, b.data, a.size);
}

static int put_in_place(struct rb_agent_copy *copy)
{
    RB_CLEANUP(rb_freep) char *latest = rb_format("%s/" RB_CHECKPOINT_LATEST, copy->folder);
    RB_CLEANUP(rb_freep) char *line = rb_format("%s\n", copy->name);
    int err;

    if (rename(copy->temporary, copy->to) < 0 && errno != ENOTEMPTY && errno != EEXIST)
        return fail(copy, "rename", copy->temporary);
    if (!access(copy->temporary, F_OK))
        return rb_why_set(&copy->why, RB_EREFUSED,
                          "%s is there already, and it is not what this job has parked: move it "
                          "away",
                          copy->to);
    err = rb_file_sync_folder(copy->folder, &copy->why);
    return err ? err : rb_file_write(latest, line, strlen(line), &copy->why);
}

static void copy_all(uv_work_t *work)
{
    struct rb_agent_copy *copy = work->data;

    if (is_in(copy, copy->to))
        return;
    copy->err = rb_file_make_folder(copy->folder, RB_FOLDER_SHARED, &copy->why);
    if (!copy->err)
        copy->err = rb_file_remove(copy->temporary, &copy->why); /* of a rubatod that was killed */
    if (!copy->err)
        copy->err = rb_file_make_folder(copy->temporary, RB_FOLDER_SHARED, &copy->why);
    if (!copy->err)
        copy->err = copy_folder(copy);
    if (!copy->err && !is_in(copy, copy->temporary))
        copy->err = rb_why_set(&copy->why, RB_ENOTFOUND, "%s was removed meanwhile", copy->from);
    if (!copy->err)
        copy->err = put_in_place(copy);
    if (copy->err)
        rb_file_remove(copy->temporary, NULL);
}

/* ---- On the loop -----------------------------------------------------------------------------*/

static void copy_free(struct rb_agent_copy *copy)
{
    free(copy->from);
    free(copy->folder);
    free(copy->name);
    free(copy->temporary);
    free(copy->to);
    free(copy);
}

static void answer(struct rb_agent_copy *copy)
{
    if (copy->err)
        rb_request_fail(copy->request, copy->err, &copy->why);
    else
        rb_request_reply(copy->request,
                         json_pack("{sI ss sI ss}", "step", (json_int_t)copy->step, "path",
                                   copy->to, "bytes", (json_int_t)copy->bytes, "node",
                                   copy->agent->node));
}

static void on_copied(uv_work_t *work, int status);

static void start(struct rb_agent_copy *copy)
{
    copy->waits = false;
    uv_queue_work(copy->agent->daemon->loop, &copy->work, copy_all, on_copied);
}

/* The one that was asked for last. */
static struct rb_agent_copy *find_same(const struct rb_agent *agent, const char *temporary)
{
    struct rb_agent_copy *copy = agent->copies;

    while (copy && strcmp(copy->temporary, temporary))
        copy = copy->next;
    return copy;
}

static void on_copied(uv_work_t *work, int status)
{
    struct rb_agent_copy *copy = work->data, *next;

    if (status && !copy->err)
        copy->err = rb_why_set(&copy->why, RB_EINTERNAL, "%s", uv_strerror(status));
    if (copy->agent) {
        struct rb_agent_copy **at = &copy->agent->copies;

        while (*at != copy)
            at = &(*at)->next;
        *at = copy->next;
        next = find_same(copy->agent, copy->temporary);
        if (next)
            start(next);
        answer(copy);
    }
    copy_free(copy);
}

void rb_agent_copy_parked(struct rb_agent *agent, const char *job, const Rb__Checkpoint *parked,
                          const char *folder, struct rb_request *request)
{
    struct rb_agent_copy *copy = rb_alloc(sizeof(*copy));

    copy->work.data = copy;
    copy->agent = agent;
    copy->request = request;
    copy->step = parked->step;
    copy->from = rb_string(parked->path);
    copy->folder = rb_string(folder);
    copy->name = rb_checkpoint_name(parked->step);
    copy->temporary = rb_format("%s/.tmp-%s-parked-%s", folder, job, copy->name);
    copy->to = rb_format("%s/%s", folder, copy->name);
    copy->waits = find_same(agent, copy->temporary) != NULL;
    copy->next = agent->copies;
    agent->copies = copy;
    if (!copy->waits)
        start(copy);
}

void rb_agent_copies_drop(struct rb_agent *agent)
{
    for (struct rb_agent_copy *copy; (copy = agent->copies);) {
        agent->copies = copy->next;
        copy->agent = NULL;
        if (copy->waits)
            copy_free(copy);
    }
}
