/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against numbers computed by hand. */
#include "plan/simulate/cost.h"
#include "plan/simulate/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void assert_near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fabs(expected) + 1e-15)
        fail_msg("%.12g, not %.12g", found, expected);
}

static double run(struct rb_simulate *simulate)
{
    struct rb_why why;
    double seconds;

    if (rb_simulate_run(simulate, &seconds, &why))
        fail_msg("%s", why.text);
    return seconds;
}

static int add_flow(struct rb_simulate *simulate, int link, double bytes, double latency)
{
    struct rb_simulate_task task = {.slot = RB_SIMULATE_NO_SLOT, .work = bytes, .latency = latency};

    rb_simulate_use(&task, link, 1);
    return rb_simulate_add(simulate, &task);
}

static int add_work(struct rb_simulate *simulate, int slot, double seconds)
{
    struct rb_simulate_task task = {.slot = slot, .work = seconds, .rate = 1};

    return rb_simulate_add(simulate, &task);
}

/* 10 and 30 bytes at 10 a second: the two flows share the link until the short one is done. */
static void test_sharing(void **state)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int link = rb_simulate_resource(simulate, 10);
    int small = add_flow(simulate, link, 10, 0), large = add_flow(simulate, link, 30, 0);

    (void)state;
    assert_near(run(simulate), 4);
    assert_near(rb_simulate_task(simulate, (size_t)small)->end, 2);
    assert_near(rb_simulate_task(simulate, (size_t)large)->end, 4);
    rb_simulate_free(simulate);
}

/* One flow over both links, one over each: 6 and 10 a second.  Max-min gives 3, 3 and 7. */
static void test_fairness(void **state)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int narrow = rb_simulate_resource(simulate, 6), wide = rb_simulate_resource(simulate, 10);
    struct rb_simulate_task both = {.slot = RB_SIMULATE_NO_SLOT, .work = 3};
    size_t a, b, c;

    (void)state;
    rb_simulate_use(&both, narrow, 1);
    rb_simulate_use(&both, wide, 1);
    a = (size_t)rb_simulate_add(simulate, &both);
    b = (size_t)add_flow(simulate, narrow, 3, 0);
    c = (size_t)add_flow(simulate, wide, 7, 0);
    assert_near(run(simulate), 1);
    assert_near(rb_simulate_task(simulate, a)->end, 1);
    assert_near(rb_simulate_task(simulate, b)->end, 1);
    assert_near(rb_simulate_task(simulate, c)->end, 1);
    rb_simulate_free(simulate);
}

/* Two tasks that would read 10 a second each from a memory of 15; one that reads nothing. */
static void test_memory(void **state)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int memory = rb_simulate_resource(simulate, 15);
    struct rb_simulate_task task = {.slot = RB_SIMULATE_NO_SLOT, .work = 3, .rate = 1};
    size_t still = (size_t)rb_simulate_add(simulate, &task), reading;

    (void)state;
    rb_simulate_use(&task, memory, 10);
    reading = (size_t)rb_simulate_add(simulate, &task);
    rb_simulate_add(simulate, &task);
    assert_near(run(simulate), 4);
    assert_near(rb_simulate_task(simulate, still)->end, 3);
    assert_near(rb_simulate_task(simulate, reading)->end, 4);
    rb_simulate_free(simulate);
}

/* A slot does one thing at a time, in the order of the numbers of the tasks that are ready. */
static void test_slots(void **state)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int slot = rb_simulate_slot(simulate), other = rb_simulate_slot(simulate);
    int late = add_work(simulate, slot, 1), second = add_work(simulate, slot, 2);
    int third = add_work(simulate, slot, 4), gate = add_work(simulate, other, 1);

    (void)state;
    rb_simulate_after(simulate, late, gate); /* ready at 1, while `second` has the slot until 2 */
    assert_near(run(simulate), 7);
    assert_near(rb_simulate_task(simulate, (size_t)second)->start, 0);
    assert_near(rb_simulate_task(simulate, (size_t)late)->start, 2);
    assert_near(rb_simulate_task(simulate, (size_t)third)->start, 3);
    rb_simulate_free(simulate);
}

static void test_cycle(void **state)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int a = add_work(simulate, RB_SIMULATE_NO_SLOT, 1);
    int b = add_work(simulate, RB_SIMULATE_NO_SLOT, 1);
    struct rb_why why;
    double seconds;

    (void)state;
    add_work(simulate, RB_SIMULATE_NO_SLOT, 1);
    rb_simulate_after(simulate, a, b);
    rb_simulate_after(simulate, b, a);
    assert_int_equal(rb_simulate_run(simulate, &seconds, &why), RB_EINVAL);
    assert_string_equal(why.text, "2 of 3 tasks wait for each other");
    rb_simulate_free(simulate);
}

