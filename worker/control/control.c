/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/control.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "proto/frame.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    NEVER_CAME_MS = 30000, /* an agent that starts a worker connects at once */
    LEFT_ALONE_MS = 60000, /* a worker without state loses nothing by ending */
    FLUSH_MS = 1000,
    EXIT_ALONE = 70,
};

enum { AT_LISTEN, AT_AGENT, AT_REPORTS, AT_SIGNALS, AT_COUNT };

struct rb_control {
    const struct rb_worker_options *options;
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    const struct rb_listener *peers;
    char *path;
    int listen_fd, signal_fd, agent; /* agent -1: none */
    struct rb_buffer in, out;
    uint64_t alone_since; /* ns; when there is no agent */
    bool agent_came;

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
    signal(SIGINT, SIG_IGN); /* a terminal's: the agent decides what becomes of its workers */
    signal(SIGHUP, SIG_IGN);
}

/* ---- The connection -------------------------------------------------------------------------*/

static void drop_agent(struct rb_control *control, const char *why)
{
    if (control->agent < 0)
        return;
    rb_log(RB_LOG_INFO, "agent disconnected: %s", why);
    close(control->agent);
    control->agent = -1;
    control->alone_since = rb_clock_ns();
    rb_buffer_clear(&control->in);
    rb_buffer_clear(&control->out);
}

static void say_hello(struct rb_control *control)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Hello hello = RB__HELLO__INIT;
    struct rb_status status;
    char *addresses[8];

    while (hello.n_addresses < RB_COUNT(addresses)) {
        const char *address = rb_listener_address(control->peers, (int)hello.n_addresses);

        if (!address)
            break;
        addresses[hello.n_addresses++] = (char *)address;
    }
    rb_mailbox_status(control->mailbox, &status);
    hello.worker = (char *)control->options->worker;
    hello.pid = (uint32_t)getpid();
    hello.job = (char *)control->options->job;
    hello.device = (uint32_t)control->options->device;
    hello.addresses = addresses;
    hello.has_configured = hello.has_ready = hello.has_active = hello.has_level = 1;
    hello.has_frozen = hello.has_done = 1;
    hello.configured = status.configured;
    hello.has_fence = 1;
    hello.fence = status.fence;
    hello.ready = status.ready;
    hello.active = status.said;
    hello.level = status.level;
    hello.frozen = status.frozen;
    hello.done = status.done;
    hello.has_answers = hello.answers = 1;
    message.hello = &hello;
    rb_frame_put(&control->out, RB_FRAME_FROM_WORKER, &message.base);
}

static void accept_agent(struct rb_control *control)
{
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    drop_agent(control, "another one came");
    control->agent = fd;
    control->agent_came = true;
    rb_reports_restart(control->reports);
    say_hello(control);
    rb_log(RB_LOG_INFO, "agent connected");
}

static void say_pong(struct rb_control *control)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;

    message.has_pong = message.pong = 1;
    rb_frame_put(&control->out, RB_FRAME_FROM_WORKER, &message.base);
}

static void obey(struct rb_control *control, Rb__ToWorker *message)
{
    struct rb_mailbox *mailbox = control->mailbox;

    if (message->ping) {
        rb_reports_rows_known(control->reports, message->rows_known);
        say_pong(control);
    }
    if (message->settings)
        rb_mailbox_settings(mailbox, message->settings);
    if (!message->configure && !message->go && !message->abandon && !message->save &&
        !message->leave)
        return; /* settings are facts, no orders: of any leader */
    if (!rb_mailbox_fence(mailbox, message->fence)) {
        rb_log(RB_LOG_WARN, "refused an order of an older leader (fence %llu)",
               (unsigned long long)message->fence);
        return;
    }
    if (message->configure)
        rb_mailbox_configure(mailbox, RB_TAKE(message->configure));
    if (message->go) {
        rb_fault("worker.go");
        rb_mailbox_go(mailbox, message->go->number);
    }
    if (message->abandon)
        rb_mailbox_abandon(mailbox, message->abandon->number);
    if (message->save)
        rb_mailbox_save(mailbox, message->save);
    if (message->leave)
        rb_mailbox_leave(mailbox, message->leave->folder, 0);
}

