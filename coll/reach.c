/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/reach.h"

#include "base/error.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const uint64_t sign_word = UINT64_C(0x5275626174526368);

void rb_reach_allow(void)
{
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

void rb_reach_open(struct rb_reach *reach, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    reach->pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? 0 : peer.pid;
}

void rb_reach_sign(struct rb_reach_sign *ret)
{
    *ret = (struct rb_reach_sign){(uintptr_t)&sign_word, sign_word};
}

bool rb_reach_try(const struct rb_reach *reach, const struct rb_reach_sign *sign)
{
    uint64_t word = 0;

    return sign->at && !rb_reach_read(reach, &word, sign->at, sizeof word) && word == sign_word &&
           sign->word == sign_word;
}

int rb_reach_read(const struct rb_reach *reach, void *to, uint64_t from, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
    ssize_t got;

    if (!reach->pid)
        return RB_EPEER;
    got = process_vm_readv(reach->pid, &here, 1, &there, 1, 0);
    if (got == (ssize_t)size)
        return 0;
    return got < 0 && errno == ESRCH ? RB_EPEER : RB_EINTERNAL;
}
