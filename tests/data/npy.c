/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy files, sound and broken. */
#include "tests/data/files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One element type: a file of shape `shape` with `data`, read as features and as targets. */
struct kind {
    const char *descr;
    size_t size;      /* of an element */
    const void *data; /* two elements */
    double value[2];
    enum rb_dtype features, floats, targets; /* floats: features of a model that takes those */
};

static double get(const void *to, enum rb_dtype dtype, int i)
{
    return dtype == RB_F32 ? (double)((const float *)to)[i] : (double)((const int64_t *)to)[i];
}

static void check_kind(struct files *f, const struct kind *kind, int version)
{
    const struct rb_source_info *info;
    int64_t features[2], targets[2];
    char header[200];

    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': (1, 2), }   \n", kind->descr);
    put_npy(f, 0, "x.npy", version, header, kind->data, 2 * kind->size);
    put_npy(f, 1, "y.npy", version, header, kind->data, 2 * kind->size);
    info = must_open(f);
    assert_string_equal(info->format, "npy");
    assert_int_equal(info->samples, 1);
    assert_int_equal(info->features.dtype, kind->features);
    assert_int_equal(info->targets.dtype, kind->targets);
    assert_int_equal(info->features.rank, 1);
    assert_int_equal(info->features.dim[0], 2);
    rb_source_read(f->source, 0, features, targets);
    for (int i = 0; i < 2; i++) {
        assert_true(get(features, kind->features, i) == kind->value[i]);
        assert_true(get(targets, kind->targets, i) == kind->value[i]);
    }
    assert_int_equal(info->extremes.most,
                     kind->targets == RB_I64 ? (int64_t)fmax(kind->value[0], kind->value[1]) : -1);
    snprintf(header, sizeof header, "{\"shape\":(1,2,1),\"fortran_order\":False,\"descr\":\"%s\"}",
             kind->descr);
    put_npy(f, 0, "x.npy", version, header, kind->data, 2 * kind->size);
    f->options.floats = true;
    info = must_open(f);
    f->options.floats = false;
    assert_int_equal(info->features.dtype, kind->floats);
    assert_int_equal(info->features.rank, 2);
    assert_int_equal(info->features.dim[1], 1);
    rb_source_read(f->source, 0, features, NULL);
    assert_true(get(features, kind->floats, 1) == kind->value[1]);
}

static void npy_kinds(void **state)
{
    static const float f4[] = {1.5f, -2.25f};
    static const double f8[] = {0.5, -1e10};
    static const uint16_t f2[] = {0x3e00, 0x0001}; /* 1.5 and the smallest */
    static const uint16_t f2_more[] = {0xfbff, 0x8400};
    static const int64_t i8[] = {-100, INT64_C(1) << 40};
    static const int32_t i4[] = {-7, 2000000000};
    static const int16_t i2[] = {-30000, 30000};
    static const int8_t i1[] = {-128, 127};
    static const uint8_t u1[] = {0, 255}, b1[] = {0, 1};
    static const uint16_t u2[] = {1, 65535};
    static const uint32_t u4[] = {2, 4294967295u};
    const struct kind kinds[] = {
        {"<f4", 4, f4, {1.5, -2.25}, RB_F32, RB_F32, RB_F32},
        {"<f8", 8, f8, {0.5, -1e10}, RB_F32, RB_F32, RB_F32},
        {"<f2", 2, f2, {1.5, 0x1p-24}, RB_F32, RB_F32, RB_F32},
        {"<f2", 2, f2_more, {-65504, -0x1p-14}, RB_F32, RB_F32, RB_F32},
        {"<i8", 8, i8, {-100, 1099511627776.0}, RB_I64, RB_I64, RB_I64},
        {"<i4", 4, i4, {-7, 2000000000}, RB_I64, RB_I64, RB_I64},
        {"<i2", 2, i2, {-30000, 30000}, RB_I64, RB_I64, RB_I64},
        {"|i1", 1, i1, {-128, 127}, RB_I64, RB_I64, RB_I64},
        {"|u1", 1, u1, {0, 255}, RB_I64, RB_F32, RB_I64},
        {"<u2", 2, u2, {1, 65535}, RB_I64, RB_I64, RB_I64},
        {"<u4", 4, u4, {2, 4294967295.0}, RB_I64, RB_I64, RB_I64},
        {"|b1", 1, b1, {0, 1}, RB_I64, RB_F32, RB_I64},
    };

    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        for (int version = 1; version <= 3; version++)
            check_kind(*state, &kinds[i], version);
}

