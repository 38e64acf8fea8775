/* SPDX-License-Identifier: Apache-2.0 */
/* Several files as one: samples are cut from all of them together, wherever the files end. */
#include "tests/data/files.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "proto/dtype.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 8 };

struct several {
    const char *prefix; /* of their names; NULL: none */
    char *path[MOST];
    size_t n;
};

static void several_done(struct several *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->path[i]);
    all->n = 0;
}

static void add(struct files *f, struct several *all, const char *name, const void *bytes,
                size_t size)
{
    char *path = rb_format("%s/%s%zu-%s", f->folder, all->prefix ? all->prefix : "", all->n, name);

    assert_int_equal(rb_file_write(path, bytes, size, NULL), 0);
    all->path[all->n++] = path;
}

static void add_npy(struct files *f, struct several *all, const char *descr, const char *shape,
                    const void *data, size_t size)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer bytes = {0};
    RB_CLEANUP(rb_freep)
    char *header =
        rb_format("{'descr': '%s', 'fortran_order': False, 'shape': (%s)}\n", descr, shape);
    size_t length = strlen(header);

    rb_buffer_add(&bytes, "\x93NUMPY\1\0", 8);
    rb_buffer_add(&bytes, (uint8_t[]){(uint8_t)length, (uint8_t)(length >> 8)}, 2);
    rb_buffer_text(&bytes, header);
    rb_buffer_add(&bytes, data, size);
    add(f, all, descr[1] == 'f' ? "x.npy" : "y.npy", bytes.data, bytes.size);
}

static void name_all(struct files *f, int which, const struct several *all)
{
    *(which ? &f->options.targets : &f->options.path) = (const char *const *)all->path;
    *(which ? &f->options.n_targets : &f->options.n_path) = all->n;
}

static uint8_t *some_bytes(size_t size)
{
    uint8_t *bytes = rb_alloc(size);

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 21);
    return bytes;
}

/* All samples of one source are those of the other. */
static void check_same(const struct rb_source *one, const struct rb_source *other, int64_t seq_len)
{
    size_t room = (size_t)seq_len * sizeof(int64_t);
    int64_t *at[4];

    for (size_t i = 0; i < RB_COUNT(at); i++)
        at[i] = rb_alloc(room);
    assert_int_equal(rb_source_info(one)->samples, rb_source_info(other)->samples);
    assert_memory_equal(&rb_source_info(one)->extremes, &rb_source_info(other)->extremes,
                        sizeof(struct rb_extremes));
    for (int64_t i = 0; i < rb_source_info(one)->samples; i++) {
        rb_source_read(one, i, at[0], at[1]);
        rb_source_read(other, i, at[2], at[3]);
        assert_memory_equal(at[0], at[2], room);
        assert_memory_equal(at[1], at[3], room);
    }
    for (size_t i = 0; i < RB_COUNT(at); i++)
        free(at[i]);
}

/* Cut at these bytes; the bytes after the last cut are the last file. */
static void check_cut(struct files *f, const char *name, const uint8_t *bytes, size_t size,
                      const size_t *cuts, int64_t seq_len)
{
    struct several all = {0};
    struct rb_source *whole;
    size_t from = 0;

    f->options.seq_len = seq_len;
    put(f, 0, name, bytes, size);
    must_open(f);
    whole = f->source;
    f->source = NULL;
    for (size_t i = 0; from < size; i++) {
        size_t to = cuts[i] ? cuts[i] : size;

        add(f, &all, name, bytes + from, to - from);
        from = to;
    }
    name_all(f, 0, &all);
    must_open(f);
    assert_int_equal(rb_source_files(f->source), all.n);
    check_same(f->source, whole, seq_len);
    rb_source_close(whole);
    several_done(&all);
}

static void text_and_tokens(void **state)
{
    enum { SHORT = 100, LONG = 3000000 };
    static const size_t cuts[][MOST] = {{40}, {1, 2, 3, 99}, {50, 51}, {17, 34, 60, 80}};
    static const size_t even[MOST] = {20, 22, 50}, far[MOST] = {2, 4, 1000002, 2500000};
    struct files *f = *state;
    uint8_t *bytes = some_bytes(LONG);

    for (size_t i = 0; i < RB_COUNT(cuts); i++)
        for (int64_t seq_len = 1; seq_len < 12; seq_len += 5)
            check_cut(f, "text", bytes, SHORT, cuts[i], seq_len);
    check_cut(f, "t.bin", bytes, SHORT, even, 7);
    check_cut(f, "text", bytes, LONG, far, 256); /* these samples are read, not mapped */
    check_cut(f, "t.bin", bytes, LONG, far, 200);
    free(bytes);
}

