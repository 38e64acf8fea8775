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
    pid_t pid;     /* 0: nobody whom this process can see */
    int fd;        /* the socket, which ends before its maker's number can be another's */
    uint64_t word; /* our own, for the other side to find */
};

/* Where a word of a process lies, and what it says there: some random number. */
struct rb_reach_sign {
    uint64_t at, word;
};

/* Let processes of the same user read this one's memory where the kernel asks for it (Yama). */
void rb_reach_allow(void);

/* Whoever made the other end of a unix socket. */
void rb_reach_open(struct rb_reach *reach, int fd);

/* `reach` stays where it is. */
void rb_reach_sign(struct rb_reach *reach, struct rb_reach_sign *ret);
bool rb_reach_try(const struct rb_reach *reach, const struct rb_reach_sign *sign);

/* 0; RB_EPEER: it cannot be read, for the process is gone, or ends, or never had such memory. */
int rb_reach_read(const struct rb_reach *reach, void *to, uint64_t from, size_t size);

#endif
