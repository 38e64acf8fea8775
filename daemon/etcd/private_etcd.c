/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/private_etcd.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/etcd/backoff.h"
#include "daemon/room.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct rb_private_etcd {
    uv_loop_t *loop;
    uv_process_t *process; /* each its own memory: one that was not started has to be closed, too */
    uv_timer_t timer;      /* start again; or kill what does not stop */
    struct rb_backoff backoff;
    uint64_t started;
    char *self, *folder, *endpoint, *program;
    bool running, stopping, freed;
    int open; /* handles */
    void (*done)(void *context);
    void *context;
};

int rb_private_etcd_launch(int argc, char **argv)
{
    if (argc < 4)
        return 64;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)atol(argv[2]))
        return 70; /* the parent was faster in dying */
    execv(argv[3], argv + 3);
    fprintf(stderr, "%s: %s\n", argv[3], strerror(errno));
    return 69;
}

/* etcd on PATH, or in the places where Debian and admins put it. */
static char *find_program(void)
{
    const char *path = getenv("PATH");
    RB_CLEANUP(rb_freep)
    char *all = rb_format("%s:/usr/bin:/usr/local/bin:/usr/sbin", path ? path : "");
    for (char *folder = all, *next; folder; folder = next) {
        next = strchr(folder, ':');
        if (next)
            *next++ = 0;
        char *program = rb_format("%s/etcd", folder);
        if (*folder == '/' && !access(program, X_OK))
            return program;
        free(program);
    }
    return NULL;
}

static int spawn(struct rb_private_etcd *etcd, struct rb_why *why);

static void on_restart(uv_timer_t *timer)
{
    struct rb_private_etcd *etcd = timer->data;
    struct rb_why why = {0};
    if (spawn(etcd, &why)) {
        rb_log(RB_LOG_ERROR, "%s; trying again", why.text);
        uv_timer_start(&etcd->timer, on_restart, rb_backoff_next(&etcd->backoff), 0);
    }
}

static void release(struct rb_private_etcd *etcd)
{
    free(etcd->self);
    free(etcd->folder);
    free(etcd->endpoint);
    free(etcd->program);
    free(etcd);
}

static void close_one(struct rb_private_etcd *etcd)
{
    if (--etcd->open == 0)
        release(etcd);
}

static void on_timer_closed(uv_handle_t *handle)
{
    close_one(handle->data);
}

static void on_process_closed(uv_handle_t *handle)
{
    struct rb_private_etcd *etcd = handle->data;
    etcd->running = false;
    if (!etcd->freed && etcd->stopping) {
        uv_timer_stop(&etcd->timer);
        etcd->done(etcd->context);
    } else if (!etcd->freed) {
        if (uv_now(etcd->loop) - etcd->started > 10000)
            rb_backoff_reset(&etcd->backoff);
        uv_timer_start(&etcd->timer, on_restart, rb_backoff_next(&etcd->backoff), 0);
    }
    free(handle);
    close_one(etcd);
}

static void on_unstarted_closed(uv_handle_t *handle)
{
    free(handle);
}

/* A full disk ends etcd, but etcd may end beside a full disk for another reason. */
static void say_ended(const struct rb_private_etcd *etcd, int status, int signal)
{
    struct rb_why room = {0};
    bool full = rb_room_check(etcd->folder, RB_ROOM_ETCD, &room) != 0;
    rb_log(full ? RB_LOG_ERROR : RB_LOG_WARN,
           "etcd ended (status %d, signal %d), see %s/etcd.log%s%s; starting it again", status,
           signal, etcd->folder, full ? "; " : "", room.text);
}

static void on_ended(uv_process_t *process, int64_t status, int signal)
{
    struct rb_private_etcd *etcd = process->data;
    if (!etcd->stopping && !etcd->freed)
        say_ended(etcd, (int)status, signal);
    uv_close((uv_handle_t *)process, on_process_closed);
}

/* Sockets of an etcd that was killed would be "in use". */
static void remove_sockets(const struct rb_private_etcd *etcd)
{
    static const char *const names[] = {"c.sock:1", "p.sock:1"};
    for (size_t i = 0; i < RB_COUNT(names); i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", etcd->folder, names[i]);
        unlink(path);
    }
}

