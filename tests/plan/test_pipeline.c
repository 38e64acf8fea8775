/* SPDX-License-Identifier: Apache-2.0 */
/* A program taken apart into layers, and the steps of pipelines, against numbers computed by
 * hand. */
#include "base/arena.h"
#include "graph/train.h"
#include "plan/compile/lower.h"
#include "plan/partition/chain.h"
#include "plan/simulate/pipeline.h"
#include "tests/plan/near.h"
#include "tests/plan/tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Product, ReLU, product, loss; their gradients: see golden/mlp.txt.  Instruction i takes i + 1 s.
 */
static void test_chain(void **state)
{
    static const struct rb_chain_layer expected[4] = {
        {.forward = 1, .backward = 10 + 11, .elements = 56, .crossing = 64},
        {.forward = 2, .backward = 9, .elements = 0, .crossing = 64},
        {.forward = 3, .backward = 6 + 7 + 8, .elements = 27, .crossing = 24},
        {.forward = 4, .backward = 5, .elements = 0, .crossing = 0},
    };
    struct rb_cluster_device device = {.kind = "cpu", .speed = 1};
    struct rb_graph *graph = tiny_mlp(2, true);
    Rb__Model *model = rb_alloc(sizeof *model);
    struct rb_cost_profile profile = {0};
    struct rb_chain_layer *layers;
    double seconds[16];
    struct rb_why why;

    (void)state;
    rb__model__init(model);
    if (rb_lower_variables(graph, model, &why) || rb_lower_program(graph, "train b=2", model, &why))
        fail_msg("%s", why.text);
    for (int i = 0; i < 16; i++)
        seconds[i] = i + 1;
    profile.seconds = seconds;
    assert_int_equal(rb_chain_layers(model, &device, &profile, &layers), 4);
    for (int i = 0; i < 4; i++) {
        assert_near(layers[i].forward, expected[i].forward);
        assert_near(layers[i].backward, expected[i].backward);
        assert_near(layers[i].elements, expected[i].elements);
        assert_near(layers[i].crossing, expected[i].crossing);
    }
    free(layers);
    rb_graph_free(graph);
    rb__model__free_unpacked(model, NULL);
}

static struct rb_pipeline_step run(const struct rb_pipeline_how *how)
{
    struct rb_pipeline_step step;
    struct rb_why why;

    if (rb_pipeline_run(how, &step, &why))
        fail_msg("%s", why.text);
    rb_simulate_free(step.simulate);
    return step;
}

/* p equal stages, m microbatches: a step takes the time of m + p - 1 of them, and the rest is
 * waiting. */
static void test_bubble(void **state)
{
    struct rb_pipeline_stage stages[8];

    (void)state;
    for (uint32_t p = 1; p <= 8; p++) {
        for (uint32_t k = 0; k < p; k++)
            stages[k] = (struct rb_pipeline_stage){
                .forward = 1, .backward = 2, .activations = 5, .update = 0.5, .devices = 1};
        for (uint32_t m = 1; m <= 32; m += 5) {
            struct rb_pipeline_step step = run(&(struct rb_pipeline_how){stages, p, m, 0, 0});

            assert_near(step.seconds, 3.0 * (m + p - 1) + 0.5);
            assert_near(step.idle + 1, 2 - (3.0 * m + 0.5) / step.seconds);
            assert_near(step.sent, p == 1 ? 0 : (p == 2 ? 5.0 : 10.0) * m);
        }
    }
}

/* Two stages of two replicas are two pipelines, and a sum over each pair. */
static void test_replicas(void **state)
{
    struct rb_pipeline_stage stages[2];
    struct rb_pipeline_step step;

    (void)state;
    for (int k = 0; k < 2; k++)
        stages[k] =
            (struct rb_pipeline_stage){.forward = 1, .backward = 2, .weights = 6, .devices = 2};
    step = run(&(struct rb_pipeline_how){stages, 2, 8, 0, 0});
    assert_near(step.seconds, 3.0 * (4 + 1));
    step = run(&(struct rb_pipeline_how){stages, 2, 8, 12, 0});
    assert_near(step.seconds, 3.0 * (4 + 1) + 0.5);
    assert_near(step.sent, 6);
    assert_int_equal(rb_pipeline_ahead(stages, 2, 0), 2);
    assert_int_equal(rb_pipeline_ahead(stages, 2, 1), 1);
    stages[0].devices = 3; /* uneven: no replica waits for ever */
    step = run(&(struct rb_pipeline_how){stages, 2, 13, 0, 0});
    assert_true(step.seconds >= 13 * 3 / 2.0);
}

/* A link that takes longer than a stage sets the pace. */
static void test_slow_link(void **state)
{
    struct rb_pipeline_stage stages[2];
    struct rb_pipeline_step step;

    (void)state;
    for (int k = 0; k < 2; k++)
        stages[k] = (struct rb_pipeline_stage){
            .forward = 1, .backward = 1, .activations = 10, .devices = 1};
    step = run(&(struct rb_pipeline_how){stages, 2, 40, 2, 0}); /* 5 s each way */
    assert_true(step.seconds > 40 * 5 && step.seconds < 40 * 12.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_bubble),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_slow_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
