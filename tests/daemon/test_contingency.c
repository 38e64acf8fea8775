/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a configuration: the same for everyone who knows of the same deaths. */
#include "daemon/facts/contingency.h"

#include "base/buffer.h"
#include "base/error.h"
#include "daemon/facts/fit.h"
#include "daemon/facts/mirror.h"
#include "daemon/facts/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS = 4, MICROBATCHES = 12 };

static Rb__Member members[MEMBERS], *list[MEMBERS];
static Rb__Job job = RB__JOB__INIT;

/* Configuration 7 of A, B, C, D: 3 microbatches each. */
static Rb__Configuration four(void)
{
    static char *const names[MEMBERS] = {"A", "B", "C", "D"};
    Rb__Configuration conf = RB__CONFIGURATION__INIT;

    for (size_t m = 0; m < MEMBERS; m++) {
        rb__member__init(&members[m]);
        members[m].node = (char *)(m < 2 ? "a" : "b");
        members[m].device = (uint32_t)m % 2;
        members[m].worker = names[m];
        list[m] = &members[m];
    }
    conf.number = 7;
    conf.spare = conf.has_spare = 1;
    conf.spare = MEMBERS - 1;
    conf.state = RB__CONFIGURATION__STATE__ACTIVE;
    conf.cause = (char *)"grow";
    conf.members = list;
    conf.n_members = MEMBERS;
    return conf;
}

/* "8/2: A 0+3 9+1, C ..." */
static void expect(const Rb__Configuration *conf, const char *expected)
{
    struct rb_buffer text = {0};

    assert_non_null(conf);
    rb_buffer_format(&text, "%u/%u:", conf->number, conf->spare);
    for (size_t m = 0; m < conf->n_members; m++) {
        rb_buffer_format(&text, "%s %s", m ? "," : "", conf->members[m]->worker);
        for (size_t r = 0; r < conf->members[m]->n_runs; r++)
            rb_buffer_format(&text, " %u+%u", conf->members[m]->runs[r]->first,
                             conf->members[m]->runs[r]->count);
    }
    assert_string_equal(text.data, expected);
    rb_buffer_done(&text);
}

static void one_two_and_three(void **unused)
{
    struct rb_arena arena = {0};
    Rb__Configuration conf = four();
    const bool b[] = {0, 1, 0, 0}, bd[] = {0, 1, 0, 1}, abd[] = {1, 1, 0, 1}, all[] = {1, 1, 1, 1},
               none[MEMBERS] = {0};
    const Rb__Configuration *left;

    (void)unused;
    left = rb_contingency_make(&job, &conf, b, 1, &arena);
    expect(left, "8/2: A 0+4, C 4+1 6+3, D 5+1 9+3");
    assert_int_equal(left->left_of, 7);
    assert_int_equal(left->state, RB__CONFIGURATION__STATE__GO);
    assert_string_equal(left->cause, "crash");
    assert_string_equal(left->plan, "data parallel x3, 12 microbatches: 4 4 4");
    /* Members that were there keep what they had. */
    expect(rb_contingency_make(&job, &conf, bd, 1, &arena), "9/1: A 0+4 5+1 10+1, C 4+1 6+4 11+1");
    expect(rb_contingency_make(&job, &conf, abd, 1, &arena), "10/0: C 0+12");
    assert_null(rb_contingency_make(&job, &conf, all, 1, &arena));
    assert_null(rb_contingency_make(&job, &conf, none, 1, &arena));
    assert_non_null(rb_contingency_make(&job, &conf, bd, 2, &arena));
    assert_null(rb_contingency_make(&job, &conf, bd, 3, &arena)); /* spec.devices.min */
    conf.spare = 1;
    assert_null(rb_contingency_make(&job, &conf, bd, 1, &arena)); /* no number is kept */
    conf.spare = 3;
    members[2].worker = NULL; /* nobody knows which process that is */
    assert_null(rb_contingency_make(&job, &conf, b, 1, &arena));
    rb_arena_done(&arena);
}

/* Where speeds are known, the dead member's microbatches go where they are done soonest, and each
 * survivor is as quick as it was. */
static void shares_by_speed(void **unused)
{
    static const uint32_t us[MEMBERS] = {10, 10, 20, 40};
    struct rb_arena arena = {0};
    Rb__Configuration conf = four();
    const bool a[] = {1, 0, 0, 0};
    double as_it_is, by_speed;
    const Rb__Configuration *left;

    (void)unused;
    assert_false(rb_shares_price(&conf, 11, &arena, &as_it_is, &by_speed)); /* nobody knows */
    for (size_t m = 0; m < MEMBERS; m++) {
        conf.members[m]->has_microbatch_us = 1;
        conf.members[m]->microbatch_us = us[m];
    }
    assert_true(rb_shares_price(&conf, 11, &arena, &as_it_is, &by_speed));
    assert_int_equal((int)as_it_is, 80); /* even: 3 3 3 2 */
    assert_int_equal((int)by_speed, 40);
    rb_shares_cut(&conf, 11, &arena);
    expect(&conf, "7/3: A 0+4, B 4+4, C 8+2, D 10+1");
    assert_true(rb_shares_price(&conf, 11, &arena, &as_it_is, &by_speed));
    assert_int_equal((int)as_it_is, 40);
    job.microbatches = 11;
    left = rb_contingency_make(&job, &conf, a, 1, &arena);
    expect(left, "8/2: B 0+2 3+5, C 2+1 8+2, D 10+1");
    assert_string_equal(left->plan, "data parallel x3, 11 microbatches: 7 3 1");
    assert_int_equal(left->members[2]->microbatch_us, 40);
    rb_arena_done(&arena);
}

