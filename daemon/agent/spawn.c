/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/spawn.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LOOK_MS = 50, OUTPUT_MOST = 64 << 20, OUTPUT_MS = 300000 };

struct rb_process {
    union {
        uv_handle_t handle;
        uv_process_t process; /* spawned */
        uv_poll_t poll;       /* adopted: its pidfd */
        uv_timer_t timer;     /* adopted, on a kernel without pidfd */
    } on;
    pid_t pid;
    int pidfd; /* -1: none */
    bool gone, told;
    rb_process_ended *ended;
    void *context;
};

/* The letter in /proc/PID/stat; 0: there is no such process; '?': that could not be read, for want
 * of a descriptor perhaps, and proves nothing. */
static char state_of(pid_t pid)
{
    char path[32], text[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    bool none = n < 0 && (errno == ENOENT || errno == ESRCH);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *behind = strrchr(text, ')'); /* the program's name may hold anything */
    return none ? 0 : behind && behind[1] == ' ' ? behind[2] : '?';
}

static void tell(struct rb_process *process, const char *how)
{
    process->gone = true;
    if (process->ended) {
        rb_process_ended *ended = process->ended;
        process->ended = NULL;
        ended(how, process->context);
    }
}

/* ---- Spawned --------------------------------------------------------------------------------- */

static void on_ended(uv_process_t *handle, int64_t status, int signal)
{
    struct rb_process *process = handle->data;
    char how[64];
    if (signal)
        snprintf(how, sizeof(how), "signal %d (%s)", signal, strsignal(signal));
    else
        snprintf(how, sizeof(how), "status %d", (int)status);
    tell(process, how);
}

/* Several ranks on one GPU are for tests: NCCL takes them if they say that they are of different
 * hosts.  They say so in their environment, which is set from outside, since a process that has
 * threads cannot change it. */
static bool is_to_name_host(const char *kind)
{
    const char *shares = getenv("RUBATO_GPU_SHARES");

    return strcmp(kind, "cuda") == 0 && shares && atoi(shares) > 1 && !getenv("NCCL_HOSTID");
}

/* Our environment with one compute thread that does not spin, and `name` where the worker is to
 * name its host.  The strings live as long as our environment and `name`. */
static char **worker_environment(char *name)
{
    static char *const own[] = {"OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=passive"};
    size_t n = 0, used = 0;
    while (environ[n])
        n++;
    char **all = rb_alloc((n + RB_COUNT(own) + 2) * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "OMP_NUM_THREADS=", 16) &&
            strncmp(environ[i], "OMP_WAIT_POLICY=", 16))
            all[used++] = environ[i];
    for (size_t i = 0; i < RB_COUNT(own); i++)
        all[used++] = own[i];
    if (name)
        all[used++] = name;
    return all;
}

int rb_process_spawn(uv_loop_t *loop, const struct rb_spawn *spawn, rb_process_ended *ended,
                     void *context, struct rb_process **ret, struct rb_why *why)
{
    char device[16], cpu[16];
    snprintf(device, sizeof(device), "%u", spawn->device);
    snprintf(cpu, sizeof(cpu), "%d", spawn->cpu);
    const char *arguments[] = {
        spawn->program, "--job",  spawn->job,  "--worker",  spawn->worker,     "--device",
        device,         "--kind", spawn->kind, "--run-dir", spawn->run_folder, "--host",
        spawn->host,    "--cpu",  cpu,         NULL,
    };
    if (spawn->cpu < 0)
        arguments[RB_COUNT(arguments) - 3] = NULL;
    int log = open(spawn->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0)
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", spawn->log_path,
                          strerror(errno));
    RB_CLEANUP(rb_freep)
    char *name =
        is_to_name_host(spawn->kind) ? rb_format("NCCL_HOSTID=rubato-%s", spawn->worker) : NULL;
    RB_CLEANUP(rb_freep) char **environment = worker_environment(name);
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = log},
        {.flags = UV_INHERIT_FD, .data.fd = log},
    };
    uv_process_options_t options = {
        .exit_cb = on_ended,
        .file = spawn->program,
        .args = (char **)arguments,
        .env = environment,
        .flags = UV_PROCESS_DETACHED, /* it outlives a rubatod that is killed */
        .stdio_count = 3,
        .stdio = stdio,
    };
    struct rb_process *process = rb_alloc(sizeof(*process));
    process->ended = ended;
    process->context = context;
    process->pidfd = -1;
    process->on.process.data = process;
    int status = uv_spawn(loop, &process->on.process, &options);
    close(log);
    if (status) {
        process->ended = NULL;
        rb_process_release(process);
        return rb_why_set(why, RB_EIO, "starting %s: %s", spawn->program, uv_strerror(status));
    }
    process->pid = process->on.process.pid;
    *ret = process;
    return RB_OK;
}

/* ---- Adopted --------------------------------------------------------------------------------- */

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct rb_process *process = poll->data;
    (void)status;
    (void)events;
    uv_poll_stop(poll);
    tell(process, "ended");
}

