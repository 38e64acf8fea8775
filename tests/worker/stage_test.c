/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of pipelines, as workers take them: plans of the planner, at any size, but no plan that
 * would leave something out or wait for ever. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "plan/schedule_pipeline.h"
#include "worker/stages/stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny_options job = {
    .samples = 40, .global_batch = 22, .micro_batch = 4, .steps = 1, .hidden = 64};

static Rb__Plan *new_plan(const Rb__Model *model, uint32_t ranks, uint32_t stages)
{
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;

    if (rb_pipeline_plan(model, ranks, stages, &plan, &why))
        fail_msg("%s", why.text);
    return plan;
}

static int take(const Rb__Plan *plan, const Rb__Model *model, uint32_t rank)
{
    struct rb_stage *stage = NULL;
    struct rb_why why = {0};
    int err = rb_stage_read(plan, model, rank, &stage, &why);

    assert_int_equal(!err, stage != NULL);
    assert_int_equal(!err, !why.text[0]);
    rb_stage_free(stage);
    return err;
}

/* 1F1B never locks up, and what one rank sends is what the other waits for. */
static void test_any_size(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 22; micro += 3) {
        struct tiny_options options = job;
        Rb__Model *model;

        options.micro_batch = micro;
        model = tiny_model("/tmp", &options);
        for (uint32_t ranks = 2; ranks <= 9; ranks++)
            for (uint32_t stages = 2; stages <= 5 && stages <= ranks; stages++) {
                Rb__Plan *plan = new_plan(model, ranks, stages);
                struct rb_stage *seen[9] = {NULL};

                for (uint32_t r = 0; r < ranks; r++)
                    assert_int_equal(rb_stage_read(plan, model, r, &seen[r], NULL), 0);
                for (uint32_t r = 0; r < ranks; r++)
                    for (uint32_t s = 0; s < ranks; s++)
                        for (size_t p = 0; p < seen[r]->n_parts; p++)
                            if (seen[r]->parts[p].message)
                                assert_int_equal(seen[r]->parts[p].out_bytes[seen[s]->mine],
                                                 seen[s]->parts[p].in_bytes[seen[r]->mine]);
                for (uint32_t r = 0; r < ranks; r++)
                    rb_stage_free(seen[r]);
                rb__plan__free_unpacked(plan, NULL);
            }
        rb__model__free_unpacked(model, NULL);
    }
}

/* The first order of a kind. */
static Rb__Order *find(const Rb__Plan *plan, uint32_t rank, Rb__Order__Kind kind)
{
    for (size_t i = 0; i < plan->ranks[rank]->n_orders; i++)
        if (plan->ranks[rank]->orders[i]->kind == kind)
            return plan->ranks[rank]->orders[i];
    fail();
    return NULL;
}

/* `ahead` forward passes, as many backward passes, and so on. */
static void order_all(Rb__RankPlan *rank, uint32_t ahead)
{
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t block = i / (2 * ahead), at = i % (2 * ahead);

        rank->orders[i]->kind = at < ahead ? RB__ORDER__KIND__FORWARD : RB__ORDER__KIND__BACKWARD;
        rank->orders[i]->argument = block * ahead + at % ahead;
    }
}

static void break_plan(Rb__Plan *plan, int how)
{
    Rb__Course *course = plan->courses[0];
    Rb__Crossing *crossing = course->crossings[0];

    switch (how) {
    case 0:
        find(plan, 0, RB__ORDER__KIND__FORWARD)->argument = 99;
        break;
    case 1: /* a microbatch comes back before it goes */
        find(plan, 1, RB__ORDER__KIND__FORWARD)->kind = RB__ORDER__KIND__BACKWARD;
        break;
    case 2:
        plan->ranks[1]->stage = 2;
        break;
    case 3: /* a stage without a rank */
        plan->ranks[1]->stage = 0;
        break;
    case 4: /* stage 0 waits for a backward pass before it sends what the last stage needs */
        order_all(plan->ranks[0], 1);
        order_all(plan->ranks[1], 2);
        break;
    case 5:
        course->program = 99;
        break;
    case 6:
        course->n_stages--;
        break;
    case 7:
        crossing->tensor = 1 << 20;
        break;
    case 8:
        crossing->read = crossing->made;
        break;
    case 9: /* from a stage that does not make it */
        crossing->from = crossing->to;
        break;
    case 10: {
        uint32_t from = crossing->from;

        crossing->from = crossing->to;
        crossing->to = from;
        break;
    }
    case 11:
        plan->n_courses = 0;
        break;
    case 12:
        plan->stages = 65;
        break;
    default: /* as it is */
        break;
    }
}

static void test_broken(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);

    (void)state;
    for (int how = 0; how <= 13; how++) {
        Rb__Plan *plan = new_plan(model, 2, 2);
        size_t courses = plan->n_courses, stages = plan->courses[0]->n_stages;

        break_plan(plan, how);
        if ((take(plan, model, 0) == 0) != (how == 13))
            fail_msg("plan %d", how);
        plan->n_courses = courses;
        plan->courses[0]->n_stages = stages;
        rb__plan__free_unpacked(plan, NULL);
    }
    rb__model__free_unpacked(model, NULL);
}

/* Laps need stages, and a part of the filters is no stage. */
static void test_split_laps(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    Rb__Asynchronous how = RB__ASYNCHRONOUS__INIT;
    Rb__Plan *plan = new_plan(model, 2, 2);
    struct rb_stage *stage = NULL;
    struct rb_why why = {0};

    (void)state;
    how.lap = 1;
    model->asynchronous = &how;
    plan->has_split = plan->split = 1;
    assert_int_equal(rb_stage_read(plan, model, 0, &stage, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "by themselves"));
    assert_null(stage);
    model->asynchronous = NULL;
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

/* Without stages there is nothing to read. */
static void test_none(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    Rb__Plan *plan = tiny_plan(model, 2);
    struct rb_stage *stage = NULL;

    (void)state;
    assert_int_equal(rb_stage_read(plan, model, 0, &stage, NULL), 0);
    assert_null(stage);
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_size),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_split_laps),
        cmocka_unit_test(test_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
