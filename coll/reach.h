/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the memory of another process of this host, as it lies.
 *
 * progress > link_shared > [reach]
 *
 * A copy by the kernel (process_vm_readv) is one crossing from core to core; through a ring it is
 * two, as each side's writes take the lines back from the other.  Whether the kernel allows it
 * depends on users, namespaces and system call filters, so each side shows a sign, and the other
 * tries to read it where it is said to lie. */
#ifndef RB_COLL_REACH_H
#define RB_COLL_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rb_reach {
    pid_t pid;     /* 0: no process that this one can see */
    int fd;        /* the socket, which ends before its maker's pid can be another process' */
    uint64_t word; /* this side's own, for the peer to find */
};

/* Where a word of a process lies, and its value, a random number. */
struct rb_reach_sign {
    uint64_t at, word;
};

/* Let processes of the same user read this one's memory, where the kernel asks for it (Yama). */
void rb_reach_allow(void);

/* For the process that made the other end of a unix socket. */
void rb_reach_open(struct rb_reach *reach, int fd);

/* `reach` must not move afterwards. */
void rb_reach_sign(struct rb_reach *reach, struct rb_reach_sign *ret);
bool rb_reach_try(const struct rb_reach *reach, const struct rb_reach_sign *sign);

/* 0; RB_EPEER: the memory cannot be read, because the process is gone, or is ending, or never had
 * it. */
int rb_reach_read(const struct rb_reach *reach, void *to, uint64_t from, size_t size);

#endif
