/* SPDX-License-Identifier: Apache-2.0 */
/* Further inputs of a model: files of their own, a row for each sample. */
#include "tests/data/files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char rows_of_2[] = "{'descr':'<i8','fortran_order':False,'shape':(3,2)}";
static const int64_t numbers[] = {1, 2, 3, 4, 5, 6};

struct inputs {
    char path[3][100];
    const char *named[3];
    struct rb_source_input_options options[3];
};

/* Add one more input, which the options of `f` name behind the others. */
static void add_input(struct files *f, struct inputs *inputs, const char *name, const char *header,
                      const void *data, size_t size)
{
    size_t i = f->options.n_inputs++;
    char file[40];

    snprintf(file, sizeof file, "%s.npy", name);
    put_npy(f, 1, file, 1, header, data, size);
    strcpy(inputs->path[i], f->path[1]);
    name_file(f, 1, NULL);
    inputs->named[i] = inputs->path[i];
    inputs->options[i] = (struct rb_source_input_options){
        .name = name,
        .path = &inputs->named[i],
        .n_path = 1,
    };
    f->options.inputs = inputs->options;
}

static void three(struct files *f, struct inputs *inputs)
{
    put_npy(f, 0, "x.npy", 1, rows_of_2, numbers, sizeof numbers);
    add_input(f, inputs, "mask", "{'descr':'|b1','fortran_order':False,'shape':(3,2)}",
              (uint8_t[]){1, 0, 1, 1, 0, 0}, 6);
    add_input(f, inputs, "kind", "{'descr':'<i4','fortran_order':False,'shape':(3,)}",
              (int32_t[]){7, -2, 4}, 12);
    add_input(f, inputs, "size", "{'descr':'|u1','fortran_order':False,'shape':(3,1)}",
              (uint8_t[]){200, 0, 9}, 3);
    inputs->options[2].floats = true;
}

static void by_rows(void **state)
{
    struct files *f = *state;
    struct inputs inputs = {0};
    const struct rb_source_info *info;
    int64_t mask[2], kind;
    float size;

    three(f, &inputs);
    info = must_open(f);
    assert_int_equal(info->n_inputs, 3);
    assert_string_equal(info->inputs[1].name, "kind");
    assert_int_equal(info->inputs[0].type.dtype, RB_I64); /* truth values, too */
    assert_int_equal(info->inputs[0].type.dim[0], 2);
    assert_int_equal(info->inputs[1].type.rank, 0);
    assert_int_equal(info->inputs[1].extremes.least, -2);
    assert_int_equal(info->inputs[1].extremes.most, 7);
    assert_int_equal(info->inputs[2].type.dtype, RB_F32);
    assert_true(info->inputs[1].scanned && !info->inputs[2].scanned);
    rb_source_read_input(f->source, 1, 0, mask);
    assert_true(mask[0] == 1 && mask[1] == 1);
    rb_source_read_input(f->source, 1, 1, &kind);
    assert_int_equal(kind, -2);
    rb_source_read_input(f->source, 2, 2, &size);
    assert_true(size == 9);
}

/* Inputs are a part of what a source is recognized by, each by itself. */
static void known_again(void **state)
{
    struct files *f = *state;
    struct inputs inputs = {0};
    struct rb_source_file file;
    uint64_t hash, of_kind;

    three(f, &inputs);
    must_open(f);
    hash = rb_source_hash(f->source);
    assert_int_equal(rb_source_files(f->source), 4);
    file = rb_source_file(f->source, 2);
    assert_int_equal(file.of, RB_FILE_INPUT);
    assert_int_equal(file.input, 1);
    assert_string_equal(file.path, inputs.path[1]);
    of_kind = file.hash;
    put_npy(f, 1, "kind.npy", 1, "{'descr':'<i4','fortran_order':False,'shape':(3,)}",
            (int32_t[]){7, -2, 5}, 12);
    name_file(f, 1, NULL);
    must_open(f);
    assert_true(rb_source_hash(f->source) != hash);
    assert_true(rb_source_file(f->source, 2).hash != of_kind);
    assert_int_equal(rb_source_check(f->source, &f->why), 0);
    assert_int_equal(truncate(inputs.path[1], 70), 0);
    assert_int_equal(rb_source_check(f->source, &f->why), RB_EINVAL);
    assert_non_null(strstr(f->why.text, "kind.npy"));
}

static void refused(void **state)
{
    struct files *f = *state;
    struct inputs inputs = {0};

    three(f, &inputs);
    f->options.n_inputs = 1;
    add_input(f, &inputs, "short", "{'descr':'<i8','fortran_order':False,'shape':(2,)}", numbers,
              16);
    must_fail(f, RB_EINVAL, "short.npy", "input 'short': ");
    must_fail(f, RB_EINVAL, "x.npy", "has 2 rows; expected 3, one for each sample of");
    inputs.named[1] = "/nowhere";
    must_fail(f, RB_ENOTFOUND, "input 'short'", "No such file");
    inputs.options[1].n_path = 0;
    must_fail(f, RB_EINVAL, "short", "has no file");
    f->options.n_inputs = RB_SOURCE_INPUTS + 1;
    must_fail(f, RB_ELIMIT, "65", "the most is 64");
    f->options.n_inputs = 1;
    f->options.seq_len = 2;
    put(f, 0, "x.txt", "abcdefg", 7);
    must_fail(f, RB_EINVAL, "mask.npy", "expected no further file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(by_rows),
        FILES_TEST(known_again),
        FILES_TEST(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
