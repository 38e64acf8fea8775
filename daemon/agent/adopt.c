/* SPDX-License-Identifier: Apache-2.0 */
/* Adoption: workers that outlived the rubatod before this one are found by their sockets.
 *
 *   STATE/run/NAME.sock: someone answers -> its process is followed, its link comes up
 *                        silence, or it hangs up
 *                                        -> its process is killed
 *                        nobody          -> the socket is removed; a report in facts that says it
 *                                           lives is put right by the rules (REPORT_DEAD)
 *                        we cannot ask   -> rubatod ends and says why: a worker that is not
 *                                           adopted is reported dead, and others would wait for
 *                                           it to be */
#include "daemon/agent/inside.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/spawn.h"
#include "daemon/agent/worker.h"
#include "proto/frame.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { HELLO_MS = 10000, LOOK_MS = 100 };

static int error_of(int number)
{
    switch (number) {
    case ECONNREFUSED:
    case ENOENT: /* it ended just now */
        return RB_EPEER;
    case EAGAIN: /* it accepts nobody */
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        return RB_EFULL;
    }
    return RB_EIO;
}

/* RB_EPEER: no worker is there.  RB_EFULL: one may be there, and we cannot ask. */
static int call(const char *path, int *ret_fd, pid_t *ret_pid, struct rb_why *why)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred who = {0};
    socklen_t size = sizeof(who);
    const struct timeval wait = {.tv_sec = HELLO_MS / 1000};
    if (strlen(path) >= sizeof(to.sun_path))
        return rb_why_set(why, RB_ELIMIT, "%s: too long", path);
    memcpy(to.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
        int err = rb_why_set(why, error_of(errno), "%s: %s", path,
                             errno == EAGAIN ? "its worker accepts nobody: end its process"
                                             : strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    if (who.pid <= 0) {
        close(fd);
        return rb_why_set(why, RB_EFULL,
                          "%s: its worker runs in another container, and cannot be followed from "
                          "this one: stop that, or give this rubatod another --state-dir",
                          path);
    }
    *ret_fd = fd;
    *ret_pid = who.pid;
    return RB_OK;
}

/* The first message of a worker.  RB_EAGAIN: none comes; `why` says what happened instead. */
static int hear(int fd, pid_t pid, ProtobufCMessage **ret_message, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer in = {0};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int err = RB_EAGAIN;
    for (int waited = 0; err == RB_EAGAIN && waited < HELLO_MS;) {
        if (poll(&wait, 1, LOOK_MS) != 1) {
            waited = rb_process_stopped(pid) ? HELLO_MS : waited + LOOK_MS;
            continue;
        }
        ssize_t n = read(fd, rb_buffer_reserve(&in, 65536), 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return rb_why_set(why, RB_EAGAIN, "process %ld cannot be heard: %s", (long)pid,
                              strerror(errno));
        if (n == 0)
            return rb_why_set(why, RB_EAGAIN, "process %ld hung up before its Hello was whole",
                              (long)pid);
        in.size += (size_t)n;
        err = rb_frame_take(&in, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor, ret_message,
                            why);
    }
    return err == RB_EAGAIN
               ? rb_why_set(why, err, "process %ld is there and says nothing", (long)pid)
               : err;
}

/* Ask which worker is behind a socket: connect, take the Hello, hang up.  Waits; at start only.
 * RB_EAGAIN: process *ret_pid is stopped, or silent, or has hung up. */
static int ask(const char *path, Rb__Hello **ret_hello, pid_t *ret_pid, struct rb_why *why)
{
    ProtobufCMessage *message = NULL;
    int fd = -1, err = call(path, &fd, ret_pid, why);
    if (err)
        return err;
    err = hear(fd, *ret_pid, &message, why);
    close(fd);
    Rb__FromWorker *from = (Rb__FromWorker *)message;
    if (!err && !from->hello)
        err = rb_why_set(why, RB_EINVAL, "its first word is no Hello");
    if (!err)
        *ret_hello = RB_TAKE(from->hello);
    if (from)
        rb__from_worker__free_unpacked(from, NULL);
    return err ? rb_why_add(why, err, "%s", path) : RB_OK;
}

/* What an earlier rubatod has reported about the same process. */
static void take_report(struct rb_worker *worker, const struct rb_facts *facts)
{
    const struct rb_job_facts *job = rb_facts_job(facts, worker->told.job);
    const struct rb_fact *fact =
        job ? rb_facts_report(job, worker->agent->node, worker->told.device) : NULL;
    if (!fact || strcmp(fact->worker->worker, worker->told.worker))
        return;
    const Rb__WorkerReport *report = fact->worker;
    worker->told.spawned_for = report->spawned_for;
    worker->told.unready = report->unready;
    worker->flipped = report->flipped;
    worker->bytes_moved = report->bytes_moved;
    worker->first_step = report->first_step;
    worker->rank = report->rank;
    worker->has_rank = report->has_rank;
    worker->save_failed = report->unsaved;
    if (report->n_without) {
        worker->foreseen = report->active;
        worker->without = rb_alloc((report->n_without + 1) * sizeof(*worker->without));
        for (size_t i = 0; i < report->n_without; i++)
            worker->without[worker->n_without++] = rb_string(report->without[i]);
    }
    if (report->reason)
        rb_worker_set_reason(worker, "%s", report->reason);
    if (report->saved) {
        Rb__Saved saved = RB__SAVED__INIT;
        saved.step = report->saved->step;
        saved.folder = report->saved->path;
        saved.bytes = report->saved->bytes;
        worker->saved = rb_agent_checkpoint_of(worker->agent, &saved, report->saved->configuration);
    }
}

/* The process would be reported as dead, so it has to be dead; training may wait for its end. */
static void kill_silent(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};
    kill(pid, SIGKILL);
    if (pidfd < 0)
        return;
    poll(&wait, 1, LOOK_MS * 10);
    close(pidfd);
}

/* A worker that has ended since it answered is not adopted, which is no error. */
static int follow(struct rb_agent *agent, const Rb__Hello *hello, pid_t pid, struct rb_why *why)
{
    struct rb_worker *worker = rb_worker_new(agent, hello->job, hello->worker, hello->device, 0);
    int err;
    take_report(worker, rb_store_facts(agent->daemon->store));
    err = rb_worker_adopt(worker, pid, why);
    if (err) {
        rb_worker_free(worker);
        return err == RB_ENOTFOUND ? RB_OK : rb_why_add(why, RB_EFULL, "worker %s", hello->worker);
    }
    rb_log(RB_LOG_INFO, "job %s: adopted worker %s on device %u (process %ld)", hello->job,
           hello->worker, hello->device, (long)pid);
    return RB_OK;
}

/* RB_EFULL: the worker may be alive, and we lack what it takes to find out or to follow it. */
static int adopt(struct rb_agent *agent, const char *name, const char *path, struct rb_why *why)
{
    Rb__Hello *hello = NULL;
    pid_t pid = 0;
    int err = ask(path, &hello, &pid, why);
    if (!err && (strcmp(hello->worker, name) || !rb_agent_id_valid(hello->job)))
        err = rb_why_set(why, RB_EINVAL, "%s: it says it is %s of job %s", path, hello->worker,
                         hello->job);
    if (err == RB_EAGAIN) {
        rb_log(RB_LOG_WARN, "%s: it is killed", why->text);
        kill_silent(pid);
        err = RB_EPEER;
    }
    if (err == RB_EPEER) {
        RB_CLEANUP(rb_freep) char *peer = rb_format("%s/%s.peer", agent->run_folder, name);
        unlink(path);
        unlink(peer);
    } else if (!err) {
        err = follow(agent, hello, pid, why);
    } else if (err != RB_EFULL) {
        rb_log(RB_LOG_WARN, "not adopted: %s", why->text);
    }
    if (hello)
        rb__hello__free_unpacked(hello, NULL);
    return err == RB_EFULL ? err : RB_OK;
}

int rb_agent_adopt(struct rb_agent *agent, struct rb_why *why)
{
    DIR *folder = opendir(agent->run_folder);
    int err = RB_OK;
    if (!folder)
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", agent->run_folder,
                          strerror(errno));
    for (struct dirent *entry; !err && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        if (length <= 5 || strcmp(entry->d_name + length - 5, ".sock"))
            continue;
        RB_CLEANUP(rb_freep) char *name = rb_format("%.*s", (int)length - 5, entry->d_name);
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", agent->run_folder, entry->d_name);
        err = adopt(agent, name, path, why);
    }
    closedir(folder);
    return err ? rb_why_add(why, err, "cannot adopt the workers that are there") : RB_OK;
}
