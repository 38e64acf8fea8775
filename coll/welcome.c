/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/welcome.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int rb_welcome_send(int fd, const struct rb_welcome *welcome, int memory)
{
    uint8_t bytes[RB_WELCOME_SIZE];
    struct iovec piece = {bytes, sizeof bytes};
    union control control = {{0}};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    rb_welcome_encode(welcome, bytes);
    if (memory >= 0) {
        struct cmsghdr *head;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof memory);
        memcpy(CMSG_DATA(head), &memory, sizeof memory);
    }
    /* A fresh socket has room for this; one that has none is of no use. */
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof bytes ? 0 : RB_EPEER;
}

static void keep_memory(struct msghdr *message, struct rb_welcome_inbox *inbox)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        size_t size = head->cmsg_len - CMSG_LEN(0);

        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= size; at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
            if (inbox->memory < 0)
                inbox->memory = fd;
            else
                close(fd);
        }
    }
}

int rb_welcome_receive(int fd, struct rb_welcome_inbox *inbox, struct rb_welcome *ret)
{
    struct iovec piece = {inbox->bytes + inbox->got, sizeof inbox->bytes - inbox->got};
    union control control = {{0}};
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? RB_EAGAIN : RB_EPEER;
    if (got == 0)
        return RB_EPEER;
    keep_memory(&message, inbox);
    inbox->got += (size_t)got;
    if (inbox->got < sizeof inbox->bytes)
        return RB_EAGAIN;
    return rb_welcome_decode(inbox->bytes, ret);
}