/* Shards are longer after a death: with three of A, B, C, D activations still fit, with two they do
 * not. */
static void computed_again(void **unused)
{
    struct rb_arena arena = {0};
    Rb__Configuration conf = four();
    Rb__Footprint footprint = RB__FOOTPRINT__INIT;
    const bool b[] = {0, 1, 0, 0}, bd[] = {0, 1, 0, 1};
    const Rb__Configuration *left;

    (void)unused;
    footprint.everywhere = 100;
    footprint.held = 240; /* 120 on each of four with two replicas, 160 of three, all of two */
    footprint.kept = 50;
    footprint.again = 20;
    footprint.limit = 310;
    job.footprint = &footprint;
    conf.replicas = 2;
    assert_false(rb_fit_recomputes(&job, &conf));
    left = rb_contingency_make(&job, &conf, b, 1, &arena);
    assert_false(left->recomputes);
    left = rb_contingency_make(&job, &conf, bd, 1, &arena);
    assert_true(left->recomputes && left->has_recomputes);
    assert_non_null(strstr(left->plan, ", activations computed again"));
    footprint.limit = 309;
    assert_true(rb_contingency_make(&job, &conf, b, 1, &arena)->recomputes);
    conf.pipeline = 2; /* microbatches under way take memory, too */
    assert_true(rb_fit_recomputes(&job, &conf));
    footprint.limit = 100 + 120 + 2 * 50;
    assert_false(rb_fit_recomputes(&job, &conf));
    job.numeric_class = (char *)"cuda sm_90";
    assert_true(rb_fit_recomputes(&job, &conf));
    footprint.limit = 100 + 120 + 4 * 50;
    assert_false(rb_fit_recomputes(&job, &conf));
    conf.recomputes = 1; /* a planner had a reason to */
    footprint.limit = 1000;
    assert_true(rb_contingency_make(&job, &conf, b, 1, &arena)->recomputes);
    job.footprint = NULL;
    assert_false(rb_fit_recomputes(&job, &conf));
    rb_arena_done(&arena);
}

/* Alike, or nearly: even shares, which are not written down. */
static void shares_of_the_alike(void **unused)
{
    struct rb_arena arena = {0};
    Rb__Configuration conf = four();

    (void)unused;
    for (size_t m = 0; m < MEMBERS; m++) {
        conf.members[m]->has_microbatch_us = 1;
        conf.members[m]->microbatch_us = 1000 + 20 * (uint32_t)m;
    }
    rb_shares_cut(&conf, 1024, &arena);
    expect(&conf, "7/3: A, B, C, D");
    conf.pipeline = 2;
    conf.members[0]->microbatch_us = 5000;
    rb_shares_cut(&conf, 1024, &arena);
    expect(&conf, "7/3: A, B, C, D");
    rb_arena_done(&arena);
}

/* ---- With facts ------------------------------------------------------------------------------ */

static struct rb_mirror *mirror;
static int64_t revision;

static void put(const char *key, const char *value)
{
    struct rb_why why = {0};

    revision++;
    if (rb_mirror_put(mirror, key, value, strlen(value), revision, revision, 0, &why))
        fail_msg("%s", why.text);
}

static void put_report(const char *place, const char *worker, const char *state, const char *more)
{
    char key[64], value[256];

    snprintf(key, sizeof(key), "jobs/j/workers/%s", place);
    snprintf(value, sizeof(value),
             "{\"worker\":\"%s\",\"state\":\"%s\",\"active\":7,\"level\":5%s}", worker, state,
             more);
    put(key, value);
}

#define MEMBER(place, device, worker)                                                              \
    "{\"node\":\"" place "\",\"device\":" device ",\"worker\":\"" worker "\"}"

static void put_job(const char *active)
{
    char state[128];

    snprintf(state, sizeof(state), "{\"phase\":\"Running\",\"active\":%s,\"newest\":10}", active);
    put("jobs/j/job",
        "{\"name\":\"gpt\",\"id\":\"j\",\"created\":1,\"spec\":{\"devices\":{\"min\":1}},"
        "\"model\":\"M\",\"weights\":\"W\",\"node\":\"a\",\"steps\":9,"
        "\"microbatches\":12,\"numericClass\":\"cpu\"}");
    put("jobs/j/state", state);
    put("jobs/j/configurations/00000007",
        "{\"number\":7,\"state\":\"ACTIVE\",\"cause\":\"grow\",\"asked\":1,\"created\":1,\"spare\":"
        "3,"
        "\"members\":[" MEMBER("a", "0", "A") "," MEMBER("a", "1", "B") "," MEMBER(
            "b", "0", "C") "," MEMBER("b", "1", "D") "]}");
    put_report("a:0", "A", "TRAINING", "");
    put_report("a:1", "B", "TRAINING", "");
    put_report("b:0", "C", "TRAINING", "");
    put_report("b:1", "D", "TRAINING", "");
}

