/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in stages: every instruction runs somewhere, everything that is read is there by then,
 * and stages do not wait for each other in a circle. */
#include "base/arena.h"
#include "plan/compile/lower.h"
#include "plan/compile/makers.h"
#include "plan/partition/course.h"
#include "plan/replicas.h"
#include "plan/schedule_pipeline.h"
#include "tests/plan/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4 };

static Rb__Model *new_model(struct rb_graph *graph)
{
    Rb__Model *model = rb_alloc(sizeof *model);
    struct rb_why why = {0};

    rb__model__init(model);
    model->global_batch = 14;
    model->micro_batch = 2;
    if (rb_lower_variables(graph, model, &why) || rb_lower_program(graph, "train", model, &why))
        fail_msg("%s", why.text);
    rb_graph_free(graph);
    return model;
}

static bool arrives(const Rb__Course *course, const Rb__Program *program, int maker, uint64_t at,
                    uint32_t to, uint32_t by)
{
    for (size_t c = 0; c < course->n_crossings; c++) {
        const Rb__Crossing *one = course->crossings[c];

        if ((int)one->made == maker && one->to == to && one->read <= by &&
            program->tensors[one->tensor]->offset == at)
            return true;
    }
    return false;
}

/* What each stage reads for an instruction is made there, or has arrived by then. */
static void check_reads(const Rb__Program *program, const Rb__Course *course)
{
    RB_CLEANUP(rb_freep) int *makers = rb_makers_find(program);

    for (uint32_t i = 0; i < program->n_instructions; i++)
        for (size_t k = 0; k < program->instructions[i]->n_inputs; k++) {
            int32_t tensor = program->instructions[i]->inputs[k];
            int maker = tensor < 0 ? -1 : rb_makers_of(program, makers, tensor, (int)i);

            for (uint32_t s = 0; maker >= 0 && s < MOST; s++)
                if (course->stages[i] >> s & 1 && !(course->stages[maker] >> s & 1))
                    assert_true(
                        arrives(course, program, maker, program->tensors[tensor]->offset, s, i));
        }
}

static void check_crossings(const Rb__Program *program, const Rb__Course *course)
{
    for (size_t c = 0; c < course->n_crossings; c++) {
        const Rb__Crossing *one = course->crossings[c];

        assert_int_equal(course->stages[one->made], UINT64_C(1) << one->from);
        assert_true(one->read > one->made && one->read <= program->n_instructions);
        if (one->from < one->to)
            assert_true(one->made < course->forward);
        else
            assert_true(one->read >= course->forward);
    }
}

/* The gradient of a weight is made in a stage where a layer reads the weight, or in front of it:
 * where the activations are that the gradient is made of. */
static void check_gradients(const Rb__Model *model, const Rb__Program *program,
                            const Rb__Course *course)
{
    for (size_t c = 0; c < program->n_contributions; c++) {
        const Rb__Contribution *one = program->contributions[c];
        uint64_t reads = 0;

        for (uint32_t i = 0; i < course->forward; i++)
            for (size_t k = 0; k < program->instructions[i]->n_inputs; k++) {
                int32_t t = program->instructions[i]->inputs[k];

                if (t >= 0 && program->tensors[t]->space == RB__TENSOR__SPACE__VARIABLE &&
                    program->tensors[t]->offset == one->variable)
                    reads |= course->stages[i];
            }
        if (model->variables[one->variable]->role == RB__VARIABLE__ROLE__TRAINED)
            assert_true(course->stages[one->after - 1] <= reads);
    }
}

static void check_model(struct rb_graph *graph)
{
    Rb__Model *model = new_model(graph);
    const Rb__Program *program = model->programs[0];

    for (uint32_t stages = 1; stages <= MOST; stages++) {
        uint32_t cuts[MOST];
        uint64_t used = 0;
        Rb__Course *course = NULL;
        struct rb_why why = {0};

        if (rb_pipeline_cut(model, stages, stages, cuts, &why) ||
            rb_course_make(model, 0, cuts, stages, &course, &why))
            fail_msg("%s", why.text);
        assert_int_equal(course->n_stages, program->n_instructions);
        for (uint32_t i = 0; i < program->n_instructions; i++) {
            assert_true(course->stages[i] && !(course->stages[i] >> stages));
            used |= course->stages[i];
        }
        assert_int_equal(used, (UINT64_C(1) << stages) - 1);
        assert_true(stages > 1 || !course->n_crossings);
        check_reads(program, course);
        check_crossings(program, course);
        check_gradients(model, program, course);
        rb__course__free_unpacked(course, NULL);
    }
    rb__model__free_unpacked(model, NULL);
}

static void test_models(void **state)
{
    (void)state;
    check_model(tiny_mlp(2, true));
    check_model(tiny_cnn(2, true));
    check_model(tiny_gpt(2, true));
    check_model(tiny_residual(2, true));
}

