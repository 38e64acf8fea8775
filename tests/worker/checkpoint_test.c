/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: a round trip, the same bytes twice, and every kind of damage. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/prune.h"
#include "worker/checkpoint/restore.h"
#include "worker/checkpoint/saver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static const struct tiny_options job = {
    .samples = 40, .global_batch = 10, .micro_batch = 4, .steps = 100, .hidden = 24};

struct place {
    char folder[64];
    Rb__Model *model;
    struct rb_state state;
};

static void fill_state(struct place *place, int64_t level)
{
    struct rb_state *state = &place->state;

    state->level = level;
    state->applied = level - 2;
    state->not_finite = 1;
    for (size_t v = 0; v < place->model->n_variables; v++) {
        const Rb__Variable *variable = place->model->variables[v];

        if (variable->role == RB__VARIABLE__ROLE__FIXED)
            continue;
        for (uint64_t i = 0; i < variable->elements; i++) {
            bool trained = variable->role == RB__VARIABLE__ROLE__TRAINED;
            uint64_t at = variable->offset + i;

            state->w[at] = (float)(at + 1) / 7.0f + (float)level;
            if (state->m)
                state->m[at] = trained ? -(float)at / 3.0f : 0;
            if (state->v)
                state->v[at] = trained ? (float)at * 1e-9f : 0;
        }
        state->exponents[v] = (struct rb_exponent){1.0 / 3.0 + (double)v, (int32_t)v - 2, v != 1};
    }
    state->exponents[1] = (struct rb_exponent){0};
    rb_state_hold_all(state);
    memcpy(state->fixed, &(int64_t[5]){1, 2, 3, 4, 5}, 5 * sizeof(int64_t));
}

static void open_place(struct place *place, const struct tiny_options *options)
{
    strcpy(place->folder, "/tmp/rubato-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    place->model = tiny_model(place->folder, options);
    assert_int_equal(rb_state_open(place->model, NULL, &place->state, NULL), 0);
    fill_state(place, 12);
}

static void close_place(struct place *place)
{
    rb_state_done(&place->state);
    rb__model__free_unpacked(place->model, NULL);
    rb_file_remove(place->folder, NULL);
}

static char *write_checkpoint(struct place *place)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    char *path = NULL;

    if (rb_checkpoint_write(place->model, &place->state, place->folder, "j", "w", &path, &bytes,
                            &why))
        fail_msg("%s", why.text);
    assert_true(bytes > 0);
    return path;
}

static int count_entries(const char *folder, const char *prefix)
{
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int n = 0;

    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(listing);
    return n;
}

static void assert_same_hashes(const Rb__Model *model, const struct rb_state *a,
                               const struct rb_state *b)
{
    size_t size = (1 + a->blocks) * sizeof(uint64_t);
    RB_CLEANUP(rb_freep) uint64_t *left = rb_alloc(size);
    RB_CLEANUP(rb_freep) uint64_t *right = rb_alloc(size);

    rb_state_hashes(a, model, left);
    rb_state_hashes(b, model, right);
    assert_memory_equal(left, right, size);
}

static void round_trip(const struct tiny_options *options)
{
    struct place place;
    struct rb_state back;
    struct rb_why why = {0};
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *latest = NULL;
    struct rb_buffer line = {0};

    open_place(&place, options);
    path = write_checkpoint(&place);
    assert_non_null(strstr(path, "/step-00000012"));
    latest = rb_format("%s/latest", place.folder);
    assert_int_equal(rb_file_read(latest, 100, &line, NULL), 0);
    assert_string_equal(line.data, "step-00000012\n");
    rb_buffer_done(&line);
    assert_int_equal(rb_state_open(place.model, NULL, &back, NULL), 0);
    if (rb_restore(path, place.model, &back, &why))
        fail_msg("%s", why.text);
    assert_int_equal(back.level, 12);
    assert_int_equal(back.applied, 10);
    assert_int_equal(back.not_finite, 1);
    assert_false(back.exponents[1].known);
    assert_same_hashes(place.model, &back, &place.state);
    rb_state_done(&back);
    close_place(&place);
}

static void test_round_trip(void **state)
{
    struct tiny_options options = job;

    (void)state;
    round_trip(&options);
    options.sgd = true;
    round_trip(&options);
    options.no_momentum = true;
    round_trip(&options);
}

