/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of data files for a test, and a source that reads them. */
#ifndef RB_TESTS_DATA_FILES_H
#define RB_TESTS_DATA_FILES_H

#include "data/source.h"

#include <stddef.h>
#include <stdint.h>

struct files {
    char folder[64];
    char path[2][100];    /* of the features and the targets that were put last */
    const char *named[2]; /* for each, the path that the options name */
    struct rb_source_options options;
    struct rb_source *source;
    struct rb_why why;
};

/* A test whose state is a struct files. */
#define FILES_TEST(name) cmocka_unit_test_setup_teardown(name, files_new, files_done)
int files_new(void **state);
int files_done(void **state);

/* Write the features (which 0) or the targets (1), and name them in the options; as .npy with
 * `header` in front. */
void put(struct files *f, int which, const char *name, const void *bytes, size_t size);
void put_npy(struct files *f, int which, const char *name, int version, const char *header,
             const void *data, size_t size);

/* Name a file in the options, whether it exists or not; NULL: none. */
void name_file(struct files *f, int which, const char *path);

/* Open the source that the options describe, in place of the open one. */
const struct rb_source_info *must_open(struct files *f);

/* Opening must fail with `err`, saying all of `says`, and naming the file. */
void must_fail(struct files *f, int err, const char *path, const char *says);

#endif
