/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/pass.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

ssize_t rb_pass_send(int fd, const void *bytes, size_t size, int file)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, size};
    union control control = {{0}};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (file >= 0) {
        struct cmsghdr *head;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(head), &file, sizeof file);
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void keep_file(struct msghdr *message, int *file)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        size_t size = head->cmsg_len - CMSG_LEN(0);

        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= size; at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
            if (*file < 0)
                *file = fd;
            else
                close(fd);
        }
    }
}

ssize_t rb_pass_receive(int fd, void *bytes, size_t size, int *file)
{
    struct iovec piece = {bytes, size};
    union control control = {{0}};
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got > 0)
        keep_file(&message, file);
    return got;
}
