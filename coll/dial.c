/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/dial.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int dial(int family, const struct sockaddr *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err;

    if (fd < 0)
        return rb_error_from_errno(errno);
    if (connect(fd, address, size) == 0 || errno == EINPROGRESS)
        return fd;
    err = errno == EAGAIN || errno == EINTR ? RB_EAGAIN : RB_EUNREACHABLE;
    close(fd);
    return err;
}

static int dial_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (!*path || strlen(path) >= sizeof address.sun_path)
        return RB_EINVAL;
    strcpy(address.sun_path, path);
    return dial(AF_UNIX, (struct sockaddr *)&address, sizeof address);
}

/* HOST:PORT or [HOST]:PORT. */
static int dial_tcp(const char *where)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const char *colon = strrchr(where, ':');
    char host[256];
    size_t size;
    int fd;

    if (!colon || !colon[1])
        return RB_EINVAL;
    size = (size_t)(colon - where);
    if (size >= 2 && where[0] == '[' && where[size - 1] == ']') {
        where++;
        size -= 2;
    }
    if (!size || size >= sizeof host)
        return RB_EINVAL;
    memcpy(host, where, size);
    host[size] = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &found))
        return RB_EUNREACHABLE;
    fd = dial(found->ai_family, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return fd;
}

int rb_dial(const char *address, bool *ret_local)
{
    *ret_local = !strncmp(address, "unix:", 5);
    if (*ret_local)
        return dial_unix(address + 5);
    return strncmp(address, "tcp:", 4) ? RB_EINVAL : dial_tcp(address + 4);
}

int rb_dial_result(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLOUT};
    int number = 0;
    socklen_t size = sizeof number;

    if (poll(&now, 1, 0) <= 0)
        return RB_EAGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) < 0 || number)
        return RB_EUNREACHABLE;
    return now.revents & POLLOUT ? 0 : RB_EUNREACHABLE;
}