static void headers_are_no_tokens(void **state)
{
    static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7};
    const int32_t header[256] = {20240520, 1, 3};
    struct files *f = *state;
    struct several all = {0};
    struct rb_buffer bytes = {0};
    int64_t in[3], out[3];

    rb_buffer_add(&bytes, header, sizeof header);
    rb_buffer_add(&bytes, tokens, 3 * sizeof *tokens);
    add(f, &all, "t.bin", bytes.data, bytes.size);
    add(f, &all, "t.bin", tokens + 3, 4 * sizeof *tokens);
    name_all(f, 0, &all);
    f->options.seq_len = 3;
    assert_int_equal(must_open(f)->samples, 2);
    rb_source_read(f->source, 0, in, out);
    assert_int_equal(in[2], 3);
    assert_int_equal(out[2], 4);
    rb_source_read(f->source, 1, in, out);
    assert_int_equal(in[0], 4);
    assert_int_equal(out[2], 7);
    rb_buffer_done(&bytes);
    several_done(&all);
}

/* Rows of several files, and targets that are cut elsewhere. */
static void arrays(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const int64_t y[] = {5, -100, 3, 9, 5};
    struct files *f = *state;
    struct several features = {0}, targets = {.prefix = "y"};
    const struct rb_source_info *info;

    add_npy(f, &features, "<f4", "2, 2", x, 4 * sizeof *x);
    add_npy(f, &features, "<f4", "1, 2", x + 4, 2 * sizeof *x);
    add_npy(f, &features, "<f4", "2, 2", x + 6, 4 * sizeof *x);
    add_npy(f, &targets, "<i8", "1,", y, sizeof *y);
    add_npy(f, &targets, "<i8", "4,", y + 1, 4 * sizeof *y);
    name_all(f, 0, &features);
    name_all(f, 1, &targets);
    info = must_open(f);
    assert_int_equal(info->samples, 5);
    assert_int_equal(info->extremes.least, -100);
    assert_int_equal(info->extremes.second_least, 3);
    assert_int_equal(info->extremes.second_most, 5);
    assert_int_equal(info->extremes.most, 9);
    for (int64_t i = 0; i < 5; i++) {
        float in[2];
        int64_t out;

        rb_source_read(f->source, i, in, &out);
        assert_memory_equal(in, x + 2 * i, sizeof in);
        assert_int_equal(out, y[i]);
    }
    targets.n--;
    name_all(f, 1, &targets);
    must_fail(f, RB_EINVAL, targets.path[0], "has 1 targets; expected 5, one for each sample of");
    targets.n++;
    several_done(&features);
    several_done(&targets);
}

static void strays_are_found_in_all(void **state)
{
    const float x[] = {0, 1, 0.5f, 1.5f};
    struct files *f = *state;
    struct several features = {0}, targets = {.prefix = "y"};

    add_npy(f, &features, "<f4", "4, 1", x, sizeof x);
    add_npy(f, &targets, "<f4", "2,", x, 2 * sizeof *x);
    add_npy(f, &targets, "<f4", "2,", x + 2, 2 * sizeof *x);
    name_all(f, 0, &features);
    name_all(f, 1, &targets);
    f->options.probabilities = true;
    assert_true(must_open(f)->stray_target == 1.5f);
    several_done(&features);
    several_done(&targets);
}

