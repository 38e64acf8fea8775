/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/reach.h"

#include "base/error.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

void rb_reach_allow(void)
{
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

void rb_reach_open(struct rb_reach *reach, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    reach->fd = fd;
    reach->pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? 0 : peer.pid;
}

void rb_reach_sign(struct rb_reach *reach, struct rb_reach_sign *ret)
{
    if (getrandom(&reach->word, sizeof reach->word, 0) != sizeof reach->word)
        reach->word = 0; /* 0 is no sign */
    *ret = (struct rb_reach_sign){(uintptr_t)&reach->word, reach->word};
}

bool rb_reach_try(const struct rb_reach *reach, const struct rb_reach_sign *sign)
{
    uint64_t word = 0;

    return sign->at && sign->word && !rb_reach_read(reach, &word, sign->at, sizeof word) &&
           word == sign->word;
}

static bool is_lost(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLRDHUP};

    return poll(&now, 1, 0) > 0;
}

int rb_reach_read(const struct rb_reach *reach, void *to, uint64_t from, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};

    /* The socket is checked after the reading: if it is open, the process was still the one that
     * made it. */
    if (!reach->pid || process_vm_readv(reach->pid, &here, 1, &there, 1, 0) != (ssize_t)size ||
        is_lost(reach->fd))
        return RB_EPEER;
    return 0;
}
