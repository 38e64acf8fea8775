/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/listener.h"

#include "base/arena.h"
#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_GUESTS = 512, BACKLOG = 256, FIRST_GUEST = 3 };

static const uint64_t patience_ns = UINT64_C(5000000000); /* for a hello */
static const uint64_t pause_ns = 100000000;               /* after accept failed */

struct guest {
    int fd; /* -1: a free place */
    bool local, known;
    uint64_t since;
    size_t got;
    uint8_t bytes[RB_HELLO_MAX + 1];
    struct rb_hello hello;
};

struct waiter {
    struct waiter *next;
    uint32_t configuration;
    int event;
};

struct rb_listener {
    int doors[2]; /* unix, TCP; -1: none */
    int wake;
    char *path;
    char *addresses[3];
    pthread_t thread;

    pthread_mutex_t lock; /* of all below */
    bool stop;
    uint64_t closed_until; /* accept failed: leave the doors alone for a moment */
    struct guest *guests[MAX_GUESTS];
    int n_guests;
    struct waiter *waiters;
};

static void show_out(struct rb_listener *listener, int i)
{
    close(listener->guests[i]->fd);
    free(listener->guests[i]);
    listener->guests[i] = listener->guests[--listener->n_guests];
}

static void ring(int event)
{
    uint64_t one = 1;

    (void)!write(event, &one, sizeof one);
}

/* Read what a guest says.  False: the guest is of no use. */
static bool hear(struct rb_listener *listener, struct guest *guest)
{
    ssize_t got =
        recv(guest->fd, guest->bytes + guest->got, sizeof guest->bytes - guest->got, MSG_DONTWAIT);
    int err;

    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0 || guest->known) /* gone, or speaks before it is welcome */
        return false;
    guest->got += (size_t)got;
    err = rb_hello_decode(guest->bytes, guest->got, &guest->hello, NULL);
    if (err)
        return err == RB_EAGAIN;
    guest->known = true;
    for (struct waiter *w = listener->waiters; w; w = w->next)
        if (w->configuration == guest->hello.configuration)
            ring(w->event);
    return true;
}

static void hear_all(struct rb_listener *listener, uint64_t now)
{
    for (int i = listener->n_guests - 1; i >= 0; i--) {
        struct guest *guest = listener->guests[i];

        if (!hear(listener, guest) || (!guest->known && now - guest->since > patience_ns))
            show_out(listener, i);
    }
}

static void let_in(struct rb_listener *listener, int door, uint64_t now)
{
    for (;;) {
        int fd = accept4(listener->doors[door], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct guest *guest;

        if (fd < 0) {
            if (errno == ECONNABORTED || errno == EINTR)
                continue;
            if (errno != EAGAIN)
                listener->closed_until = now + pause_ns;
            return;
        }
        if (listener->n_guests == MAX_GUESTS) {
            close(fd); /* it will try again */
            continue;
        }
        guest = rb_alloc(sizeof *guest);
        guest->fd = fd;
        guest->local = door == 0;
        guest->since = now;
        listener->guests[listener->n_guests++] = guest;
    }
}

/* What to poll for, and how long at most. */
static int arrange(struct rb_listener *listener, struct pollfd *polls, uint64_t now)
{
    bool closed = now < listener->closed_until;
    int timeout = closed ? 100 : -1;

    polls[0] = (struct pollfd){.fd = listener->wake, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        polls[1 + i] = (struct pollfd){.fd = closed ? -1 : listener->doors[i], .events = POLLIN};
    for (int i = 0; i < listener->n_guests; i++) {
        polls[FIRST_GUEST + i] = (struct pollfd){.fd = listener->guests[i]->fd, .events = POLLIN};
        if (!listener->guests[i]->known && timeout < 0)
            timeout = 1000;
    }
    return timeout;
}

static void *serve(void *data)
{
    struct rb_listener *listener = data;
    struct pollfd polls[FIRST_GUEST + MAX_GUESTS];
    uint64_t count, now;

    pthread_mutex_lock(&listener->lock);
    while (!listener->stop) {
        int timeout = arrange(listener, polls, rb_clock_ns());
        nfds_t n = (nfds_t)(FIRST_GUEST + listener->n_guests);

        pthread_mutex_unlock(&listener->lock);
        poll(polls, n, timeout);
        if (polls[0].revents)
            (void)!read(listener->wake, &count, sizeof count);
        pthread_mutex_lock(&listener->lock);
        now = rb_clock_ns();
        for (int i = 0; i < 2; i++)
            if (polls[1 + i].revents)
                let_in(listener, i, now);
        hear_all(listener, now);
    }
    pthread_mutex_unlock(&listener->lock);
    return NULL;
}

void rb_listener_expect(struct rb_listener *listener, uint32_t configuration, int event)
{
    struct waiter *waiter = rb_alloc(sizeof *waiter);

    waiter->configuration = configuration;
    waiter->event = event;
    pthread_mutex_lock(&listener->lock);
    waiter->next = listener->waiters;
    listener->waiters = waiter;
    pthread_mutex_unlock(&listener->lock);
}

void rb_listener_forget(struct rb_listener *listener, int event)
{
    pthread_mutex_lock(&listener->lock);
    for (struct waiter **at = &listener->waiters; *at; at = &(*at)->next) {
        struct waiter *waiter = *at;

        if (waiter->event != event)
            continue;
        *at = waiter->next;
        free(waiter);
        break;
    }
    pthread_mutex_unlock(&listener->lock);
}

bool rb_listener_take(struct rb_listener *listener, uint32_t configuration, struct rb_arrival *ret)
{
    bool found = false;

    pthread_mutex_lock(&listener->lock);
    for (int i = 0; i < listener->n_guests && !found; i++) {
        struct guest *guest = listener->guests[i];

        if (!guest->known || guest->hello.configuration != configuration)
            continue;
        *ret = (struct rb_arrival){guest->fd, guest->local, guest->hello};
        free(guest);
        listener->guests[i] = listener->guests[--listener->n_guests];
        found = true;
    }
    pthread_mutex_unlock(&listener->lock);
    /* The listener's thread polls a descriptor that it no longer owns: make it look again. */
    if (found)
        ring(listener->wake);
    return found;
}

static int fail(struct rb_why *why, const char *verb, const char *where)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, where,
                      strerror(number));
}

