/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank holds which block: balanced, apart, and known without the model. */
#include "base/arena.h"
#include "base/buffer.h"
#include "plan/compile/footprint.h"
#include "plan/replicas.h"
#include "plan/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 12, BLOCK = 1000 };

/* A model of blocks alone. */
static Rb__Model *new_model(size_t blocks, uint64_t seed)
{
    Rb__Model *model = rb_alloc(sizeof *model);
    uint64_t next = 0;

    rb__model__init(model);
    model->global_batch = 8;
    model->micro_batch = 1;
    model->blocks = rb_alloc(blocks * sizeof *model->blocks);
    for (size_t i = 0; i < blocks; i++) {
        Rb__Block *block = model->blocks[model->n_blocks++] = rb_alloc(sizeof *block);

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        rb__block__init(block);
        block->first = next;
        block->count = 1 + (seed >> 33) % BLOCK;
        next += block->count;
    }
    model->state_elements = next;
    return model;
}

static Rb__Plan *new_plan(const Rb__Model *model, const struct rb_replicas *how)
{
    Rb__Plan *plan;
    struct rb_why why;

    if (rb_schedule_data(model, how->ranks, &plan, &why))
        fail_msg("%s", why.text);
    rb_replicas_place(how, model, plan);
    return plan;
}

static void check_cover(const Rb__Plan *plan, const Rb__Model *model, const struct rb_replicas *how)
{
    uint64_t held[MOST] = {0}, total = model->state_elements;
    size_t next = 0;

    assert_int_equal(plan->n_shards, rb_replicas_runs(how));
    for (size_t i = 0; i < plan->n_shards; i++) {
        const Rb__Shard *shard = plan->shards[i];

        assert_int_equal(shard->first_block, next);
        assert_true(shard->n_blocks > 0);
        assert_int_equal(shard->n_ranks, how->copies);
        assert_int_equal(shard->ranks[0], i);
        for (size_t b = 0; b < shard->n_blocks; b++, next++)
            held[i] += model->blocks[next]->count;
        if (how->copies == 2)
            assert_int_not_equal(shard->ranks[0], shard->ranks[1]);
    }
    assert_int_equal(next, model->n_blocks);
    for (uint32_t r = 0; model->n_blocks > 20 * how->ranks && r < how->ranks; r++)
        assert_in_range(held[r], total / how->ranks - 2 * BLOCK, total / how->ranks + 2 * BLOCK);
    for (size_t r = 0; r < plan->n_ranks; r++)
        assert_int_equal(plan->ranks[r]->orders[plan->ranks[r]->n_orders - 1]->kind,
                         RB__ORDER__KIND__GATHER);
}

static void test_balance(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 5, 11, 300};

    (void)state;
    for (size_t s = 0; s < RB_COUNT(sizes); s++)
        for (uint32_t ranks = 1; ranks <= MOST; ranks++)
            for (uint32_t copies = 1; copies <= 2; copies++) {
                struct rb_replicas how = {copies, sizes[s], ranks, NULL};
                Rb__Model *model = new_model(sizes[s], s + ranks);
                Rb__Plan *plan = new_plan(model, &how);

                assert_int_equal(rb_replicas_sharded(&how), ranks > copies);
                if (rb_replicas_sharded(&how))
                    check_cover(plan, model, &how);
                else
                    assert_int_equal(plan->n_shards, 0);
                rb__plan__free_unpacked(plan, NULL);
                rb__model__free_unpacked(model, NULL);
            }
}

/* The second copy is on another node where there is one, and no rank has all second copies without
 * need. */
static void test_apart(void **state)
{
    static const struct {
        uint32_t ranks, nodes[8], most;
    } cases[] = {
        {4, {0, 0, 1, 1}, 1},       {4, {0, 1, 0, 1}, 1},
        {3, {0, 0, 1}, 2},          {5, {0, 0, 0, 0, 0}, 1},
        {6, {0, 0, 2, 2, 4, 4}, 1}, {4, {0, 0, 0, 1}, 3},
        {3, {0, 1, 2}, 1},          {8, {0, 0, 0, 0, 1, 1, 1, 1}, 1},
    };

    (void)state;
    for (size_t c = 0; c < RB_COUNT(cases); c++) {
        struct rb_replicas how = {2, 100, cases[c].ranks, cases[c].nodes};
        uint32_t seconds[8], loads[8] = {0};
        bool several = false;

        for (uint32_t r = 0; r < how.ranks; r++)
            several |= how.nodes[r] != how.nodes[0];
        rb_replicas_seconds(&how, seconds);
        for (uint32_t i = 0; i < how.ranks; i++) {
            assert_int_not_equal(seconds[i], i);
            if (several)
                assert_int_not_equal(how.nodes[seconds[i]], how.nodes[i]);
            assert_true(++loads[seconds[i]] <= cases[c].most);
        }
    }
}

