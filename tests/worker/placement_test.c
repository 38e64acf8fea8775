/* SPDX-License-Identifier: Apache-2.0 */
/* Placements: what a worker makes of a plan's shards, and what it saves by holding less. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/sanitized.h"
#include "plan/replicas.h"
#include "worker/state/placement.h"
#include "worker/state/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct tiny_options job = {
    .samples = 40, .global_batch = 8, .micro_batch = 2, .steps = 1, .hidden = 1 << 20};

static Rb__Plan *new_plan(const Rb__Model *model, uint32_t ranks, uint32_t copies)
{
    Rb__Plan *plan = tiny_plan(model, ranks);

    rb_replicas_place(&(struct rb_replicas){copies, model->n_blocks, ranks, NULL}, model, plan);
    return plan;
}

/* Every element of a bucket goes to exactly the ranks that hold its block. */
static void test_ranges(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    size_t n = (size_t)model->state_elements;
    uint8_t *counts = rb_alloc(n);

    (void)state;
    for (uint32_t copies = 1; copies <= 2; copies++) {
        Rb__Plan *plan = new_plan(model, 4, copies);
        struct rb_placement placement;
        struct rb_coll_range ranges[64];

        assert_int_equal(rb_placement_make(plan, model, &placement, NULL), 0);
        assert_true(placement.sharded && rb_placement_most(&placement) <= 64);
        memset(counts, 0, n);
        for (size_t first = 0; first < n; first += 100000) {
            size_t k = rb_placement_ranges(&placement, first,
                                           n - first < 100000 ? n - first : 100000, ranges);

            for (size_t i = 0; i < k; i++)
                for (size_t e = 0; e < ranges[i].count; e++)
                    counts[ranges[i].first + e] |= (uint8_t)(1 << ranges[i].rank);
        }
        for (size_t b = 0; b < model->n_blocks; b++)
            for (uint32_t r = 0; r < 4; r++)
                for (size_t e = 0; e < model->blocks[b]->count; e += 1000)
                    assert_int_equal(counts[model->blocks[b]->first + e] >> r & 1,
                                     rb_placement_holds(&placement, r, b));
        rb_placement_done(&placement);
        rb__plan__free_unpacked(plan, NULL);
    }
    free(counts);
    rb__model__free_unpacked(model, NULL);
}

static void refused(const Rb__Model *model, Rb__Plan *plan, const char *text)
{
    struct rb_placement placement;
    struct rb_why why = {0};

    assert_int_equal(rb_placement_make(plan, model, &placement, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, text));
}

static void test_refused(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    Rb__Plan *plan = new_plan(model, 3, 2);
    Rb__Shard *shard = plan->shards[1];

    (void)state;
    shard->ranks[1] = 3;
    refused(model, plan, "rank 3 of 3");
    shard->ranks[1] = shard->ranks[0];
    refused(model, plan, "twice");
    shard->ranks[1] = 2;
    shard->n_blocks++;
    refused(model, plan, "out of place");
    shard->n_blocks = UINT32_MAX;
    refused(model, plan, "out of place");
    shard->n_blocks = 0;
    refused(model, plan, "out of place");
    rb__shard__free_unpacked(plan->shards[2], NULL);
    plan->n_shards = 1;
    refused(model, plan, "no shard has block");
    plan->n_shards = 2;
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long whole, pages;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &whole, &pages), 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void fill(struct rb_state *state, const Rb__Model *model)
{
    for (size_t b = 0; b < state->blocks; b++)
        for (int part = RB_STATE_M; state->held[b] && part < RB_STATE_PARTS; part++)
            for (size_t e = 0; e < model->blocks[b]->count; e++)
                rb_state_part(state, part)[model->blocks[b]->first + e] = 1;
}

static bool about(size_t is, size_t should)
{
    return is + (8 << 20) > should && is < should + (8 << 20);
}

/* A rank that holds a part has about that part of the moments in memory, and gets the memory back
 * when it holds less. */
static void test_memory(void **unused)
{
    if (RB_SANITIZED)
        skip(); /* the sanitizer's shadow of this memory would be counted too */

    Rb__Model *model = tiny_model("/tmp", &job);
    size_t whole = 2 * (size_t)model->state_elements * sizeof(float), before;
    struct rb_placement placement;
    struct rb_device *device;
    struct rb_state state;
    Rb__Plan *plan = new_plan(model, 4, 2);

    (void)unused;
    assert_int_equal(rb_device_open("cpu", 0, &device, NULL), 0);
    assert_int_equal(rb_placement_make(plan, model, &placement, NULL), 0);
    before = resident();
    assert_int_equal(rb_state_open(model, device, &state, NULL), 0);
    assert_true(about(resident() - before, 0));
    rb_state_hold(&state, model, placement.holds);
    assert_false(rb_state_whole(&state));
    fill(&state, model);
    assert_true(about(resident() - before, whole / 2));
    rb_state_hold_all(&state);
    assert_true(rb_state_whole(&state));
    fill(&state, model);
    assert_true(about(resident() - before, whole));
    rb_state_hold(&state, model, placement.holds);
    assert_true(about(resident() - before, whole / 2));
    for (size_t b = 0; b < model->n_blocks; b++)
        assert_int_equal(state.m[model->blocks[b]->first], placement.holds[b]);
    rb_state_done(&state);
    rb_device_close(device);
    rb_placement_done(&placement);
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
