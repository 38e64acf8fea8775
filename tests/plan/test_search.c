/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run a job compared: against numbers computed by hand for a model of one product. */
#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/search/inside.h"
#include "plan/simulate/timeline.h"
#include "tests/plan/near.h"
#include "tests/plan/product.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct rb_search search_with(const Rb__Model *model, const struct rb_cluster *cluster,
                                    uint32_t devices, const char *limit, const char *balance)
{
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    static const struct rb_cost_profile none;
    Rb__DevicesSpec asked = RB__DEVICES_SPEC__INIT;
    Rb__MemorySpec memory = RB__MEMORY_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    struct rb_search_how how = {&spec, model, cluster, &none, 1, 0};
    struct rb_search found;
    struct rb_why why;

    asked.max = devices;
    spec.devices = &asked;
    memory.limit = (char *)limit;
    spec.memory = &memory;
    parallel.balance = (char *)balance;
    spec.parallel = &parallel;
    if (rb_search_run(&how, devices, &found, &why))
        fail_msg("%s", why.text);
    return found;
}

/* GPUs: an instruction takes the profile's time, whatever a core would take, and a plan must fit
 * the GPUs' own memory. */
static struct rb_search search_gpus(const Rb__Model *model, const char *memory,
                                    const char *bandwidth)
{
    static const double seconds[1] = {3e-3};
    static const struct rb_cost_profile profile = {seconds, 1e15, 1e12};
    RB_CLEANUP(rb_freep)
    char *text = rb_format("nodes: [{inside: {bandwidth: %s, latency: 1e-6}, devices:"
                           " [{kind: cuda, count: 2, memory: %s}]}]",
                           bandwidth, memory);
    struct rb_cluster cluster = product_cluster(text);
    Rb__DevicesSpec asked = RB__DEVICES_SPEC__INIT;
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    uint32_t copies = 0;
    struct rb_search_how how = {.spec = &spec,
                                .model = model,
                                .cluster = &cluster,
                                .profile = &profile,
                                .replicas = &copies};
    struct rb_search found;
    struct rb_why why;

    asked.max = 2;
    asked.kind = (char *)"cuda";
    spec.devices = &asked;
    spec.parallel = &parallel;
    if (rb_search_run(&how, 2, &found, &why))
        fail_msg("%s", why.text);
    rb_cluster_done(&cluster);
    return found;
}

static struct rb_search search(const Rb__Model *model, const struct rb_cluster *cluster,
                               uint32_t devices, const char *limit)
{
    return search_with(model, cluster, devices, limit, "auto");
}

/* With a pin of the state, and of data parallelism (1) or none (0). */
static struct rb_search search_pinned(const Rb__Model *model, const struct rb_cluster *cluster,
                                      const char *replicas, uint32_t pipeline)
{
    static const struct rb_cost_profile none;
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    Rb__DevicesSpec asked = RB__DEVICES_SPEC__INIT;
    Rb__StateSpec held = RB__STATE_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    struct rb_search_how how = {
        .spec = &spec, .model = model, .cluster = cluster, .profile = &none};
    struct rb_search found;
    struct rb_why why;

    asked.max = cluster->n_devices;
    spec.devices = &asked;
    held.replicas = (char *)replicas;
    spec.state = &held;
    parallel.has_pipeline = pipeline != 0;
    parallel.pipeline = pipeline;
    spec.parallel = &parallel;
    if (rb_search_run(&how, cluster->n_devices, &found, &why))
        fail_msg("%s", why.text);
    return found;
}

static const struct rb_search_candidate *find_named(const struct rb_search *found, const char *name)
{
    for (size_t i = 0; i < found->n; i++)
        if (!strcmp(found->candidates[i].name, name))
            return &found->candidates[i];
    fail_msg("there is no '%s'", name);
    return NULL;
}

/* Devices take longer to update all of the state than to give each other weights: so two replicas
 * are chosen, where the job file does not say. */
