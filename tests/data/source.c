/* SPDX-License-Identifier: Apache-2.0 */
/* Files of every format, sound and broken. */
#include "data/source.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct files {
    char folder[64];
    char path[2][100]; /* of the features and the targets */
    struct rb_source_options options;
    struct rb_source *source;
    struct rb_why why;
};

static int set_up(void **state)
{
    struct files *f = rb_alloc(sizeof *f);

    strcpy(f->folder, "/tmp/rubato-data-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct files *f = *state;

    rb_source_close(f->source);
    rb_file_remove(f->folder, NULL);
    free(f);
    return 0;
}

static void put(struct files *f, int which, const char *name, const void *bytes, size_t size)
{
    char path[sizeof f->path[0]];

    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    strcpy(f->path[which], path);
    assert_int_equal(rb_file_write(f->path[which], bytes, size, NULL), 0);
    *(which ? &f->options.targets : &f->options.path) = f->path[which];
}

static const struct rb_source_info *must_open(struct files *f)
{
    int err;

    rb_source_close(f->source);
    f->source = NULL;
    err = rb_source_open(&f->options, &f->source, &f->why);
    if (err)
        fail_msg("%s", f->why.text);
    return rb_source_info(f->source);
}

/* Fails with `err`, saying all of `says`, and naming the file. */
static void must_fail(struct files *f, int err, const char *path, const char *says)
{
    struct rb_source *source = NULL;

    assert_int_equal(rb_source_open(&f->options, &source, &f->why), err);
    assert_null(source);
    if (!strstr(f->why.text, says) || !strstr(f->why.text, path))
        fail_msg("'%s' does not say '%s' of %s", f->why.text, says, path);
}

/* ---- Sequences ---- */

static void text(void **state)
{
    struct files *f = *state;
    const struct rb_source_info *info;
    int64_t in[4], out[4];

    put(f, 0, "corpus.txt", "abcdefghij\xff", 11);
    f->options.seq_len = 4;
    info = must_open(f);
    assert_string_equal(info->format, "text");
    assert_int_equal(info->samples, 2);
    assert_int_equal(info->extremes.most, 255);
    assert_int_equal(info->features.dtype, RB_I64);
    assert_int_equal(info->features.rank, 1);
    assert_int_equal(info->features.dim[0], 4);
    assert_int_equal(info->targets.dtype, RB_I64);
    rb_source_read(f->source, 1, in, out);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(in[i], 'e' + i);
        assert_int_equal(out[i], 'f' + i);
    }
    rb_source_read(f->source, 0, NULL, out);
    assert_int_equal(out[3], 'e');
    f->options.seq_len = 10; /* the last byte is a target only */
    assert_int_equal(must_open(f)->samples, 1);
    f->options.seq_len = 5;
    assert_int_equal(must_open(f)->samples, 2);
    f->options.seq_len = 1;
    assert_int_equal(must_open(f)->samples, 10);
}

static void broken_text(void **state)
{
    struct files *f = *state;

    put(f, 0, "corpus.txt", "abcd", 4);
    must_fail(f, RB_EINVAL, "corpus.txt", "needs seqLen");
    f->options.seq_len = -3;
    must_fail(f, RB_EINVAL, "corpus.txt", "found -3");
    f->options.seq_len = 4;
    must_fail(f, RB_EINVAL, "corpus.txt", "has 4 elements; expected one sample of seqLen 4");
    f->options.seq_len = INT64_MAX;
    must_fail(f, RB_EINVAL, "corpus.txt", "has 4 elements");
    f->options.seq_len = 3;
    put(f, 1, "labels.npy", "x", 1);
    must_fail(f, RB_EINVAL, "labels.npy", "own next elements");
}

static void put_llm(struct files *f, int32_t magic, int32_t version, int32_t count,
                    const void *tokens, size_t size)
{
    struct rb_buffer bytes = {0};
    int32_t header[256] = {magic, version, count};

    rb_buffer_add(&bytes, header, sizeof header);
    rb_buffer_add(&bytes, tokens, size);
    put(f, 0, "train.bin", bytes.data, bytes.size);
    rb_buffer_done(&bytes);
}

static void tokens(void **state)
{
    static const uint16_t narrow[] = {5, 50256, 7, 8, 9, 10, 60000};
    static const uint32_t wide[] = {1, 128255, 3, 4, 5};
    struct files *f = *state;
    const struct rb_source_info *info;
    int64_t in[3], out[3];

    f->options.seq_len = 3;
    put(f, 0, "bare.bin", narrow, sizeof narrow);
    info = must_open(f);
    assert_string_equal(info->format, "tokens");
    assert_int_equal(info->samples, 2);
    assert_int_equal(info->extremes.most, 60000);
    rb_source_read(f->source, 1, in, out);
    assert_int_equal(in[0], 8);
    assert_int_equal(out[2], 60000);

    put_llm(f, 20240520, 1, 7, narrow, sizeof narrow);
    assert_int_equal(must_open(f)->samples, 2);
    rb_source_read(f->source, 0, in, out);
    assert_int_equal(in[1], 50256);
    assert_int_equal(out[2], 8);

    put_llm(f, 20240801, 7, 5, wide, sizeof wide);
    info = must_open(f);
    assert_int_equal(info->samples, 1);
    assert_int_equal(info->extremes.most, 128255);
    rb_source_read(f->source, 0, in, out);
    assert_int_equal(in[1], 128255);
    assert_int_equal(out[2], 4);
    f->options.unscanned = true;
    assert_int_equal(must_open(f)->extremes.most, -1);
}