static int open_unix(struct rb_listener *listener, const char *path, struct rb_why *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof address.sun_path)
        return rb_why_set(why, RB_ELIMIT, "the socket path %s is longer than %zu bytes", path,
                          sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    fd = listener->doors[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(why, "make a socket for", path);
    unlink(path); /* of an earlier process */
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return fail(why, "bind", path);
    listener->path = rb_string(path);
    if (chmod(path, 0600) < 0 || listen(fd, BACKLOG) < 0)
        return fail(why, "listen on", path);
    listener->addresses[0] = rb_format("unix:%s", path);
    return 0;
}

static int open_tcp(struct rb_listener *listener, const char *host, struct rb_why *why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char port[NI_MAXSERV];
    int fd, err = getaddrinfo(host, "0", &hints, &found);

    if (err)
        return rb_why_set(why, RB_EINVAL, "cannot find the host %s: %s", host, gai_strerror(err));
    fd = listener->doors[1] =
        socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    err = fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
          getsockname(fd, (struct sockaddr *)&bound, &size) < 0;
    freeaddrinfo(found);
    if (err)
        return fail(why, "listen on host", host);
    err = getnameinfo((struct sockaddr *)&bound, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    if (err)
        return rb_why_set(why, RB_EIO, "cannot tell the port on %s: %s", host, gai_strerror(err));
    listener->addresses[listener->addresses[0] ? 1 : 0] =
        rb_format(strchr(host, ':') ? "tcp:[%s]:%s" : "tcp:%s:%s", host, port);
    return 0;
}

/* Block all signals in the thread: they are for the process's own threads. */
static int start_thread(struct rb_listener *listener)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&listener->thread, NULL, serve, listener);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static void release(struct rb_listener *listener)
{
    for (int i = 0; i < 2; i++)
        if (listener->doors[i] >= 0)
            close(listener->doors[i]);
    if (listener->wake >= 0)
        close(listener->wake);
    if (listener->path)
        unlink(listener->path);
    while (listener->n_guests)
        show_out(listener, 0);
    while (listener->waiters) {
        struct waiter *next = listener->waiters->next;

        free(listener->waiters);
        listener->waiters = next;
    }
    pthread_mutex_destroy(&listener->lock);
    for (size_t i = 0; i < RB_COUNT(listener->addresses); i++)
        free(listener->addresses[i]);
    free(listener->path);
    free(listener);
}

int rb_listener_open(const char *path, const char *host, struct rb_listener **ret_listener,
                     struct rb_why *why)
{
    struct rb_listener *listener = rb_alloc(sizeof *listener);
    int err = 0;

    listener->doors[0] = listener->doors[1] = -1;
    listener->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&listener->lock, NULL);
    if (listener->wake < 0)
        err = fail(why, "make", "an eventfd");
    if (!err && path)
        err = open_unix(listener, path, why);
    if (!err && host)
        err = open_tcp(listener, host, why);
    if (!err && start_thread(listener))
        err = rb_why_set(why, RB_ENOMEM, "cannot start the listener's thread");
    if (err) {
        release(listener);
        return err;
    }
    *ret_listener = listener;
    return 0;
}

const char *rb_listener_address(const struct rb_listener *listener, int i)
{
    return i >= 0 && i < (int)RB_COUNT(listener->addresses) ? listener->addresses[i] : NULL;
}

void rb_listener_close(struct rb_listener *listener)
{
    if (!listener)
        return;
    pthread_mutex_lock(&listener->lock);
    listener->stop = true;
    pthread_mutex_unlock(&listener->lock);
    ring(listener->wake);
    pthread_join(listener->thread, NULL);
    release(listener);
}