static void test_search(void **state)
{
    Rb__Model *model = product_model(8);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 4, flops: 1e9, bandwidth: 1e9}],"
                        " inside: {bandwidth: 2e9}}]");
    struct rb_search found = search(model, &cluster, 4, NULL);
    const struct rb_search_candidate *half = &found.candidates[0], *all;
    struct rb_buffer svg = {0};

    (void)state;
    assert_int_equal(found.n, 3); /* one product: nothing to cut */
    assert_int_equal(half->verdict, RB_SEARCH_CHOSEN);
    assert_string_equal(half->name, "data parallel x4, 2 replicas of the state");
    assert_int_equal(half->way.copies, 2);
    assert_non_null(strstr(half->reason, "all of the state everywhere is "));
    assert_true(half->move.stall > 0);
    all = find_named(&found, "data parallel x4, all of the state everywhere");
    assert_int_equal(all->verdict, RB_SEARCH_RUNS);
    assert_true(half->seconds < 0.95 * all->seconds && half->memory < all->memory);
    assert_non_null(strstr(all->reason, "pin spec.parallel.pipeline: 1 to have it"));
    assert_near(all->move.stall, 0); /* from one device: three newcomers */
    assert_near(all->move.bytes, 3 * (12 + 4) * 1e6);
    rb_timeline_svg(all->simulate, "a <b> & c", &svg);
    assert_non_null(strstr(svg.data, "a &lt;b> &amp; c"));
    assert_non_null(strstr(svg.data, "compute 7"));
    assert_non_null(strstr(svg.data, "sum gradients 3"));
    assert_non_null(strstr(svg.data, "</svg>"));
    rb_buffer_done(&svg);
    rb_search_done(&found);
    found = search(model, &cluster, 2, NULL); /* two replicas on two devices are all of it */
    assert_string_equal(found.candidates[0].name, "data parallel x2, all of the state everywhere");
    assert_int_equal(found.candidates[0].way.copies, 0);
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* A pin of the job file is kept, even if something else is quicker. */
static void test_pinned_state(void **state)
{
    static const char half[] = "data parallel x4, 2 replicas of the state";
    Rb__Model *model = product_model(8);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 4, flops: 1e9, bandwidth: 1e9}],"
                        " inside: {bandwidth: 2e9}}]");
    struct rb_search found = search_pinned(model, &cluster, "all", 0);

    (void)state;
    assert_string_equal(found.candidates[0].name, "data parallel x4, all of the state everywhere");
    assert_non_null(strstr(found.candidates[0].reason, "state.replicas says so"));
    assert_non_null(strstr(find_named(&found, half)->reason, "pin spec.parallel.pipeline: 1 and"
                                                             " spec.state.replicas: 2 to have it"));
    rb_search_done(&found);
    found = search_pinned(model, &cluster, "1", 0);
    assert_int_equal(found.candidates[0].way.copies, 1);
    rb_search_done(&found);
    found = search_pinned(model, &cluster, "auto", 1); /* what a submit gives */
    assert_string_equal(found.candidates[0].name, "data parallel x4, all of the state everywhere");
    assert_non_null(strstr(found.candidates[0].reason, "it fits"));
    assert_non_null(
        strstr(find_named(&found, half)->reason, "; pin spec.state.replicas: 2 to have it"));
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* All of the state takes 21 MB, two replicas of it on 4 devices 15 MB. */
static void test_limit(void **state)
{
    Rb__Model *model = product_model(8);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 4, flops: 1e9, bandwidth: 1e9}]}]");
    struct rb_search found = search(model, &cluster, 4, "16M");

    (void)state;
    assert_string_equal(found.candidates[0].name, "data parallel x4, 2 replicas of the state");
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    assert_int_equal(found.candidates[2].verdict, RB_SEARCH_MISFIT);
    assert_non_null(strstr(found.candidates[2].reason, "MiB"));
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* A twin program with the product twice, and a quarter of the memory. */
static void add_again(Rb__Model *model)
{
    Rb__Program *again = product_program(), *copy = product_program();

    model->programs[0]->arena_bytes = 4 << 20;
    again->has_recomputes = again->recomputes = 1;
    again->instructions = rb_realloc(again->instructions, 2 * sizeof *again->instructions);
    again->instructions[again->n_instructions++] = copy->instructions[0];
    copy->n_instructions = 0;
    rb__program__free_unpacked(copy, NULL);
    model->programs = rb_realloc(model->programs, 2 * sizeof *model->programs);
    model->programs[model->n_programs++] = again;
}

