/* SPDX-License-Identifier: Apache-2.0 */
/* Filters in parts that train over links: the results are those of one device, and what goes over
 * the links is what the partition predicts, byte by byte. */
#include "tests/coll/crew.h"
#include "tests/worker/split_job.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/sanitized.h"
#include "plan/partition/filters.h"
#include "plan/split.h"
#include "proto/work.h"
#include "worker/model.h"
#include "worker/stages/exchange.h"
#include "worker/step/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct rb_model *load(struct crew *crew, const struct split_job *made)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model", made->folder);
    struct rb_model *model = NULL;
    struct rb_why why = {0};
    uint64_t seed = 7;

    CREW_OK(crew, rb_model_load(path, "cpu", 0, &model, &why), &why);
    CREW_OK(crew, rb_model_use(model, false, &why), &why);
    for (size_t i = 0; i < model->state.elements; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        model->state.w[i] = (float)((double)(seed >> 40) / 0x1p23 - 1) * 0.2F;
    }
    return model;
}

static void fill(const struct rb_model *model, const struct rb_runner *runner, uint32_t microbatch)
{
    struct rb_batch batch =
        rb_batch_of(model->message->global_batch, model->message->micro_batch, 0, microbatch);

    rb_batch_fill(&runner->slots, model->train, model->message->seed, &batch);
}

/* While a program runs: its contributions, at their places in the state. */
struct taking {
    const struct rb_model *model;
    const struct rb_runner *runner;
    float *sums;
    uint8_t *made; /* by element */
    size_t next;
};

static void take(int instruction, void *context)
{
    struct taking *taking = context;
    const Rb__Program *message = taking->runner->message;

    for (; taking->next < message->n_contributions; taking->next++) {
        const Rb__Contribution *one = taking->runner->contributions[taking->next];
        const Rb__Variable *variable = taking->model->message->variables[one->variable];
        size_t n = (size_t)rb_work_elements(message->tensors[one->tensor]);

        if (one->after > (uint32_t)instruction + 1)
            return;
        memcpy(taking->sums + variable->offset + one->first,
               rb_program_result(taking->runner->program, (int)one->tensor), n * sizeof(float));
        memset(taking->made + variable->offset + one->first, 1, n);
    }
}

static double run_whole(struct crew *crew, const struct rb_model *model, uint32_t microbatch,
                        struct taking *taking)
{
    const struct rb_runner *runner = rb_model_runner(model, microbatch);
    struct rb_key key = {1, 0, microbatch};

    taking->runner = runner;
    taking->next = 0;
    fill(model, runner, microbatch);
    rb_program_defer(runner->program, false);
    CREW_CHECK(crew, !rb_program_run(runner->program, &key, NULL, take, taking));
    return *(const double *)rb_program_result(runner->program, runner->message->loss);
}

static double run_part(struct crew *crew, struct rb_model *model, struct rb_exchange *exchange,
                       uint32_t microbatch, struct taking *taking)
{
    const struct rb_stage *stage = exchange->stage;
    uint32_t p = microbatch + 1 == stage->microbatches ? stage->last_program : stage->program;
    struct rb_runner runner = {.message = model->message->programs[p]};
    struct rb_key key = {1, 0, microbatch};
    RB_CLEANUP(rb_freep) int *ready = NULL;
    struct rb_why why = {0};
    double loss = 0;

    CREW_OK(crew,
            rb_runner_prepare(model, &runner, model->state.w, model->arena, model->train, &why),
            &why);
    rb_program_defer(runner.program, false);
    taking->runner = &runner;
    taking->next = 0;
    fill(model, &runner, microbatch);
    exchange->message = runner.message;
    exchange->n = 1;
    exchange->of[0].program = runner.program;
    exchange->of[0].tag = microbatch;
    exchange->of[0].microbatch = microbatch;
    exchange->next = 0;
    ready = rb_alloc((runner.message->n_instructions + 1) * sizeof *ready);
    rb_exchange_ready(runner.message, ready);
    exchange->ready = ready;
    rb_program_start(runner.program);
    CREW_OK(crew, rb_exchange_give(exchange, -1, &why), &why);
    for (int i = 0; i < (int)runner.message->n_instructions; i++) {
        if (rb_program_exchanges(runner.message->instructions[i]))
            CREW_OK(crew, rb_exchange_take(exchange, i, &why), &why);
        else
            rb_program_step(runner.program, i, &key);
        take(i, taking);
        CREW_OK(crew, rb_exchange_give(exchange, i, &why), &why);
    }
    if (runner.message->loss >= 0)
        loss = *(const double *)rb_program_result(runner.program, runner.message->loss);
    rb_runner_done(&runner);
    return loss;
}

static void compare(struct crew *crew, const struct rb_model *model, const float *found,
                    const uint8_t *made, const float *whole)
{
    double noise = 0; /* a bias before a norm gets only what is rounded away elsewhere */

    for (size_t i = 0; i < model->message->trained_elements; i++)
        noise = fmax(noise, 1e-6 * fabs((double)whole[i]));
    for (size_t v = 0; v < model->message->n_variables; v++) {
        const Rb__Variable *variable = model->message->variables[v];
        double most = 0;

        if (variable->role == RB__VARIABLE__ROLE__FIXED)
            continue;
        for (size_t i = 0; i < variable->elements; i++)
            most = fmax(most, fabs((double)whole[variable->offset + i]));
        for (size_t i = variable->offset; i < variable->offset + variable->elements; i++)
            CREW_CHECK(crew, !made[i] || fabs((double)found[i] - whole[i]) <= 1e-5 * most + noise);
    }
}

