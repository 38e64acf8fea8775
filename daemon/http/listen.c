/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/listen.h"

#include "base/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { BACKLOG = 512, HOST_MOST = 63 };

int rb_http_address(const char *text, struct sockaddr_storage *ret, struct rb_why *why)
{
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : "";
    size_t length = colon ? (size_t)(colon - text) : 0, digits = strspn(port, "0123456789");
    bool six = length > 2 && text[0] == '[' && text[length - 1] == ']';
    char host[HOST_MOST + 1] = "";

    memset(ret, 0, sizeof(*ret));
    if (!length || length > HOST_MOST || !digits || digits > 5 || port[digits] ||
        atoi(port) > 65535)
        return rb_why_set(why, RB_EINVAL, "'%.80s' is not ADDRESS:PORT", text);
    memcpy(host, text + six, length - (six ? 2 : 0));
    if (six || strchr(host, ':') ? uv_ip6_addr(host, atoi(port), (struct sockaddr_in6 *)ret)
                                 : uv_ip4_addr(host, atoi(port), (struct sockaddr_in *)ret))
        return rb_why_set(why, RB_EINVAL,
                          "'%s' is not a numeric address: say 127.0.0.1:PORT, or [::1]:PORT", host);
    return RB_OK;
}

/* The address that was asked for, with the port that was taken. */
static char *name_of(int fd, const char *text)
{
    struct sockaddr_storage taken;
    socklen_t size = sizeof(taken);
    int port = 0;

    if (!getsockname(fd, (struct sockaddr *)&taken, &size))
        port = ntohs(taken.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&taken)->sin6_port
                                                 : ((struct sockaddr_in *)&taken)->sin_port);
    return rb_format("%.*s:%d", (int)(strrchr(text, ':') - text), text, port);
}

static int refuse(const char *text, int number, struct rb_why *why)
{
    if (number == EADDRINUSE)
        return rb_why_set(why, RB_EEXISTS,
                          "%s is in use by another process: stop it, or give another port (0: any)",
                          text);
    if (number == EADDRNOTAVAIL)
        return rb_why_set(why, RB_EINVAL,
                          "%s is no address of this machine: give one that it has, or 127.0.0.1",
                          text);
    if (number == EACCES)
        return rb_why_set(why, RB_EINVAL, "%s is not allowed: give a port above 1023", text);
    return rb_why_set(why, RB_EIO, "%s: %s", text, strerror(number));
}

int rb_http_listen(const char *text, int *ret_socket, char **ret_address, struct rb_why *why)
{
    struct sockaddr_storage address;
    const int yes = 1;
    int err = rb_http_address(text, &address, why);

    if (err)
        return err;
    socklen_t size =
        address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Connections that have ended do not keep rubatod from starting again. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
        bind(fd, (struct sockaddr *)&address, size) || listen(fd, BACKLOG)) {
        err = refuse(text, errno, why);
        if (fd >= 0)
            close(fd);
        return err;
    }
    *ret_socket = fd;
    *ret_address = name_of(fd, text);
    return RB_OK;
}