/* On 4 devices two replicas take 18 MB; all of the state, which is what two devices have, takes 24,
 * and 21 where activations are computed again. */
static void test_again(void **state)
{
    static const double measured[1] = {3e-3};
    static const struct rb_cost_profile profile = {measured, 1e9, 1e9};
    static const struct rb_cluster_device core = {.speed = 2};
    static const char *const kept = "data parallel x4, 2 replicas of the state";
    Rb__Model *model = product_model(8);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 4, flops: 1e9, bandwidth: 1e9}]}]");
    const struct rb_search_candidate *again;
    struct rb_search found;

    (void)state;
    add_again(model);
    assert_near(rb_cost_program(model, 0, &core, &profile).seconds, 1.5e-3);
    assert_near(rb_cost_program(model, 1, &core, &profile).seconds, 3e-3);
    found = search(model, &cluster, 4, "22M");
    assert_string_equal(found.candidates[0].name, kept);
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    again =
        find_named(&found, "data parallel x4, 2 replicas of the state, activations computed again");
    assert_int_equal(again->verdict, RB_SEARCH_RUNS);
    assert_true(again->recomputes);
    assert_near(again->memory, found.candidates[0].memory - (3 << 20));
    assert_near(again->computing, found.candidates[0].computing + 2 * 2e-3);
    rb_search_done(&found);
    found = search(model, &cluster, 2, "22M");
    assert_string_equal(
        found.candidates[0].name,
        "data parallel x2, all of the state everywhere, activations computed again");
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    assert_int_equal(find_named(&found, "data parallel x2, all of the state everywhere")->verdict,
                     RB_SEARCH_MISFIT);
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* Data parallelism and two stages, each with all of the state and with two replicas, and four
 * stages: which of them is chosen, from the time they take and from what trains. */
static void test_choice(void **state)
{
    enum { DATA, HALF, TWO, TWO_HALF, FOUR_HALF, WAYS, NONE, FITS };
    static const struct rb_search_way ways[WAYS] = {
        [TWO] = {2, 0}, [HALF] = {0, 2}, [TWO_HALF] = {2, 2}, [FOUR_HALF] = {4, 2}};
    static const struct {
        double seconds[WAYS];
        int misfit, trains, chosen; /* NONE: none does */
        bool closed;
    } cases[] = {
        {{10, 11, 11, 9, 11}, FITS, NONE, TWO_HALF, false},
        {{10, 9.6, 9.7, 9.6, 11}, FITS, NONE, DATA, false},
        {{10, 9, 9.3, 11, 12}, FITS, NONE, HALF, false},
        {{10, 9.7, 9, 9.2, 8}, FITS, NONE, FOUR_HALF, false},
        {{10, 11, 9, 9.3, 8}, FOUR_HALF, NONE, TWO, false},
        {{10, 7, 9, 9, 8}, FITS, NONE, DATA, true},
        {{10, 11, 9, 8.7, 11}, FITS, TWO, TWO, false}, /* other stages, or another state */
        {{10, 11, 9, 8.5, 11}, FITS, TWO, TWO_HALF, false},
        {{10, 9.9, 11, 10.4, 11}, FITS, TWO_HALF, TWO_HALF, false},
        {{10, 10, 11, 10.6, 11}, FITS, TWO_HALF, DATA, false},
        {{9.6, 10, 9.7, 9.8, 9.6}, FITS, HALF, HALF, false},
        {{9.6, 10, 9.7, 9.4, 9.6}, FITS, HALF, TWO_HALF, false},
        {{10, 30, 20, 20.1, 30}, DATA, NONE, TWO, false},
        {{10, 11, 20, 20, 30}, FOUR_HALF, FOUR_HALF, DATA, false},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_search_candidate candidates[WAYS] = {{.seconds = 0}};
        struct rb_search search = {4, candidates, WAYS};
        struct rb_search_how how = {0};
        struct rb_search_work work = {.how = &how, .search = &search, .devices = 4, .data = DATA};

        for (int c = 0; c < WAYS; c++) {
            candidates[c].way = ways[c];
            candidates[c].open = true;
            candidates[c].seconds = cases[i].seconds[c];
            candidates[c].verdict = cases[i].misfit == c ? RB_SEARCH_MISFIT : RB_SEARCH_RUNS;
        }
        if (cases[i].trains != NONE)
            how.running = &ways[cases[i].trains];
        work.open = !cases[i].closed;
        rb_search_choose(&work);
        for (int c = 0; c < WAYS; c++)
            if ((candidates[c].verdict == RB_SEARCH_CHOSEN) != (c == cases[i].chosen))
                fail_msg("case %zu: %d is %s", i, c, rb_search_verdict_text(candidates[c].verdict));
    }
}

