/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: whether a thread copies a block or the update that is about to overwrite it, the copy
 * is the state at the level at which it was begun. */
#include "tests/worker/tiny.h"

#include "base/file.h"
#include "worker/checkpoint/snapshot.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LEVELS = 400 };

static const struct tiny_options job = {
    .samples = 40, .global_batch = 10, .micro_batch = 4, .steps = 100, .hidden = 400};

static void set_block(struct rb_state *state, const Rb__Block *block, float value)
{
    for (uint64_t i = block->first; i < block->first + block->count; i++) {
        state->w[i] = value;
        if (state->m)
            state->m[i] = -value;
        if (state->v)
            state->v[i] = value / 2;
    }
}

static void *complete(void *snapshot)
{
    rb_snapshot_complete(snapshot);
    return NULL;
}

/* As an update does it: block after block, each announced before it changes. */
static void step(struct rb_state *state, const Rb__Model *model, struct rb_snapshot *snapshot)
{
    for (size_t b = 0; b < state->blocks; b++) {
        rb_snapshot_keep(snapshot, b);
        set_block(state, model->blocks[b], (float)state->level + 1);
    }
    state->level++;
}

static void check(const struct rb_state *copy, const Rb__Model *model, int64_t level)
{
    assert_int_equal(copy->level, level);
    for (size_t b = 0; b < copy->blocks; b++)
        for (uint64_t i = 0; i < model->blocks[b]->count; i++) {
            size_t at = (size_t)(model->blocks[b]->first + i);

            if (copy->w[at] != (float)level || (copy->m && copy->m[at] != -(float)level) ||
                (copy->v && copy->v[at] != (float)level / 2))
                fail_msg("block %zu, element %zu is not of level %lld", b, at, (long long)level);
        }
}

static void test_one_level(void **unused)
{
    char folder[] = "/tmp/rubato-snapshot-XXXXXX";
    struct rb_snapshot *snapshot;
    struct rb_state state;
    Rb__Model *model;

    (void)unused;
    assert_non_null(mkdtemp(folder));
    model = tiny_model(folder, &job);
    assert_int_equal(rb_state_open(model, NULL, &state, NULL), 0);
    assert_true(state.blocks > 3);
    rb_state_hold_all(&state);
    state.level = 1;
    for (size_t b = 0; b < state.blocks; b++)
        set_block(&state, model->blocks[b], 1);
    snapshot = rb_snapshot_new(&state, model);
    assert_null(rb_snapshot_copy(snapshot));
    step(&state, model, snapshot); /* no copy was begun: nothing is kept */
    assert_int_equal(rb_snapshot_reserve(snapshot, NULL), 0);
    for (int i = 0; i < LEVELS; i++) {
        int64_t level = state.level;
        pthread_t thread;

        rb_snapshot_begin(snapshot);
        if (i % 4 == 0) /* all is left to the update */
            step(&state, model, snapshot);
        assert_int_equal(pthread_create(&thread, NULL, complete, snapshot), 0);
        if (i % 4 == 1) /* all is left to the thread */
            assert_int_equal(pthread_join(thread, NULL), 0);
        step(&state, model, snapshot);
        if (i % 4 != 1)
            assert_int_equal(pthread_join(thread, NULL), 0);
        check(rb_snapshot_copy(snapshot), model, level);
    }
    rb_snapshot_free(snapshot);
    rb_state_done(&state);
    rb__model__free_unpacked(model, NULL);
    rb_file_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_level)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