static void broken_tokens(void **state)
{
    static const uint16_t some[8];
    struct files *f = *state;

    f->options.seq_len = 2;
    put(f, 0, "odd.bin", "abcde", 5);
    must_fail(f, RB_EINVAL, "odd.bin", "5 bytes; expected an even number");
    put_llm(f, 20240520, 2, 8, some, sizeof some);
    must_fail(f, RB_EUNSUPPORTED, "train.bin", "version 2; expected 1");
    put_llm(f, 20240520, 1, 9, some, sizeof some);
    must_fail(f, RB_EINVAL, "train.bin", "counts 9 tokens of 2 bytes, found 16 bytes");
    put_llm(f, 20240520, 1, -1, some, sizeof some);
    must_fail(f, RB_EINVAL, "train.bin", "damaged");
    put_llm(f, 20240801, 7, 8, some, sizeof some);
    must_fail(f, RB_EINVAL, "train.bin", "damaged");
    put(f, 0, "short.bin", "\x88\xd8\x34\x01\x01\x00", 6);
    must_fail(f, RB_EINVAL, "short.bin", "inside its header");
}

/* ---- NumPy ---- */

static void put_npy(struct files *f, int which, const char *name, int version, const char *header,
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

/* One element type: a file of shape `shape` with `data`, read as features and as targets. */
struct kind {
    const char *descr;
    size_t size;      /* of an element */
    const void *data; /* two elements */
    double value[2];
    enum rb_dtype features, images, targets; /* images: features with two axes a sample */
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
    info = must_open(f);
    assert_int_equal(info->features.dtype, kind->images);
    assert_int_equal(info->features.rank, 2);
    assert_int_equal(info->features.dim[1], 1);
    rb_source_read(f->source, 0, features, NULL);
    assert_true(get(features, kind->images, 1) == kind->value[1]);
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
        {"|b1", 1, b1, {0, 1}, RB_F32, RB_F32, RB_I64},
    };

    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        for (int version = 1; version <= 3; version++)
            check_kind(*state, &kinds[i], version);
}

/* Bytes are floats for a model that takes those, whatever the shape; as targets they never are. */
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
}

/* The next ones count each value once; where all are equal they are that. */
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
    info = must_open(f); /* one axis is in both orders; found by its content */
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

/* Every beginning of a sound file is an error and nothing worse. */
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

/* ---- IDX ---- */

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
    f->options.targets = "/nowhere/y";
    must_fail(f, RB_ENOTFOUND, "/nowhere/y", "targets: cannot open");
    f->options.targets = NULL;
    memcpy(bytes, images, sizeof images);
    bytes[2] = 0x0d;
    put(f, 0, "x-ubyte", bytes, sizeof bytes);
    must_fail(f, RB_EUNSUPPORTED, "x-ubyte", "type 0x0d; expected 0x08");
    bytes[2] = 8;
    bytes[3] = 10;
    put(f, 0, "x-ubyte", bytes, sizeof bytes);
    must_fail(f, RB_EUNSUPPORTED, "x-ubyte", "10 axes");
    bytes[3] = 3;
    memset(bytes + 4, 0xff, 12);
    put(f, 0, "x-ubyte", bytes, sizeof bytes);
    must_fail(f, RB_EINVAL, "x-ubyte", "2^63");
}

/* ---- Files ---- */

static void no_data(void **state)
{
    struct files *f = *state;
    char path[100];

    must_fail(f, RB_EINVAL, "", "no data file is named");
    f->options.path = "/nowhere/at/all";
    must_fail(f, RB_ENOTFOUND, "/nowhere/at/all", "No such file");
    f->options.path = f->folder;
    must_fail(f, RB_EINVAL, f->folder, "is a folder");
    snprintf(path, sizeof path, "%s/pipe", f->folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    f->options.path = path;
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
    assert_int_equal(truncate(f->path[0], 11), 0); /* what was mapped is there */
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
    f->options.format = "text"; /* who says what it is gets it */
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

/* What this process has mapped of files and looked at. */
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

/* Elements that are a slot's already. */
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(text),
        TEST(broken_text),
        TEST(tokens),
        TEST(broken_tokens),
        TEST(npy_kinds),
        TEST(extremes),
        TEST(bytes_for_floats),
        TEST(npy_shapes),
        TEST(broken_npy),
        TEST(cut_npy),
        TEST(idx),
        TEST(broken_idx),
        TEST(no_data),
        TEST(formats),
        TEST(cut_off),
        TEST(large_arrays),
        TEST(large_images),
        TEST(large_sequence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
