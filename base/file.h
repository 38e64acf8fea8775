/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: read them, map them, and write them so that a crash leaves the old or the new file,
 * never half. */
#ifndef RB_BASE_FILE_H
#define RB_BASE_FILE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct rb_buffer;

/* Append all of `path` to `ret`.  RB_ELIMIT above `limit` bytes in all. */
int rb_file_read(const char *path, uint64_t limit, struct rb_buffer *ret, struct rb_why *why);

/* Write under a temporary name, fsync, rename, fsync the folder. */
int rb_file_write(const char *path, const void *bytes, size_t size, struct rb_why *why);

/* The same without fsync, for files that can be made again: a crash of the machine may lose or tear
 * the file. */
int rb_file_write_lightly(const char *path, const void *bytes, size_t size, struct rb_why *why);

/* Write all of the bytes to an open file that blocks; -1 and errno on failure. */
int rb_file_put(int fd, const void *bytes, size_t size);

/* For the beginning of main.  If standard input, output or error are closed, a file or socket would
 * get their number, and be read and written as they are.  This holds the numbers: reading gives an
 * end, and writing an error, as before. */
void rb_file_hold_standard(void);

/* Who may use new folders: rubatod's user only, or everyone that the umask lets in. */
enum rb_folder { RB_FOLDER_OWN = 0700, RB_FOLDER_SHARED = 0777 };

/* Make the folder and those above it. */
int rb_file_make_folder(const char *path, enum rb_folder whose, struct rb_why *why);

/* An absolute path with its links followed, as far as the path exists; the rest is kept as it is
 * written, except for "." and "..".  The caller frees it. */
char *rb_file_real(const char *path);

/* Remove a file or a whole folder; a missing one is no error. */
int rb_file_remove(const char *path, struct rb_why *why);

/* Remove everything in a folder whose name begins with `begin`: all that can be removed, and
 * returns the first error.  A missing folder is none. */
int rb_file_remove_beginning(const char *folder, const char *begin, struct rb_why *why);

/* Keep the `keep` newest files of a folder, by time of writing, and remove the others. */
int rb_file_keep_newest(const char *folder, size_t keep, struct rb_why *why);

/* fsync a folder, so that a rename in it is on disk. */
int rb_file_sync_folder(const char *path, struct rb_why *why);

/* A file as read-only memory. */
struct rb_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
};
int rb_map_open(const char *path, struct rb_map *ret, struct rb_why *why);
/* The same for a file that is open, and stays open; `path` is for messages. */
int rb_map_file(int fd, const char *path, struct rb_map *ret, struct rb_why *why);
void rb_map_close(struct rb_map *map);

#endif
