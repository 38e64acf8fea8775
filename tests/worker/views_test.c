/* SPDX-License-Identifier: Apache-2.0 */
/* Sums that are read where they were made: which rank reads which sums, and until when. */
#include "tests/coll/crew.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "worker/step/attempt.h"
#include "worker/step/views.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNTOUCHED = 0x5a5a5a5a, WORD = 77 };

static const struct tiny_options job = {
    .samples = 40, .global_batch = 8, .micro_batch = 1, .steps = 1, .hidden = 5000};

/* A rank that has sums, and a group. */
struct member {
    struct rb_configuration one;
    struct rb_step step;
    struct rb_attempt attempt;
};

static const struct rb_step_result committed = {.decision = {.verdict = RB_VOTE_COMMIT}};

static uint32_t summand(uint32_t rank, size_t i)
{
    return (uint32_t)i * 2654435761u ^ (rank + 1) * 40503u;
}

static int32_t sum_at(uint32_t ranks, size_t i)
{
    uint32_t sum = 0;

    for (uint32_t r = 0; r < ranks; r++)
        sum += summand(r, i);
    return (int32_t)sum;
}

static void gather(struct crew *crew, struct rb_coll *coll, uint64_t tag)
{
    uint8_t mine = 1, all[CREW_MAX];
    struct rb_why why = {0};

    CREW_OK(crew, rb_coll_gather(coll, tag, &mine, all, 1, &why), &why);
}

static void open_member(struct crew *crew, struct member *member)
{
    const struct tiny_place *place = crew->data;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model", place->folder);
    struct rb_configuration *one = &member->one;
    struct rb_model *model;
    struct rb_why why = {0};

    *member = (struct member){
        .one = {.number = 1, .rank = (uint32_t)crew->rank, .size = (uint32_t)crew->size}};
    member->step.configuration = one;
    member->attempt = (struct rb_attempt){.step = &member->step};
    CREW_OK(crew, rb_model_load(path, "cpu", 0, &member->step.model, &why), &why);
    model = member->step.model;
    CREW_OK(crew, rb_model_use(model, false, &why), &why);
    one->plan = tiny_plan(place->model, one->size);
    CREW_OK(crew, rb_placement_make(one->plan, place->model, &one->placement, &why), &why);
    CREW_OK(crew, crew_open(crew, 1, CREW_MEET_MS, &one->coll, &why), &why);
    rb_views_begin(model, WORD, one->number);
    memset(model->fresh, 0, model->message->n_variables * sizeof *model->fresh);
    for (size_t i = 0; i < model->message->state_elements; i++) {
        model->local[i] = (int32_t)summand(one->rank, i);
        model->reduced[i] = UNTOUCHED;
    }
}

static void reduce_all(struct crew *crew, struct member *member)
{
    struct rb_why why = {0};

    for (uint32_t b = 0; b < member->step.model->message->n_buckets; b++)
        CREW_OK(crew, rb_attempt_reduce(&member->attempt, b, &why), &why);
    gather(crew, member->one.coll, 1);
}

static void close_member(struct member *member)
{
    rb_coll_close(member->one.coll);
    rb_placement_done(&member->one.placement);
    rb__plan__free_unpacked(member->one.plan, NULL);
    rb_model_free(member->step.model);
}

static void check_blocks(struct crew *crew, const struct rb_model *model)
{
    for (size_t b = 0; b < model->message->n_blocks; b++) {
        const Rb__Block *block = model->message->blocks[b];
        struct rb_sums sums = rb_views_block(model, block);

        CREW_CHECK(crew, sums.n_parts == crew->size);
        for (size_t i = 0; i < block->count; i++) {
            uint32_t sum = 0;

            for (int part = 0; part < sums.n_parts; part++)
                sum += (uint32_t)sums.parts[part][i];
            CREW_CHECK(crew, (int32_t)sum == sum_at((uint32_t)crew->size, block->first + i));
        }
    }
}

