/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that cannot be read or written: every kind of damage, checkpoints of other jobs, and
 * disks that fail. */
#include "tests/worker/checkpoint_place.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static void write_bytes(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

/* One bit changed anywhere, or one byte less, in any file: refused, in words. */
static void test_every_byte_counts(void **state)
{
    static const char *const names[] = {RB_CHECKPOINT_MODEL, RB_CHECKPOINT_OPTIMIZER,
                                        RB_CHECKPOINT_MANIFEST};
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *path = NULL;

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    path = checkpoint_place_write(&place);
    for (size_t f = 0; f < RB_COUNT(names); f++) {
        RB_CLEANUP(rb_freep) char *file = rb_format("%s/%s", path, names[f]);
        struct rb_buffer bytes = {0};
        size_t stride;

        assert_int_equal(rb_file_read(file, 1 << 20, &bytes, NULL), 0);
        stride = f == 2 ? 1 : bytes.size / 64 + 1;
        for (size_t i = 0; i < bytes.size; i += stride) {
            char kept = bytes.data[i];
            struct rb_why why = {0};

            bytes.data[i] ^= 1;
            write_bytes(file, bytes.data, bytes.size);
            if (checkpoint_place_restore(&place, path, &why) == 0)
                fail_msg("%s: byte %zu changed and nobody saw", names[f], i);
            assert_true(why.text[0]);
            bytes.data[i] = kept;
        }
        write_bytes(file, bytes.data, bytes.size - 2);
        assert_true(checkpoint_place_restore(&place, path, NULL) < 0);
        write_bytes(file, bytes.data, bytes.size);
        assert_int_equal(checkpoint_place_restore(&place, path, NULL), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(checkpoint_place_restore(&place, path, NULL), RB_ENOTFOUND);
        write_bytes(file, bytes.data, bytes.size);
        rb_buffer_done(&bytes);
    }
    checkpoint_place_close(&place);
}

static void test_hostile_manifests(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"format\": \"rubato-checkpoint\"}",
        "{\"format\": 3, \"version\": \"x\"}",
        "{\"a\": 1, \"a\": 2}",
        "{\"format\":\"rubato-checkpoint\",\"version\":1,\"step\":99999999999999999999}",
        "{\"format\":\"rubato-checkpoint\",\"version\":2,\"step\":1,\"applied\":1,\"notFinite\":0,"
        "\"seed\":7,\"specDigest\":\"tiny\",\"numericClass\":\"x\",\"exponents\":{},\"files\":{}}",
        "{\"format\":\"rubato-checkpoint\",\"version\":1,\"step\":1,\"applied\":1,\"notFinite\":0,"
        "\"seed\":7,\"specDigest\":\"tiny\",\"numericClass\":\"x\",\"exponents\":[],\"files\":7}",
    };
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *manifest = NULL;
    struct rb_buffer deep = {0};

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    path = checkpoint_place_write(&place);
    manifest = rb_format("%s/%s", path, RB_CHECKPOINT_MANIFEST);
    for (size_t i = 0; i < RB_COUNT(texts); i++) {
        struct rb_why why = {0};

        write_bytes(manifest, texts[i], strlen(texts[i]));
        assert_true(checkpoint_place_restore(&place, path, &why) < 0);
        assert_non_null(strstr(why.text, "manifest") ? why.text : strstr(why.text, "version"));
    }
    for (int i = 0; i < 100000; i++)
        rb_buffer_text(&deep, "[");
    write_bytes(manifest, deep.data, deep.size);
    assert_int_equal(checkpoint_place_restore(&place, path, NULL), RB_EINVAL);
    rb_buffer_done(&deep);
    checkpoint_place_close(&place);
}

static void test_other_jobs(void **state)
{
    struct tiny_options wider = checkpoint_job;
    struct checkpoint_place place, other;
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *weights = NULL;
    struct rb_why why = {0};

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    wider.hidden = 25;
    checkpoint_place_open(&other, &wider);
    path = checkpoint_place_write(&place);
    other.model->seed = 8;
    assert_int_equal(checkpoint_place_restore(&other, path, &why), RB_EREFUSED);
    other.model->seed = 7;
    assert_int_equal(checkpoint_place_restore(&other, path, &why), RB_EINVAL); /* shapes */
    assert_non_null(strstr(why.text, "fc1"));
    place.model->steps = 11;
    assert_int_equal(checkpoint_place_restore(&place, path, &why),
                     RB_EINVAL); /* beyond the last step */

    tiny_write(place.folder, &checkpoint_job, 0);
    weights = rb_format("%s/weights.safetensors", place.folder);
    assert_int_equal(checkpoint_place_restore(&place, weights, &why), 0);
    assert_int_equal(checkpoint_place_restore(&other, weights, &why), RB_EINVAL);
    assert_int_equal(checkpoint_place_restore(&place, "/nowhere", &why), RB_ENOTFOUND);
    checkpoint_place_close(&place);
    checkpoint_place_close(&other);
}

/* A full disk: an error in words, the older checkpoint untouched, nothing half done. */
static void test_full_disk(void **state)
{
    struct rlimit kept, small;
    struct rb_why why = {0};
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *old = NULL;
    char *path = NULL;
    uint64_t bytes;

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    old = checkpoint_place_write(&place);
    checkpoint_place_fill(&place, 13);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &kept);
    small = kept;
    small.rlim_cur = 700;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_true(rb_checkpoint_write(place.model, &place.state, place.folder, "j", "w", &path,
                                    &bytes, &why) < 0);
    assert_true(rb_checkpoint_export(place.model, &place.state, place.folder, &bytes, NULL) < 0);
    setrlimit(RLIMIT_FSIZE, &kept);
    assert_null(path);
    assert_non_null(strstr(why.text, "step 13"));
    assert_int_equal(checkpoint_place_count(place.folder, ".tmp"), 0);
    assert_int_equal(checkpoint_place_count(place.folder, "step-"), 1);
    assert_int_equal(checkpoint_place_count(place.folder, "model"), 0);
    assert_int_equal(checkpoint_place_restore(&place, old, NULL), 0);
    checkpoint_place_close(&place);
}

static int failing_rename; /* 1: the next one; 0: none */
static bool no_exchange;   /* as on NFS */

/* Called in place of the system's. */
int rename(const char *from, const char *to)
{
    if (failing_rename > 0 && --failing_rename == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

/* A checkpoint that takes the place of one of the same step may fail at any rename: the old one or
 * the new one is there, whole, and nothing beside it. */
static void test_replaced_in_vain(void **state)
{
    RB_CLEANUP(rb_freep) char *old = NULL;
    struct checkpoint_place place;
    int err = -1;

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    old = checkpoint_place_write(&place);
    no_exchange = true;
    for (int k = 1; err; k++) {
        char *path = NULL;
        uint64_t bytes;

        failing_rename = k;
        err = rb_checkpoint_write(place.model, &place.state, place.folder, "j", "w", &path, &bytes,
                                  NULL);
        free(path);
        assert_true(failing_rename == 0 || !err);
        failing_rename = 0;
        assert_int_equal(checkpoint_place_count(place.folder, "step-"), 1);
        assert_int_equal(checkpoint_place_count(place.folder, ".tmp"), 0);
        assert_int_equal(checkpoint_place_restore(&place, old, NULL), 0);
    }
    no_exchange = false;
    checkpoint_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_counts), cmocka_unit_test(test_hostile_manifests),
        cmocka_unit_test(test_other_jobs),        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_replaced_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
