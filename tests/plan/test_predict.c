/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters are read, and data-parallel steps predicted on them: against numbers computed by hand
 * for a model of one product. */
#include "plan/simulate/predict.h"
#include "tests/plan/near.h"
#include "tests/plan/product.h"

#include <stdlib.h>
#include <string.h>

/* ---- Clusters --------------------------------------------------------------------------------*/

static void test_cluster(void **state)
{
    struct rb_cluster cluster =
        product_cluster("nodes:\n"
                        "- name: a\n"
                        "  count: 2\n"
                        "  rack: r\n"
                        "  inside: {bandwidth: 4e9, latency: 5e-6}\n"
                        "  network: {bandwidth: 1e9, latency: 50e-6}\n"
                        "  devices: [{count: 2, memory: 8Gi}, {speed: 0.5}]\n"
                        "- {devices: [{flops: 1e12, bandwidth: 1e11}]}\n"
                        "racks: [{name: r, network: {bandwidth: 2e9, latency: 1e-3}}]\n");

    (void)state;
    assert_int_equal(cluster.n_nodes, 3);
    assert_int_equal(cluster.n_devices, 7);
    assert_string_equal(cluster.nodes[1].name, "a-1");
    assert_int_equal(cluster.devices[4].node, 1);
    assert_int_equal(cluster.devices[0].memory, UINT64_C(8) << 30);
    assert_true(cluster.devices[5].speed == 0.5);
    assert_true(cluster.devices[6].flops == 1e12);
    assert_int_equal(cluster.nodes[2].rack, RB_CLUSTER_NO_RACK);
    assert_true(rb_cluster_unmeasured(&cluster));
    assert_near(rb_cluster_latency(&cluster, 3), 5e-6);
    assert_near(rb_cluster_latency(&cluster, 6), 50e-6);
    rb_cluster_done(&cluster);
}

