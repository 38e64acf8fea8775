/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a pipeline send of the state in a step, counted on the links: it is what the
 * planner prices, and no more than necessary; and every rank has what it is to have. */
#include "tests/coll/crew.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/compile/footprint.h"
#include "plan/replicas.h"
#include "plan/schedule_pipeline.h"
#include "plan/search/search.h"
#include "plan/traffic.h"
#include "proto/spec.h"
#include "worker/step/attempt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Heads of messages, words to which segments are rounded, gaps between variables. */
enum { SLACK = 16 * 1024 };

struct kind {
    const char *name, *settings[5];
    int n_settings, inputs;
    const char *shape;
    bool tight; /* with fewer devices activations are computed again */
};

enum { PLAIN, NORMS, TIGHT };

static const struct kind kinds[] = {
    [PLAIN] = {"mlp", {"inputs=96", "hidden=256", "depth=6", "classes=4"}, 4, 96, "96", false},
    [NORMS] =
        {"cnn", {"image=8", "channels=3", "classes=4", "batchnorm=1"}, 4, 192, "3, 8, 8", false},
    [TIGHT] = {"mlp", {"inputs=96", "hidden=256", "depth=6", "classes=4"}, 4, 96, "96", true},
};

struct made {
    char folder[64];
    Rb__Model *model;
    uint32_t stages, copies;
    bool recomputes;
};

static Rb__JobFile *read_job(const char *folder)
{
    static const char text[] =
        "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
        "spec:\n  model: {onnx: model.onnx}\n"
        "  data: {train: {path: features.npy, targets: targets.npy}}\n"
        "  train: {globalBatch: 16, microBatch: 4, steps: 1, optimizer: {type: sgd}}\n"
        "  devices: {max: 5}\n";
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;

    if (rb_spec_parse("job.yaml", folder, text, strlen(text), NULL, 0, &job, &why))
        fail_msg("%s", why.text);
    return job;
}

static Rb__Model *compile(const Rb__Spec *spec)
{
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    Rb__Model *model;

    if (rb_compile(spec, rb_device_numeric_class("cpu"), &compiled, &why))
        fail_msg("%s", why.text);
    model = RB_TAKE(compiled.model);
    rb_compiled_done(&compiled);
    return model;
}

/* The limit is what the most devices need with two replicas: so there, and nowhere else, all
 * activations are kept. */
static void limit_memory(Rb__Spec *spec)
{
    Rb__Model *model = compile(spec);
    uint64_t bytes = rb_footprint_bytes(model, 2, spec->devices->max);

    spec->memory->limit = rb_format("%llu", (unsigned long long)bytes);
    rb__model__free_unpacked(model, NULL);
}

static void make(const struct kind *kind, struct made *made)
{
    RB_CLEANUP(rb_freep) char *onnx_path = NULL;
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    Rb__JobFile *job;

    made->recomputes = false;
    strcpy(made->folder, "/tmp/rubato-traffic-XXXXXX");
    assert_non_null(mkdtemp(made->folder));
    onnx_path = rb_format("%s/model.onnx", made->folder);
    tiny_write_data(made->folder, "", 31, kind->inputs, kind->shape, 4, 1);
    if (rb_models_new(kind->name, kind->settings, kind->n_settings, &onnx, &why))
        fail_msg("%s", why.text);
    assert_int_equal(rb_file_write(onnx_path, onnx.data, onnx.size, NULL), 0);
    rb_buffer_done(&onnx);
    job = read_job(made->folder);
    if (kind->tight)
        limit_memory(job->spec);
    made->model = compile(job->spec);
    assert_int_equal(rb_footprint_has_both(made->model), kind->tight);
    tiny_write_message(made->folder, "model", &made->model->base);
    rb__job_file__free_unpacked(job, NULL);
}

static void done(struct made *made)
{
    RB_CLEANUP(rb_freep) char *command = rb_format("rm -r %s", made->folder);

    rb__model__free_unpacked(made->model, NULL);
    assert_int_equal(system(command), 0);
}

static Rb__Plan *new_plan(const struct made *made, uint32_t ranks)
{
    struct rb_replicas where = {made->copies, made->model->n_blocks, ranks, NULL};
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;

    if (rb_pipeline_plan(made->model, ranks, made->stages, &plan, &why))
        abort();
    plan->has_recomputes = plan->recomputes = made->recomputes;
    rb_replicas_place(&where, made->model, plan);
    return plan;
}

/* ---- A rank ----------------------------------------------------------------------------------*/

static int32_t summand(uint32_t rank, size_t i)
{
    return (int32_t)((uint32_t)i * 2654435761u ^ (rank + 1) * 40503u);
}

