/* SPDX-License-Identifier: Apache-2.0 */
#include "data/mapped.h"

#include "base/arena.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int rb_mapped_check(const struct rb_mapped *mapped, struct rb_why *why)
{
    struct stat status;

    if (!mapped->path)
        return 0;
    if (fstat(mapped->fd, &status) < 0)
        return rb_why_set(why, RB_EIO, "cannot look at %s any more", mapped->path);
    if ((uint64_t)status.st_size >= mapped->map.size)
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "%s has %llu bytes, and had %zu when it was opened; expected data that does "
                      "not change while it is read",
                      mapped->path, (unsigned long long)status.st_size, mapped->map.size);
}

void rb_mapped_close(struct rb_mapped *mapped)
{
    rb_map_close(&mapped->map);
    if (mapped->path)
        close(mapped->fd);
    free(mapped->path);
}

static int fail(struct rb_why *why, const char *path)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot open %s: %s%s", path,
                      strerror(number),
                      number != EMFILE ? ""
                                       : "; let rubatod open more (ulimit -n, or LimitNOFILE of "
                                         "its service), or join some of them");
}

int rb_mapped_open(const char *path, struct rb_mapped *ret, struct rb_why *why)
{
    struct stat status;
    int err;

    if (!path || !*path)
        return rb_why_set(why, RB_EINVAL, "no data file is named");
    if (stat(path, &status) < 0)
        return fail(why, path);
    if (!S_ISREG(status.st_mode))
        return rb_why_set(why, RB_EINVAL, "%s is %s; expected a data file", path,
                          S_ISDIR(status.st_mode) ? "a folder" : "no regular file");
    ret->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ret->fd < 0)
        return fail(why, path);
    ret->path = rb_string(path);
    err = rb_map_file(ret->fd, path, &ret->map, why);
    if (!err && !ret->map.size)
        err = rb_why_set(why, RB_EINVAL, "%s is empty; expected data", path);
    return err;
}

bool rb_mapped_read(const struct rb_mapped *mapped, const uint8_t *from, size_t bytes, void *to)
{
    size_t have = 0;

    while (have < bytes) {
        ssize_t got = pread(mapped->fd, (uint8_t *)to + have, bytes - have,
                            (off_t)(from - mapped->map.data) + (off_t)have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

uint64_t rb_mapped_hash(const struct rb_mapped *mapped)
{
    enum { PIECES = 32, PIECE = 32 << 10 };
    const size_t size = mapped->map.size, last = size > PIECE ? size - PIECE : 0;
    uint64_t hashes[PIECES + 1] = {size};
    uint8_t *room = rb_alloc(PIECE);

    for (size_t i = 0; i < PIECES; i++) {
        size_t first = size <= PIECES * PIECE ? i * PIECE : last * i / (PIECES - 1);
        size_t n = first >= size ? 0 : size - first < PIECE ? size - first : PIECE;
        const uint8_t *piece = mapped->map.data + first;

        hashes[i + 1] = rb_hash64(rb_mapped_read(mapped, piece, n, room) ? room : piece, n);
    }
    free(room);
    return rb_hash64(hashes, sizeof hashes);
}

void rb_mapped_forget(const struct rb_mapped *mapped)
{
    if (mapped->map.data) /* advice: where it is not taken, no more is lost than memory */
        madvise((void *)(uintptr_t)mapped->map.data, mapped->map.size, MADV_DONTNEED);
}
