/* SPDX-License-Identifier: Apache-2.0 */
/* Which format a file has, which files are no data, and how much of a large file stays in
 * memory. */
#include "tests/data/files.h"

#include "base/arena.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void no_data(void **state)
{
    struct files *f = *state;
    char path[100];

    must_fail(f, RB_EINVAL, "", "no data file is named");
    name_file(f, 0, "/nowhere/at/all");
    must_fail(f, RB_ENOTFOUND, "/nowhere/at/all", "No such file");
    name_file(f, 0, f->folder);
    must_fail(f, RB_EINVAL, f->folder, "is a folder");
    snprintf(path, sizeof path, "%s/pipe", f->folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    name_file(f, 0, path);
    must_fail(f, RB_EINVAL, path, "no regular file");
    put(f, 0, "empty.npy", "", 0);
    must_fail(f, RB_EINVAL, "empty.npy", "is empty");
}

static void cut_off(void **state)
{
    struct files *f = *state;

    f->options.seq_len = 2;
    put(f, 0, "shrinks.txt", "abcdefghij", 10);
    must_open(f);
    assert_int_equal(rb_source_check(f->source, &f->why), 0);
    assert_int_equal(truncate(f->path[0], 9), 0);
    assert_int_equal(rb_source_check(f->source, &f->why), RB_EINVAL);
    assert_non_null(strstr(f->why.text, "shrinks.txt has 9 bytes, and had 10"));
    assert_int_equal(truncate(f->path[0], 11), 0); /* the mapped bytes are there */
    assert_int_equal(rb_source_check(f->source, &f->why), 0);
    put(f, 0, "shrinks.txt", "abcde", 5); /* another file of that name changes nothing */
    assert_int_equal(rb_source_check(f->source, &f->why), 0);
}

static void formats(void **state)
{
    struct files *f = *state;

    f->options.seq_len = 2;
    put(f, 0, "train-images-idx3-ubyte.gz", "\x1f\x8b\x08more", 7);
    must_fail(f, RB_EUNSUPPORTED, "idx3-ubyte.gz", "gunzip");
    put(f, 0, "x.npz", "PK\3\4more", 8);
    must_fail(f, RB_EUNSUPPORTED, "x.npz", "numpy.save");
    f->options.format = "text"; /* a named format is used */
    assert_int_equal(must_open(f)->samples, 3);
    f->options.format = "tokens";
    assert_int_equal(must_open(f)->samples, 1);
    f->options.format = "idx";
    must_fail(f, RB_EINVAL, "x.npz", "two zeros");
    f->options.format = "npy";
    must_fail(f, RB_EINVAL, "x.npz", "no .npy file");
    f->options.format = "parquet";
    must_fail(f, RB_EINVAL, "", "parquet is unknown; expected auto, text, tokens, npy or idx");
    f->options.format = "auto";
    put(f, 0, "plain", "abcdefg", 7);
    assert_string_equal(must_open(f)->format, "text");
}

/* ---- Large files ---- */

/* How much this process has mapped of files and read. */
static size_t mapped(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long shared;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %*u %lu", &shared), 1);
    fclose(file);
    return shared * (size_t)sysconf(_SC_PAGESIZE);
}

enum { LITTLE = 1 << 20 };

static uint8_t *some_bytes(size_t size)
{
    uint8_t *bytes = rb_alloc(size);
    uint32_t x = 1;

    for (size_t i = 0; i < size; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return bytes;
}

/* Elements that already have the type of a slot. */
static void large_arrays(void **state)
{
    enum { SAMPLES = 1200, COUNT = 1500, TARGETS = 300 };
    struct files *f = *state;
    size_t x_size = COUNT * sizeof(float), y_size = TARGETS * sizeof(int64_t), before;
    uint8_t *data = some_bytes(SAMPLES * (x_size + y_size)), *targets = data + SAMPLES * x_size;
    int64_t y[TARGETS];
    float x[COUNT];

    put_npy(f, 0, "x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1200, 1500)}\n",
            data, SAMPLES * x_size);
    put_npy(f, 1, "y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1200, 300)}\n",
            targets, SAMPLES * y_size);
    before = mapped();
    must_open(f);
    for (size_t i = SAMPLES; i-- > 0;) {
        rb_source_read(f->source, (int64_t)i, x, y);
        assert_memory_equal(x, data + i * x_size, x_size);
        assert_memory_equal(y, targets + i * y_size, y_size);
    }
    assert_true(mapped() < before + LITTLE);
    free(data);
}

/* Elements that are converted, piece by piece. */
static void large_images(void **state)
{
    enum { SAMPLES = 400, COUNT = 3 * 80 * 80 };
    struct files *f = *state;
    uint8_t *data = some_bytes(SAMPLES * COUNT);
    size_t before;
    float *x = rb_alloc(COUNT * sizeof *x);

    f->options.floats = true;
    put_npy(f, 0, "x.npy", 1,
            "{'descr': '|u1', 'fortran_order': False, 'shape': (400, 3, 80, 80)}\n", data,
            SAMPLES * COUNT);
    before = mapped();
    must_open(f);
    for (size_t i = SAMPLES; i-- > 0;) {
        rb_source_read(f->source, (int64_t)i, x, NULL);
        for (size_t k = 0; k < COUNT; k++)
            if (x[k] != data[i * COUNT + k])
                fail_msg("sample %zu is wrong at %zu", i, k);
    }
    assert_true(mapped() < before + LITTLE);
    free(x);
    free(data);
}

static uint64_t hash_of(struct files *f, uint8_t *bytes, size_t size, size_t flip)
{
    bytes[flip] ^= 1;
    put(f, 0, "text", bytes, size);
    bytes[flip] ^= 1;
    must_open(f);
    return rb_source_hash(f->source);
}

/* A short file is recognized by each byte, a long one by pieces from its whole length. */
static void contents_are_known_again(void **state)
{
    enum { SHORT = 3000, LONG = 5000000 };
    struct files *f = *state;
    uint8_t *bytes = rb_alloc(LONG), *others = rb_alloc(LONG);
    uint64_t first, same;

    for (size_t i = 0; i < LONG; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24), others[i] = (uint8_t)(bytes[i] + 1);
    f->options.seq_len = 16;
    put(f, 0, "text", bytes, SHORT);
    must_open(f);
    first = rb_source_hash(f->source);
    assert_int_not_equal(first, 0);
    assert_int_not_equal(hash_of(f, bytes, SHORT, 0), first);
    assert_int_not_equal(hash_of(f, bytes, SHORT, 1500), first);
    assert_int_not_equal(hash_of(f, bytes, SHORT, SHORT - 1), first);
    put(f, 0, "copy", bytes, SHORT);
    must_open(f);
    same = rb_source_hash(f->source);
    assert_int_equal(same, first);
    put(f, 0, "text", others, LONG);
    must_open(f);
    first = rb_source_hash(f->source);
    assert_int_not_equal(hash_of(f, others, LONG, 0), first);
    assert_int_not_equal(hash_of(f, bytes, LONG, 0), first);
    assert_int_not_equal(hash_of(f, others, LONG, LONG - 1), first);
    assert_int_not_equal(hash_of(f, others, LONG - 1, 0), first);
    free(bytes);
    free(others);
}

static void large_sequence(void **state)
{
    enum { SAMPLES = 9000, COUNT = 256, TOKENS = SAMPLES * COUNT + 1 };
    struct files *f = *state;
    uint8_t *bytes = some_bytes(TOKENS * sizeof(uint16_t));
    const uint16_t *tokens = (const uint16_t *)bytes;
    int64_t in[COUNT], out[COUNT];
    size_t before;

    f->options.seq_len = COUNT;
    put(f, 0, "train.bin", bytes, TOKENS * sizeof *tokens);
    before = mapped();
    must_open(f);
    for (size_t i = SAMPLES; i-- > 0;) {
        rb_source_read(f->source, (int64_t)i, in, out);
        for (size_t k = 0; k < COUNT; k++)
            if (in[k] != tokens[i * COUNT + k] || out[k] != tokens[i * COUNT + k + 1])
                fail_msg("sample %zu is wrong at %zu", i, k);
    }
    assert_true(mapped() < before + LITTLE);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(no_data),
        FILES_TEST(formats),
        FILES_TEST(cut_off),
        FILES_TEST(large_arrays),
        FILES_TEST(large_images),
        FILES_TEST(large_sequence),
        FILES_TEST(contents_are_known_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
