/* SPDX-License-Identifier: Apache-2.0 */
/* The column of one file, or of several as if they were one: the elements of each behind those of
 * the one before.
 *
 *     a.txt   abcdefg           samples of 4:  abcd efgh ijkl
 *     b.txt          hijklm                        (two files)
 *
 * mapped, format > [series] > source
 *
 * So sample numbers are a function of the list of files, and the samples of text and tokens are
 * those of one file that has all contents.  Arrays have whole samples, alike in all files. */
#ifndef RB_DATA_SERIES_H
#define RB_DATA_SERIES_H

#include "data/format.h"
#include "data/mapped.h"

struct rb_series_file {
    struct rb_mapped file;
    struct rb_column column; /* of this file alone */
    int64_t first;           /* its first element's number among those of all files */
};

struct rb_series {
    struct rb_series_file *at;
    size_t n;
    enum rb_format format;
    struct rb_column column; /* of all files; it has no `data` */
    bool reads;              /* samples are read, and not looked at in the map */
};

struct rb_series_options {
    const char *const *path;
    size_t n;
    const char *format; /* NULL, auto: by content and name */
    enum rb_column_use use;
    bool arrays;     /* none but npy and idx will do */
    int64_t seq_len; /* of text and tokens */
};

/* Close it even where this fails.  Messages name the file. */
int rb_series_open(const struct rb_series_options *options, struct rb_series *ret,
                   struct rb_why *why);
void rb_series_close(struct rb_series *series);

/* As rb_mapped_check, hash (0 where there is no file) and forget, of all files. */
int rb_series_check(const struct rb_series *series, struct rb_why *why);
uint64_t rb_series_hash(const struct rb_series *series);
void rb_series_forget(const struct rb_series *series);

/* The least and the largest of the first `elements`, which are integers. */
struct rb_extremes rb_series_extremes(const struct rb_series *series, int64_t elements);

/* Copy sample `i`, or what lies `shift` elements behind it, converted. */
void rb_series_read(const struct rb_series *series, int64_t i, int64_t shift, void *to);

#endif