static void read_all(const char *folder, struct rb_buffer *out)
{
    static const char *const names[] = {RB_CHECKPOINT_MODEL, RB_CHECKPOINT_OPTIMIZER,
                                        RB_CHECKPOINT_MANIFEST};

    for (size_t i = 0; i < RB_COUNT(names); i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, names[i]);

        assert_int_equal(rb_file_read(path, 1 << 20, out, NULL), 0);
    }
}

/* The same state gives the same bytes, in another folder and over an older checkpoint too. */
static void test_same_bytes(void **state)
{
    struct place one, two;
    struct rb_buffer first = {0}, second = {0};

    (void)state;
    open_place(&one, &job);
    open_place(&two, &job);
    two.state.w[0] = 5;
    free(write_checkpoint(&two));
    fill_state(&two, 12);
    for (int i = 0; i < 2; i++) {
        RB_CLEANUP(rb_freep) char *path = write_checkpoint(i ? &two : &one);

        read_all(path, i ? &second : &first);
    }
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    assert_int_equal(count_entries(two.folder, ".tmp"), 0);
    rb_buffer_done(&first);
    rb_buffer_done(&second);
    close_place(&one);
    close_place(&two);
}

static void test_prune(void **state)
{
    struct place place;
    RB_CLEANUP(rb_freep) char *half = NULL;
    RB_CLEANUP(rb_freep) char *foreign = NULL;
    int written;

    (void)state;
    open_place(&place, &job);
    for (int64_t step = 10; step <= 60; step += 10) {
        fill_state(&place, step);
        free(write_checkpoint(&place));
    }
    half = rb_format("%s/.tmp-j-dead-step-00000020", place.folder);
    foreign = rb_format("%s/step-7", place.folder);
    assert_int_equal(mkdir(half, 0700), 0);
    assert_int_equal(mkdir(foreign, 0700), 0);
    written = open(half, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(written, LOCK_EX), 0);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 50, 9, NULL), 0);
    assert_int_equal(count_entries(place.folder, ".tmp"), 1); /* somebody writes it */
    close(written);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 50, 2, NULL), 0);
    assert_int_equal(count_entries(place.folder, "step-000000"), 3); /* 40, 50 and the newer 60 */
    assert_int_equal(count_entries(place.folder, ".tmp"), 0);
    assert_int_equal(count_entries(place.folder, "step-7"), 1); /* no name of ours */
    assert_int_equal(rb_prune(place.folder, place.model, "j", 60, 0, NULL), 0);
    assert_int_equal(count_entries(place.folder, "step-000000"), 3);
    close_place(&place);
}

static char *write_of(struct place *place, const char *spec_digest, int64_t step)
{
    free(place->model->spec_digest);
    place->model->spec_digest = rb_string(spec_digest);
    fill_state(place, step);
    return write_checkpoint(place);
}

/* Beside checkpoints of another job, and one whose list is damaged: each is as it was. */
static void test_prune_own(void **state)
{
    struct place place;
    RB_CLEANUP(rb_freep) char *damaged = NULL;
    RB_CLEANUP(rb_freep) char *list = NULL;
    RB_CLEANUP(rb_freep) char *none = NULL;
    struct rb_why why = {0};
    uint64_t bytes;

    (void)state;
    open_place(&place, &job);
    free(write_of(&place, "another", 15));
    free(write_of(&place, "another", 35));
    for (int64_t step = 10; step <= 40; step += 10)
        free(write_of(&place, "ours", step));
    damaged = write_of(&place, "ours", 5);
    list = rb_format("%s/%s", damaged, RB_CHECKPOINT_MANIFEST);
    assert_int_equal(rb_file_write(list, "{}", 2, NULL), 0);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 40, 1, NULL), 0);
    assert_int_equal(count_entries(place.folder, "step-00000040"), 1);
    assert_int_equal(count_entries(place.folder, "step-00000015"), 1);
    assert_int_equal(count_entries(place.folder, "step-00000035"), 1);
    assert_int_equal(count_entries(place.folder, "step-00000005"), 1);
    assert_int_equal(count_entries(place.folder, "step-"), 4);
    fill_state(&place, 35);
    assert_int_equal(
        rb_checkpoint_write(place.model, &place.state, place.folder, "j", "w", &none, &bytes, &why),
        RB_EEXISTS);
    assert_non_null(strstr(why.text, "step-00000035 is a checkpoint of another job"));
    assert_int_equal(count_entries(place.folder, ".tmp"), 0);
    close_place(&place);
}

