/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/vote.h"

#include "base/arena.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 7, VARIABLES = 3 };

struct box {
    struct rb_vote_shape shape;
    uint32_t ranks;
    uint8_t *records;
    struct rb_exponent exponents[VARIABLES];
    int32_t limits[VARIABLES];
    uint32_t largest[VARIABLES];
    struct rb_vote_decision decision;
    struct rb_why why;
};

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint8_t *record(struct box *box, uint32_t rank)
{
    return box->records + rank * rb_vote_bytes(&box->shape);
}

/* What a microbatch found: any function of its index. */
static double loss_of(uint32_t i)
{
    return 1.0 / (3.0 + i) + 1e9 * (i % 2);
}

/* Records in which microbatch i is at rank holder[i]; exponents with history. */
static void fill(struct box *box, uint32_t microbatches, uint32_t ranks, const uint32_t *holder)
{
    *box = (struct box){.shape = {microbatches, VARIABLES}, .ranks = ranks};
    box->records = rb_alloc(ranks * rb_vote_bytes(&box->shape));
    for (int v = 0; v < VARIABLES; v++) {
        box->exponents[v] = (struct rb_exponent){1.0, 10, true};
        box->limits[v] = rb_exponent_limit(microbatches);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        rb_vote_start(&box->shape, record(box, r), r, 41, 0);
        for (uint32_t v = 0; v < VARIABLES; v++)
            rb_vote_variable(&box->shape, record(box, r), v, bits_of(0.5f + (float)r), false);
        rb_vote_finish(record(box, r), 17, &(struct rb_vote_ready){0});
    }
    for (uint32_t i = 0; i < microbatches; i++)
        rb_vote_microbatch(&box->shape, record(box, holder[i]), i, loss_of(i), 2, 1);
}

static void say(struct box *box, uint32_t rank, uint32_t number, bool member, uint64_t digest)
{
    rb_vote_finish(record(box, rank), 17, &(struct rb_vote_ready){number, member, digest});
}

static int decide(struct box *box)
{
    return rb_vote_decide(&box->shape, box->records, box->ranks, 41, 0, box->exponents, box->limits,
                          &box->decision, box->largest, &box->why);
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Any partition, any number of ranks: the same loss to the last bit, the same maxima. */
static void test_any_partition(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        uint32_t microbatches = 1 + draw(&seed) % 130, ranks = 1 + draw(&seed) % MOST_RANKS;
        uint32_t holder[130];
        double loss = 0;
        struct box box;

        for (uint32_t i = 0; i < microbatches; i++) {
            holder[i] = draw(&seed) % ranks;
            loss += loss_of(i);
        }
        fill(&box, microbatches, ranks, holder);
        assert_int_equal(decide(&box), 0);
        assert_int_equal(box.decision.verdict, RB_VOTE_COMMIT);
        assert_memory_equal(&box.decision.loss, &loss, sizeof loss);
        assert_int_equal(box.decision.count, 2 * microbatches);
        assert_int_equal(box.decision.correct, microbatches);
        assert_int_equal(box.largest[1], bits_of(0.5f + (float)(ranks - 1)));
        assert_false(box.decision.flip);
        free(box.records);
    }
}

/* A microbatch in no record or in two, a record of another attempt, other counters: no decision. */
static void test_contradictions(void **state)
{
    const uint32_t holder[4] = {0, 0, 1, 1};
    struct box box;

    (void)state;
    for (int wrong = 0; wrong < 6; wrong++) {
        fill(&box, 4, 2, holder);
        switch (wrong) {
        case 0: /* missing */
            rb_vote_start(&box.shape, record(&box, 1), 1, 41, 0);
            rb_vote_microbatch(&box.shape, record(&box, 1), 2, 1, 1, 1);
            rb_vote_finish(record(&box, 1), 17, &(struct rb_vote_ready){0});
            break;
        case 1: /* twice */
            rb_vote_microbatch(&box.shape, record(&box, 0), 3, 1, 1, 1);
            break;
        case 2:
            rb_vote_start(&box.shape, record(&box, 1), 1, 40, 0);
            break;
        case 3:
            rb_vote_start(&box.shape, record(&box, 1), 1, 41, 1);
            break;
        case 4:
            rb_vote_start(&box.shape, record(&box, 1), 0, 41, 0);
            break;
        case 5:
            rb_vote_finish(record(&box, 1), 18, &(struct rb_vote_ready){0});
            break;
        }
        box.decision.count = -7;
        assert_int_equal(decide(&box), RB_EINTERNAL);
        assert_int_equal(box.decision.count, -7); /* outputs untouched */
        assert_true(box.why.text[0]);
        free(box.records);
    }
}

/* In a pipeline every stage has each microbatch once, and the last one's results count. */
static void test_stages(void **state)
{
    static const uint32_t stage[] = {0, 0, 1}, last[] = {2, 2, 2, 2};
    struct box box;

    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) {
        fill(&box, 4, 3, last);
        box.shape.stages = 2;
        box.shape.stage = stage;
        for (uint32_t i = 0; i < 4; i++)
            if (wrong != 1 || i != 2)
                rb_vote_microbatch(&box.shape, record(&box, i % 2), i, 77, 5, 5);
        if (wrong == 2)
            rb_vote_microbatch(&box.shape, record(&box, 0), 3, 0, 0, 0);
        if (wrong == 3)
            box.shape.stages = 0;
        assert_int_equal(decide(&box), wrong ? RB_EINTERNAL : 0);
        if (!wrong) {
            assert_int_equal(box.decision.verdict, RB_VOTE_COMMIT);
            assert_int_equal(box.decision.count, 8);
            assert_true(box.decision.loss == loss_of(0) + loss_of(1) + loss_of(2) + loss_of(3));
        }
        free(box.records);
    }
}