static const Rb__Configuration *next(struct rb_arena *arena, const char *dead)
{
    const char *known[] = {dead};
    struct rb_contingency_known all = {.dead = known, .n_dead = dead != NULL};

    return rb_contingency_next(rb_facts_job(rb_mirror_facts(mirror), "j"), &all, arena);
}

static const char ad[] = "9/1: B 0+1 2+4 10+1, C 1+1 6+4 11+1";

static void whatever_way_it_is_known(void **unused)
{
    struct rb_arena arena = {0};

    (void)unused;
    put_job("7");
    assert_null(next(&arena, NULL));
    expect(next(&arena, "A"), "8/2: B 0+1 3+3, C 1+1 6+3, D 2+1 9+3");
    put_report("b:1", "D", "DEAD", "");
    expect(next(&arena, "A"), ad);
    put_report("b:1", "E", "IDLE", ""); /* another process has its device */
    expect(next(&arena, "A"), ad);
    put_report("b:1", "D", "TRAINING", "");
    put("jobs/j/workers/b:0", "{\"worker\":\"C\",\"state\":\"TRAINING\",\"active\":8,\"level\":5,"
                              "\"without\":[\"D\"]}"); /* its agent had the proof */
    expect(next(&arena, "A"), ad);
    rb_arena_done(&arena);
}

/* A second death, after one that is recorded and after one that is not. */
static void counted_from_what_was_planned(void **unused)
{
    struct rb_arena arena = {0};

    (void)unused;
    put_job("8");
    put("jobs/j/configurations/00000008",
        "{\"number\":8,\"state\":\"ACTIVE\",\"cause\":\"crash\",\"asked\":1,\"created\":1,"
        "\"spare\":2,"
        "\"leftOf\":7,\"members\":[" MEMBER("a", "1", "B") "," MEMBER("b", "0", "C") "," MEMBER(
            "b", "1", "D") "]}");
    assert_null(next(&arena, NULL));
    assert_null(next(&arena, "A"));
    expect(next(&arena, "D"), ad);
    put("jobs/j/configurations/00000009",
        "{\"number\":9,\"state\":\"ABANDONED\",\"cause\":\"crash\","
        "\"asked\":1,\"created\":1,\"leftOf\":7}");
    assert_null(next(&arena, "D")); /* it was tried */
    rb_arena_done(&arena);
}

static void only_with_the_state(void **unused)
{
    struct rb_arena arena = {0};
    static const char *const places[] = {"a:1", "b:0", "b:1"}, *const names[] = {"B", "C", "D"};

    (void)unused;
    put_job("7");
    for (size_t i = 0; i < RB_COUNT(places); i++) {
        char key[32], value[64];

        snprintf(key, sizeof(key), "jobs/j/workers/%s", places[i]);
        snprintf(value, sizeof(value), "{\"worker\":\"%s\",\"state\":\"IDLE\"}", names[i]);
        put(key, value);
    }
    assert_null(next(&arena, "A"));
    put_report("b:0", "C", "TRAINING", "");
    assert_non_null(next(&arena, "A"));
    rb_arena_done(&arena);
}

static void one_number_for_two_sets(void **unused)
{
    struct rb_arena arena = {0};
    Rb__Configuration conf = four();
    Rb__WorkerReport report = RB__WORKER_REPORT__INIT;
    const bool a[] = {1, 0, 0, 0}, b[] = {0, 1, 0, 0};
    const Rb__Configuration *without_a = rb_contingency_make(&job, &conf, a, 1, &arena);
    const Rb__Configuration *without_b = rb_contingency_make(&job, &conf, b, 1, &arena);
    char *names[] = {"A"};

    (void)unused;
    report.active = 8;
    report.without = names;
    report.n_without = 1;
    assert_true(rb_contingency_entered(&report, without_a, &conf));
    assert_false(rb_contingency_entered(&report, without_b, &conf));
    report.active = 7;
    assert_false(rb_contingency_entered(&report, without_a, &conf));
    assert_true(rb_contingency_descends(without_a, 7) && rb_contingency_descends(without_a, 8));
    assert_false(rb_contingency_descends(without_a, 6) || rb_contingency_descends(without_a, 9));
    assert_false(rb_contingency_descends(&conf, 8));
    rb_arena_done(&arena);
}

static int setup(void **state)
{
    (void)state;
    rb__job__init(&job);
    job.microbatches = MICROBATCHES;
    job.numeric_class = (char *)"cpu";
    mirror = rb_mirror_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rb_mirror_free(mirror);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_two_and_three),        TEST(shares_by_speed),
        TEST(computed_again),           TEST(shares_of_the_alike),
        TEST(whatever_way_it_is_known), TEST(counted_from_what_was_planned),
        TEST(only_with_the_state),      TEST(one_number_for_two_sets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
