/* SPDX-License-Identifier: Apache-2.0 */
/* Filters in parts, as the Model and the planner have them: every element belongs to one part, what
 * a cut sends is the same with and without a pin, and what cannot be split is refused. */
#include "tests/worker/split_job.h"
#include "tests/worker/split_nets.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/sanitized.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/replicas.h"
#include "plan/split.h"
#include "proto/work.h"
#include "worker/model.h"
#include "worker/stages/stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEAST = RB_SANITIZED ? SPLIT_MOST : 2 }; /* parts: cutting a net takes longest */

/* ---- The partition in the model --------------------------------------------------------------*/

/* Every element of the state that is trained belongs to one part, and so does every block. */
static void check_state(const Rb__Model *model, uint32_t parts)
{
    RB_CLEANUP(rb_freep) uint8_t *owners = rb_alloc(model->state_elements + 1);

    for (uint32_t part = 0; part < parts; part++) {
        int p = rb_split_program(model, parts, part, 4);
        const Rb__Program *program = model->programs[p];

        assert_true(p >= 0);
        for (size_t c = 0; c < program->n_contributions; c++) {
            const Rb__Contribution *one = program->contributions[c];
            uint64_t first = model->variables[one->variable]->offset + one->first;
            uint64_t n = (uint64_t)rb_work_elements(program->tensors[one->tensor]);

            for (uint64_t i = 0; i < n; i++) {
                assert_int_equal(owners[first + i], 0);
                owners[first + i] = (uint8_t)(part + 1);
            }
        }
    }
    for (size_t b = 0; b < model->n_blocks; b++)
        for (uint64_t i = 0; i < model->blocks[b]->count; i++) {
            assert_int_not_equal(owners[model->blocks[b]->first + i], 0);
            assert_int_equal(owners[model->blocks[b]->first + i], owners[model->blocks[b]->first]);
        }
}

/* With one replica of the state, sums and weights stay where they are made. */
static void check_plan(const Rb__Model *model, uint32_t parts)
{
    struct rb_replicas how = {1, model->n_blocks, parts, NULL};
    Rb__Plan *plan = NULL;
    struct rb_why why = {0};

    if (rb_split_plan(model, parts, parts, &plan, &why))
        fail_msg("%s", why.text);
    rb_replicas_place(&how, model, plan);
    for (uint32_t r = 0; r < parts; r++) {
        struct rb_stage *stage = NULL;

        if (rb_stage_read(plan, model, r, &stage, &why))
            fail_msg("%s", why.text);
        for (size_t s = 0; s < plan->n_shards; s++)
            for (uint32_t b = 0; b < plan->shards[s]->n_blocks; b++) {
                uint64_t owner = UINT64_C(1) << plan->shards[s]->ranks[0];

                assert_true(stage->gives[plan->shards[s]->first_block + b] == owner);
                assert_int_equal(stage->reads[plan->shards[s]->first_block + b] & ~owner, 0);
            }
        rb_stage_free(stage);
    }
    rb__plan__free_unpacked(plan, NULL);
}

static void test_state(void **state)
{
    (void)state;
    for (size_t k = 0; k < SPLIT_AIMS * SPLIT_KINDS; k++) {
        struct split_job made;

        split_job_make(&split_kinds[k / SPLIT_AIMS], split_aims[k % SPLIT_AIMS], &made);
        for (uint32_t parts = LEAST; parts <= SPLIT_MOST; parts++) {
            check_state(made.model, parts);
            check_plan(made.model, parts);
        }
        split_job_done(&made);
    }
}

/* Each layer is on all parts alike, as far as its filters go together; except for layers that are
 * on the last part because they take next to no work. */
static void check_even(const struct rb_filters_cut *cut)
{
    double all = 0, whole = 0;

    for (uint32_t l = 0; l < cut->n_layers; l++) {
        uint32_t found[SPLIT_MOST] = {0}, most = 0, least = UINT32_MAX, size = 0;

        for (uint32_t v = 0; v < cut->graph.n_vertices; v++)
            if (cut->bundles[v].layer == l) {
                uint32_t filters = cut->bundles[v].end - cut->bundles[v].first;

                found[cut->parts[v]] += filters;
                size = filters > size ? filters : size;
            }
        for (uint32_t p = 0; p < cut->n_parts; p++) {
            most = found[p] > most ? found[p] : most;
            least = found[p] < least ? found[p] : least;
        }
        all += cut->layers[l].work * cut->layers[l].filters;
        if (most && most == found[cut->n_parts - 1] && !least)
            whole += cut->layers[l].work * cut->layers[l].filters;
        else
            assert_true(most - least <= size);
    }
    assert_true(whole <= 0.03 / cut->n_parts * all);
}

static void test_even(void **state)
{
    (void)state;
    for (size_t k = 0; k < SPLIT_KINDS; k++) {
        struct split_job made;

        split_job_make(&split_kinds[k], RB_FILTERS_LAYERS, &made);
        for (uint32_t parts = LEAST; parts <= SPLIT_MOST; parts++) {
            struct rb_filters_cut cut;

            assert_int_equal(rb_filters_cut(made.model, parts, made.aim, &cut, NULL), 0);
            check_even(&cut);
            rb_filters_cut_done(&cut);
        }
        split_job_done(&made);
    }
}

/* ---- What the planner compares ---------------------------------------------------------------*/

/* Without a pin and for devices where elementwise operators are merged the filters are the same,
 * and so is what a cut sends. */