static void on_look(uv_timer_t *timer)
{
    struct rb_process *process = timer->data;
    char state = state_of(process->pid);
    if (!state || state == 'Z' || state == 'X') { /* in a container nobody may reap it */
        uv_timer_stop(timer);
        tell(process, "ended");
    }
}

int rb_process_adopt(uv_loop_t *loop, pid_t pid, rb_process_ended *ended, void *context,
                     struct rb_process **ret, struct rb_why *why)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pid <= 0 || (pidfd < 0 && errno != ENOSYS) || (pidfd < 0 && kill(pid, 0))) {
        int err = pid <= 0 || errno == ESRCH ? RB_ENOTFOUND : rb_error_from_errno(errno);
        return rb_why_set(why, err, "process %ld: %s", (long)pid, strerror(errno));
    }
    struct rb_process *process = rb_alloc(sizeof(*process));
    process->pid = pid;
    process->pidfd = pidfd;
    process->ended = ended;
    process->context = context;
    if (pidfd >= 0 && !uv_poll_init(loop, &process->on.poll, pidfd)) {
        uv_poll_start(&process->on.poll, UV_READABLE, on_pidfd);
    } else {
        uv_timer_init(loop, &process->on.timer);
        uv_timer_start(&process->on.timer, on_look, LOOK_MS, LOOK_MS);
    }
    process->on.handle.data = process;
    *ret = process;
    return RB_OK;
}

const char *rb_process_stopped(pid_t pid)
{
    switch (state_of(pid)) {
    case 'T':
        return "it was stopped (SIGSTOP)";
    case 't':
        return "it was stopped by a debugger";
    default:
        return NULL;
    }
}

pid_t rb_process_pid(const struct rb_process *process)
{
    return process->pid;
}

void rb_process_kill(struct rb_process *process)
{
    if (!process || process->gone)
        return;
    if (process->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
    else
        kill(process->pid, SIGKILL);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_process *process = handle->data;
    if (process->pidfd >= 0)
        close(process->pidfd);
    free(process);
}

void rb_process_release(struct rb_process *process)
{
    if (!process)
        return;
    process->ended = NULL;
    uv_close(&process->on.handle, on_closed);
}

/* ---- Cores and programs ---------------------------------------------------------------------- */

unsigned rb_cores(int **ret_cores)
{
    cpu_set_t allowed;
    unsigned n = 0;
    int *cores = rb_alloc(CPU_SETSIZE * sizeof(*cores));
    CPU_ZERO(&allowed);
    if (!sched_getaffinity(0, sizeof(allowed), &allowed))
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &allowed))
                cores[n++] = core;
    if (!n)
        cores[n++] = 0;
    *ret_cores = cores;
    return n;
}

char *rb_program_self(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0)
        return rb_string("rubatod");
    path[n] = 0;
    return rb_string(path);
}

char *rb_program_beside(const char *name)
{
    RB_CLEANUP(rb_freep) char *self = rb_program_self();
    char *slash = strrchr(self, '/');
    return rb_format("%.*s%s", slash ? (int)(slash - self) + 1 : 0, self, name);
}

/* Has the program said something, or ended, in time? */
static bool readable(int fd, uint64_t until)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    uint64_t now;
    int n = 0;
    while (!n && (now = rb_clock_ns()) < until)
        if ((n = poll(&one, 1, (int)((until - now) / 1000000) + 1)) < 0)
            n = errno == EINTR ? 0 : 1;
    return n != 0;
}

int rb_program_output(const char *program, const char *const *arguments, struct rb_buffer *out,
                      struct rb_why *why)
{
    uint64_t until = rb_clock_ns() + (uint64_t)OUTPUT_MS * 1000000;
    int pipe_ends[2], status = 0;
    char bytes[4096];
    if (access(program, X_OK))
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", program, strerror(errno));
    if (pipe2(pipe_ends, O_CLOEXEC))
        return rb_why_set(why, rb_error_from_errno(errno), "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody else will read it */
        dup2(pipe_ends[1], 1);
        execv(program, (char *const *)arguments);
        _exit(127);
    }
    close(pipe_ends[1]);
    for (ssize_t n; pid > 0 && out->size < OUTPUT_MOST;) {
        if (!readable(pipe_ends[0], until)) {
            kill(pid, SIGKILL);
            break;
        }
        n = read(pipe_ends[0], bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        rb_buffer_add(out, bytes, (size_t)n);
    }
    close(pipe_ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) || !out->size)
        return rb_why_set(why, RB_EIO, "%s %s did not say what it should", program,
                          arguments[1] ? arguments[1] : "");
    return RB_OK;
}

int rb_program_line(const char *program, const char *const *arguments, char **ret,
                    struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    int err = rb_program_output(program, arguments, &text, why);
    if (err)
        return err;
    *ret = rb_format("%.*s", (int)strcspn(text.data, "\n"), text.data);
    return RB_OK;
}