/* Sums as a step leaves them: summands of what the rank's stage makes, zeros elsewhere. */
static void fill(struct rb_model *model, const struct rb_configuration *one)
{
    const Rb__Model *message = model->message;

    memset(model->local, 0, (size_t)message->state_elements * sizeof *model->local);
    memset(model->reduced, 0xee, (size_t)message->state_elements * sizeof *model->reduced);
    memset(model->fresh, 0, message->n_variables * sizeof *model->fresh);
    for (size_t b = 0; b < message->n_blocks; b++)
        for (size_t i = message->blocks[b]->first;
             i < message->blocks[b]->first + message->blocks[b]->count; i++)
            if (one->stage->senders[b * one->size + one->rank])
                model->local[i] = summand(one->rank, i);
}

static void check_sums(struct crew *crew, const struct rb_model *model,
                       const struct rb_configuration *one)
{
    const Rb__Model *message = model->message;

    for (size_t b = 0; b < message->n_blocks; b++)
        for (size_t i = message->blocks[b]->first;
             i < message->blocks[b]->first + message->blocks[b]->count; i++) {
            uint32_t sum = 0;

            for (uint32_t r = 0; r < one->size; r++)
                if (one->stage->senders[b * one->size + r])
                    sum += (uint32_t)summand(r, i);
            CREW_CHECK(crew, model->reduced[i] == (int32_t)sum ||
                                 !rb_placement_holds(&one->placement, one->rank, b));
        }
}

static bool reads_part(void *owner)
{
    (void)owner;
    return false;
}

static bool is_near(double counted, double expected)
{
    return counted + SLACK >= expected && counted <= expected + SLACK;
}

/* No rank leaves before all are done: some have nothing to send. */
static void wait_for_all(struct crew *crew, struct rb_coll *coll)
{
    uint8_t mine = 1, all[CREW_MAX];
    struct rb_why why = {0};

    CREW_OK(crew, rb_coll_gather(coll, 1, &mine, all, 1, &why), &why);
}

static void body(struct crew *crew)
{
    const struct made *made = crew->data;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model", made->folder);
    struct rb_configuration one = {.rank = (uint32_t)crew->rank, .size = (uint32_t)crew->size};
    struct rb_step step = {.configuration = &one, .reads_all = reads_part};
    RB_CLEANUP(rb_freep) struct rb_vote_ready *said = rb_alloc(one.size * sizeof *said);
    struct rb_attempt attempt = {.step = &step, .said = said};
    struct rb_step_result result = {.decision = {.collector = -1}};
    struct rb_traffic traffic;
    struct rb_why why = {0};
    uint64_t before, sums;

    CREW_OK(crew, rb_model_load(path, "cpu", 0, &step.model, &why), &why);
    CREW_OK(crew, rb_model_use(step.model, made->recomputes, &why), &why);
    one.plan = new_plan(made, one.size);
    rb_traffic_find(made->model, one.plan, &traffic);
    CREW_OK(crew, rb_placement_make(one.plan, made->model, &one.placement, &why), &why);
    CREW_OK(crew, rb_stage_read(one.plan, made->model, one.rank, &one.stage, &why), &why);
    CREW_OK(crew, crew_open(crew, 1, CREW_MEET_MS, &one.coll, &why), &why);
    fill(step.model, &one);
    before = rb_coll_bytes_sent(one.coll);
    for (uint32_t b = 0; b < made->model->n_buckets; b++)
        CREW_OK(crew, rb_attempt_reduce(&attempt, b, &why), &why);
    sums = rb_coll_bytes_sent(one.coll) - before;
    check_sums(crew, step.model, &one);
    CREW_CHECK(crew, is_near((double)sums, traffic.sums[crew->rank]));
    before = rb_coll_bytes_sent(one.coll);
    if (one.placement.sharded)
        CREW_OK(crew, rb_attempt_gather(&attempt, &result, &why), &why);
    CREW_CHECK(crew, is_near((double)(rb_coll_bytes_sent(one.coll) - before),
                             traffic.weights[crew->rank]));
    wait_for_all(crew, one.coll);
    rb_coll_close(one.coll);
    rb_stage_free(one.stage);
    rb_placement_done(&one.placement);
    rb_traffic_done(&traffic);
    rb__plan__free_unpacked(one.plan, NULL);
    rb_model_free(step.model);
}

static void test_links(void **state)
{
    static const struct {
        int ranks;
        uint32_t stages;
    } shapes[] = {{2, 2}, {3, 2}, {3, 3}, {5, 2}, {5, 4}};

    (void)state;
    for (size_t k = 0; k < RB_COUNT(kinds); k++) {
        struct made made;

        make(&kinds[k], &made);
        for (size_t s = 0; s < RB_COUNT(shapes); s++)
            for (made.copies = 0; made.copies <= 2; made.copies++)
                for (int again = 0; again <= kinds[k].tight; again++) {
                    made.stages = shapes[s].stages;
                    made.recomputes = again;
                    crew_run(shapes[s].ranks, (enum crew_link)(s % CREW_LINKS), 0, body, &made);
                }
        done(&made);
    }
}

/* ---- By hand ---------------------------------------------------------------------------------*/

static double sum_of(const double *bytes, uint32_t n)
{
    double all = 0;

    for (uint32_t r = 0; r < n; r++)
        all += bytes[r];
    return all;
}