static int spawn(struct rb_private_etcd *etcd, struct rb_why *why)
{
    char parent[32];
    snprintf(parent, sizeof(parent), "%ld", (long)getpid());
    char *arguments[] = {etcd->self, RB_PRIVATE_ETCD_LAUNCH, parent, etcd->program, "--name",
                         "rubato", "--data-dir", "data",
                         /* Relative to the folder it runs in: absolute paths are refused. */
                         "--listen-client-urls", "unix://c.sock:1", "--advertise-client-urls",
                         "unix://c.sock:1", "--listen-peer-urls", "unix://p.sock:1",
                         "--initial-advertise-peer-urls", "unix://p.sock:1", "--initial-cluster",
                         "rubato=unix://p.sock:1", "--heartbeat-interval", "50",
                         "--election-timeout", "500", "--auto-compaction-mode", "revision",
                         "--auto-compaction-retention", "1000",
                         /* What was written since the last snapshot stays in memory too. */
                         "--snapshot-count", "1000", "--quota-backend-bytes", "268435456",
                         "--experimental-watch-progress-notify-interval", "1s", "--logger", "zap",
                         "--log-level", "warn", NULL};
    RB_CLEANUP(rb_freep) char *log_path = rb_format("%s/etcd.log", etcd->folder);
    int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log < 0)
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", log_path, strerror(errno));
    remove_sockets(etcd);
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = log},
        {.flags = UV_INHERIT_FD, .data.fd = log},
    };
    uv_process_options_t options = {
        .exit_cb = on_ended,
        .file = etcd->self,
        .args = arguments,
        .cwd = etcd->folder,
        .flags = UV_PROCESS_DETACHED, /* a Ctrl-C is for rubatod, which stops etcd last */
        .stdio_count = 3,
        .stdio = stdio,
    };
    etcd->process = rb_alloc(sizeof(*etcd->process));
    etcd->process->data = etcd;
    int status = uv_spawn(etcd->loop, etcd->process, &options);
    close(log);
    if (status) {
        uv_close((uv_handle_t *)etcd->process, on_unstarted_closed);
        return rb_why_set(why, RB_EIO, "starting etcd: %s", uv_strerror(status));
    }
    etcd->open++;
    etcd->running = true;
    etcd->started = uv_now(etcd->loop);
    return RB_OK;
}

int rb_private_etcd_start(uv_loop_t *loop, const char *self, const char *folder,
                          const char **ret_endpoint, struct rb_private_etcd **ret,
                          struct rb_why *why)
{
    char *program = find_program();
    if (!program)
        return rb_why_set(why, RB_ENOTFOUND,
                          "there is no etcd on this machine: install Debian's etcd-server");
    int err = rb_file_make_folder(folder, RB_FOLDER_OWN, why);
    if (!err && chmod(folder, 0700))
        err = rb_why_set(why, rb_error_from_errno(errno), "%s: %s", folder, strerror(errno));
    if (err) {
        free(program);
        return err;
    }
    struct rb_private_etcd *etcd = rb_alloc(sizeof(*etcd));
    etcd->loop = loop;
    etcd->self = rb_string(self);
    etcd->folder = rb_string(folder);
    etcd->endpoint = rb_format("unix:%s/c.sock:1", folder);
    etcd->program = program;
    uv_timer_init(loop, &etcd->timer);
    etcd->timer.data = etcd;
    etcd->open = 1;
    err = spawn(etcd, why);
    if (err) {
        rb_private_etcd_free(etcd);
        return err;
    }
    *ret_endpoint = etcd->endpoint;
    *ret = etcd;
    return RB_OK;
}

static void on_kill(uv_timer_t *timer)
{
    struct rb_private_etcd *etcd = timer->data;
    if (etcd->running)
        uv_process_kill(etcd->process, SIGKILL);
    else
        etcd->done(etcd->context);
}

void rb_private_etcd_stop(struct rb_private_etcd *etcd, uint64_t timeout_ms,
                          void (*done)(void *context), void *context)
{
    etcd->stopping = true;
    etcd->done = done;
    etcd->context = context;
    if (etcd->running)
        uv_process_kill(etcd->process, SIGTERM);
    uv_timer_start(&etcd->timer, on_kill, etcd->running ? timeout_ms : 0, 0);
}

void rb_private_etcd_free(struct rb_private_etcd *etcd)
{
    if (!etcd)
        return;
    etcd->freed = true;
    if (etcd->running)
        uv_process_kill(etcd->process, SIGKILL);
    uv_close((uv_handle_t *)&etcd->timer, on_timer_closed);
}