static void test_made_way(void **state)
{
    struct place place;
    RB_CLEANUP(rb_freep) char *first = NULL;
    RB_CLEANUP(rb_freep) char *last = NULL;
    struct rb_why why = {0};

    (void)state;
    open_place(&place, &job);
    fill_state(&place, 10);
    first = write_checkpoint(&place);
    fill_state(&place, 20);
    free(write_checkpoint(&place));
    fill_state(&place, 30);
    last = write_checkpoint(&place);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 30, 1, NULL), 0);
    assert_int_equal(rb_restore(first, place.model, &place.state, NULL), 0);
    assert_int_equal(place.state.level, 30);
    rb_file_remove(last, NULL);
    assert_int_equal(rb_restore(first, place.model, &place.state, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "step-00000010")); /* what was asked for is what is missed */
    fill_state(&place, 5);
    free(write_checkpoint(&place));
    assert_int_equal(rb_restore(first, place.model, &place.state, NULL), RB_ENOTFOUND);
    close_place(&place);
}

/* ---- Damage ---------------------------------------------------------------------------------*/

static int restore_into(struct place *place, const char *path, struct rb_why *why)
{
    struct rb_state back;
    int err;

    assert_int_equal(rb_state_open(place->model, NULL, &back, NULL), 0);
    err = rb_restore(path, place->model, &back, why);
    assert_true((err == 0) == (back.level >= 0));
    rb_state_done(&back);
    return err;
}

static void write_bytes(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

/* One bit anywhere, or one byte less, in any file: refused, in words. */
static void test_every_byte_counts(void **state)
{
    static const char *const names[] = {RB_CHECKPOINT_MODEL, RB_CHECKPOINT_OPTIMIZER,
                                        RB_CHECKPOINT_MANIFEST};
    struct place place;
    RB_CLEANUP(rb_freep) char *path = NULL;

    (void)state;
    open_place(&place, &job);
    path = write_checkpoint(&place);
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
            if (restore_into(&place, path, &why) == 0)
                fail_msg("%s: byte %zu changed and nobody saw", names[f], i);
            assert_true(why.text[0]);
            bytes.data[i] = kept;
        }
        write_bytes(file, bytes.data, bytes.size - 2);
        assert_true(restore_into(&place, path, NULL) < 0);
        write_bytes(file, bytes.data, bytes.size);
        assert_int_equal(restore_into(&place, path, NULL), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(restore_into(&place, path, NULL), RB_ENOTFOUND);
        write_bytes(file, bytes.data, bytes.size);
        rb_buffer_done(&bytes);
    }
    close_place(&place);
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
    struct place place;
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *manifest = NULL;
    struct rb_buffer deep = {0};

    (void)state;
    open_place(&place, &job);
    path = write_checkpoint(&place);
    manifest = rb_format("%s/%s", path, RB_CHECKPOINT_MANIFEST);
    for (size_t i = 0; i < RB_COUNT(texts); i++) {
        struct rb_why why = {0};

        write_bytes(manifest, texts[i], strlen(texts[i]));
        assert_true(restore_into(&place, path, &why) < 0);
        assert_non_null(strstr(why.text, "manifest") ? why.text : strstr(why.text, "version"));
    }
    for (int i = 0; i < 100000; i++)
        rb_buffer_text(&deep, "[");
    write_bytes(manifest, deep.data, deep.size);
    assert_int_equal(restore_into(&place, path, NULL), RB_EINVAL);
    rb_buffer_done(&deep);
    close_place(&place);
}

static void read_tensors(const char *folder, const char *name, struct rb_buffer *ret)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s.safetensors", folder, name);

    assert_int_equal(rb_file_read(path, 1 << 20, ret, NULL), 0);
}