/* With two copies no single death loses anything, nor does the death of a node where there are
 * several; with one copy each death does. */
static void test_losses(void **state)
{
    static const uint32_t nodes[] = {0, 0, 1, 1, 2};

    (void)state;
    for (uint32_t copies = 0; copies <= 2; copies++) {
        struct rb_replicas how = {copies, 100, 5, nodes};
        bool here[5] = {false};

        assert_false(rb_replicas_whole(&how, here));
        memset(here, 1, sizeof here);
        assert_true(rb_replicas_whole(&how, here));
        for (uint32_t r = 0; r < 5; r++) {
            here[r] = false;
            assert_int_equal(rb_replicas_whole(&how, here), copies != 1);
            here[r] = true;
        }
        for (uint32_t n = 0; n < 3; n++) {
            for (uint32_t r = 0; r < 5; r++)
                here[r] = nodes[r] != n;
            assert_int_equal(rb_replicas_whole(&how, here), copies != 1);
        }
        memset(here, 0, sizeof here);
        here[3] = true;
        assert_int_equal(rb_replicas_whole(&how, here), copies == 0);
    }
}

static void test_few_blocks(void **state)
{
    struct rb_replicas how = {1, 2, 3, NULL};
    bool here[] = {true, true, false};

    (void)state;
    assert_true(rb_replicas_whole(&how, here)); /* rank 2 holds nothing */
    here[0] = false;
    assert_false(rb_replicas_whole(&how, here));
}

static void test_text(void **state)
{
    struct rb_replicas how = {2, 30, 3, NULL};
    Rb__Model *model = new_model(30, 1);
    Rb__Plan *plan = new_plan(model, &how);
    struct rb_buffer text = {0};

    (void)state;
    assert_string_equal(plan->summary,
                        "data parallel x3, 8 microbatches: 3 3 2, 2 replicas of each block");
    rb_plan_print(plan, &text);
    assert_non_null(strstr(text.data, "blocks 0 +"));
    assert_non_null(strstr(text.data, "vote, update, gather\n"));
    rb_buffer_done(&text);
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

/* AdamW: weights and local sums everywhere, moments and reduced sums as far as they are held. */
static void test_footprint(void **state)
{
    Rb__Optimizer optimizer = RB__OPTIMIZER__INIT;
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__MemorySpec memory = RB__MEMORY_SPEC__INIT;
    Rb__StateSpec held = RB__STATE_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    Rb__Model *model = new_model(10, 1);
    struct rb_why why = {0};
    uint32_t replicas = 7;

    (void)state;
    optimizer.kind = RB__OPTIMIZER__KIND__ADAMW;
    model->optimizer = &optimizer;
    model->state_elements = 1000;
    devices.max = 6;
    spec.devices = &devices;
    spec.memory = &memory;
    spec.state = &held;
    assert_int_equal(rb_footprint_bytes(model, 0, 6), 20000);
    assert_int_equal(rb_footprint_bytes(model, 2, 6), 8000 + 4000);
    assert_int_equal(rb_footprint_bytes(model, 1, 6), 8000 + 2000);
    assert_int_equal(rb_footprint_bytes(model, 2, 2), 20000);
    devices.min = 5;
    assert_int_equal(rb_footprint_fits(&spec, model, false, 8000 + 4799), RB_FOOTPRINT_FITS_SOME);
    assert_int_equal(rb_footprint_fits(&spec, model, false, 8000 + 4800), RB_FOOTPRINT_FITS);
    assert_int_equal(rb_footprint_fits(&spec, model, false, 8000 + 3999), RB_FOOTPRINT_MISFITS);

    assert_int_equal(rb_footprint_replicas(&spec, model, 0, &replicas, &why), 0);
    assert_int_equal(replicas, 0);
    assert_int_equal(rb_footprint_replicas(&spec, model, 19999, &replicas, &why), 0);
    assert_int_equal(replicas, 2);
    memory.limit = (char *)"20k";
    assert_int_equal(rb_footprint_replicas(&spec, model, 1, &replicas, &why), 0);
    assert_int_equal(replicas, 0);
    memory.limit = (char *)"13k";
    assert_int_equal(rb_footprint_replicas(&spec, model, 0, &replicas, &why), 0);
    assert_int_equal(replicas, 2);
    memory.limit = (char *)"11k";
    assert_int_equal(rb_footprint_replicas(&spec, model, 0, &replicas, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "too little"));
    held.replicas = (char *)"1";
    assert_int_equal(rb_footprint_replicas(&spec, model, 0, &replicas, &why), 0);
    assert_int_equal(replicas, 1);
    held.replicas = (char *)"all";
    assert_int_equal(rb_footprint_replicas(&spec, model, 0, &replicas, &why), RB_EINVAL);
    model->optimizer = NULL;
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balance), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_losses),  cmocka_unit_test(test_few_blocks),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_footprint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