/* Bytes are floats for a model that takes floats, whatever the shape; as targets they never are. */
static void bytes_for_floats(void **state)
{
    static const char header[] = "{'descr':'|u1','fortran_order':False,'shape':(2,3)}";
    const struct rb_source_info *info;
    struct files *f = *state;
    float x[3];

    put_npy(f, 0, "x.npy", 1, header, (uint8_t[]){0, 1, 2, 253, 254, 255}, 6);
    put_npy(f, 1, "y.npy", 1, header, (uint8_t[]){0, 1, 2, 253, 254, 255}, 6);
    assert_int_equal(must_open(f)->features.dtype, RB_I64);
    f->options.floats = true;
    info = must_open(f);
    assert_int_equal(info->features.dtype, RB_F32);
    assert_int_equal(info->targets.dtype, RB_I64);
    rb_source_read(f->source, 1, x, NULL);
    assert_true(x[0] == 253 && x[2] == 255);
    put_npy(f, 0, "x.npy", 1, "{'descr':'|b1','fortran_order':False,'shape':(2,3)}",
            (uint8_t[]){0, 1, 0, 1, 1, 0}, 6);
    assert_int_equal(must_open(f)->features.dtype, RB_F32);
}

/* The second smallest and the second largest count each value once; where all values are equal,
 * both are that value. */
static void extremes(void **state)
{
    static const struct {
        int64_t labels[6];
        struct rb_extremes want;
    } cases[] = {
        {{2, 2, 2, 2, 2, 2}, {2, 2, 2, 2}},
        {{2, 9, 9, 2, 2, 9}, {2, 9, 2, 9}},
        {{5, -100, 7, -1, -100, 7}, {-100, -1, 5, 7}},
        {{1, 2, 3, 4, 5, 6}, {1, 2, 5, 6}},
        {{6, 5, 4, 3, 2, 1}, {1, 2, 5, 6}},
    };
    struct files *f = *state;

    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const struct rb_extremes *want = &cases[i].want;
        struct rb_extremes got;

        put_npy(f, 0, "x.npy", 1, "{'descr':'<f4','fortran_order':False,'shape':(6,2)}",
                (float[12]){0}, 48);
        put_npy(f, 1, "y.npy", 1, "{'descr':'<i8','fortran_order':False,'shape':(6,)}",
                cases[i].labels, sizeof cases[i].labels);
        got = must_open(f)->extremes;
        assert_memory_equal(&got, want, sizeof got);
    }
}

static void npy_shapes(void **state)
{
    static const float data[6] = {0, 1, 2, 3, 4, 5};
    struct files *f = *state;
    float x[2];
    const struct rb_source_info *info;

    put_npy(f, 0, "x", 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (6,)}", data, 24);
    info = must_open(f); /* one axis is in both orders; the format is found by content */
    assert_int_equal(info->samples, 6);
    assert_int_equal(info->features.rank, 0);
    assert_int_equal(info->targets.dtype, RB_NONE);
    rb_source_read(f->source, 5, x, NULL);
    assert_true(x[0] == 5);
    put_npy(f, 0, "x", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,2)}", data, 24);
    must_open(f);
    rb_source_read(f->source, 2, x, NULL);
    assert_true(x[0] == 4 && x[1] == 5);
    put_npy(f, 0, "x", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,1,1,1,1,1,1,1,3)}",
            data, 24);
    assert_int_equal(must_open(f)->features.rank, 8);
}

