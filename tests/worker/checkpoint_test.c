/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: a round trip, the same bytes twice, which checkpoints are kept, and what loaders
 * look for. */
#include "tests/worker/checkpoint_place.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/prune.h"
#include "worker/checkpoint/restore.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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
    struct checkpoint_place place;
    struct rb_state back;
    struct rb_why why = {0};
    RB_CLEANUP(rb_freep) char *path = NULL;
    RB_CLEANUP(rb_freep) char *latest = NULL;
    struct rb_buffer line = {0};

    checkpoint_place_open(&place, options);
    path = checkpoint_place_write(&place);
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
    checkpoint_place_close(&place);
}

static void test_round_trip(void **state)
{
    struct tiny_options options = checkpoint_job;

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
    struct checkpoint_place one, two;
    struct rb_buffer first = {0}, second = {0};

    (void)state;
    checkpoint_place_open(&one, &checkpoint_job);
    checkpoint_place_open(&two, &checkpoint_job);
    two.state.w[0] = 5;
    free(checkpoint_place_write(&two));
    checkpoint_place_fill(&two, 12);
    for (int i = 0; i < 2; i++) {
        RB_CLEANUP(rb_freep) char *path = checkpoint_place_write(i ? &two : &one);

        read_all(path, i ? &second : &first);
    }
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    assert_int_equal(checkpoint_place_count(two.folder, ".tmp"), 0);
    rb_buffer_done(&first);
    rb_buffer_done(&second);
    checkpoint_place_close(&one);
    checkpoint_place_close(&two);
}

static void test_prune(void **state)
{
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *half = NULL;
    RB_CLEANUP(rb_freep) char *foreign = NULL;
    int written;

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    for (int64_t step = 10; step <= 60; step += 10) {
        checkpoint_place_fill(&place, step);
        free(checkpoint_place_write(&place));
    }
    half = rb_format("%s/.tmp-j-dead-step-00000020", place.folder);
    foreign = rb_format("%s/step-7", place.folder);
    assert_int_equal(mkdir(half, 0700), 0);
    assert_int_equal(mkdir(foreign, 0700), 0);
    written = open(half, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(written, LOCK_EX), 0);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 50, 9, NULL), 0);
    assert_int_equal(checkpoint_place_count(place.folder, ".tmp"), 1); /* it is being written */
    close(written);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 50, 2, NULL), 0);
    assert_int_equal(checkpoint_place_count(place.folder, "step-000000"),
                     3); /* 40, 50 and the newer 60 */
    assert_int_equal(checkpoint_place_count(place.folder, ".tmp"), 0);
    assert_int_equal(checkpoint_place_count(place.folder, "step-7"), 1); /* no name of ours */
    assert_int_equal(rb_prune(place.folder, place.model, "j", 60, 0, NULL), 0);
    assert_int_equal(checkpoint_place_count(place.folder, "step-000000"), 3);
    checkpoint_place_close(&place);
}

static char *write_of(struct checkpoint_place *place, const char *spec_digest, int64_t step)
{
    free(place->model->spec_digest);
    place->model->spec_digest = rb_string(spec_digest);
    checkpoint_place_fill(place, step);
    return checkpoint_place_write(place);
}

/* Beside checkpoints of another job, and one whose list is damaged: each is as it was. */
static void test_prune_own(void **state)
{
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *damaged = NULL;
    RB_CLEANUP(rb_freep) char *list = NULL;
    RB_CLEANUP(rb_freep) char *none = NULL;
    struct rb_why why = {0};
    uint64_t bytes;

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    free(write_of(&place, "another", 15));
    free(write_of(&place, "another", 35));
    for (int64_t step = 10; step <= 40; step += 10)
        free(write_of(&place, "ours", step));
    damaged = write_of(&place, "ours", 5);
    list = rb_format("%s/%s", damaged, RB_CHECKPOINT_MANIFEST);
    assert_int_equal(rb_file_write(list, "{}", 2, NULL), 0);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 40, 1, NULL), 0);
    assert_int_equal(checkpoint_place_count(place.folder, "step-00000040"), 1);
    assert_int_equal(checkpoint_place_count(place.folder, "step-00000015"), 1);
    assert_int_equal(checkpoint_place_count(place.folder, "step-00000035"), 1);
    assert_int_equal(checkpoint_place_count(place.folder, "step-00000005"), 1);
    assert_int_equal(checkpoint_place_count(place.folder, "step-"), 4);
    checkpoint_place_fill(&place, 35);
    assert_int_equal(
        rb_checkpoint_write(place.model, &place.state, place.folder, "j", "w", &none, &bytes, &why),
        RB_EEXISTS);
    assert_non_null(strstr(why.text, "step-00000035 is a checkpoint of another job"));
    assert_int_equal(checkpoint_place_count(place.folder, ".tmp"), 0);
    checkpoint_place_close(&place);
}

