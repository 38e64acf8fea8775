/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a paused job has parked on this node, as a checkpoint: what another job can go on
 * from.
 *
 *     STATE/jobs/ID/park/step-N > copy > FOLDER/.copy-ID-step-N > rename > FOLDER/step-N
 *
 * The files that the manifest lists are copied, and then the manifest, so that no half is taken for
 * the whole.  The copy is made on a thread, as folders may be on a network; a second request for it
 * waits for the first, and finds the copy there.  The copy is not registered in facts: only a job
 * that trains may do that, and this job itself goes on from what is parked.
 *
 * A rubatod that ends as it copies leaves a half.  The next rubatod removes the half when it first
 * hears of the job, and so does each further copy. */
#include "daemon/agent/checkpoints.h"

#include "base/arena.h"
#include "base/file.h"
#include "daemon/rpc/server.h"
#include "proto/checkpoint_folder.h"
#include "proto/digested.h"
#include "proto/spec_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

struct rb_agent_copy {
    struct rb_agent_copy *next;
    uv_work_t work;
    struct rb_agent *agent;     /* NULL: it ends, and the request with it */
    struct rb_request *request; /* NULL: halves are removed, and no more */
    char *job, *folder;
    char *from, *name, *temporary, *to; /* NULL where there is no request */
    bool waits; /* for another copy of the job: each removes the halves that it finds */
    int64_t step;
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

/* The kernel copies what it can, which is nothing from one kind of file system to another; the rest
 * is read and written here. */
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
    close(in);
    if (out >= 0 && close(out) < 0 && !err)
        err = fail(copy, "write", to);
    return err;
}

static int copy_folder(struct rb_agent_copy *copy)
{
    json_t *manifest, *file;
    const char *name;
    int err = rb_digested_open(copy->from, &manifest, &copy->why);

    if (err)
        return rb_why_add(&copy->why, err, "%s", copy->from);
    json_object_foreach(json_object_get(manifest, "files"), name, file)
    {
        err = err ? err : copy_file(copy, name);
    }
    json_decref(manifest);
    if (!err)
        err = copy_file(copy, RB_CHECKPOINT_MANIFEST);
    return err ? err : rb_file_sync_folder(copy->temporary, &copy->why);
}

/* Do both manifests list the same files, with the same digests? */
static bool is_there(const struct rb_agent_copy *copy)
{
    json_t *ours = NULL, *theirs = NULL;
    bool same = !rb_digested_open(copy->from, &ours, NULL) &&
                !rb_digested_open(copy->to, &theirs, NULL) && json_equal(ours, theirs);

    json_decref(ours);
    json_decref(theirs);
    return same;
}

static int put_in_place(struct rb_agent_copy *copy)
{
    if (rename(copy->temporary, copy->to) == 0)
        return rb_file_sync_folder(copy->folder, &copy->why);
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail(copy, "rename", copy->temporary);
    return rb_why_set(&copy->why, RB_EREFUSED,
                      "%s is there already, and it is not what this job has parked: move it away",
                      copy->to);
}

static int remove_halves(struct rb_agent_copy *copy)
{
    RB_CLEANUP(rb_freep) char *halves = rb_format(".copy-%s-", copy->job);

    return rb_file_remove_beginning(copy->folder, halves, &copy->why);
}

static int make(struct rb_agent_copy *copy)
{
    int err = rb_file_make_folder(copy->folder, RB_FOLDER_SHARED, &copy->why);

    if (!err)
        err = remove_halves(copy);
    if (!err)
        err = rb_file_make_folder(copy->temporary, RB_FOLDER_SHARED, &copy->why);
    if (!err)
        err = copy_folder(copy);
    if (!err)
        err = put_in_place(copy);
    if (err)
        rb_file_remove(copy->temporary, NULL);
    return err;
}

static void copy_all(struct rb_agent_copy *copy)
{
    RB_CLEANUP(rb_freep) char *latest = rb_format("%s/" RB_CHECKPOINT_LATEST, copy->folder);
    RB_CLEANUP(rb_freep) char *line = rb_format("%s\n", copy->name);

    copy->err = is_there(copy) ? 0 : make(copy);
    if (!copy->err && rb_checkpoint_latest(copy->folder) < copy->step)
        copy->err = rb_file_write(latest, line, strlen(line), &copy->why);
}

static void work_on(uv_work_t *work)
{
    struct rb_agent_copy *copy = work->data;

    if (copy->request)
        copy_all(copy);
    else
        remove_halves(copy);
}

/* ---- On the loop -----------------------------------------------------------------------------*/

static void copy_free(struct rb_agent_copy *copy)
{
    free(copy->job);
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
        rb_request_reply(copy->request, json_pack("{sI ss ss}", "step", (json_int_t)copy->step,
                                                  "path", copy->to, "node", copy->agent->node));
}

static void on_copied(uv_work_t *work, int status);

static void start(struct rb_agent_copy *copy)
{
    copy->waits = false;
    uv_queue_work(copy->agent->daemon->loop, &copy->work, work_on, on_copied);
}

/* The copy of a job that was asked for last. */
static struct rb_agent_copy *find_last(const struct rb_agent *agent, const char *job)
{
    struct rb_agent_copy *copy = agent->copies;

    while (copy && strcmp(copy->job, job) != 0)
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
        next = find_last(copy->agent, copy->job);
        if (next)
            start(next);
        if (copy->request)
            answer(copy);
        rb_agent_poke(copy->agent); /* its job may have been deleted meanwhile */
    }
    copy_free(copy);
}

static struct rb_agent_copy *copy_new(struct rb_agent *agent, const char *job, const char *folder)
{
    struct rb_agent_copy *copy = rb_alloc(sizeof(*copy));

    copy->work.data = copy;
    copy->agent = agent;
    copy->job = rb_string(job);
    copy->folder = rb_string(folder);
    return copy;
}

static void start_in_turn(struct rb_agent_copy *copy)
{
    struct rb_agent *agent = copy->agent;

    copy->waits = find_last(agent, copy->job) != NULL;
    copy->next = agent->copies;
    agent->copies = copy;
    if (!copy->waits)
        start(copy);
}

void rb_agent_copy_parked(struct rb_agent *agent, const char *job, const Rb__Checkpoint *parked,
                          const char *folder, struct rb_request *request)
{
    struct rb_agent_copy *copy = copy_new(agent, job, folder);

    copy->request = request;
    copy->step = parked->step;
    copy->from = rb_string(parked->path);
    copy->name = rb_checkpoint_name(parked->step);
    copy->temporary = rb_format("%s/.copy-%s-%s", folder, job, copy->name);
    copy->to = rb_format("%s/%s", folder, copy->name);
    start_in_turn(copy);
}

/* Only the node that has the state parked can have been copying it. */
void rb_agent_remove_half_copied(struct rb_agent *agent, const struct rb_job_facts *job)
{
    const Rb__Checkpoint *parked = job->state.message ? job->state.state->parked : NULL;
    const char *folder = rb_spec_checkpoints(job->job.job->spec);

    if (folder && parked && !strcmp(parked->node, agent->node))
        start_in_turn(copy_new(agent, job->id, folder));
}

bool rb_agent_copies(const struct rb_agent *agent, const char *job)
{
    return find_last(agent, job) != NULL;
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
