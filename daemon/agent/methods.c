/* SPDX-License-Identifier: Apache-2.0 */
/* RPC methods of the node that has the worker or the file (daemon/agent/agent.h). */
#include "daemon/agent/methods.h"

#include "base/arena.h"
#include "base/file.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/inside.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/rows.h"
#include "daemon/agent/worker.h"
#include "proto/checkpoint_folder.h"
#include "proto/spec_paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A node-save that waits for its worker. */
struct rb_agent_save {
    struct rb_agent_save *next;
    uint64_t number;
    struct rb_worker *worker;
    bool export_only;
    struct rb_request *request;
};

enum {
    ROWS_USUAL = 10000,
    ROWS_MOST = 100000,
    LOG_USUAL = 256 << 10, /* bytes of all files in one answer */
    LOG_MOST = 4 << 20,
    SAVES_MOST = 32, /* that wait at one worker, whose reports have room for twice as many */
};

static int64_t number(struct rb_request *request, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(rb_request_body(request), key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* True also for a job that facts have lost, and this node has not. */
static bool is_known(struct rb_agent *agent, const char *id)
{
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/%s", agent->jobs_folder, id);
    return rb_agent_job_known(agent, id) ||
           rb_facts_job(rb_store_facts(agent->daemon->store), id) || !access(folder, F_OK);
}

/* The job that the body names, by id; NULL, and the request is answered. */
static struct rb_agent_job *job_of(struct rb_agent *agent, struct rb_request *request)
{
    struct rb_why why = {0};
    const char *id;
    int err = rb_request_string(request, "job", &id, &why);
    if (!err && !rb_agent_id_valid(id))
        err = rb_why_set(&why, RB_EINVAL, "'%s' is no id of a job", id);
    if (!err && !is_known(agent, id))
        err = rb_why_set(&why, RB_ENOTFOUND, "node %s has seen no job %s", agent->node, id);
    if (!err)
        return rb_agent_job(agent, id);
    rb_request_fail(request, err, &why);
    return NULL;
}

/* ---- node-metrics ---------------------------------------------------------------------------- */

static void node_metrics(struct rb_request *request, void *context)
{
    struct rb_agent_job *job = job_of(context, request);
    struct rb_why why = {0};
    json_t *found = NULL;
    if (!job)
        return;
    int64_t limit = number(request, "limit", ROWS_USUAL);
    if (limit < 0 || limit > ROWS_MOST)
        limit = ROWS_MOST;
    bool lost = json_is_true(json_object_get(rb_request_body(request), "lost"));
    struct rb_rows *rows = rb_agent_rows(job, &why);
    int err =
        rows ? rb_rows_read(rows, number(request, "after", 0), (size_t)limit, lost, &found, &why)
             : RB_EIO;
    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    json_t *columns = json_array();
    for (size_t i = 0; rb_rows_columns[i]; i++)
        json_array_append_new(columns, json_string(rb_rows_columns[i]));
    rb_request_reply(request, json_pack("{so so sI}", "columns", columns, "rows", found, "last",
                                        (json_int_t)rb_rows_last(rows)));
}

/* ---- node-logs ------------------------------------------------------------------------------- */

static void replace(char *bytes, size_t size, unsigned char least, unsigned char most)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)bytes[i] >= least && (unsigned char)bytes[i] <= most)
            bytes[i] = '?';
}

/* Make valid UTF-8 for JSON.  A zero byte, which a loss of power leaves and readers of JSON refuse,
 * becomes '?'; where the text is still not valid, so does each byte beyond ASCII. */
static json_t *log_text(char *bytes, size_t size)
{
    json_t *text;
    replace(bytes, size, 0, 0);
    text = json_stringn(bytes, size);
    if (text)
        return text;
    replace(bytes, size, 0x80, 0xff);
    return json_stringn(bytes, size);
}

static json_t *log_piece(const struct rb_agent *agent, const char *path, const char *file,
                         int64_t offset, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    RB_CLEANUP(rb_freep) char *bytes = rb_alloc(room + 1);
    ssize_t n = pread(fd, bytes, room, offset < 0 ? 0 : offset);
    close(fd);
    /* End on a whole line where there is one, so that no character is cut in two. */
    const char *end = n == (ssize_t)room ? memrchr(bytes, '\n', room) : NULL;
    if (end)
        n = end + 1 - bytes;
    if (n <= 0)
        return NULL;
    return json_pack("{ss ss sI so}", "file", file, "node", agent->node, "offset",
                     (json_int_t)((offset < 0 ? 0 : offset) + n), "text",
                     log_text(bytes, (size_t)n));
}

