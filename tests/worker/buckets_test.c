/* SPDX-License-Identifier: Apache-2.0 */
/* What is summed up with which bucket.  Where all ranks hold all blocks, each bucket is summed by
 * itself, while the next is being made; but where a few ranks read each other's sums (views_test.c)
 * none is.  Where ranks or stages hold parts, all buckets go with the first one: bucket by bucket
 * all ranks would send to one rank, which sends nothing. */
#include "tests/coll/crew.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "plan/replicas.h"
#include "plan/schedule_pipeline.h"
#include "worker/step/attempt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNTOUCHED = 0x5a5a5a5a };

struct kind {
    uint32_t stages, copies; /* 0: none; copies of each block */
    int ranks;
};

static const struct tiny_options job = {
    .samples = 40, .global_batch = 8, .micro_batch = 1, .steps = 1, .hidden = 5000};

struct run {
    struct kind kind;
    struct tiny_place place;
};

static Rb__Plan *new_plan(const struct run *run)
{
    const uint32_t ranks = (uint32_t)run->kind.ranks;
    const struct rb_replicas where = {run->kind.copies, run->place.model->n_blocks, ranks, NULL};
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;

    if (!run->kind.stages)
        plan = tiny_plan(run->place.model, ranks);
    else if (rb_pipeline_plan(run->place.model, ranks, run->kind.stages, &plan, &why))
        abort();
    rb_replicas_place(&where, run->place.model, plan);
    return plan;
}

/* ---- A rank ----------------------------------------------------------------------------------*/

static uint32_t summand(uint32_t rank, size_t i)
{
    return (uint32_t)i * 2654435761u ^ (rank + 1) * 40503u;
}

static bool makes(const struct rb_configuration *one, uint32_t rank, size_t block)
{
    return !one->stage || one->stage->senders[block * one->size + rank];
}

/* The block of element i; n_blocks: the element is between two blocks. */
static size_t block_of(const Rb__Model *message, size_t i)
{
    size_t b = 0;

    while (b < message->n_blocks && (i < message->blocks[b]->first ||
                                     i >= message->blocks[b]->first + message->blocks[b]->count))
        b++;
    return b;
}

static void fill(struct rb_model *model, const struct rb_configuration *one)
{
    const Rb__Model *message = model->message;

    memset(model->local, 0, message->state_elements * sizeof *model->local);
    memset(model->fresh, 0, message->n_variables * sizeof *model->fresh);
    for (size_t i = 0; i < message->state_elements; i++) {
        const size_t block = block_of(message, i);

        model->reduced[i] = UNTOUCHED;
        if (block < message->n_blocks && makes(one, one->rank, block))
            model->local[i] = (int32_t)summand(one->rank, i);
    }
}

/* Is element i, which this rank is to hold, the sum?  Else it has not been touched. */
static bool is_summed(struct crew *crew, const struct rb_model *model,
                      const struct rb_configuration *one, size_t i, size_t block)
{
    uint32_t sum = 0;

    for (uint32_t r = 0; r < one->size; r++)
        sum += makes(one, r, block) ? summand(r, i) : 0;
    CREW_CHECK(crew, model->reduced[i] == (int32_t)sum || model->reduced[i] == UNTOUCHED);
    return model->reduced[i] == (int32_t)sum;
}

/* Is all of the bucket summed up?  Else nothing of it is. */
static bool is_there(struct crew *crew, const struct rb_model *model,
                     const struct rb_configuration *one, const Rb__Bucket *bucket)
{
    size_t summed = 0, all = 0;

    for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const size_t block = block_of(model->message, i);

        if (block == model->message->n_blocks ||
            !rb_placement_holds(&one->placement, one->rank, block))
            continue;
        summed += is_summed(crew, model, one, i, block);
        all++;
    }
    CREW_CHECK(crew, summed == 0 || summed == all);
    return summed == all;
}

