/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as the planner sees them: GPUs by a profile that was taken on a GPU, cores by one of a
 * core. */
#include "daemon/facts/measured.h"

#include "daemon/facts/mirror.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two nodes of a core and two GPUs, and a third node whose link has not been measured. */
static const char *const nodes[][2] = {
    {"a", "\"networkBandwidth\":1e9,\"networkLatency\":5e-5,"},
    {"b", "\"networkBandwidth\":2e9,\"networkLatency\":6e-5,"},
    {"c", ""},
};

static int begin(void **state)
{
    struct rb_mirror *mirror = rb_mirror_new();

    for (size_t i = 0; i < RB_COUNT(nodes); i++) {
        char key[32], value[900];
        struct rb_why why = {0};

        snprintf(key, sizeof key, "nodes/%s", nodes[i][0]);
        snprintf(
            value, sizeof value,
            "{\"name\":\"%s\",\"address\":\"unix:/x\",\"numericClass\":\"cpu x\",%s"
            "\"started\":1,\"memory\":\"64000\",\"devices\":["
            "{\"index\":0,\"kind\":\"cpu\",\"flops\":1e11,\"bandwidth\":1e10},"
            "{\"index\":2000,\"kind\":\"cuda\",\"numericClass\":\"cuda x\",\"bytes\":\"1000\"},"
            "{\"index\":2001,\"kind\":\"cuda\",\"numericClass\":\"cuda x\",\"bytes\":\"900\"}]}",
            nodes[i][0], nodes[i][1]);
        if (rb_mirror_put(mirror, key, value, strlen(value), 1 + (int64_t)i, 1 + (int64_t)i, 0,
                          &why))
            fail_msg("%s", why.text);
    }
    *state = mirror;
    return 0;
}

static int end(void **state)
{
    rb_mirror_free(*state);
    return 0;
}

/* "a:2000 b:2001" */
static int measure(struct rb_mirror *mirror, const char *places, const struct rb_measured_by *by,
                   struct rb_cluster *ret, struct rb_why *why)
{
    Rb__Configuration all = RB__CONFIGURATION__INIT;
    Rb__Member members[4], *list[4];
    char text[64], *rest = NULL;
    static char names[4][2];

    snprintf(text, sizeof text, "%s", places);
    all.members = list;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        size_t m = all.n_members++;

        rb__member__init(&members[m]);
        names[m][0] = word[0];
        members[m].node = names[m];
        members[m].device = (uint32_t)atoi(word + 2);
        list[m] = &members[m];
    }
    return rb_measured_cluster(rb_mirror_facts(mirror), &all, by, ret, why);
}

static void near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * expected)
        fail_msg("%g, not %g", found, expected);
}

static const struct rb_measured_by core = {.node = "a", .kind = "cpu", .copied = 6.5e9};
static const struct rb_measured_by gpu = {
    .node = "a", .kind = "cuda", .copied = 6.5e9, .crossing = 4e9};

/* GPUs are alike, with memory of their own each; what goes between them goes through their
 * hosts. */
static void gpus_are_by_their_profile(void **state)
{
    struct rb_cluster cluster;
    struct rb_why why = {0};

    if (measure(*state, "a:2000 a:2001 b:2001", &gpu, &cluster, &why))
        fail_msg("%s", why.text);
    assert_int_equal(cluster.n_devices, 3);
    assert_int_equal(cluster.n_nodes, 2);
    for (uint32_t d = 0; d < 3; d++) {
        assert_string_equal(cluster.devices[d].kind, "cuda");
        assert_true(cluster.devices[d].speed == 1);
        assert_int_equal(cluster.devices[d].memory, d ? 900 : 1000);
        assert_int_equal(cluster.devices[d].node, d / 2);
    }
    near(cluster.nodes[0].inside.bandwidth, 1 / (1e-9 + 2 / 4e9));
    near(cluster.nodes[1].network.bandwidth, 2e9);
    rb_cluster_done(&cluster);
}

static void cores_are_by_theirs(void **state)
{
    struct rb_cluster cluster;
    struct rb_why why = {0};

    if (measure(*state, "a:0 b:0", &core, &cluster, &why))
        fail_msg("%s", why.text);
    assert_string_equal(cluster.devices[1].kind, "cpu");
    assert_int_equal(cluster.devices[1].memory, 64000 / 3);
    near(cluster.nodes[0].inside.bandwidth, 1e9);
    rb_cluster_done(&cluster);
}

/* Times of a core say nothing of a GPU, nor the other way round. */
static void kinds_do_not_mix(void **state)
{
    struct rb_cluster cluster;
    struct rb_why why = {0};

    assert_int_equal(measure(*state, "a:2000 b:0", &gpu, &cluster, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "b:0"));
    assert_int_equal(measure(*state, "a:0 a:2001", &core, &cluster, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "a:2001"));
    assert_int_equal(measure(*state, "a:2005", &gpu, &cluster, &why), RB_ENOTFOUND);
}

/* A device that takes longer than a profile expects is that much slower, in steps; a device that
 * has reported nothing is like the others, and so is one that is about as quick. */
static void paces_are_speeds(void **state)
{
    static const uint32_t none[3], same[3] = {1040, 990, 1000}, slow[3] = {1500, 1700, 0},
                                   one[3] = {1000, 4000, 1010};
    struct rb_cluster cluster;
    struct rb_why why = {0};

    if (measure(*state, "a:2000 a:2001 b:2001", &gpu, &cluster, &why))
        fail_msg("%s", why.text);
    cluster.devices[2].speed = 0.5;
    rb_measured_paces(&cluster, none, 1000);
    assert_true(cluster.devices[0].speed == 1 && cluster.devices[2].speed == 0.5);
    rb_measured_paces(&cluster, slow, 1000);
    assert_true(cluster.devices[0].speed > 0.55 && cluster.devices[0].speed < 0.7);
    assert_true(cluster.devices[1].speed == cluster.devices[0].speed);
    near(cluster.devices[2].speed, cluster.devices[0].speed / 2);
    for (uint32_t d = 0; d < 3; d++)
        cluster.devices[d].speed = 1;
    rb_measured_paces(&cluster, same, 1000);
    for (uint32_t d = 0; d < 3; d++)
        assert_true(cluster.devices[d].speed == 1);
    rb_measured_paces(&cluster, one, 1000);
    assert_true(cluster.devices[0].speed == 1 && cluster.devices[2].speed == 1);
    assert_true(fabs(cluster.devices[1].speed - 0.25) < 0.0125);
    rb_cluster_done(&cluster);
}

static void links_are_needed(void **state)
{
    struct rb_cluster cluster;
    struct rb_why why = {0};

    assert_int_equal(measure(*state, "a:2000 c:2000", &gpu, &cluster, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, "link"));
    assert_int_equal(measure(*state, "c:2000 c:2001", &gpu, &cluster, &why), 0);
    rb_cluster_done(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_are_by_their_profile, begin, end),
        cmocka_unit_test_setup_teardown(cores_are_by_theirs, begin, end),
        cmocka_unit_test_setup_teardown(kinds_do_not_mix, begin, end),
        cmocka_unit_test_setup_teardown(paces_are_speeds, begin, end),
        cmocka_unit_test_setup_teardown(links_are_needed, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