static void broken_npy(void **state)
{
    static const struct {
        int err;
        const char *header, *says;
    } broken[] = {
#define H(descr, order, shape)                                                                     \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape "}"
        {RB_EINVAL, H("<f4", "False", "(7,)"), "24 bytes after the header, expected 28"},
        {RB_EINVAL, H("<f4", "False", "(5,)"), "expected 20"},
        {RB_EINVAL, H("<f4", "False", "()"), "first axis counts samples"},
        {RB_EINVAL, H("<f4", "False", "(0, 6)"), "0 samples"},
        {RB_EINVAL, H("<f4", "False", "(6, 0)"), "0 elements"},
        {RB_EINVAL, H("<f4", "False", "(6)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6, 1"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6,,1)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(-6,)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6L,)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(1,1,1,1,1,1,1,1,1,6)"), "at most 9 axes"},
        {RB_EINVAL, H("<f4", "False", "(9223372036854775808,)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(9223372036854775807, 4)"), "2^63"},
        {RB_EINVAL, H("<f4", "False", "(1, 9223372036854775807, 2)"), "2^63"},
        {RB_EINVAL, H("<f4", "False", "(4611686018427387910,)"), "2^63"},
        {RB_EINVAL, H("<f4", "false", "(6,)"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6,)") "x", "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6,), 'more': 1"), "cannot be read"},
        {RB_EINVAL, H("<f4", "False", "(6,), 'shape': (6,)"), "cannot be read"},
        {RB_EINVAL, "{'descr': '<f4', 'shape': (6,)}", "cannot be read"},
        {RB_EINVAL, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", "cannot"},
        {RB_EINVAL, "{'descr': '<f4' 'fortran_order': False, 'shape': (6,)}", "cannot be read"},
        {RB_EINVAL, "", "cannot be read"},
        {RB_EINVAL, "{", "cannot be read"},
        {RB_EINVAL, "{'descr", "cannot be read"},
        {RB_EINVAL, "{'a-key-that-is-too-long': 1}", "cannot be read"},
        {RB_EUNSUPPORTED, H(">f4", "False", "(6,)"), "big-endian"},
        {RB_EUNSUPPORTED, H("|f4", "False", "(6,)"), "'|f4'"},
        {RB_EUNSUPPORTED, H("<c8", "False", "(3,)"), "'<c8'"},
        {RB_EUNSUPPORTED, H("|O", "False", "(3,)"), "'|O'"},
        {RB_EUNSUPPORTED, H("<", "False", "(3,)"), "'<'"},
        {RB_EUNSUPPORTED, H("", "False", "(3,)"), "''"},
        {RB_EUNSUPPORTED, H("<f4", "True", "(3, 2)"), "Fortran order"},
    };
    static const char data[24];
    struct files *f = *state;

    for (size_t i = 0; i < RB_COUNT(broken); i++) {
        put_npy(f, 0, "x.npy", 1, broken[i].header, data, sizeof data);
        must_fail(f, broken[i].err, "x.npy", broken[i].says);
    }
    put_npy(f, 0, "x.npy", 4, H("<f4", "False", "(6,)"), data, sizeof data);
    must_fail(f, RB_EUNSUPPORTED, "x.npy", "version 4");
    put(f, 0, "x.npy", "\x93NUMPY\1\0\xff\xff{}", 12);
    must_fail(f, RB_EINVAL, "x.npy", "ends inside its header: 12 bytes, expected at least 65545");
    put(f, 0, "x.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14);
    must_fail(f, RB_EINVAL, "x.npy", "ends inside its header");
    put(f, 0, "x.npy", "\x93NUMPY\1", 7);
    must_fail(f, RB_EINVAL, "x.npy", "ends inside its header");
    put(f, 0, "x.npy", "hello", 5);
    must_fail(f, RB_EINVAL, "x.npy", "no .npy file");
}

/* Every prefix of a sound file is an error and nothing worse. */
static void cut_npy(void **state)
{
    static const char whole[] = "\x93NUMPY\1\0\x41\0"
                                "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }     \n"
                                "abcd";
    struct files *f = *state;
    struct rb_source *source;

    put(f, 0, "x.npy", whole, sizeof whole - 1);
    must_open(f);
    for (size_t i = 1; i < sizeof whole - 1; i++) {
        put(f, 0, "x.npy", whole, i);
        assert_int_equal(rb_source_open(&f->options, &source, &f->why), RB_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(npy_kinds),  FILES_TEST(extremes),   FILES_TEST(bytes_for_floats),
        FILES_TEST(npy_shapes), FILES_TEST(broken_npy), FILES_TEST(cut_npy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
