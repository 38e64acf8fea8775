/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/line.h"

#include "base/arena.h"
#include "base/clock.h"
#include "proto/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MS = 10000 };

struct rb_line {
    const char *endpoint;
    int interrupt_fd, fd;
    uint64_t deadline; /* of the current wait, ns */
    struct rb_tls *tls;
    struct rb_tls_session *session; /* NULL: bytes are as they are */
};

void rb_line_arm(struct rb_line *line, int64_t ms)
{
    line->deadline = rb_clock_ns() + (uint64_t)ms * 1000000;
}

/* Wait until the socket is ready for `events`. */
static int wait_for(const struct rb_line *line, short events, struct rb_why *why)
{
    struct pollfd fds[2] = {{line->fd, events, 0}, {line->interrupt_fd, POLLIN, 0}};

    for (;;) {
        uint64_t now = rb_clock_ns();
        int64_t left = line->deadline > now ? (int64_t)((line->deadline - now) / 1000000) + 1 : 0;
        int ready = poll(fds, 2, left > INT32_MAX ? INT32_MAX : (int)left);

        if (ready < 0 && errno != EINTR)
            return rb_why_set(why, RB_EIO, "poll: %s", strerror(errno));
        if (ready > 0 && fds[1].revents)
            return rb_why_set(why, RB_ECANCELED, "interrupted");
        if (ready > 0)
            return 0;
        if (ready == 0 && left == 0)
            return rb_why_set(why, RB_ETIMEOUT, "no answer from rubatod at %s in time",
                              line->endpoint);
    }
}

/* ---- Connecting ---- */

static int unreachable(const char *endpoint, int number, struct rb_why *why)
{
    if (number == EACCES && endpoint[0] == 'u')
        return rb_why_set(why, RB_EUNREACHABLE,
                          "rubatod at %s is another user's: run your own, or ask for its tls "
                          "or tcp endpoint; --endpoint or RUBATO_ENDPOINT says where",
                          endpoint);
    return rb_why_set(why, RB_EUNREACHABLE,
                      "cannot reach rubatod at %s: %s; is it running? --endpoint or "
                      "RUBATO_ENDPOINT says where",
                      endpoint, strerror(number));
}

static int connect_to(struct rb_line *line, const struct sockaddr *address, socklen_t size,
                      struct rb_why *why)
{
    const char *endpoint = line->endpoint;
    int number = 0, err;

    line->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (line->fd < 0)
        return unreachable(endpoint, errno, why);
    if (connect(line->fd, address, size) == 0)
        return 0;
    if (errno == EAGAIN) /* the queue of this unix socket is full */
        return rb_why_set(why, RB_EAGAIN, "rubatod at %s is called by too many at once", endpoint);
    if (errno != EINPROGRESS)
        return unreachable(endpoint, errno, why);
    err = wait_for(line, POLLOUT, why);
    if (err)
        return err == RB_ETIMEOUT ? unreachable(endpoint, ETIMEDOUT, why) : err;
    getsockopt(line->fd, SOL_SOCKET, SO_ERROR, &number, &(socklen_t){sizeof number});
    return number ? unreachable(endpoint, number, why) : 0;
}

static int connect_unix(struct rb_line *line, const char *path, struct rb_why *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return rb_why_set(why, RB_EUNREACHABLE, "%s: a unix socket's path has at most %zu bytes",
                          path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path));
    return connect_to(line, (struct sockaddr *)&address, sizeof address, why);
}

/* "HOST:PORT" or "[HOST]:PORT" in two; false where it is neither. */
static bool split_address(const char *text, char **ret_host, char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;

    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    if (!size || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
        return false;
    *ret_host = rb_format("%.*s", (int)size, text);
    *ret_port = rb_string(colon + 1);
    return true;
}

static int connect_tcp(struct rb_line *line, const char *host, const char *port, struct rb_why *why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int err = RB_EUNREACHABLE, status;

    status = getaddrinfo(host, port, &hints, &found);
    if (status)
        return rb_why_set(why, RB_EUNREACHABLE, "cannot find host %s: %s", host,
                          gai_strerror(status));
    for (const struct addrinfo *at = found; at && err == RB_EUNREACHABLE; at = at->ai_next) {
        if (line->fd >= 0)
            close(line->fd);
        line->fd = -1;
        err = connect_to(line, at->ai_addr, at->ai_addrlen, why);
    }
    freeaddrinfo(found);
    return err;
}

int rb_line_check(const char *endpoint, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *host = NULL, *port = NULL;

    if (strncmp(endpoint, "unix:", 5) == 0 && endpoint[5])
        return 0;
    if ((strncmp(endpoint, "tcp:", 4) == 0 || strncmp(endpoint, "tls:", 4) == 0) &&
        split_address(endpoint + 4, &host, &port))
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "'%.100s' is no endpoint: expected unix:PATH, tcp:HOST:PORT or tls:HOST:PORT",
                      endpoint);
}

/* ---- TLS ---- */

static ssize_t pull(void *context, void *to, size_t room)
{
    return recv(((struct rb_line *)context)->fd, to, room, 0);
}

static ssize_t push(void *context, const void *bytes, size_t size)
{
    return send(((struct rb_line *)context)->fd, bytes, size, MSG_NOSIGNAL);
}

/* Wait after an RB_EAGAIN of a session. */
static int wait_for_session(const struct rb_line *line, struct rb_why *why)
{
    return wait_for(line, rb_tls_writes(line->session) ? POLLOUT : POLLIN, why);
}

