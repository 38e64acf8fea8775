/* SPDX-License-Identifier: Apache-2.0 */
/* The updates between a pass and what it aims at, counted in stages that run: those that the
 * planner counts from the schedule, to the last one. */
#include "plan/partition/versions.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "plan/schedule_pipeline.h"
#include "tests/worker/crew.h"
#include "tests/worker/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAP = 64, STAGES = 4 };

/* What a stage did, in its order: passes, and at which version of its weights. */
struct trace {
    struct {
        bool back;
        uint32_t step, version, ahead;
        double start, end; /* by a clock that all stages share */
    } passes[2 * LAP];
    uint32_t n;
};

static void note(struct crew_rank *rank, const struct rb_lap_pass *pass)
{
    struct trace *trace = rank->own;

    if (rank->model->state.level > 0)
        return; /* the first lap is enough */
    trace->passes[trace->n].back = pass->back;
    trace->passes[trace->n].step = pass->step;
    trace->passes[trace->n].version = pass->version;
    trace->passes[trace->n++].ahead = pass->ahead;
}

/* When the pass of a step ended in a stage; -1: it has no time yet. */
static double end_of(const struct trace *trace, bool back, uint32_t step)
{
    for (uint32_t i = 0; i < trace->n; i++)
        if (trace->passes[i].back == back && trace->passes[i].step == step)
            return trace->passes[i].end;
    return -1;
}

/* Give all passes the times that they would have if each took so long. */
static void set_times(struct trace *traces, uint32_t stages, double forward, double backward)
{
    bool moved = true;

    for (uint32_t k = 0; k < stages; k++)
        for (uint32_t i = 0; i < traces[k].n; i++)
            traces[k].passes[i].end = -1;
    while (moved) {
        moved = false;
        for (uint32_t k = 0; k < stages; k++)
            for (uint32_t i = 0; i < traces[k].n; i++) {
                bool back = traces[k].passes[i].back;
                uint32_t step = traces[k].passes[i].step;
                double clock = i ? traces[k].passes[i - 1].end : 0, source = 0;

                if (traces[k].passes[i].end >= 0)
                    continue;
                if (back ? k + 1 < stages : k > 0)
                    source = end_of(&traces[back ? k + 1 : k - 1], back, step);
                if (clock < 0 || source < 0)
                    break;
                traces[k].passes[i].start = clock > source ? clock : source;
                traces[k].passes[i].end = traces[k].passes[i].start + (back ? backward : forward);
                moved = true;
            }
    }
}

/* Updates that a stage has made by a time; a backward pass ends with one. */
static uint32_t version_at(const struct trace *trace, double time)
{
    uint32_t version = 0;

    for (uint32_t i = 0; i < trace->n; i++)
        version += trace->passes[i].back && trace->passes[i].end <= time;
    return version;
}

/* Count from the version that the stage used to the one at the aim, its own update left out. */
static void check_counts(const struct trace *traces, uint32_t stages, double forward,
                         double backward)
{
    struct rb_versions lap[STAGES * LAP], steady[STAGES];
    double forwards[STAGES], backwards[STAGES], busy;

    for (uint32_t k = 0; k < stages; k++) {
        forwards[k] = forward;
        backwards[k] = backward;
    }
    rb_versions_lap(forwards, backwards, stages, LAP, lap);
    rb_versions_count(forwards, backwards, stages, steady, &busy);
    for (uint32_t k = 0; k < stages; k++) {
        assert_int_equal(traces[k].n, 2 * LAP);
        for (uint32_t i = 0; i < traces[k].n; i++) {
            uint32_t step = traces[k].passes[i].step, version = traces[k].passes[i].version;
            bool back = traces[k].passes[i].back;
            double aim = end_of(&traces[0], true, step);
            uint32_t own = end_of(&traces[k], true, step) <= aim;
            uint32_t counted = version_at(&traces[k], aim) - version - own;
            const struct rb_versions *expected = &lap[k * LAP + step];

            assert_int_equal(counted, back ? expected->backward : expected->forward);
            if (step == LAP / 2) {
                assert_int_equal(counted, back ? steady[k].backward : steady[k].forward);
                if (back)
                    assert_int_equal(step - version, 0); /* all in front of it, and nothing else */
            }
        }
    }
}

static void run_stages(uint32_t stages, struct trace *traces)
{
    static const struct tiny_options options = {
        .samples = 64,
        .global_batch = 8,
        .micro_batch = 8,
        .steps = LAP + 3,
        .hidden = 64,
        .sgd = true,
        .lap = LAP,
        .laps = RB__ASYNCHRONOUS__KIND__SPECTRAIN,
    };
    char folder[] = "/tmp/rubato-versions-XXXXXX";
    struct crew crew = {.folder = folder, .size = stages, .watch = note};
    struct tiny_options how = options;
    struct rb_why why = {0};
    Rb__Model *model;
    Rb__Plan *plan;

    assert_non_null(mkdtemp(folder));
    how.stages = stages;
    tiny_write(folder, &how, 0);
    model = tiny_model(folder, &how);
    if (rb_pipeline_plan(model, stages, stages, &plan, &why))
        fail_msg("%s", why.text);
    tiny_write_message(folder, "plan", &plan->base);
    for (uint32_t k = 0; k < stages; k++)
        crew.ranks[k].own = memset(&traces[k], 0, sizeof *traces);
    if (crew_run(&crew, &why))
        fail_msg("%s", why.text);
    for (uint32_t k = 0; k < stages; k++) /* what the plan says is what a pass was given */
        for (uint32_t i = 0; i < traces[k].n; i++)
            assert_int_equal(traces[k].passes[i].ahead, plan->ranks[k]->orders[i]->ahead);
    crew_done(&crew);
    rb__plan__free_unpacked(plan, NULL);
    rb__model__free_unpacked(model, NULL);
    rb_file_remove(folder, NULL);
}

static void test_counted(void **state)
{
    static struct trace traces[STAGES];

    (void)state;
    for (uint32_t stages = 2; stages <= STAGES; stages++) {
        run_stages(stages, traces);
        for (int ratio = 1; ratio <= 3; ratio++) {
            set_times(traces, stages, 1, ratio);
            check_counts(traces, stages, 1, ratio);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
