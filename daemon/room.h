/* SPDX-License-Identifier: Apache-2.0 */
/* Is a full disk the reason that something failed?
 *
 * life, private_etcd > [room] > a sentence for the person that has to make room */
#ifndef RB_DAEMON_ROOM_H
#define RB_DAEMON_ROOM_H

#include "base/error.h"

#include <stdint.h>

/* What etcd allocates at once for its log, when it starts and again when that is full; and what the
 * other files of a state folder need at the least. */
#define RB_ROOM_ETCD  (UINT64_C(64) << 20)
#define RB_ROOM_STATE (UINT64_C(1) << 20)

/* RB_EFULL, with a sentence: the disk that a folder is on, or would be made on, has less than
 * `need` bytes or no further file for us.  0: it has enough, or that cannot be known. */
int rb_room_check(const char *folder, uint64_t need, struct rb_why *why);

/* What a disk has, for rb_room_check and its test. */
struct rb_room {
    uint64_t total, free;       /* bytes; those that root alone may use are not free */
    uint64_t files, free_files; /* files 0: it does not count them */
};
int rb_room_judge(const char *folder, const struct rb_room *room, uint64_t need,
                  struct rb_why *why);

#endif