static int secure(struct rb_line *line, const char *folder, const char *host, struct rb_why *why)
{
    const struct rb_tls_line own = {pull, push, line};
    int err;

    if (!folder)
        return rb_why_set(why, RB_EINVAL,
                          "%s wants certificates: --tls or RUBATO_TLS names a folder with ca.crt, "
                          "tls.crt and tls.key",
                          line->endpoint);
    /* The handshake goes in small pieces: none may wait for the answer to the one before. */
    setsockopt(line->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    err = rb_tls_new(folder, &line->tls, why);
    err = err ? err : rb_tls_open(line->tls, host, &own, &line->session, why);
    if (err)
        return err;
    while ((err = rb_tls_shake(line->session, why)) == RB_EAGAIN)
        if ((err = wait_for_session(line, why)))
            return err == RB_ETIMEOUT ? unreachable(line->endpoint, ETIMEDOUT, why) : err;
    return err ? rb_why_add(why, RB_EUNREACHABLE, "rubatod at %s", line->endpoint) : 0;
}

/* ---- Life ---- */

static int open_line(struct rb_line *line, const struct rb_line_to *to, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *host = NULL, *port = NULL;
    const char *endpoint = to->endpoint;
    int err = rb_line_check(endpoint, why);

    if (err)
        return err;
    rb_line_arm(line, to->most_ms && to->most_ms < CONNECT_MS ? to->most_ms : CONNECT_MS);
    if (endpoint[0] == 'u')
        return connect_unix(line, endpoint + 5, why);
    split_address(endpoint + 4, &host, &port);
    err = connect_tcp(line, host, port, why);
    if (!err && endpoint[1] == 'l')
        err = secure(line, to->tls, host, why);
    return err;
}

int rb_line_open(const struct rb_line_to *to, struct rb_line **ret_line, struct rb_why *why)
{
    struct rb_line *line = rb_alloc(sizeof *line);
    int err;

    line->endpoint = to->endpoint;
    line->interrupt_fd = to->interrupt_fd;
    line->fd = -1;
    err = open_line(line, to, why);
    if (err)
        rb_line_close(line);
    else
        *ret_line = line;
    return err;
}

void rb_line_close(struct rb_line *line)
{
    if (!line)
        return;
    rb_tls_close(line->session);
    rb_tls_free(line->tls);
    if (line->fd >= 0)
        close(line->fd);
    free(line);
}

int rb_line_broken(const struct rb_line *line, const char *how, struct rb_why *why)
{
    return rb_why_set(why, RB_EUNREACHABLE, "rubatod at %s %s", line->endpoint, how);
}

/* ---- Bytes ---- */

static int put_some(struct rb_line *line, const void *bytes, size_t size, size_t *ret_size,
                    struct rb_why *why)
{
    ssize_t put;

    if (line->session)
        return rb_tls_write(line->session, bytes, size, ret_size, why);
    put = send(line->fd, bytes, size, MSG_NOSIGNAL);
    if (put < 0)
        return errno == EAGAIN || errno == EINTR ? RB_EAGAIN : RB_EPEER;
    *ret_size = (size_t)put;
    return 0;
}

static int get_some(struct rb_line *line, void *to, size_t room, size_t *ret_size,
                    struct rb_why *why)
{
    ssize_t got;

    if (line->session)
        return rb_tls_read(line->session, to, room, ret_size, why);
    got = recv(line->fd, to, room, 0);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? RB_EAGAIN : RB_EPEER;
    *ret_size = (size_t)got;
    return 0;
}

/* Wait until bytes can move; an objection of TLS is passed on. */
static int wait_or_say(struct rb_line *line, int err, short events, struct rb_why *why)
{
    if (err == RB_EREFUSED)
        return rb_why_add(why, RB_EUNREACHABLE, "rubatod at %s", line->endpoint);
    if (err != RB_EAGAIN)
        return rb_line_broken(line, "closed the connection", why);
    return line->session ? wait_for_session(line, why) : wait_for(line, events, why);
}

/* rubatod has hung up while this side wrote.  What it said before that, that it does not trust this
 * side, can still be read. */
static int said_before(struct rb_line *line, struct rb_why *why)
{
    char ignored[256];
    size_t got = 0;

    if (line->session &&
        rb_tls_read(line->session, ignored, sizeof ignored, &got, why) == RB_EREFUSED)
        return RB_EREFUSED;
    return RB_EPEER;
}

int rb_line_put(struct rb_line *line, const void *bytes, size_t size, struct rb_why *why)
{
    for (size_t at = 0; at < size;) {
        size_t put = 0;
        int err = put_some(line, (const char *)bytes + at, size - at, &put, why);

        at += put;
        if (err == RB_EPEER)
            err = said_before(line, why);
        if (err && (err = wait_or_say(line, err, POLLOUT, why)))
            return err;
    }
    return 0;
}

int rb_line_get(struct rb_line *line, void *to, size_t room, size_t *ret_size, struct rb_why *why)
{
    for (;;) {
        size_t got = 0;
        int err = get_some(line, to, room, &got, why);

        if (!err && got) {
            *ret_size = got;
            return 0;
        }
        if (!err || err == RB_EPEER)
            return rb_line_broken(line, "closed the connection before it had answered", why);
        err = wait_or_say(line, err, POLLIN, why);
        if (err)
            return err;
    }
}
