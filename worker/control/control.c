/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/control.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "worker/control/agent_link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    NEVER_CAME_MS = 30000, /* an agent that starts a worker connects at once */
    LEFT_ALONE_MS = 60000, /* a worker without state loses nothing by ending */
    FLUSH_MS = 1000,
    FULL_NS = 10000000, /* pause when there is no descriptor for an agent that connects */
    EXIT_ALONE = 70,
};

enum { AT_LISTEN, AT_AGENT, AT_REPORTS, AT_SIGNALS, AT_COUNT };

struct rb_control {
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    char *path;
    int listen_fd, signal_fd;
    struct rb_agent_link agent;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool told, closing; /* told: a connected agent has been sent everything */
};

static void signals_of(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
}

void rb_control_block_signals(void)
{
    sigset_t set;

    signals_of(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* from a terminal: the agent decides what becomes of its workers */
    signal(SIGHUP, SIG_IGN);
}

/* ---- The loop -------------------------------------------------------------------------------*/

static void take_signal(struct rb_control *control)
{
    struct signalfd_siginfo info;

    if (read(control->signal_fd, &info, sizeof info) != sizeof info)
        return;
    rb_log(RB_LOG_INFO, "signal %u: leaving", info.ssi_signo);
    rb_mailbox_leave(control->mailbox, NULL, 0);
}

/* How many ms a worker without agent, or one that is to save, may still wait; -1: without limit. */
static int patience(struct rb_control *control)
{
    int hears = rb_mailbox_hears_out(control->mailbox);
    uint64_t waited = (rb_clock_ns() - control->agent.alone_since) / 1000000;
    uint64_t limit = control->agent.came ? LEFT_ALONE_MS : NEVER_CAME_MS;
    struct rb_status status;

    if (hears >= 0)
        return hears + 1;
    rb_mailbox_status(control->mailbox, &status);
    if (control->agent.fd >= 0 || status.level >= 0 || status.in_group ||
        atomic_load(rb_mailbox_stop(control->mailbox)))
        return -1;
    if (waited < limit)
        return (int)(limit - waited) + 1;
    rb_log(RB_LOG_ERROR, "no agent for %llu s: leaving", (unsigned long long)limit / 1000);
    rb_mailbox_leave(control->mailbox, NULL, EXIT_ALONE);
    return -1;
}

static bool note_told(struct rb_control *control)
{
    bool closing;

    pthread_mutex_lock(&control->lock);
    control->told = rb_agent_link_told(&control->agent);
    closing = control->closing;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
    return closing;
}

/* Of two times in ms, -1: never. */
static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static void accept_agent(struct rb_control *control)
{
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0)
        rb_agent_link_take(&control->agent, fd);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        nanosleep(&(struct timespec){.tv_nsec = FULL_NS}, NULL); /* the connection still waits to be
                                                                  * accepted */
}

static void turn(struct rb_control *control, int timeout)
{
    struct rb_agent_link *agent = &control->agent;
    struct pollfd fds[AT_COUNT] = {
        [AT_LISTEN] = {control->listen_fd, POLLIN, 0},
        [AT_AGENT] = {agent->fd, (short)(POLLIN | (agent->out.size ? POLLOUT : 0)), 0},
        [AT_REPORTS] = {rb_reports_fd(control->reports), POLLIN, 0},
        [AT_SIGNALS] = {control->signal_fd, POLLIN, 0},
    };

    if (poll(fds, AT_COUNT, sooner(timeout, rb_agent_link_due_ms(agent))) < 0)
        return;
    if (fds[AT_SIGNALS].revents)
        take_signal(control);
    if (fds[AT_REPORTS].revents)
        rb_reports_quiet(control->reports);
    if (fds[AT_AGENT].revents & (POLLIN | POLLHUP | POLLERR))
        rb_agent_link_read(agent);
    if (fds[AT_LISTEN].revents)
        accept_agent(control);
    rb_agent_link_write(agent);
}

static void *run(void *context)
{
    struct rb_control *control = context;
    uint64_t deadline = 0;

    for (;;) {
        int timeout = patience(control);

        if (note_told(control)) {
            uint64_t now = rb_clock_ns();

            if (!deadline)
                deadline = now + (uint64_t)FLUSH_MS * 1000000;
            rb_agent_link_write(&control->agent);
            if (control->agent.fd < 0 || !control->agent.out.size || now >= deadline)
                return NULL;
            timeout = (int)((deadline - now) / 1000000) + 1;
        }
        turn(control, timeout);
    }
}

/* ---- Ends -----------------------------------------------------------------------------------*/

static int bind_socket(struct rb_control *control, struct rb_why *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int number;

    if (strlen(control->path) >= sizeof address.sun_path)
        return rb_why_set(why, RB_EINVAL, "%s is too long for a socket", control->path);
    strcpy(address.sun_path, control->path);
    unlink(control->path);
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd >= 0 &&
        bind(control->listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(control->listen_fd, 8) == 0)
        return 0;
    number = errno;
    return rb_why_set(why, rb_error_from_errno(number), "cannot listen on %s: %s", control->path,
                      strerror(number));
}

static void free_control(struct rb_control *control)
{
    if (control->listen_fd >= 0)
        close(control->listen_fd);
    if (control->signal_fd >= 0)
        close(control->signal_fd);
    rb_agent_link_done(&control->agent);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    free(control->path);
    free(control);
}

int rb_control_open(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                    struct rb_reports *reports, const struct rb_listener *peers,
                    struct rb_control **ret_control, struct rb_why *why)
{
    struct rb_control *control = rb_alloc(sizeof *control);
    sigset_t set;
    int err, number;

    control->mailbox = mailbox;
    control->reports = reports;
    control->listen_fd = -1;
    control->path = rb_format("%s/%s.sock", options->run_dir, options->worker);
    control->agent = (struct rb_agent_link){
        .options = options,
        .mailbox = mailbox,
        .reports = reports,
        .peers = peers,
        .fd = -1,
        .alone_since = rb_clock_ns(),
    };
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    signals_of(&set);
    control->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    err = control->signal_fd < 0 || rb_reports_fd(reports) < 0
              ? rb_why_set(why, RB_EFULL, "no descriptor for signals, or for reports")
              : bind_socket(control, why);
    if (!err && (number = pthread_create(&control->thread, NULL, run, control)) != 0)
        err = rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(number));
    if (err) {
        free_control(control);
        return err;
    }
    *ret_control = control;
    return 0;
}

void rb_control_wait_told(struct rb_control *control)
{
    const bool leaves = atomic_load(rb_mailbox_stop(control->mailbox));

    pthread_mutex_lock(&control->lock);
    control->told = false;
    rb_reports_hurry(control->reports);
    while (!control->told && (leaves || !atomic_load(rb_mailbox_stop(control->mailbox))))
        pthread_cond_wait(&control->changed, &control->lock);
    pthread_mutex_unlock(&control->lock);
}

void rb_control_close(struct rb_control *control)
{
    if (!control)
        return;
    pthread_mutex_lock(&control->lock);
    control->closing = true;
    pthread_mutex_unlock(&control->lock);
    rb_reports_hurry(control->reports);
    pthread_join(control->thread, NULL);
    unlink(control->path);
    free_control(control);
}