static void test_other_jobs(void **state)
{
    struct tiny_options wider = job;
    struct place place, other;
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *weights = NULL;
    struct rb_why why = {0};

    (void)state;
    open_place(&place, &job);
    wider.hidden = 25;
    open_place(&other, &wider);
    path = write_checkpoint(&place);
    other.model->seed = 8;
    assert_int_equal(restore_into(&other, path, &why), RB_EREFUSED);
    other.model->seed = 7;
    assert_int_equal(restore_into(&other, path, &why), RB_EINVAL); /* shapes */
    assert_non_null(strstr(why.text, "fc1"));
    place.model->steps = 11;
    assert_int_equal(restore_into(&place, path, &why), RB_EINVAL); /* beyond the last step */

    tiny_write(place.folder, &job, 0);
    weights = rb_format("%s/weights.safetensors", place.folder);
    assert_int_equal(restore_into(&place, weights, &why), 0);
    assert_int_equal(restore_into(&other, weights, &why), RB_EINVAL);
    assert_int_equal(restore_into(&place, "/nowhere", &why), RB_ENOTFOUND);
    close_place(&place);
    close_place(&other);
}

/* What loaders look for in a file of weights is in exports and checkpoints alike, which are the
 * same bytes: the format, and the names that share a tensor with another. */
static void test_notes(void **state)
{
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"tied.bias\":\"fc1.bias\","
        "\"tied.weight\":\"fc1.weight\"},\"";
    Rb__Alias aliases[] = {RB__ALIAS__INIT, RB__ALIAS__INIT}, *both[] = {&aliases[0], &aliases[1]};
    RB_CLEANUP(rb_buffer_done) struct rb_buffer exported = {0}, saved = {0}, moments = {0};
    RB_CLEANUP(rb_freep) char *path = NULL;
    struct rb_why why = {0};
    struct place place;
    uint64_t bytes;

    (void)state;
    aliases[0].name = (char *)"tied.bias";
    aliases[0].kept = (char *)"fc1.bias";
    aliases[1].name = (char *)"tied.weight";
    aliases[1].kept = (char *)"fc1.weight";
    open_place(&place, &job);
    place.model->aliases = both;
    place.model->n_aliases = 2;
    path = write_checkpoint(&place);
    assert_int_equal(rb_checkpoint_export(place.model, &place.state, place.folder, &bytes, &why),
                     0);
    read_tensors(place.folder, "model", &exported);
    read_tensors(path, "model", &saved);
    read_tensors(path, "optimizer", &moments);
    assert_memory_equal(exported.data + 8, expected, sizeof(expected) - 1);
    assert_int_equal(exported.size, saved.size);
    assert_memory_equal(exported.data, saved.data, saved.size);
    assert_null(strstr(moments.data + 8, "__metadata__"));
    assert_int_equal(restore_into(&place, path, &why), 0);
    place.model->aliases = NULL;
    place.model->n_aliases = 0;
    close_place(&place);
}

/* A disk that takes no more: an error in words, the older checkpoint untouched, nothing half done.
 */
static void test_full_disk(void **state)
{
    struct rlimit kept, small;
    struct rb_why why = {0};
    struct place place;
    RB_CLEANUP(rb_freep) char *old = NULL;
    char *path = NULL;
    uint64_t bytes;

    (void)state;
    open_place(&place, &job);
    old = write_checkpoint(&place);
    fill_state(&place, 13);
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
    assert_int_equal(count_entries(place.folder, ".tmp"), 0);
    assert_int_equal(count_entries(place.folder, "step-"), 1);
    assert_int_equal(count_entries(place.folder, "model"), 0);
    assert_int_equal(restore_into(&place, old, NULL), 0);
    close_place(&place);
}

static int failing_rename; /* 1: the next one; 0: none */
static bool no_exchange;   /* as on NFS */

/* In front of the system's. */
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

/* A checkpoint that takes the place of one of the same step may fail at any name that it changes:
 * the old one or the new one is there, whole, and nothing beside it. */
static void test_replaced_in_vain(void **state)
{
    RB_CLEANUP(rb_freep) char *old = NULL;
    struct place place;
    int err = -1;

    (void)state;
    open_place(&place, &job);
    old = write_checkpoint(&place);
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
        assert_int_equal(count_entries(place.folder, "step-"), 1);
        assert_int_equal(count_entries(place.folder, ".tmp"), 0);
        assert_int_equal(restore_into(&place, old, NULL), 0);
    }
    no_exchange = false;
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_prune),
        cmocka_unit_test(test_prune_own),
        cmocka_unit_test(test_made_way),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_hostile_manifests),
        cmocka_unit_test(test_other_jobs),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_replaced_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
