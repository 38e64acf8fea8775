/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/client.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "proto/frame.h"
#include "rpc.pb-c.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MS = 10000 };

struct line {
    const struct rb_client_call *call;
    int fd;
    uint64_t deadline; /* of the wait at hand, ns */
};

static void arm(struct line *line, int64_t ms)
{
    line->deadline = rb_clock_ns() + (uint64_t)ms * 1000000;
}

/* Until the socket is ready for `events`. */
static int wait_for(const struct line *line, short events, struct rb_why *why)
{
    struct pollfd fds[2] = {{line->fd, events, 0}, {line->call->interrupt_fd, POLLIN, 0}};

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
                              line->call->endpoint);
    }
}

/* ---- Connecting ---- */

static int unreachable(const char *endpoint, int number, struct rb_why *why)
{
    if (number == EACCES && endpoint[0] == 'u')
        return rb_why_set(why, RB_EUNREACHABLE,
                          "rubatod at %s is another user's: run your own, or ask for its tcp "
                          "endpoint; --endpoint or RUBATO_ENDPOINT says where",
                          endpoint);
    return rb_why_set(why, RB_EUNREACHABLE,
                      "cannot reach rubatod at %s: %s; is it running? --endpoint or "
                      "RUBATO_ENDPOINT says where",
                      endpoint, strerror(number));
}

static int connect_to(struct line *line, const struct sockaddr *address, socklen_t size,
                      struct rb_why *why)
{
    const char *endpoint = line->call->endpoint;
    int number = 0, err;

    line->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (line->fd < 0)
        return unreachable(endpoint, errno, why);
    if (connect(line->fd, address, size) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return unreachable(endpoint, errno, why);
    err = wait_for(line, POLLOUT, why);
    if (err)
        return err == RB_ETIMEOUT ? unreachable(endpoint, ETIMEDOUT, why) : err;
    getsockopt(line->fd, SOL_SOCKET, SO_ERROR, &number, &(socklen_t){sizeof number});
    return number ? unreachable(endpoint, number, why) : 0;
}

static int connect_unix(struct line *line, const char *path, struct rb_why *why)
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

static int connect_tcp(struct line *line, const char *text, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *host = NULL, *port = NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int err = RB_EUNREACHABLE, status;

    if (!split_address(text, &host, &port))
        return rb_why_set(why, RB_EINVAL, "%s: expected HOST:PORT", text);
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

int rb_client_check_endpoint(const char *endpoint, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *host = NULL, *port = NULL;

    if (strncmp(endpoint, "unix:", 5) == 0 && endpoint[5])
        return 0;
    if (strncmp(endpoint, "tcp:", 4) == 0 && split_address(endpoint + 4, &host, &port))
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "'%.100s' is no endpoint: expected unix:PATH or tcp:HOST:PORT", endpoint);
}

static int open_line(struct line *line, struct rb_why *why)
{
    const char *endpoint = line->call->endpoint;
    int err = rb_client_check_endpoint(endpoint, why);

    if (err)
        return err;
    arm(line, CONNECT_MS);
    if (endpoint[0] == 'u')
        return connect_unix(line, endpoint + 5, why);
    return connect_tcp(line, endpoint + 4, why);
}

/* ---- Talking ---- */

static int broken(const struct line *line, const char *how, struct rb_why *why)
{
    return rb_why_set(why, RB_EUNREACHABLE, "rubatod at %s %s", line->call->endpoint, how);
}

static int send_call(struct line *line, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    char *text = line->call->body ? json_dumps(line->call->body, JSON_COMPACT) : rb_string("{}");
    RB_CLEANUP(rb_buffer_done) struct rb_buffer out = {0};
    Rb__Call message = RB__CALL__INIT;
    int err;

    message.method = (char *)line->call->method;
    message.node = (char *)line->call->node;
    message.body = text;
    rb_frame_put(&out, RB_FRAME_CALL, &message.base);
    for (size_t at = 0; at < out.size;) {
        ssize_t put = send(line->fd, out.data + at, out.size - at, MSG_NOSIGNAL);

        if (put > 0) {
            at += (size_t)put;
            continue;
        }
        if (put < 0 && errno != EAGAIN && errno != EINTR)
            return broken(line, "closed the connection", why);
        err = wait_for(line, POLLOUT, why);
        if (err)
            return err;
    }
    return 0;
}

static int next_reply(struct line *line, struct rb_buffer *in, Rb__Reply **ret_reply,
                      struct rb_why *why)
{
    ProtobufCMessage *message = NULL;
    int err;

    for (;;) {
        ssize_t got;

        err = rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, why);
        if (err != RB_EAGAIN)
            break;
        got = recv(line->fd, rb_buffer_reserve(in, 65536), 65536, 0);
        if (got > 0) {
            in->size += (size_t)got;
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return broken(line, "closed the connection before it had answered", why);
        err = wait_for(line, POLLIN, why);
        if (err)
            return err;
    }
    if (err) /* whatever is there, it is no rubatod of ours */
        return rb_why_add(why, RB_EUNREACHABLE, "%s", line->call->endpoint);
    *ret_reply = (Rb__Reply *)message;
    return 0;
}

static int take_reply(const struct line *line, const Rb__Reply *reply, json_t **ret_body,
                      struct rb_why *why)
{
    json_t *body;

    if (reply->error)
        return rb_why_set(why, reply->error < 0 ? reply->error : RB_EINTERNAL, "%s",
                          reply->why && reply->why[0] ? reply->why : rb_error_text(reply->error));
    if (reply->has_data && reply->data.len) {
        int err = RB_EINVAL;

        if (!line->call->piece)
            return broken(line, "sent data where none were asked for", why);
        err = line->call->piece(line->call->context, reply->data.data, reply->data.len, why);
        if (err)
            return err;
    }
    if (!reply->last)
        return 0;
    body = reply->body ? json_loads(reply->body, 0, NULL) : json_object();
    if (!json_is_object(body)) {
        json_decref(body);
        return broken(line, "sent a reply that is no JSON object", why);
    }
    *ret_body = body;
    return 0;
}

static int talk(struct line *line, struct rb_buffer *in, json_t **ret_body, struct rb_why *why)
{
    json_t *body = NULL;
    int err = open_line(line, why);

    arm(line, line->call->quiet_ms);
    if (!err)
        err = send_call(line, why);
    while (!err && !body) {
        Rb__Reply *reply = NULL;

        arm(line, line->call->quiet_ms);
        err = next_reply(line, in, &reply, why);
        if (err)
            break;
        err = take_reply(line, reply, &body, why);
        rb__reply__free_unpacked(reply, NULL);
    }
    if (!err)
        *ret_body = body;
    return err;
}

int rb_client_call(const struct rb_client_call *call, json_t **ret_body, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer in = {0};
    struct line line = {.call = call, .fd = -1};
    int err = talk(&line, &in, ret_body, why);

    if (line.fd >= 0)
        close(line.fd);
    return err;
}