/* No rank leaves before all are done. */
static void wait_for_all(struct crew *crew, struct rb_coll *coll)
{
    uint8_t mine = 1, all[CREW_MAX];
    struct rb_why why = {0};

    CREW_OK(crew, rb_coll_gather(coll, 1, &mine, all, 1, &why), &why);
}

/* Reduce bucket after bucket, and check what has been sent and summed up after each. */
static void reduce_all(struct crew *crew, struct rb_attempt *attempt, bool at_once)
{
    const struct rb_configuration *one = attempt->step->configuration;
    const struct rb_model *model = attempt->step->model;
    const Rb__Model *message = model->message;
    uint64_t before = rb_coll_bytes_sent(one->coll), sent;
    struct rb_why why = {0};

    for (uint32_t b = 0; b < message->n_buckets; b++) {
        CREW_OK(crew, rb_attempt_reduce(attempt, b, &why), &why);
        sent = rb_coll_bytes_sent(one->coll) - before;
        before += sent;
        if (at_once)
            CREW_CHECK(crew, b == 0 || sent == 0);
        else
            CREW_CHECK(crew, sent > 0);
        for (uint32_t other = 0; other < message->n_buckets; other++)
            CREW_CHECK(crew, is_there(crew, model, one, message->buckets[other]) ==
                                 (at_once || other <= b));
    }
}

static void body(struct crew *crew)
{
    const struct run *run = crew->data;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model", run->place.folder);
    struct rb_configuration one = {.rank = (uint32_t)crew->rank, .size = (uint32_t)crew->size};
    struct rb_step step = {.configuration = &one};
    struct rb_attempt attempt = {.step = &step};
    struct rb_why why = {0};

    CREW_OK(crew, rb_model_load(path, "cpu", 0, &step.model, &why), &why);
    CREW_OK(crew, rb_model_use(step.model, false, &why), &why);
    CREW_CHECK(crew, step.model->message->n_buckets == 2);
    one.plan = new_plan(run);
    CREW_OK(crew, rb_placement_make(one.plan, run->place.model, &one.placement, &why), &why);
    if (run->kind.stages)
        CREW_OK(crew, rb_stage_read(one.plan, run->place.model, one.rank, &one.stage, &why), &why);
    CREW_OK(crew, crew_open(crew, 1, CREW_MEET_MS, &one.coll, &why), &why);
    fill(step.model, &one);
    reduce_all(crew, &attempt, run->kind.stages || run->kind.copies);
    wait_for_all(crew, one.coll);
    rb_coll_close(one.coll);
    rb_stage_free(one.stage);
    rb_placement_done(&one.placement);
    rb__plan__free_unpacked(one.plan, NULL);
    rb_model_free(step.model);
}

/* ---- Kinds of configurations -----------------------------------------------------------------*/

static void run_kinds(const struct kind *kinds, size_t n)
{
    struct run run;

    tiny_place_open(&job, &run.place);
    for (size_t i = 0; i < n; i++) {
        run.kind = kinds[i];
        crew_run(run.kind.ranks, (enum crew_link)(i % CREW_LINKS), 0, body, &run);
    }
    tiny_place_close(&run.place);
}

static void one_by_one_where_all_hold_all(void **state)
{
    static const struct kind kinds[] = {{0, 0, 4}, {0, 0, 5}};

    (void)state;
    run_kinds(kinds, RB_COUNT(kinds));
}

static void at_once_where_there_are_shards(void **state)
{
    static const struct kind kinds[] = {{0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {0, 2, 5}};

    (void)state;
    run_kinds(kinds, RB_COUNT(kinds));
}

static void at_once_where_there_are_stages(void **state)
{
    static const struct kind kinds[] = {{2, 0, 2}, {2, 0, 3}, {2, 1, 3}, {2, 2, 5}};

    (void)state;
    run_kinds(kinds, RB_COUNT(kinds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_by_one_where_all_hold_all),
        cmocka_unit_test(at_once_where_there_are_shards),
        cmocka_unit_test(at_once_where_there_are_stages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