static void read_agent(struct rb_control *control)
{
    char *room = rb_buffer_reserve(&control->in, 65536);
    ssize_t got = recv(control->agent, room, 65536, 0);
    struct rb_why why = {0};
    ProtobufCMessage *message;
    int err;

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop_agent(control, got ? strerror(errno) : "it closed the connection");
        return;
    }
    control->in.size += (size_t)got;
    while ((err = rb_frame_take(&control->in, RB_FRAME_TO_WORKER, &rb__to_worker__descriptor,
                                &message, &why)) == 0) {
        obey(control, (Rb__ToWorker *)message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    if (err != RB_EAGAIN)
        drop_agent(control, why.text);
}

static void write_agent(struct rb_control *control)
{
    while (control->agent >= 0) {
        ssize_t put;

        if (!control->out.size && (rb_reports_due_ms(control->reports) != 0 ||
                                   !rb_reports_take(control->reports, &control->out)))
            return;
        put = send(control->agent, control->out.data, control->out.size, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0)
            drop_agent(control, strerror(errno));
        else
            rb_buffer_drop(&control->out, (size_t)put);
    }
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

/* How long a worker without agent, or one that is to save, may still wait, in ms; -1: as long as it
 * takes. */
static int patience(struct rb_control *control)
{
    int hears = rb_mailbox_hears_out(control->mailbox);
    uint64_t waited = (rb_clock_ns() - control->alone_since) / 1000000;
    uint64_t limit = control->agent_came ? LEFT_ALONE_MS : NEVER_CAME_MS;
    struct rb_status status;

    if (hears >= 0)
        return hears + 1;
    rb_mailbox_status(control->mailbox, &status);
    if (control->agent >= 0 || status.level >= 0 || status.in_group ||
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
    control->told =
        control->agent >= 0 && !control->out.size && rb_reports_due_ms(control->reports) < 0;
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

static void turn(struct rb_control *control, int timeout)
{
    struct pollfd fds[AT_COUNT] = {
        [AT_LISTEN] = {control->listen_fd, POLLIN, 0},
        [AT_AGENT] = {control->agent, (short)(POLLIN | (control->out.size ? POLLOUT : 0)), 0},
        [AT_REPORTS] = {rb_reports_fd(control->reports), POLLIN, 0},
        [AT_SIGNALS] = {control->signal_fd, POLLIN, 0},
    };

    if (control->agent >= 0 && !control->out.size)
        timeout = sooner(timeout, rb_reports_due_ms(control->reports));
    if (poll(fds, AT_COUNT, timeout) < 0)
        return;
    if (fds[AT_SIGNALS].revents)
        take_signal(control);
    if (fds[AT_REPORTS].revents)
        rb_reports_quiet(control->reports);
    if (fds[AT_AGENT].revents & (POLLIN | POLLHUP | POLLERR))
        read_agent(control);
    if (fds[AT_LISTEN].revents)
        accept_agent(control);
    write_agent(control);
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
            write_agent(control);
            if (control->agent < 0 || !control->out.size || now >= deadline)
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
    if (control->agent >= 0)
        close(control->agent);
    rb_buffer_done(&control->in);
    rb_buffer_done(&control->out);
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

    control->options = options;
    control->mailbox = mailbox;
    control->reports = reports;
    control->peers = peers;
    control->path = rb_format("%s/%s.sock", options->run_dir, options->worker);
    control->agent = -1;
    control->alone_since = rb_clock_ns();
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    signals_of(&set);
    control->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    err = bind_socket(control, why);
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
    pthread_mutex_lock(&control->lock);
    control->told = false;
    rb_reports_hurry(control->reports);
    while (!control->told && !atomic_load(rb_mailbox_stop(control->mailbox)))
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