static void check_reduced(struct crew *crew, const struct rb_model *model)
{
    for (size_t b = 0; b < model->message->n_blocks; b++) {
        size_t i = model->message->blocks[b]->first;

        CREW_CHECK(crew, model->reduced[i] == sum_at((uint32_t)crew->size, i));
    }
}

/* Nothing is sent but where each rank is, nothing is written but on demand. */
static void all_read(struct crew *crew)
{
    struct member member;
    struct rb_model *model;
    struct rb_why why = {0};

    open_member(crew, &member);
    model = member.step.model;
    reduce_all(crew, &member);
    CREW_CHECK(crew, model->apart);
    CREW_CHECK(crew, rb_coll_bytes_sent(member.one.coll) < 1000);
    check_blocks(crew, model);
    CREW_CHECK(crew, model->reduced[model->message->blocks[0]->first] == UNTOUCHED);
    rb_views_reduce(model);
    check_reduced(crew, model);
    CREW_OK(crew, rb_attempt_viewed(&member.attempt, &committed, &why), &why);
    close_member(&member);
}

static void the_last_one_dies(struct crew *crew)
{
    struct member member;
    struct rb_why why = {0};

    open_member(crew, &member);
    reduce_all(crew, &member);
    if (crew->rank == crew->size - 1)
        kill(getpid(), SIGKILL);
    while (!rb_coll_lost(member.one.coll, crew->size - 1))
        usleep(1000);
    check_blocks(crew, member.step.model);
    CREW_CHECK(crew, rb_attempt_viewed(&member.attempt, &committed, &why) == RB_EPEER);
    check_blocks(crew, member.step.model);
    close_member(&member);
}

/* The last rank gives up its sums, as for another attempt without rank 0, which still reads
 * them. */
static void the_last_one_goes_on(struct crew *crew)
{
    struct member member;
    struct rb_why why = {0};

    open_member(crew, &member);
    reduce_all(crew, &member);
    if (crew->rank == crew->size - 1)
        rb_views_begin(member.step.model, WORD + 1, 1);
    gather(crew, member.one.coll, 2);
    if (crew->rank == 0)
        CREW_CHECK(crew, rb_attempt_viewed(&member.attempt, &committed, &why) == RB_EINTERNAL);
    gather(crew, member.one.coll, 4);
    close_member(&member);
}

/* No memory can be shown, or there are too many ranks: sums go through the links. */
static void nobody_reads(struct crew *crew)
{
    struct member member;
    struct rb_model *model;

    open_member(crew, &member);
    model = member.step.model;
    reduce_all(crew, &member);
    CREW_CHECK(crew, !model->apart);
    check_reduced(crew, model);
    close_member(&member);
}

static void run_crew(int size, enum crew_link link, unsigned dead, crew_body *body)
{
    struct tiny_place place;

    tiny_place_open(&job, &place);
    crew_run(size, link, dead, body, &place);
    tiny_place_close(&place);
}

static void a_few_of_a_host_read_each_others(void **state)
{
    (void)state;
    run_crew(2, CREW_SHARED, 0, all_read);
    run_crew(RB_VIEWS_RANKS, CREW_SHARED, 0, all_read);
}

static void those_of_the_dead_are_there(void **state)
{
    (void)state;
    run_crew(2, CREW_SHARED, 1u << 1, the_last_one_dies);
    run_crew(3, CREW_SHARED, 1u << 2, the_last_one_dies);
}

static void who_is_left_behind_finds_out(void **state)
{
    (void)state;
    run_crew(2, CREW_SHARED, 0, the_last_one_goes_on);
}

static void elsewhere_sums_are_sent(void **state)
{
    (void)state;
    run_crew(2, CREW_UNIX, 0, nobody_reads);
    run_crew(3, CREW_TCP, 0, nobody_reads);
    run_crew(RB_VIEWS_RANKS + 1, CREW_SHARED, 0, nobody_reads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_of_a_host_read_each_others),
        cmocka_unit_test(those_of_the_dead_are_there),
        cmocka_unit_test(who_is_left_behind_finds_out),
        cmocka_unit_test(elsewhere_sums_are_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
