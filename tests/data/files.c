/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/data/files.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int files_new(void **state)
{
    struct files *f = rb_alloc(sizeof *f);

    strcpy(f->folder, "/tmp/rubato-data-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    *state = f;
    return 0;
}

int files_done(void **state)
{
    struct files *f = *state;

    rb_source_close(f->source);
    rb_file_remove(f->folder, NULL);
    free(f);
    return 0;
}

void name_file(struct files *f, int which, const char *path)
{
    f->named[which] = path;
    if (which) {
        f->options.targets = &f->named[which];
        f->options.n_targets = path != NULL;
    } else {
        f->options.path = &f->named[which];
        f->options.n_path = path != NULL;
    }
}

void put(struct files *f, int which, const char *name, const void *bytes, size_t size)
{
    char path[sizeof f->path[0]];

    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    strcpy(f->path[which], path);
    assert_int_equal(rb_file_write(f->path[which], bytes, size, NULL), 0);
    name_file(f, which, f->path[which]);
}

const struct rb_source_info *must_open(struct files *f)
{
    int err;

    rb_source_close(f->source);
    f->source = NULL;
    err = rb_source_open(&f->options, &f->source, &f->why);
    if (err)
        fail_msg("%s", f->why.text);
    return rb_source_info(f->source);
}

void must_fail(struct files *f, int err, const char *path, const char *says)
{
    struct rb_source *source = NULL;

    assert_int_equal(rb_source_open(&f->options, &source, &f->why), err);
    assert_null(source);
    if (!strstr(f->why.text, says) || !strstr(f->why.text, path))
        fail_msg("'%s' does not say '%s' of %s", f->why.text, says, path);
}

void put_npy(struct files *f, int which, const char *name, int version, const char *header,
             const void *data, size_t size)
{
    struct rb_buffer bytes = {0};
    size_t length = strlen(header);
    unsigned char start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version, 0};

    start[8] = (unsigned char)length;
    start[9] = (unsigned char)(length >> 8);
    rb_buffer_add(&bytes, start, version == 1 ? 10 : 12);
    rb_buffer_text(&bytes, header);
    rb_buffer_add(&bytes, data, size);
    put(f, which, name, bytes.data, bytes.size);
    rb_buffer_done(&bytes);
}
