/* SPDX-License-Identifier: Apache-2.0 */
/* Filters in parts: what they give is what one device gives, and what goes over the links is what
 * the partition says, byte by byte. */
#include "tests/coll/crew.h"
#include "tests/worker/split_nets.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/partition/filters.h"
#include "plan/replicas.h"
#include "plan/split.h"
#include "proto/spec.h"
#include "worker/stages/exchange.h"
#include "worker/model.h"
#include "worker/step/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 4, SAMPLES = 6 };

struct kind {
    const char *name, *settings[5];
    int n_settings, inputs;
    const char *shape;
    void (*write)(struct rb_buffer *ret_onnx); /* NULL: the generator of that name does */
};

static const struct kind kinds[] = {
    {"mlp", {"inputs=48", "hidden=40", "depth=3", "classes=4"}, 4, 48, "48"},
    {"cnn", {"image=8", "channels=3", "classes=4", "batchnorm=1"}, 4, 192, "3, 8, 8"},
    {.name = "residual", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_residual},
    {.name = "gated", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_gated},
    {.name = "branches", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_branches},
    {.name = "pooled", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_pooled},
};

static const enum rb_filters_aim aims[] = {RB_FILTERS_WORDS, RB_FILTERS_LAYERS};

/* A job that was submitted with a pin. */
struct made {
    char folder[64];
    Rb__Model *model;
    enum rb_filters_aim aim;
    double words; /* by the partition in as many parts as are tried */
    uint32_t parts;
};

static Rb__JobFile *read_job(const char *folder, int parts, enum rb_filters_aim aim)
{
    RB_CLEANUP(rb_freep)
    char *text =
        rb_format("apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
                  "spec:\n  model: {onnx: model.onnx}\n"
                  "  data: {train: {path: features.npy, targets: targets.npy}}\n"
                  "  train: {globalBatch: %d, microBatch: 4, steps: 1, optimizer: {type: sgd}}\n"
                  "  parallel: {hypergraph: %d, cut: %s}\n",
                  SAMPLES, parts, aim == RB_FILTERS_WORDS ? "words" : "layers");
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;

    if (rb_spec_parse("job.yaml", folder, text, strlen(text), NULL, 0, &job, &why))
        fail_msg("%s", why.text);
    return job;
}

/* A folder with a model and data. */
static void write_kind(const struct kind *kind, struct made *made)
{
    RB_CLEANUP(rb_freep) char *onnx_path = NULL;
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};

    strcpy(made->folder, "/tmp/rubato-split-XXXXXX");
    assert_non_null(mkdtemp(made->folder));
    onnx_path = rb_format("%s/model.onnx", made->folder);
    tiny_write_data(made->folder, "", 31, kind->inputs, kind->shape, 4, 1);
    if (kind->write)
        kind->write(&onnx);
    else if (rb_models_new(kind->name, kind->settings, kind->n_settings, &onnx, &why))
        fail_msg("%s", why.text);
    assert_int_equal(rb_file_write(onnx_path, onnx.data, onnx.size, NULL), 0);
    rb_buffer_done(&onnx);
}

static void make(const struct kind *kind, enum rb_filters_aim aim, struct made *made)
{
    const char *class = rb_device_numeric_class("cpu");
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    Rb__JobFile *job;

    write_kind(kind, made);
    made->aim = aim;
    job = read_job(made->folder, MOST, aim);
    if (rb_compile(job->spec, class, &compiled, &why) ||
        rb_split_make(job->spec, class, &compiled, &why))
        fail_msg("%s", why.text);
    tiny_write_message(made->folder, "model", &compiled.model->base);
    made->model = RB_TAKE(compiled.model);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
}

static void done(struct made *made)
{
    RB_CLEANUP(rb_freep) char *command = rb_format("rm -r %s", made->folder);

    if (made->model)
        rb__model__free_unpacked(made->model, NULL);
    assert_int_equal(system(command), 0);
}

/* ---- The partition in the model --------------------------------------------------------------*/

static uint64_t elements_of(const Rb__Tensor *tensor)
{
    uint64_t n = 1;

    for (size_t d = 0; d < tensor->n_dims; d++)
        n *= (uint64_t)tensor->dims[d];
    return n;
}

/* Every element of the state that is trained is one part's, and every block is too. */
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

            for (uint64_t i = 0; i < elements_of(program->tensors[one->tensor]); i++) {
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
    for (size_t k = 0; k < 2 * RB_COUNT(kinds); k++) {
        struct made made;

        make(&kinds[k / 2], aims[k % 2], &made);
        for (uint32_t parts = 2; parts <= MOST; parts++) {
            check_state(made.model, parts);
            check_plan(made.model, parts);
        }
        done(&made);
    }
}

/* ---- What the planner compares ---------------------------------------------------------------*/

/* Without a pin and for devices where elementwise operators are merged the filters are the same,
 * and so is what a cut sends. */
static void check_words(const struct made *made, const char *class, int pin)
{
    Rb__JobFile *job = read_job(made->folder, pin, made->aim);
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};

    if (rb_compile(job->spec, class, &compiled, &why))
        fail_msg("%s", why.text);
    for (uint32_t parts = 2; parts <= MOST; parts++) {
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
    for (size_t k = 0; k < 2 * RB_COUNT(kinds); k++) {
        struct made made;

        make(&kinds[k / 2], aims[k % 2], &made);
        check_words(&made, rb_device_numeric_class("cpu"), 1);
        check_words(&made, "cuda", 1);
        check_words(&made, "cuda", MOST);
        done(&made);
    }
}