static void node_logs(struct rb_request *request, void *context)
{
    struct rb_agent *agent = context;
    struct rb_agent_job *job = job_of(agent, request);
    if (!job)
        return;
    const json_t *after = json_object_get(rb_request_body(request), "after");
    int64_t limit = number(request, "limit", LOG_USUAL);
    size_t room = limit < 1024 || limit > LOG_MOST ? LOG_USUAL : (size_t)limit;
    RB_CLEANUP(rb_freep) char *logs = rb_format("%s/logs", job->folder);
    json_t *pieces = json_array();
    struct dirent **entries = NULL;
    int n = scandir(logs, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", logs, entries[i]->d_name);
        json_t *piece =
            entries[i]->d_name[0] == '.' || !room
                ? NULL
                : log_piece(agent, path, entries[i]->d_name,
                            json_integer_value(json_object_get(after, entries[i]->d_name)), room);
        if (piece) {
            size_t used = json_string_length(json_object_get(piece, "text"));
            room -= used < room ? used : room;
            json_array_append_new(pieces, piece);
        }
        free(entries[i]);
    }
    free(entries);
    rb_request_reply(request, json_pack("{so}", "pieces", pieces));
}

/* ---- node-save ------------------------------------------------------------------------------- */

/* A worker that saves before it leaves answers between its tries; the others wait for it and save
 * nothing. */
static bool is_before(const struct rb_worker *worker, const struct rb_worker *other)
{
    if (worker->told.saving != other->told.saving)
        return worker->told.saving;
    if (worker->told.active != other->told.active)
        return worker->told.active > other->told.active;
    return worker->rank < other->rank;
}

/* A worker that has the state: the one that saves it, or the lowest rank of the newest
 * configuration. */
static struct rb_worker *choose(const struct rb_agent *agent, const struct rb_agent_job *job)
{
    struct rb_worker *best = NULL;
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        if (worker->job == job && worker->told.connected && !worker->told.gone &&
            (!worker->told.left || worker->told.saving) && worker->told.active &&
            (!best || is_before(worker, best)))
            best = worker;
    return best;
}

static unsigned saves_of(const struct rb_worker *worker)
{
    unsigned n = 0;
    for (const struct rb_agent_save *save = worker->agent->saves; save; save = save->next)
        n += save->worker == worker;
    return n;
}

static char *save_folder(const struct rb_agent *agent, const struct rb_agent_job *job,
                         bool export_only)
{
    const struct rb_job_facts *facts = rb_facts_job(rb_store_facts(agent->daemon->store), job->id);
    if (export_only)
        return rb_format("%s/export", job->folder);
    const char *told =
        facts && facts->job.message ? rb_spec_checkpoints(facts->job.job->spec) : NULL;
    return told ? rb_string(told) : rb_format("%s/checkpoints", job->folder);
}

/* The parked state that the job goes on from while it has no processes, if it is on this node. */
static const Rb__Checkpoint *parked_here(const struct rb_agent *agent,
                                         const struct rb_agent_job *job)
{
    const struct rb_job_facts *facts = rb_facts_job(rb_store_facts(agent->daemon->store), job->id);
    const Rb__Checkpoint *parked =
        facts && facts->state.message ? facts->state.state->parked : NULL;
    return parked && !strcmp(parked->node, agent->node) ? parked : NULL;
}

