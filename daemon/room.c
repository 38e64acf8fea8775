/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/room.h"

#include "base/arena.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int rb_room_judge(const char *folder, const struct rb_room *room, uint64_t need, struct rb_why *why)
{
    if (room->files && !room->free_files)
        return rb_why_set(why, RB_EFULL,
                          "the disk of %s takes no further file: remove some of its %llu, or name "
                          "another --state-dir",
                          folder, (unsigned long long)room->files);
    if (room->free >= need)
        return 0;
    return rb_why_set(why, RB_EFULL,
                      "the disk of %s is full: %.1f of its %.0f MiB are free, and %.0f are needed: "
                      "make room there, or name another --state-dir",
                      folder, mib(room->free), mib(room->total), mib(need));
}

int rb_room_check(const char *folder, uint64_t need, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_string(folder);
    struct statvfs disk;
    struct rb_room room;

    while (statvfs(path, &disk)) { /* not made yet: where it would be */
        char *slash = strrchr(path, '/');

        if (!slash || !path[1])
            return 0;
        slash[slash == path] = '\0';
    }
    room = (struct rb_room){
        .total = (uint64_t)disk.f_blocks * disk.f_frsize,
        .free = (uint64_t)disk.f_bavail * disk.f_frsize,
        .files = disk.f_files,
        .free_files = disk.f_favail,
    };
    return rb_room_judge(folder, &room, need, why);
}