static void test_times(void **state)
{
    const uint32_t holder[] = {0, 1};
    const int32_t owners[] = {0, 1};
    struct box box;

    (void)state;
    fill(&box, 2, 2, holder);
    assert_int_equal(decide(&box), 0);
    assert_true(box.decision.times.mean == 0 && box.decision.times.variation == 0);
    rb_vote_computed(record(&box, 0), 3000, 7);
    rb_vote_computed(record(&box, 1), 1000, 8);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(rb_vote_pace(&box.shape, box.records, 1), 8);
    assert_int_equal(rb_vote_moved(&box.shape, box.records, owners), 0);
    assert_int_equal(rb_vote_moved(&box.shape, box.records, (int32_t[]){1, 1}), 1);
    assert_true(box.decision.times.mean == 2000 && box.decision.times.most == 3000);
    assert_true(box.decision.times.variation == 0.5);
    free(box.records);
}

static void test_verdicts(void **state)
{
    const uint32_t holder[2] = {0, 1};
    const float wild[] = {INFINITY, NAN, -INFINITY, FLT_MAX};
    struct box box;

    (void)state;
    fill(&box, 2, 2, holder);
    rb_vote_variable(&box.shape, record(&box, 1), 2, bits_of(4), true);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_REDO);
    assert_int_equal(box.largest[2], bits_of(4));

    box.exponents[2] = (struct rb_exponent){0}; /* no history flags, with or without overflow */
    rb_vote_variable(&box.shape, record(&box, 1), 2, bits_of(4), false);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_REDO);
    for (uint32_t r = 0; r < 2; r++)
        rb_vote_variable(&box.shape, record(&box, r), 2, 0, false);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_COMMIT); /* all zero: nothing to scale */

    for (size_t i = 0; i < RB_COUNT(wild); i++) {
        rb_vote_variable(&box.shape, record(&box, 1), 0, bits_of(fabsf(wild[i])), true);
        assert_int_equal(decide(&box), 0);
        assert_int_equal(box.decision.verdict, RB_VOTE_SKIP);
        assert_true(box.decision.not_finite);
    }
    rb_vote_variable(&box.shape, record(&box, 1), 0, bits_of(1), false);
    rb_vote_microbatch(&box.shape, record(&box, 1), 1, NAN, 2, 0);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_SKIP);
    assert_true(box.decision.not_finite);

    rb_vote_microbatch(&box.shape, record(&box, 0), 0, 0, 0, 0);
    rb_vote_microbatch(&box.shape, record(&box, 1), 1, 0, 0, 0);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_SKIP);
    assert_false(box.decision.not_finite); /* no valid target */
    free(box.records);
}

static void test_flips(void **state)
{
    const uint32_t holder[3] = {0, 1, 2};
    struct box box;

    (void)state;
    fill(&box, 3, 3, holder);
    say(&box, 0, 5, true, 99);
    say(&box, 1, 5, true, 99);
    assert_int_equal(decide(&box), 0);
    assert_false(box.decision.flip); /* one is not ready */
    say(&box, 2, 5, false, 0);       /* a leaver agrees without knowing the members */
    assert_int_equal(decide(&box), 0);
    assert_true(box.decision.flip);
    assert_int_equal(box.decision.number, 5);
    say(&box, 1, 5, true, 98);
    assert_int_equal(decide(&box), 0);
    assert_false(box.decision.flip); /* another list of members */
    say(&box, 1, 6, true, 99);
    assert_int_equal(decide(&box), 0);
    assert_false(box.decision.flip);
    for (uint32_t r = 0; r < 3; r++)
        say(&box, r, 7, false, 0);
    assert_int_equal(decide(&box), 0);
    assert_false(box.decision.flip); /* all would leave, and the state with them */
    for (uint32_t r = 0; r < 3; r++)
        say(&box, r, 8, true, 1);
    rb_vote_variable(&box.shape, record(&box, 0), 0, bits_of(4), true);
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.verdict, RB_VOTE_REDO);
    assert_false(box.decision.flip); /* no boundary */
    free(box.records);
}

/* What ranks would take beside, and what they would save, travels with the votes. */
static void test_wishes(void **state)
{
    const uint32_t holder[3] = {0, 1, 2};
    struct rb_vote_ready ready = {.collects = true, .takes_first = 7, .takes = 3}, said = {0};
    struct box box;

    (void)state;
    fill(&box, 3, 3, holder);
    rb_vote_finish(record(&box, 1), 17, &ready);
    rb_vote_finish(record(&box, 2), 17, &(struct rb_vote_ready){.gives_up = true});
    assert_int_equal(decide(&box), 0);
    assert_int_equal(box.decision.collector, 1);
    rb_vote_takes(&box.shape, box.records, 0, &said);
    assert_true(!said.takes && !said.gives_up);
    rb_vote_takes(&box.shape, box.records, 1, &said);
    assert_true(said.takes_first == 7 && said.takes == 3 && !said.gives_up);
    rb_vote_takes(&box.shape, box.records, 2, &said);
    assert_true(!said.takes && said.gives_up);
    free(box.records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_partition), cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_stages),        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_times),         cmocka_unit_test(test_flips),
        cmocka_unit_test(test_wishes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