/* What is sent arrives.  Where all ranks hold all, each of two ranks sends what it makes; in
 * shards, a stage of one rank sends nothing, and with two replicas each block goes once. */
static void check_formulas(const struct kind *kind)
{
    struct made made;

    make(kind, &made);
    for (uint32_t ranks = 2; ranks <= 5; ranks++)
        for (made.copies = 0; made.copies <= 2; made.copies++)
            for (made.stages = 2; made.stages <= ranks; made.stages++) {
                double all = 4 * (double)made.model->state_elements, sums, weights;
                Rb__Plan *plan = new_plan(&made, ranks);
                struct rb_traffic traffic;
                bool sharded = plan->n_shards;

                rb_traffic_find(made.model, plan, &traffic);
                sums = sum_of(traffic.sums, ranks);
                weights = sum_of(traffic.weights, ranks);
                assert_true(fabs(sums - sum_of(traffic.sums_in, ranks)) < 1);
                assert_true(fabs(weights - sum_of(traffic.weights_in, ranks)) < 1);
                assert_true(fabs(4 * sum_of(traffic.held, ranks) -
                                 (sharded ? made.copies : ranks) * all) < SLACK);
                if (made.stages == ranks) {
                    assert_int_equal(weights, 0);
                    assert_true(fabs(sums - (sharded ? made.copies - 1 : ranks - 1) * all) < SLACK);
                } else {
                    assert_true(sharded == (weights > 0));
                }
                rb_traffic_done(&traffic);
                rb__plan__free_unpacked(plan, NULL);
            }
    done(&made);
}

/* The bytes of the rank that sends most. */
static double most_of(const struct made *made, uint32_t ranks)
{
    Rb__Plan *plan = new_plan(made, ranks);
    struct rb_traffic traffic;
    double most = 0;

    rb_traffic_find(made->model, plan, &traffic);
    for (uint32_t r = 0; r < ranks; r++)
        most = fmax(most, traffic.sums[r] + traffic.weights[r]);
    rb_traffic_done(&traffic);
    rb__plan__free_unpacked(plan, NULL);
    return most;
}

/* No rank is sent what only programs read that do not train. */
static void test_formulas(void **state)
{
    (void)state;
    check_formulas(&kinds[PLAIN]);
    check_formulas(&kinds[TIGHT]);
}

/* The copies of a job that computes activations again read the weights of other stages. */
static void test_again(void **state)
{
    struct made made;

    (void)state;
    make(&kinds[TIGHT], &made);
    made.stages = 3;
    made.copies = 1;
    assert_int_equal(most_of(&made, 3), 0);
    made.recomputes = true;
    assert_true(most_of(&made, 3) > 0);
    done(&made);
}

/* ---- The price -------------------------------------------------------------------------------*/

/* Bytes a step that the planner predicts for the device of a pinned pipeline that sends most. */
static double price(const struct made *made, uint32_t ranks, uint32_t copies)
{
    static const char text[] = "nodes: [{devices: [{count: 5, flops: 1e9, bandwidth: 1e9}],"
                               " inside: {bandwidth: 1e8}}]";
    static const struct rb_cost_profile none;
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    struct rb_cluster cluster;
    struct rb_search_how how = {.spec = &spec,
                                .model = made->model,
                                .cluster = &cluster,
                                .profile = &none,
                                .replicas = &copies};
    struct rb_search found;
    struct rb_why why;
    double sent = -1;

    parallel.has_pipeline = true;
    parallel.pipeline = made->stages;
    devices.max = ranks;
    spec.parallel = &parallel;
    spec.devices = &devices;
    if (rb_cluster_parse("c.yaml", text, strlen(text), &cluster, &why) ||
        rb_search_run(&how, ranks, &found, &why))
        fail_msg("%s", why.text);
    for (size_t i = 0; i < found.n; i++)
        if (found.candidates[i].way.stages == made->stages &&
            found.candidates[i].recomputes == made->recomputes)
            sent = found.candidates[i].sent;
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    assert_true(sent >= 0);
    return sent;
}

/* Two devices send each other equally many activations, and with one replica of the state nothing
 * else.  That a job may compute again costs nothing where it does not. */
static void test_price(void **state)
{
    struct made made, tight;

    (void)state;
    make(&kinds[PLAIN], &made);
    made.stages = 2;
    made.copies = 0;
    assert_true(fabs(price(&made, 2, 0) - price(&made, 2, 1) - most_of(&made, 2)) < 1);
    made.copies = 2;
    made.stages = 3;
    assert_true(price(&made, 3, 2) > price(&made, 3, 1));
    assert_true(price(&made, 3, 2) <= price(&made, 3, 1) + most_of(&made, 3));
    make(&kinds[TIGHT], &tight);
    tight.stages = 3;
    assert_true(price(&tight, 3, 1) == price(&made, 3, 1));
    done(&tight);
    done(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_price),
        cmocka_unit_test(test_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