/* A ring of n: 2(n-1) rounds, in each of which every rank sends an n-th to the next. */
static void test_ring(void **state)
{
    enum { MOST = 8 };
    static const double bytes = 48e6, bandwidth = 1e9, latency = 20e-6;

    (void)state;
    for (int n = 2; n <= MOST; n++) {
        struct rb_simulate *simulate = rb_simulate_new();
        int links[MOST], before[MOST], now[MOST];

        for (int r = 0; r < n; r++)
            links[r] = rb_simulate_resource(simulate, bandwidth);
        for (int round = 0; round < 2 * (n - 1); round++) {
            for (int r = 0; r < n; r++) {
                now[r] = add_flow(simulate, links[r], bytes / n, latency);
                if (round)
                    rb_simulate_after(simulate, now[r], before[(r + n - 1) % n]);
            }
            for (int r = 0; r < n; r++)
                before[r] = now[r];
        }
        assert_near(run(simulate), 2.0 * (n - 1) / n * bytes / bandwidth + 2 * (n - 1) * latency);
        rb_simulate_free(simulate);
    }
}

/* p stages, m microbatches, a forward of 1 s and a backward of 2: all forwards first, or 1F1B.
 * Both take (m + p - 1) times 3 s: the idle part is (p - 1)/(m + p - 1). */
static double pipeline(int p, int m, bool alternating)
{
    struct rb_simulate *simulate = rb_simulate_new();
    int *forward = calloc((size_t)(p * m), sizeof(int)), *last = calloc((size_t)p, sizeof(int));
    int *backward = calloc((size_t)(p * m), sizeof(int));
    double seconds;

    for (int k = 0; k < p; k++) {
        int slot = rb_simulate_slot(simulate);

        for (int i = 0; i < m; i++) {
            forward[k * m + i] = add_work(simulate, slot, 1);
            backward[k * m + i] = add_work(simulate, slot, 2);
        }
    }
    for (int k = 0; k < p; k++) {
        int ahead = alternating ? p - k : m, f = 0, b = 0; /* forwards without their backward */

        last[k] = -1;
        while (b < m) {
            bool goes = f < m && f - b < ahead;
            int i = goes ? forward[k * m + f++] : backward[k * m + b++];

            if (last[k] >= 0)
                rb_simulate_after(simulate, i, last[k]);
            last[k] = i;
        }
        for (int i = 0; i < m; i++) {
            if (k)
                rb_simulate_after(simulate, forward[k * m + i], forward[(k - 1) * m + i]);
            rb_simulate_after(simulate, backward[k * m + i],
                              k + 1 < p ? backward[(k + 1) * m + i] : forward[k * m + i]);
        }
    }
    seconds = run(simulate);
    rb_simulate_free(simulate);
    free(forward);
    free(backward);
    free(last);
    return seconds;
}

static void test_pipeline(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p *= 2)
        for (int m = p; m <= 32; m *= 2) {
            assert_near(pipeline(p, m, false), 3.0 * (m + p - 1));
            assert_near(pipeline(p, m, true), 3.0 * (m + p - 1));
        }
}

/* Four lanes whose microbatches each take 0.7 of their time alone share 0.4 of it, once a group. */
static void test_together(void **state)
{
    static const double seconds[1];
    static const struct rb_cost_profile profile = {.seconds = seconds, .lanes = 4, .together = 0.7};
    static const struct rb_cluster_device core = {.speed = 1}, other = {.flops = 1e12};
    static const double odd[] = {0, -1, 1.3, INFINITY, NAN};
    static const double parts[] = {1, 1, 0.8, 0.6 + 0.4 / 3, 0.7, 0.6 + 0.8 / 5};

    (void)state;
    for (uint32_t n = 0; n < sizeof parts / sizeof *parts; n++)
        assert_near(rb_cost_together(n, &core, &profile), parts[n]);
    assert_near(rb_cost_together(8, &core, &profile), 0.7);
    assert_near(rb_cost_together(4, &other, &profile), 1); /* not the device that was timed */
    for (size_t i = 0; i < sizeof odd / sizeof *odd;
         i++) { /* a profile is a blob, and may say anything */
        struct rb_cost_profile wrong = profile;

        wrong.together = odd[i];
        assert_near(rb_cost_together(4, &core, &wrong), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing),  cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_slots),
        cmocka_unit_test(test_cycle),    cmocka_unit_test(test_ring),
        cmocka_unit_test(test_pipeline), cmocka_unit_test(test_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