static void node_save(struct rb_request *request, void *context)
{
    struct rb_agent *agent = context;
    struct rb_agent_job *job = job_of(agent, request);
    if (!job)
        return;
    bool export_only = json_is_true(json_object_get(rb_request_body(request), "export"));
    const char *asked = json_string_value(json_object_get(rb_request_body(request), "folder"));
    struct rb_worker *worker = choose(agent, job);
    if (asked && asked[0] != '/') {
        rb_request_failf(request, RB_EINVAL, "node-save: the folder must be an absolute path");
        return;
    }
    RB_CLEANUP(rb_freep)
    char *folder = asked ? rb_string(asked) : save_folder(agent, job, export_only);
    const Rb__Checkpoint *parked = export_only ? NULL : parked_here(agent, job);
    if (!worker && parked) {
        rb_agent_copy_parked(agent, job->id, parked, folder, request);
        return;
    }
    if (!worker) {
        rb_request_failf(request, RB_ENOTFOUND, "node %s has no worker with the state of job %s",
                         agent->node, job->id);
        return;
    }
    if (saves_of(worker) >= SAVES_MOST) {
        rb_request_failf(request, RB_ELIMIT,
                         "%d saves of job %s wait already; try again after them", SAVES_MOST,
                         job->id);
        return;
    }
    struct rb_agent_save *save = rb_alloc(sizeof(*save));
    save->number = agent->next_save++;
    save->worker = worker;
    save->export_only = export_only;
    save->request = request;
    save->next = agent->saves;
    agent->saves = save;
    Rb__Save order = RB__SAVE__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    order.folder = folder;
    order.request = save->number;
    order.has_export_only = true;
    order.export_only = export_only;
    message.save = &order;
    rb_worker_send(worker, &message);
}

void rb_agent_saved(struct rb_worker *worker, const Rb__Saved *saved)
{
    struct rb_agent *agent = worker->agent;
    for (struct rb_agent_save **at = &agent->saves; *at; at = &(*at)->next) {
        struct rb_agent_save *save = *at;
        if (save->number != saved->request || save->worker != worker)
            continue;
        *at = save->next;
        if (saved->error) {
            rb_request_failf(save->request, RB_EIO, "%s", saved->error);
        } else {
            if (!save->export_only)
                rb_agent_take_checkpoint(worker, saved);
            rb_request_reply(save->request,
                             json_pack("{sI ss sI ss}", "step", (json_int_t)saved->step, "path",
                                       saved->folder, "bytes", (json_int_t)saved->bytes, "node",
                                       agent->node));
        }
        free(save);
        return;
    }
    /* The save was asked for by an earlier rubatod, or before a link broke.  Exports are no
     * checkpoints. */
    const char *name = strrchr(saved->folder, '/');
    if (!saved->error && name && rb_checkpoint_step(name + 1) >= 0)
        rb_agent_take_checkpoint(worker, saved);
}

void rb_agent_saves_lost(struct rb_worker *worker)
{
    for (struct rb_agent_save **at = &worker->agent->saves; *at;) {
        struct rb_agent_save *save = *at;
        if (save->worker != worker) {
            at = &save->next;
            continue;
        }
        *at = save->next;
        rb_request_failf(save->request, RB_EPEER,
                         "the worker ended, or the link to it broke, before it had saved");
        free(save);
    }
}

/* ---- node-file, blob ------------------------------------------------------------------------- */

static void node_file(struct rb_request *request, void *context)
{
    struct rb_agent *agent = context;
    struct rb_agent_job *job = job_of(agent, request);
    struct rb_why why = {0};
    const char *path;
    if (!job)
        return;
    if (rb_request_string(request, "path", &path, &why)) {
        rb_request_fail(request, RB_EINVAL, &why);
        return;
    }
    const struct rb_job_facts *facts = rb_facts_job(rb_store_facts(agent->daemon->store), job->id);
    const Rb__Job *known = facts ? facts->job.job : NULL;
    const char *folders[4] = {job->folder};
    size_t n = 1;
    if (known && known->resume)
        folders[n++] = known->resume;
    if (known && rb_spec_checkpoints(known->spec))
        folders[n++] = rb_spec_checkpoints(known->spec);
    if (json_is_true(json_object_get(rb_request_body(request), "listed")))
        rb_request_listed_file(request, path, folders);
    else
        rb_request_file(request, path, folders);
}

static void blob(struct rb_request *request, void *context)
{
    struct rb_agent *agent = context;
    struct rb_blobs *blobs = agent->daemon->blobs;
    struct rb_why why = {0};
    const char *digest;
    if (rb_request_string(request, "digest", &digest, &why))
        rb_request_fail(request, RB_EINVAL, &why);
    else if (!rb_blobs_has(blobs, digest))
        rb_request_failf(request, RB_ENOTFOUND, "node %s has no blob %s", agent->node, digest);
    else
        rb_request_file(request, rb_blobs_path(blobs, digest), NULL);
}

const struct rb_server_method rb_agent_methods[] = {
    {"node-metrics", false, node_metrics},
    {"node-logs", false, node_logs},
    {"node-save", false, node_save},
    {"node-file", false, node_file},
    {"blob", false, blob},
    {0},
};
