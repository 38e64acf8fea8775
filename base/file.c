/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(struct rb_why *why, const char *verb, const char *path)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

int rb_file_read(const char *path, uint64_t limit, struct rb_buffer *ret, struct rb_why *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int err = 0;

    if (fd < 0)
        return fail(why, "open", path);
    for (;;) {
        ssize_t got = read(fd, rb_buffer_reserve(ret, 65536), 65536);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            err = fail(why, "read", path);
        if (got <= 0)
            break;
        ret->size += (size_t)got;
        if (ret->size > limit) {
            err = rb_why_set(why, RB_ELIMIT, "%s is larger than %llu bytes", path,
                             (unsigned long long)limit);
            break;
        }
    }
    rb_buffer_reserve(ret, 0);
    close(fd);
    return err;
}

int rb_file_put(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size) {
        ssize_t put = write(fd, at, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

int rb_file_sync_folder(const char *path, struct rb_why *why)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = 0;

    if (fd < 0)
        return fail(why, "open", path);
    if (fsync(fd) < 0 && errno != EINVAL)
        err = fail(why, "sync", path);
    close(fd);
    return err;
}

static int sync_parent(const char *path, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *folder = rb_string(path);
    char *slash = strrchr(folder, '/');

    if (!slash)
        return rb_file_sync_folder(".", why);
    slash[slash == folder] = '\0';
    return rb_file_sync_folder(folder, why);
}

static int write_file(const char *path, const void *bytes, size_t size, bool sync,
                      struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *temporary = rb_format("%s.%d.tmp", path, (int)gettid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int err = 0;

    if (fd < 0)
        return fail(why, "create", path);
    if (rb_file_put(fd, bytes, size) < 0 || (sync && fsync(fd) < 0))
        err = fail(why, "write", path);
    if (close(fd) < 0 && !err)
        err = fail(why, "write", path);
    if (!err && rename(temporary, path) < 0)
        err = fail(why, "rename", path);
    if (err) {
        unlink(temporary);
        return err;
    }
    return sync ? sync_parent(path, why) : 0;
}

int rb_file_write(const char *path, const void *bytes, size_t size, struct rb_why *why)
{
    return write_file(path, bytes, size, true, why);
}

int rb_file_write_lightly(const char *path, const void *bytes, size_t size, struct rb_why *why)
{
    return write_file(path, bytes, size, false, why);
}

void rb_file_hold_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int rb_file_make_folder(const char *path, enum rb_folder whose, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *part = rb_string(path);
    struct rb_why unsynced;
    struct stat status;

    for (char *at = part + (*part == '/');; at++) {
        char kept = *at;

        if (kept != '/' && kept != '\0')
            continue;
        *at = '\0';
        if (*part && mkdir(part, whose) == 0)
            sync_parent(part, &unsynced); /* the contents of a folder are no safer than its name */
        else if (*part && errno != EEXIST)
            return fail(why, "make folder", part);
        *at = kept;
        if (!kept)
            break;
    }
    if (stat(path, &status) < 0)
        return fail(why, "make folder", path);
    if (!S_ISDIR(status.st_mode))
        return rb_why_set(why, RB_EEXISTS, "cannot make folder %s: a file is in its place", path);
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

int rb_file_remove(const char *path, struct rb_why *why)
{
    struct stat status;

    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : fail(why, "look at", path);
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return fail(why, "remove", path);
    return 0;
}

/* The path below `known`, or above it for "..".  Takes `known` over. */
static char *step(char *known, const char *name, size_t size)
{
    char *slash = strrchr(known, '/'), *next;

    if (size == 2 && !strncmp(name, "..", 2) && slash)
        slash[slash == known] = '\0';
    if (!strncmp(name, "..", size) && size <= 2)
        return known;
    next = rb_format("%s/%.*s", strcmp(known, "/") ? known : "", (int)size, name);
    free(known);
    return next;
}

char *rb_file_real(const char *path)
{
    char *real = realpath(path, NULL);
    size_t size = strlen(path), name;

    while (size > 1 && path[size - 1] == '/')
        size--;
    for (name = size; name > 0 && path[name - 1] != '/';)
        name--;
    if (!real && name > 0 && size < PATH_MAX) {
        RB_CLEANUP(rb_freep) char *above = rb_format("%.*s", (int)name, path);

        return step(rb_file_real(above), path + name, size - name);
    }
    return real ? real : rb_string(path);
}

struct aged {
    struct timespec written;
    char name[NAME_MAX + 1];
};

static int newest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct aged *)a)->written;
    const struct timespec *y = &((const struct aged *)b)->written;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

int rb_file_remove_beginning(const char *folder, const char *begin, struct rb_why *why)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int err = 0;

    while (listing && (entry = readdir(listing))) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, entry->d_name);
        int one = strncmp(entry->d_name, begin, strlen(begin))
                      ? 0
                      : rb_file_remove(path, err ? NULL : why);

        err = err ? err : one;
    }
    if (listing)
        closedir(listing);
    return err;
}

int rb_file_keep_newest(const char *folder, size_t keep, struct rb_why *why)
{
    DIR *open_folder = opendir(folder);
    struct aged *files = NULL;
    struct dirent *entry;
    struct stat status;
    size_t n = 0, room = 0;
    int err = 0;

    if (!open_folder)
        return fail(why, "open", folder);
    while ((entry = readdir(open_folder))) {
        if (fstatat(dirfd(open_folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(status.st_mode))
            continue;
        if (n == room)
            files = rb_realloc(files, (room = room ? 2 * room : 64) * sizeof *files);
        files[n].written = status.st_mtim;
        snprintf(files[n++].name, sizeof files->name, "%s", entry->d_name);
    }
    if (n > keep)
        qsort(files, n, sizeof *files, newest_first);
    for (size_t i = keep; !err && i < n; i++)
        if (unlinkat(dirfd(open_folder), files[i].name, 0) < 0 && errno != ENOENT)
            err = fail(why, "remove from", folder);
    closedir(open_folder);
    free(files);
    return err;
}

int rb_map_file(int fd, const char *path, struct rb_map *ret, struct rb_why *why)
{
    struct stat status;
    void *memory = NULL;

    if (fstat(fd, &status) < 0)
        return fail(why, "look at", path);
    if (!S_ISREG(status.st_mode))
        return rb_why_set(why, RB_EINVAL, "%s is not a regular file", path);
    if (status.st_size > 0)
        memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return fail(why, "map", path);
    *ret = (struct rb_map){memory, (size_t)status.st_size};
    return 0;
}

int rb_map_open(const char *path, struct rb_map *ret, struct rb_why *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), err;

    if (fd < 0)
        return fail(why, "open", path);
    err = rb_map_file(fd, path, ret, why);
    close(fd);
    return err;
}

void rb_map_close(struct rb_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (struct rb_map){0};
}