/* What the graph cannot split the planner does not offer, with or without a pin, and for devices
 * where elementwise operators are merged. */
static void test_refused(void **state)
{
    static const struct {
        struct kind kind;
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
                struct made made = {.model = NULL};
                struct rb_filters_cut cut;
                struct rb_why why = {0};
                Rb__JobFile *job;

                write_kind(&refused[k].kind, &made);
                job = read_job(made.folder, pin, RB_FILTERS_WORDS);
                if (rb_compile(job->spec, class, &compiled, &why))
                    fail_msg("%s", why.text);
                assert_int_equal(rb_filters_cut(compiled.model, 2, RB_FILTERS_WORDS, &cut, &why),
                                 RB_EUNSUPPORTED);
                assert_non_null(strstr(why.text, refused[k].text));
                rb_compiled_done(&compiled);
                rb__job_file__free_unpacked(job, NULL);
                done(&made);
            }
}

/* ---- What comes from outside -----------------------------------------------------------------*/

static int64_t *numbers_of(Rb__Program *program, const char *key, size_t *ret_n)
{
    for (size_t i = 0; i < program->n_instructions; i++) {
        Rb__Instruction *one = program->instructions[i];

        for (size_t k = 0; k < one->n_attributes; k++)
            if (rb_program_exchanges(one) && !strcmp(one->attributes[k]->key, key) &&
                one->attributes[k]->n_ints) {
                *ret_n = one->attributes[k]->n_ints;
                return one->attributes[k]->ints;
            }
    }
    fail_msg("nothing %s", key);
    return NULL;
}

/* A model file whose exchanges, contributions or parts lead outside is refused. */
static void test_hostile(void **state)
{
    static const char *const keys[] = {"sends", "receives", "keeps"};
    static const int64_t wrong[] = {-1, 1 << 20, INT64_MAX, INT64_MIN};
    struct made made;
    Rb__Program *program;

    (void)state;
    make(&kinds[1], RB_FILTERS_WORDS, &made);
    program = made.model->programs[rb_split_program(made.model, 2, 0, 4)];
    assert_int_equal(rb_model_check(made.model, NULL), 0);
    for (size_t k = 0; k < RB_COUNT(keys); k++) {
        size_t n;
        int64_t *numbers = numbers_of(program, keys[k], &n);

        for (size_t i = 0; i < 3; i++)
            for (size_t w = 0; w < RB_COUNT(wrong); w++) {
                int64_t was = numbers[i];

                numbers[i] = wrong[w];
                assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
                numbers[i] = was;
            }
    }
    program->contributions[0]->first += 1 << 20;
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->contributions[0]->first -= 1 << 20;
    program->part = 2;
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->part = 0;
    program->parts = 0; /* one of the whole has a loss, and all of each variable */
    assert_int_equal(rb_model_check(made.model, NULL), RB_EINVAL);
    program->parts = 2;
    assert_int_equal(rb_model_check(made.model, NULL), 0);
    done(&made);
}

/* ---- Parts against the whole, over links -----------------------------------------------------*/

static struct rb_model *load(struct crew *crew, const struct made *made)
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

/* While a program runs: what it contributes, at its place in the state. */
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
        size_t n = elements_of(message->tensors[one->tensor]);

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
    double noise = 0; /* a bias in front of a norm has nothing but what is rounded away elsewhere */

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

/* What this group sends for a number that each tells all, with the head of a message. */
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
    int64_t word = 0; /* as all messages here it needs no padding */

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
    const struct made *made = crew->data;
    uint64_t all[MOST], told, head, before, bytes = 0;
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
    tell(crew, exchange.coll, exchange.bytes, all); /* what was posted is out before it */
    for (int r = 0; r < crew->size; r++)
        bytes += all[r];
    CREW_CHECK(crew, rb_coll_bytes_sent(exchange.coll) - before - told ==
                         exchange.bytes + exchange.messages * head);
    CREW_CHECK(crew, (double)bytes == 8 * SAMPLES * made->words);
    rb_coll_close(exchange.coll);
    rb_stage_free(stage);
    rb__plan__free_unpacked(plan, NULL);
    rb_model_free(model);
}

/* Filters that are put together with others, on how many parts the most scattered layer's are. */
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

/* Each layer is on all parts alike, as far as its filters go together; but for those that the last
 * part has because next to nothing comes of them. */
static void check_even(const struct rb_filters_cut *cut)
{
    double all = 0, whole = 0;

    for (uint32_t l = 0; l < cut->n_layers; l++) {
        uint32_t found[MOST] = {0}, most = 0, least = UINT32_MAX, size = 0;

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

static void test_exchange(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2 * RB_COUNT(kinds); k++) {
        struct made made;

        make(&kinds[k / 2], aims[k % 2], &made);
        for (made.parts = 2; made.parts <= MOST; made.parts++) {
            struct rb_filters_cut cut;

            assert_int_equal(rb_filters_cut(made.model, made.parts, made.aim, &cut, NULL), 0);
            if (made.aim == RB_FILTERS_LAYERS)
                check_even(&cut);
            made.words = rb_hypergraph_volume(&cut.graph, cut.parts, made.parts);
            assert_true(made.words > 0);
            assert_true(!kinds[k / 2].write || joined_parts(&cut) > 1); /* else nothing is tried */
            rb_filters_cut_done(&cut);
            for (int link = 0; link < CREW_LINKS; link++)
                crew_run((int)made.parts, (enum crew_link)link, 0, body, &made);
        }
        done(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state),    cmocka_unit_test(test_words),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_exchange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