/* With no more devices than replicas each device has all: a way with replicas that trained on two
 * devices, or on more, goes on. */
static void test_all_are_few(void **state)
{
    static const struct rb_search_way trains = {0, 2};
    struct rb_search_candidate candidates[] = {
        {.open = true, .way = {0, 0}, .seconds = 10, .verdict = RB_SEARCH_RUNS},
        {.open = true, .way = {2, 0}, .seconds = 9.6, .verdict = RB_SEARCH_RUNS}};
    struct rb_search search = {2, candidates, 2};
    struct rb_search_how how = {.running = &trains};
    struct rb_search_work work = {.how = &how, .search = &search, .devices = 2, .open = true};

    (void)state;
    rb_search_choose(&work);
    assert_int_equal(candidates[0].verdict, RB_SEARCH_CHOSEN);
    candidates[0].verdict = RB_SEARCH_RUNS;
    how.running = &(struct rb_search_way){4, 2};
    rb_search_choose(&work);
    assert_int_equal(candidates[1].verdict, RB_SEARCH_CHOSEN);
}

/* Over a network of 1 MB/s one device is quicker than four, and the reason of the choice says
 * so. */
static void test_slow_network(void **state)
{
    Rb__Model *model = product_model(8);
    struct rb_cluster cluster = product_cluster("nodes: [{count: 4, network: {bandwidth: 1e6},"
                                                " devices: [{flops: 1e9, bandwidth: 1e9}]}]");
    struct rb_search found = search(model, &cluster, 4, NULL);

    (void)state;
    assert_non_null(strstr(found.candidates[0].reason, "; 1 device would take "));
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* Where devices differ enough, shares follow speed, unless the job file wants even ones. */
static void test_uneven(void **state)
{
    Rb__Model *model = product_model(44);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 2, flops: 4e7, bandwidth: 1e12},"
                        " {flops: 2e7, bandwidth: 1e12}, {flops: 1e7, bandwidth: 1e12}]}]");
    struct rb_search found = search(model, &cluster, 4, NULL);
    const struct rb_search_candidate *even =
        find_named(&found, "data parallel x4, all of the state everywhere");
    const struct rb_search_candidate *balanced = &found.candidates[0];

    (void)state;
    assert_int_equal(balanced->verdict, RB_SEARCH_CHOSEN);
    assert_int_equal(even->verdict, RB_SEARCH_RUNS);
    assert_non_null(strstr(balanced->name, "by speed"));
    assert_non_null(strstr(even->reason, "has not measured"));
    assert_true(balanced->seconds < 1.05 * 44 * 0.05 / 2.75);
    assert_true(even->seconds > 11 * 0.2);
    assert_true(balanced->idle < 0.01 && even->idle > 0.4);
    rb_search_done(&found);
    found = search_with(model, &cluster, 4, NULL, "even");
    assert_string_equal(found.candidates[0].name, "data parallel x4, all of the state everywhere");
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* A device that is on a node, or in a rack, with others has a part of its network. */
static void test_links_are_shared(void **state)
{
    struct rb_cluster cluster = product_cluster(
        "racks: [{name: a, network: {bandwidth: 6e9}}, {name: b}]\n"
        "nodes: [{count: 2, rack: a, devices: [{count: 4, flops: 1e13, bandwidth: 1e12}],"
        " inside: {bandwidth: 5e9}, network: {bandwidth: 8e9}},"
        " {rack: b, devices: [{count: 4, flops: 1e13, bandwidth: 1e12}],"
        " inside: {bandwidth: 5e9}, network: {bandwidth: 8e9}}]");
    struct rb_search_how how = {.cluster = &cluster};
    static const double expected[][2] = {{2, 5e9}, {4, 5e9}, {5, 2e9}, {8, 2e9}, {12, 6e9 / 8}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(expected); i++) {
        struct rb_search_work work = {.how = &how, .devices = (uint32_t)expected[i][0]};

        assert_near(rb_search_link(&work).bandwidth, expected[i][1]);
    }
    rb_cluster_done(&cluster);
}

