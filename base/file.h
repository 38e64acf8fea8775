/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: read, map, write so that a crash leaves the old or the new one, never half. */
#ifndef RB_BASE_FILE_H
#define RB_BASE_FILE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct rb_buffer;

/* Read all of `path` behind what `ret` holds.  RB_ELIMIT above `limit` bytes in all. */
int rb_file_read(const char *path, uint64_t limit, struct rb_buffer *ret, struct rb_why *why);

/* Write under a temporary name, fsync, rename, fsync the folder. */
int rb_file_write(const char *path, const void *bytes, size_t size, struct rb_why *why);

/* The same without fsync, for what can be made again: with the machine it may be lost, or torn. */
int rb_file_write_lightly(const char *path, const void *bytes, size_t size, struct rb_why *why);

/* All of the bytes to an open file that blocks; -1 and errno where it cannot. */
int rb_file_put(int fd, const void *bytes, size_t size);

/* For the beginning of main: where standard input, output or error are closed, a file or socket
 * would take their place, and be read and written as they are.  Reading gives an end, and writing
 * an error, as before. */
void rb_file_hold_standard(void);

/* For whom new folders are: rubatod's user alone, or whoever the umask lets in. */
enum rb_folder { RB_FOLDER_OWN = 0700, RB_FOLDER_SHARED = 0777 };

/* Make the folder and those above it. */
int rb_file_make_folder(const char *path, enum rb_folder whose, struct rb_why *why);

/* An absolute path with its links followed, as far as it is there; what is not there yet is kept as
 * it is written, but for "." and "..".  The caller frees it. */
char *rb_file_real(const char *path);

/* Remove a file or a whole folder; what is not there is no error. */
int rb_file_remove(const char *path, struct rb_why *why);

/* The same of all in a folder whose names begin so: what can be, and the first error.  No folder is
 * none. */
int rb_file_remove_beginning(const char *folder, const char *begin, struct rb_why *why);

/* Of the files in a folder keep the `keep` that were written last. */
int rb_file_keep_newest(const char *folder, size_t keep, struct rb_why *why);

/* fsync a folder, so that a rename in it is on disk. */
int rb_file_sync_folder(const char *path, struct rb_why *why);

/* A file as read-only memory. */
struct rb_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
};
int rb_map_open(const char *path, struct rb_map *ret, struct rb_why *why);
/* The same of one that is open, and stays so; `path` is for messages. */
int rb_map_file(int fd, const char *path, struct rb_map *ret, struct rb_why *why);
void rb_map_close(struct rb_map *map);

#endif
