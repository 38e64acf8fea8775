/* SPDX-License-Identifier: Apache-2.0 */
/* Text and token files, sound and broken. */
#include "tests/data/files.h"

#include "base/buffer.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(text),
        FILES_TEST(broken_text),
        FILES_TEST(tokens),
        FILES_TEST(broken_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
