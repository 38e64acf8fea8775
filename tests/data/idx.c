/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files, sound and broken. */
#include "tests/data/files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0,  0,   0,
                                 1, 0, 0, 0, 3, 0, 1, 2, 51, 128, 255};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 9};

static void idx(void **state)
{
    struct files *f = *state;
    const struct rb_source_info *info;
    float x[3];
    int64_t y;

    put(f, 0, "train-images-idx3-ubyte", images, sizeof images);
    put(f, 1, "train-labels-idx1-ubyte", labels, sizeof labels);
    assert_int_equal(must_open(f)->features.dtype, RB_I64);
    f->options.floats = true;
    info = must_open(f);
    assert_string_equal(info->format, "idx");
    assert_int_equal(info->samples, 2);
    assert_int_equal(info->features.dtype, RB_F32);
    assert_int_equal(info->features.rank, 2);
    assert_int_equal(info->features.dim[0], 1);
    assert_int_equal(info->features.dim[1], 3);
    assert_int_equal(info->targets.dtype, RB_I64);
    assert_int_equal(info->targets.rank, 0);
    assert_int_equal(info->extremes.most, 9);
    assert_int_equal(info->largest_feature, -1);
    rb_source_read(f->source, 1, x, &y);
    assert_true(x[0] == 51 / 255.0f && x[1] == 128 / 255.0f && x[2] == 1);
    assert_int_equal(y, 9);

    put_npy(f, 1, "y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}",
            (int64_t[]){7, -100}, 16);
    info = must_open(f); /* targets of another format */
    assert_int_equal(info->extremes.most, 7);
    rb_source_read(f->source, 1, NULL, &y);
    assert_int_equal(y, -100);
}

static void broken_idx(void **state)
{
    struct files *f = *state;
    uint8_t bytes[sizeof images];

    for (size_t i = 1; i < sizeof images; i++) {
        put(f, 0, "x-ubyte", images, i);
        must_fail(f, RB_EINVAL, "x-ubyte", "");
    }
    put(f, 0, "x-ubyte", images, sizeof images);
    put(f, 1, "y", (const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 1, 4}, 9);
    must_fail(f, RB_EINVAL, "/y", "has 1 targets; expected 2");
    put(f, 1, "y", "labels", 6);
    must_fail(f, RB_EUNSUPPORTED, "/y", "looks like text");
    name_file(f, 1, "/nowhere/y");
    must_fail(f, RB_ENOTFOUND, "/nowhere/y", "targets: cannot open");
    name_file(f, 1, NULL);
    memcpy(bytes, images, sizeof images);
    bytes[2] = 0x0d;
    put(f, 0, "x", bytes, sizeof bytes);
    must_fail(f, RB_EUNSUPPORTED, "/x", "type 0x0d; expected 0x08 (unsigned bytes): save it as");
    bytes[2] = 8;
    bytes[3] = 10;
    put(f, 0, "x-ubyte", bytes, sizeof bytes);
    must_fail(f, RB_EUNSUPPORTED, "x-ubyte", "10 axes");
    bytes[3] = 3;
    memset(bytes + 4, 0xff, 12);
    put(f, 0, "x-ubyte", bytes, sizeof bytes);
    must_fail(f, RB_EINVAL, "x-ubyte", "2^63");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(idx),
        FILES_TEST(broken_idx),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