static void test_bad_clusters(void **state)
{
    static const char *const bad[][2] = {
        {"nodes: []", "no devices"},
        {"nodes: [{name: a}]", "a: it has no devices"},
        {"nodes: [{devices: [{count: 0}]}]", "no devices"},
        {"nodes: [{devices: [{speed: 0}]}]", "speed"},
        {"nodes: [{devices: [{speed: -1}]}]", "speed"},
        {"nodes: [{devices: [{flops: 1e9}]}]", "go together"},
        {"nodes: [{devices: [{flops: 0, bandwidth: 1}]}]", "flops"},
        {"nodes: [{devices: [{memory: lots}]}]", "no size"},
        {"nodes: [{devices: [{}], network: {bandwidth: -1}}]", "network"},
        {"nodes: [{devices: [{}], rack: r}]", "no rack 'r'"},
        {"nodes: [{devices: [{count: 4000000000}], count: 4000000000}]", "more than"},
        {"nodes: [{devises: [{}]}]", "devices"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(bad); i++) {
        struct rb_cluster cluster;
        struct rb_why why = {0};

        if (!rb_cluster_parse("c.yaml", bad[i][0], strlen(bad[i][0]), &cluster, &why))
            fail_msg("accepted: %s", bad[i][0]);
        if (!strstr(why.text, bad[i][1]) || !strstr(why.text, "c.yaml"))
            fail_msg("%s: %s", bad[i][0], why.text);
    }
}

/* ---- A step ----------------------------------------------------------------------------------*/

/* 1 GFLOP/s and 1 GB/s: a product takes 2 ms (its 120 kB 0.12 ms), sums 8 or 12 ms, the update 28.
 */
static const double product = 2e-3, set = 8e-3, sums = 12e-3, update = 28e-3;

static struct rb_predict_step predict(const Rb__Model *model, const struct rb_cluster *cluster,
                                      uint32_t ranks, const uint32_t *shares, uint32_t copies)
{
    static const struct rb_cost_profile none;
    struct rb_predict_how how = {model, cluster, &none, ranks, shares, copies};
    struct rb_predict_step step;
    struct rb_why why;

    if (rb_predict_data(&how, &step, &why))
        fail_msg("%s", why.text);
    rb_simulate_free(step.simulate);
    return step;
}

static void test_step(void **state)
{
    static const uint32_t alone[1] = {4}, pair[2] = {3, 1}, four[4] = {1, 1, 1, 1};
    Rb__Model *model = product_model(4);
    struct rb_cluster cluster =
        product_cluster("nodes: [{devices: [{count: 4, kind: cuda, flops: 1e9, bandwidth: 1e9}],"
                        " inside: {bandwidth: 2e9, latency: 1e-4}}]");
    double record = 24 * 4 + 8;
    struct rb_predict_step step;

    (void)state;
    step = predict(model, &cluster, 1, alone, 0);
    assert_near(step.seconds, 4 * product + set + 3 * sums + update);
    assert_near(step.sent, 0);
    step = predict(model, &cluster, 2, pair, 0);
    assert_near(step.computing, 3 * product + set + 2 * sums);
    assert_near(step.summing,
                PRODUCT_BUCKETS * (4.0 * PRODUCT_BUCKET / 2e9 + 1e-4) + record / 2e9 + 1e-4);
    assert_near(step.updating, update);
    assert_near(step.sent, 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET + record);
    step = predict(model, &cluster, 4, four, 0);
    assert_near(step.seconds, product + set +
                                  PRODUCT_BUCKETS * (1.5 * 4.0 * PRODUCT_BUCKET / 2e9 + 2e-4) +
                                  3 * record / 2e9 + 1e-4 + update);
    step = predict(model, &cluster, 4, four, 1);
    assert_near(step.updating, update / 4);
    /* a quarter to each of three others, while as much comes in */
    assert_near(step.summing, 0.75 * 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET / 2e9 + 1e-4 +
                                  3 * record / 2e9 + 1e-4);
    assert_near(step.gathering, 0.75 * 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET / 2e9 + 1e-4);
    assert_near(step.sent, 1.5 * 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET + 3 * record);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* Two nodes of two: two thirds of what a rank sends pass the network, which two ranks share. */
static void test_network(void **state)
{
    static const uint32_t shares[4] = {1, 1, 1, 1};
    Rb__Model *model = product_model(4);
    struct rb_cluster cluster =
        product_cluster("nodes: [{count: 2, devices: [{count: 2, flops: 1e9, bandwidth: 1e9}],"
                        " network: {bandwidth: 1e8}}]");
    struct rb_predict_step step = predict(model, &cluster, 4, shares, 0);
    double sent = 1.5 * 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET + 3 * (24 * 4 + 8);

    (void)state;
    assert_near(step.summing, 2 * sent * 2 / 3 / 1e8);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

/* Three cores of a node read each other's sums where they lie, while four cores send them, and so
 * do two cores on two nodes. */
static void test_looks(void **state)
{
    static const uint32_t shares[4] = {1, 1, 1, 1};
    Rb__Model *model = product_model(4);
    struct rb_cluster one =
        product_cluster("nodes: [{devices: [{count: 4, flops: 1e9, bandwidth: 1e9}],"
                        " inside: {bandwidth: 2e9, latency: 1e-4}}]");
    struct rb_cluster two =
        product_cluster("nodes: [{count: 2, devices: [{flops: 1e9, bandwidth: 1e9}],"
                        " network: {bandwidth: 2e9, latency: 1e-4}}]");
    double all = 4.0 * PRODUCT_BUCKETS * PRODUCT_BUCKET, record = 24 * 4 + 8;
    static const uint32_t three[3] = {2, 1, 1}, pair[2] = {2, 2};
    struct rb_predict_step step = predict(model, &one, 3, three, 0);

    (void)state;
    assert_near(step.summing, 2 * record / 2e9 + 1e-4);
    assert_near(step.updating, update + 2 * 3.5 * all / 1e9);
    assert_near(step.sent, 2 * record);
    step = predict(model, &one, 4, shares, 0);
    assert_near(step.updating, update);
    assert_near(step.sent, 1.5 * all + 3 * record);
    step = predict(model, &two, 2, pair, 0);
    assert_near(step.updating, update);
    assert_near(step.sent, all + record);
    rb_cluster_done(&one);
    rb_cluster_done(&two);
    rb__model__free_unpacked(model, NULL);
}

/* Devices that share a memory of 1.5 GB/s: bytes that two move at once take 4/3 of the time. */
static void test_shared_memory(void **state)
{
    static const uint32_t shares[2] = {1, 1};
    Rb__Model *model = product_model(2);
    struct rb_cluster cluster =
        product_cluster("nodes: [{memoryBandwidth: 1.5e9,"
                        " devices: [{count: 2, kind: cuda, flops: 1e15, bandwidth: 1e9}]}]");
    struct rb_predict_step step = predict(model, &cluster, 2, shares, 0);

    (void)state;
    assert_near(step.updating, update * 4 / 3);
    rb_cluster_done(&cluster);
    rb__model__free_unpacked(model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster), cmocka_unit_test(test_bad_clusters),
        cmocka_unit_test(test_step),    cmocka_unit_test(test_network),
        cmocka_unit_test(test_looks),   cmocka_unit_test(test_shared_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