static void files_that_do_not_go_together(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    struct files *f = *state;
    struct several all = {0};

    f->options.seq_len = 2;
    add_npy(f, &all, "<f4", "3, 2", x, sizeof x);
    add_npy(f, &all, "<f4", "2, 3", x, sizeof x);
    name_all(f, 0, &all);
    must_fail(f, RB_EINVAL, all.path[1], "f4 in samples of float32[3], and ");
    must_fail(f, RB_EINVAL, all.path[0], "before it f4 in samples of float32[2]; expected files");
    all.n--;
    free(all.path[all.n]);
    add_npy(f, &all, "<f8", "1, 2", x, 16);
    must_fail(f, RB_EINVAL, all.path[1], "f8 in samples of float32[2]");
    all.n--;
    free(all.path[all.n]);
    add(f, &all, "notes", "abcdefg", 7);
    must_fail(f, RB_EINVAL, all.path[1], "looks like text, and ");
    must_fail(f, RB_EINVAL, all.path[0], "before it like npy");
    all.n--;
    free(all.path[all.n]);
    add(f, &all, "empty", "", 0);
    must_fail(f, RB_EINVAL, all.path[1], "is empty");
    several_done(&all);
    add(f, &all, "text", "ab", 2);
    add(f, &all, "text", "c", 1);
    f->options.seq_len = 3;
    name_all(f, 0, &all);
    must_fail(f, RB_EINVAL, all.path[0], "and 1 more file has 3 elements; expected one sample");
    several_done(&all);
}

/* Sources are recognized by the content of each file, and by the files' order. */
static void contents_of_all_are_known_again(void **state)
{
    static const char *const texts[][2] = {
        {"abc", "defgh"}, {"abc", "defgi"}, {"abd", "defgh"}, {"defgh", "abc"}, {"abcd", "efgh"},
    };
    struct files *f = *state;
    uint64_t hash[RB_COUNT(texts)];

    f->options.seq_len = 2;
    for (size_t i = 0; i < RB_COUNT(texts); i++) {
        struct several all = {0};

        for (size_t k = 0; k < 2; k++)
            add(f, &all, "text", texts[i][k], strlen(texts[i][k]));
        name_all(f, 0, &all);
        must_open(f);
        hash[i] = rb_source_hash(f->source);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(hash[i], hash[k]);
        if (i == 1) {
            assert_int_equal(rb_source_check(f->source, &f->why), 0);
            assert_string_equal(rb_source_file(f->source, 1).path, all.path[1]);
            assert_int_not_equal(rb_source_file(f->source, 0).hash,
                                 rb_source_file(f->source, 1).hash);
        }
        several_done(&all);
    }
}

/* Samples lie in one file or two, and are read, because 2 MB are not mapped.  Systems let a program
 * open 1024 files until it asks for more, as rubatod does. */
static void thousands_of_files(void **state)
{
    enum { FILES = 3000, EACH = 710, SEQ_LEN = 300 };
    struct files *f = *state;
    RB_CLEANUP(rb_freep) uint8_t *bytes = some_bytes(FILES * EACH);
    RB_CLEANUP(rb_freep) char **paths = rb_alloc(FILES * sizeof *paths);
    struct rb_source *whole;
    struct rlimit limit;

    assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), errno);
    f->options.seq_len = SEQ_LEN;
    put(f, 0, "whole", bytes, FILES * EACH);
    must_open(f);
    whole = f->source;
    f->source = NULL;
    for (size_t i = 0; i < FILES; i++) {
        int fd;

        paths[i] = rb_format("%s/%04zu", f->folder, i);
        fd = open(paths[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_return_code(fd, errno);
        assert_int_equal(write(fd, bytes + i * EACH, EACH), EACH);
        close(fd);
    }
    f->options.path = (const char *const *)paths;
    f->options.n_path = FILES;
    limit.rlim_cur = FILES / 2;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), errno);
    assert_int_not_equal(rb_source_open(&f->options, &f->source, &f->why), 0);
    assert_non_null(strstr(f->why.text, "let rubatod open more"));
    limit.rlim_cur = limit.rlim_max;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), errno);
    must_open(f);
    check_same(f->source, whole, SEQ_LEN);
    assert_int_equal(rb_source_check(f->source, &f->why), 0);
    rb_source_close(whole);
    for (size_t i = 0; i < FILES; i++)
        free(paths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(text_and_tokens),
        FILES_TEST(headers_are_no_tokens),
        FILES_TEST(arrays),
        FILES_TEST(strays_are_found_in_all),
        FILES_TEST(files_that_do_not_go_together),
        FILES_TEST(contents_of_all_are_known_again),
        FILES_TEST(thousands_of_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