static void check_words(const struct split_job *made, const char *class, int pin)
{
    Rb__JobFile *job = split_job_read(made->folder, pin, made->aim);
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};

    if (rb_compile(job->spec, class, &compiled, &why))
        fail_msg("%s", why.text);
    for (uint32_t parts = LEAST; parts <= SPLIT_MOST; parts++) {
        struct rb_filters_cut cut, pinned;

        if (rb_filters_cut(compiled.model, parts, made->aim, &cut, &why))
            fail_msg("%s", why.text);
        assert_int_equal(rb_filters_cut(made->model, parts, made->aim, &pinned, NULL), 0);
        assert_int_equal(cut.graph.n_nets, pinned.graph.n_nets);
        assert_true(rb_hypergraph_volume(&cut.graph, cut.parts, parts) ==
                    rb_hypergraph_volume(&pinned.graph, pinned.parts, parts));
        rb_filters_cut_done(&cut);
        rb_filters_cut_done(&pinned);
    }
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
}

static void test_words(void **state)
{
    (void)state;
    for (size_t k = 0; k < SPLIT_AIMS * SPLIT_KINDS; k++) {
        struct split_job made;

        split_job_make(&split_kinds[k / SPLIT_AIMS], split_aims[k % SPLIT_AIMS], &made);
        check_words(&made, rb_device_numeric_class("cpu"), 1);
        check_words(&made, "cuda", 1);
        check_words(&made, "cuda", SPLIT_MOST);
        split_job_done(&made);
    }
}

/* The planner does not offer what the graph cannot split, with or without a pin, and for devices
 * where elementwise operators are merged. */
static void test_refused(void **state)
{
    static const struct {
        struct split_kind kind;
        const char *text;
    } refused[] = {
        {{.inputs = 192, .shape = "3, 8, 8", .write = split_nets_scaled}, "it needs all filters"},
        {{.inputs = 192, .shape = "3, 8, 8", .write = split_nets_dropped}, "its random numbers"},
        {{.inputs = 192, .shape = "3, 8, 8", .write = split_nets_columns}, "no rows of its weight"},
    };

    (void)state;
    for (size_t k = 0; k < RB_COUNT(refused); k++)
        for (int pin = 1; pin <= 2; pin++)
            for (int cuda = 0; cuda < 2; cuda++) {
                const char *class = cuda ? "cuda" : rb_device_numeric_class("cpu");
                struct rb_compiled compiled = {0};
                struct split_job made = {.model = NULL};
                struct rb_filters_cut cut;
                struct rb_why why = {0};
                Rb__JobFile *job;

                split_job_write(&refused[k].kind, &made);
                job = split_job_read(made.folder, pin, RB_FILTERS_WORDS);
                if (rb_compile(job->spec, class, &compiled, &why))
                    fail_msg("%s", why.text);
                assert_int_equal(rb_filters_cut(compiled.model, 2, RB_FILTERS_WORDS, &cut, &why),
                                 RB_EUNSUPPORTED);
                assert_non_null(strstr(why.text, refused[k].text));
                rb_compiled_done(&compiled);
                rb__job_file__free_unpacked(job, NULL);
                split_job_done(&made);
            }
}

/* ---- What comes from outside -----------------------------------------------------------------*/

static Rb__Attribute *runs_of(Rb__Program *program, const char *key)
{
    for (size_t i = 0; i < program->n_instructions; i++) {
        Rb__Instruction *one = program->instructions[i];

        for (size_t k = 0; k < one->n_attributes; k++)
            if (rb_program_exchanges(one) && !strcmp(one->attributes[k]->key, key) &&
                one->attributes[k]->n_ints)
                return one->attributes[k];
    }
    fail_msg("nothing %s", key);
    return NULL;
}

/* Keep the last filter of a run a second time. */
static void check_twice(Rb__Model *model, Rb__Attribute *keeps)
{
    Rb__Attribute was = *keeps;
    int64_t *numbers = rb_alloc((was.n_ints + 3) * sizeof *numbers);

    memcpy(numbers, was.ints, was.n_ints * sizeof *numbers);
    memcpy(numbers + was.n_ints, (int64_t[]){was.ints[0] + was.ints[2] - 1, 0, 1},
           3 * sizeof *numbers);
    keeps->ints = numbers;
    keeps->n_ints += 3;
    assert_int_equal(rb_model_check(model, NULL), RB_EINVAL);
    *keeps = was;
    assert_int_equal(rb_model_check(model, NULL), 0);
    free(numbers);
}

/* A model file whose exchanges, contributions or parts lead outside is refused. */
static void test_hostile(void **state)
{
    static const char *const keys[] = {"sends", "receives", "keeps"};
    static const int64_t wrong[] = {-1, 1 << 20, INT64_MAX, INT64_MIN};
    struct split_job made;
    Rb__Program *program;

    (void)state;
    split_job_make(&split_kinds[1], RB_FILTERS_WORDS, &made);
    program = made.model->programs[rb_split_program(made.model, 2, 0, 4)];
    assert_int_equal(rb_model_check(made.model, NULL), 0);
    for (size_t k = 0; k < RB_COUNT(keys); k++) {
        int64_t *numbers = runs_of(program, keys[k])->ints;

        for (size_t i = 0; i < 3; i++)
            for (size_t w = 0; w < RB_COUNT(wrong); w++) {
                int64_t was = numbers[i];

                numbers[i] = wrong[w];
                assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
                numbers[i] = was;
            }
    }
    check_twice(made.model, runs_of(program, "keeps"));
    program->contributions[0]->first += 1 << 20;
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->contributions[0]->first -= 1 << 20;
    program->part = 2;
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->part = 0;
    program->parts = 0; /* a program of the whole has a loss, and all of each variable */
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->parts = 2;
    assert_int_equal(rb_model_check(made.model, NULL), 0);
    split_job_done(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state),   cmocka_unit_test(test_even),
        cmocka_unit_test(test_words),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