/* What this group sends when each rank tells all others a number, with the head of a message. */
static uint64_t tell(struct crew *crew, struct rb_coll *coll, uint64_t mine, uint64_t *all)
{
    uint64_t before = rb_coll_bytes_sent(coll);
    struct rb_why why = {0};

    CREW_OK(crew, rb_coll_gather(coll, 1, &mine, all, sizeof mine, &why), &why);
    return rb_coll_bytes_sent(coll) - before;
}

static uint64_t head_bytes(struct crew *crew, struct rb_coll *coll)
{
    uint64_t before = rb_coll_bytes_sent(coll);
    struct rb_why why = {0};
    int64_t word = 0; /* like all messages here it needs no padding */

    CREW_OK(crew, rb_coll_post(coll, 2, (crew->rank + 1) % crew->size, &word, sizeof word, &why),
            &why);
    CREW_OK(crew,
            rb_coll_receive(coll, 2, (crew->rank + crew->size - 1) % crew->size, &word, sizeof word,
                            &why),
            &why);
    return rb_coll_bytes_sent(coll) - before - sizeof word;
}

static void body(struct crew *crew)
{
    const struct split_job *made = crew->data;
    uint64_t all[SPLIT_MOST], told, head, before, bytes = 0;
    struct rb_model *model = load(crew, made);
    size_t n = model->state.elements;
    RB_CLEANUP(rb_freep) float *whole = rb_alloc(n * sizeof *whole);
    RB_CLEANUP(rb_freep) float *mine = rb_alloc(n * sizeof *mine);
    RB_CLEANUP(rb_freep) uint8_t *marks = rb_alloc(n);
    RB_CLEANUP(rb_freep) uint8_t *marks_whole = rb_alloc(n);
    struct taking taking = {.model = model};
    struct rb_exchange exchange = {.device = model->device};
    struct rb_stage *stage = NULL;
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;

    CREW_OK(crew, rb_split_plan(model->message, made->parts, made->parts, &plan, &why), &why);
    CREW_OK(crew, rb_stage_read(plan, model->message, (uint32_t)crew->rank, &stage, &why), &why);
    CREW_OK(crew, crew_open(crew, 1, CREW_MEET_MS, &exchange.coll, &why), &why);
    exchange.stage = stage;
    head = head_bytes(crew, exchange.coll);
    told = tell(crew, exchange.coll, 0, all);
    before = rb_coll_bytes_sent(exchange.coll);
    for (uint32_t m = 0; m < model->microbatches; m++) {
        double loss, loss_whole;

        taking.sums = whole;
        taking.made = marks_whole;
        loss_whole = run_whole(crew, model, m, &taking);
        taking.sums = mine;
        taking.made = marks;
        loss = run_part(crew, model, &exchange, m, &taking);
        if (crew->rank + 1 == crew->size)
            CREW_CHECK(crew, fabs(loss - loss_whole) <= 1e-5 * loss_whole);
        compare(crew, model, mine, marks, whole);
    }
    tell(crew, exchange.coll, exchange.bytes, all); /* posts are sent before it */
    for (int r = 0; r < crew->size; r++)
        bytes += all[r];
    CREW_CHECK(crew, rb_coll_bytes_sent(exchange.coll) - before - told ==
                         exchange.bytes + exchange.messages * head);
    CREW_CHECK(crew, (double)bytes == 8 * SPLIT_SAMPLES * made->words);
    rb_coll_close(exchange.coll);
    rb_stage_free(stage);
    rb__plan__free_unpacked(plan, NULL);
    rb_model_free(model);
}

/* Of layers that are joined with others: the number of parts over which the most scattered one is
 * spread. */
static uint32_t joined_parts(const struct rb_filters_cut *cut)
{
    RB_CLEANUP(rb_freep) uint32_t *roots = rb_alloc(cut->n_layers * sizeof *roots);
    uint32_t most = 0;

    rb_hypergraph_roots(cut->layers, cut->n_layers, roots);
    for (uint32_t l = 0; l < cut->n_layers; l++) {
        uint32_t parts = 0;

        for (uint32_t v = 0; cut->layers[l].n_joins > 1 && v < cut->graph.n_vertices; v++)
            if (cut->bundles[v].layer == roots[l])
                parts |= 1u << cut->parts[v];
        most = (uint32_t)fmax(most, __builtin_popcount(parts));
    }
    return most;
}

static void test_exchange(void **state)
{
    (void)state;
    for (size_t k = 0; k < SPLIT_AIMS * SPLIT_KINDS; k++) {
        struct split_job made;

        split_job_make(&split_kinds[k / SPLIT_AIMS], split_aims[k % SPLIT_AIMS], &made);
        for (made.parts = RB_SANITIZED ? SPLIT_MOST : 2; made.parts <= SPLIT_MOST; made.parts++) {
            struct rb_filters_cut cut;

            assert_int_equal(rb_filters_cut(made.model, made.parts, made.aim, &cut, NULL), 0);
            made.words = rb_hypergraph_volume(&cut.graph, cut.parts, made.parts);
            assert_true(made.words > 0);
            assert_true(!split_kinds[k / SPLIT_AIMS].write ||
                        joined_parts(&cut) > 1); /* else nothing is tested */
            rb_filters_cut_done(&cut);
            for (int link = 0; link < CREW_LINKS; link++)
                crew_run((int)made.parts, (enum crew_link)link, 0, body, &made);
        }
        split_job_done(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exchange)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