/* The head of a tied embedding goes back where the head is, not where the embedding is. */
static void test_tied(void **state)
{
    Rb__Model *model = new_model(tiny_gpt(2, true));
    const Rb__Program *program = model->programs[0];
    uint32_t cuts[2];
    uint64_t gradients[2] = {0};
    Rb__Course *course = NULL;

    (void)state;
    assert_int_equal(rb_pipeline_cut(model, 2, 2, cuts, NULL), 0);
    assert_int_equal(rb_course_make(model, 0, cuts, 2, &course, NULL), 0);
    for (size_t c = 0; c < program->n_contributions; c++)
        for (size_t v = 0; v < model->n_variables; v++)
            if (model->variables[v]->uses > 1 && program->contributions[c]->variable == v)
                gradients[course->stages[program->contributions[c]->after - 1] == 2]++;
    assert_int_equal(gradients[0], 1);
    assert_int_equal(gradients[1], 1);
    rb__course__free_unpacked(course, NULL);
    rb__model__free_unpacked(model, NULL);
}

/* The first holder of a block is in a stage that makes its gradient, and all blocks have a
 * place. */
static void test_state(void **state)
{
    Rb__Model *model = new_model(tiny_residual(2, true));

    (void)state;
    for (uint32_t ranks = 3; ranks <= 5; ranks++)
        for (uint32_t copies = 1; copies <= 2; copies++) {
            struct rb_replicas how = {copies, model->n_blocks, ranks, NULL};
            Rb__Plan *plan = NULL;
            uint64_t next = 0, gives[64] = {0};

            assert_in_range(model->n_blocks, ranks, 64);
            assert_int_equal(rb_pipeline_plan(model, ranks, 2, &plan, NULL), 0);
            for (size_t c = 0; c < model->programs[0]->n_contributions; c++) {
                const Rb__Contribution *one = model->programs[0]->contributions[c];

                gives[one->variable] |= plan->courses[0]->stages[one->after - 1];
            }
            rb_replicas_place(&how, model, plan);
            for (size_t i = 0; i < plan->n_shards; i++) {
                const Rb__Shard *shard = plan->shards[i];

                assert_int_equal(shard->first_block, next);
                assert_int_equal(shard->n_ranks, copies);
                for (; next < shard->first_block + shard->n_blocks; next++)
                    assert_true(gives[model->blocks[next]->variable] >>
                                    plan->ranks[shard->ranks[0]]->stage &
                                1);
            }
            assert_int_equal(next, model->n_blocks);
            rb__plan__free_unpacked(plan, NULL);
        }
    rb__model__free_unpacked(model, NULL);
}

static void test_refused(void **state)
{
    Rb__Model *model = new_model(tiny_mlp(2, true));
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;

    (void)state;
    assert_int_equal(rb_pipeline_plan(model, 60, 60, &plan, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "60 stages"));
    assert_int_equal(rb_pipeline_plan(model, 1, 2, &plan, &why), RB_EUNSUPPORTED);
    assert_null(plan);
    rb__model__free_unpacked(model, NULL);
}

/* Only two buffers allow several microbatches: the other schedules count versions by step. */
static void test_laps(void **state)
{
    static const struct {
        int kind;
        uint32_t lap;
        int64_t micro_batch;
        bool fits;
    } cases[] = {
        {RB__ASYNCHRONOUS__KIND__SPECTRAIN, 32, 14, true},
        {RB__ASYNCHRONOUS__KIND__SPECTRAIN, 32, 2, false},
        {RB__ASYNCHRONOUS__KIND__STASHING, 32, 2, false},
        {RB__ASYNCHRONOUS__KIND__TWO_BUFFERS, 32, 2, true},
        {RB__ASYNCHRONOUS__KIND__SPECTRAIN, 0, 14, false},
        {RB__ASYNCHRONOUS__KIND__SPECTRAIN, 1 << 30, 14, false},
        {RB__ASYNCHRONOUS__KIND__TWO_BUFFERS, 1 << 30, 2, false},
    };
    Rb__Model *model = new_model(tiny_mlp(2, true));
    Rb__Asynchronous how = RB__ASYNCHRONOUS__INIT;

    (void)state;
    model->asynchronous = &how;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        Rb__Plan *plan = NULL;

        how.kind = cases[i].kind;
        how.lap = cases[i].lap;
        model->micro_batch = cases[i].micro_batch;
        assert_int_equal(rb_pipeline_plan(model, 2, 2, &plan, NULL), cases[i].fits ? 0 : RB_EINVAL);
        assert_int_equal(plan != NULL, cases[i].fits);
        if (plan)
            rb__plan__free_unpacked(plan, NULL);
    }
    model->asynchronous = NULL;
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),  cmocka_unit_test(test_tied), cmocka_unit_test(test_state),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_laps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