/* 1,024 devices on 128 nodes: the bound is a tenth of a time that would be too slow. */
static void test_many(void **state)
{
    Rb__Model *model = product_model(4096);
    struct rb_cluster cluster =
        product_cluster("nodes: [{count: 128, devices: [{count: 8, flops: 1e13, bandwidth: 1e12}],"
                        " inside: {bandwidth: 1e11}, network: {bandwidth: 1e10, latency: 1e-5}}]");
    clock_t start = clock(); /* of this process alone */
    struct rb_search found = search(model, &cluster, 1024, NULL);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;

    (void)state;
    print_message("1,024 devices: %.2f s\n", seconds);
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    assert_true(seconds < 10);
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

static void test_gpus(void **state)
{
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    Rb__Model *model = product_model(4);
    struct rb_footprint footprint = rb_footprint_of(model);
    uint64_t alone = rb_footprint_total(&footprint, false, 0, 4);
    struct rb_search found = search_gpus(model, "1Gi", "1e12");

    (void)state;
    spec.devices = &devices;
    assert_false(rb_footprint_on_gpus(&spec, model));
    model->numeric_class = rb_string("cuda sm_90");
    assert_true(rb_footprint_on_gpus(&spec, model));
    assert_int_equal(rb_footprint_staged(&footprint, false, 0, 4, 4, 0), alone + (5 << 20));
    assert_int_equal(rb_footprint_staged(&footprint, false, 0, 4, 1, 0), alone);
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    assert_near(found.candidates[0].computing, 2 * 3e-3);
    assert_near(found.candidates[0].updating, 28e-6);
    rb_search_done(&found);
    found = search_gpus(model, "8Mi", "1e12");
    assert_true(found.n > 0);
    for (size_t i = 0; i < found.n; i++)
        if (!strncmp(found.candidates[i].name, "data parallel", 13))
            assert_int_equal(found.candidates[i].verdict, RB_SEARCH_MISFIT);
    rb_search_done(&found);
    found = search_gpus(model, "1Gi", "1e3"); /* a link through the hosts has no price */
    assert_int_equal(found.candidates[0].verdict, RB_SEARCH_CHOSEN);
    assert_int_equal(found.candidates[0].way.stages, 0);
    rb_search_done(&found);
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_pinned_state),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_slow_network),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_all_are_few),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_links_are_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