static void test_made_way(void **state)
{
    struct checkpoint_place place;
    RB_CLEANUP(rb_freep) char *first = NULL;
    RB_CLEANUP(rb_freep) char *last = NULL;
    struct rb_why why = {0};

    (void)state;
    checkpoint_place_open(&place, &checkpoint_job);
    checkpoint_place_fill(&place, 10);
    first = checkpoint_place_write(&place);
    checkpoint_place_fill(&place, 20);
    free(checkpoint_place_write(&place));
    checkpoint_place_fill(&place, 30);
    last = checkpoint_place_write(&place);
    assert_int_equal(rb_prune(place.folder, place.model, "j", 30, 1, NULL), 0);
    assert_int_equal(rb_restore(first, place.model, &place.state, NULL), 0);
    assert_int_equal(place.state.level, 30);
    rb_file_remove(last, NULL);
    assert_int_equal(rb_restore(first, place.model, &place.state, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "step-00000010")); /* the message names what was asked for */
    checkpoint_place_fill(&place, 5);
    free(checkpoint_place_write(&place));
    assert_int_equal(rb_restore(first, place.model, &place.state, NULL), RB_ENOTFOUND);
    checkpoint_place_close(&place);
}

static void read_tensors(const char *folder, const char *name, struct rb_buffer *ret)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s.safetensors", folder, name);

    assert_int_equal(rb_file_read(path, 1 << 20, ret, NULL), 0);
}

/* What loaders look for in a file of weights is in exports and checkpoints alike, whose bytes are
 * the same: the format, and the names that share a tensor with another. */
static void test_notes(void **state)
{
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"tied.bias\":\"fc1.bias\","
        "\"tied.weight\":\"fc1.weight\"},\"";
    Rb__Alias aliases[] = {RB__ALIAS__INIT, RB__ALIAS__INIT}, *both[] = {&aliases[0], &aliases[1]};
    RB_CLEANUP(rb_buffer_done) struct rb_buffer exported = {0}, saved = {0}, moments = {0};
    RB_CLEANUP(rb_freep) char *path = NULL;
    struct rb_why why = {0};
    struct checkpoint_place place;
    uint64_t bytes;

    (void)state;
    aliases[0].name = (char *)"tied.bias";
    aliases[0].kept = (char *)"fc1.bias";
    aliases[1].name = (char *)"tied.weight";
    aliases[1].kept = (char *)"fc1.weight";
    checkpoint_place_open(&place, &checkpoint_job);
    place.model->aliases = both;
    place.model->n_aliases = 2;
    path = checkpoint_place_write(&place);
    assert_int_equal(rb_checkpoint_export(place.model, &place.state, place.folder, &bytes, &why),
                     0);
    read_tensors(place.folder, "model", &exported);
    read_tensors(path, "model", &saved);
    read_tensors(path, "optimizer", &moments);
    assert_memory_equal(exported.data + 8, expected, sizeof(expected) - 1);
    assert_int_equal(exported.size, saved.size);
    assert_memory_equal(exported.data, saved.data, saved.size);
    assert_null(strstr(moments.data + 8, "__metadata__"));
    assert_int_equal(checkpoint_place_restore(&place, path, &why), 0);
    place.model->aliases = NULL;
    place.model->n_aliases = 0;
    checkpoint_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_prune),      cmocka_unit_test(test_prune_own),
        cmocka_unit_test(test_made_way),   cmocka_unit_test(test_notes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
