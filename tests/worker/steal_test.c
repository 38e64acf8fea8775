/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that change hands: played with links that keep order and take their time. */
#include "base/arena.h"
#include "worker/step/steal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 6, MICROBATCHES = 40, LETTERS = 4096 };

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

struct letter {
    uint32_t from, to;
    uint64_t at; /* us when it arrives */
    struct rb_steal_message message;
};

struct play {
    uint64_t seed, now;
    uint32_t ranks, microbatches, latency;
    uint32_t takes[RANKS]; /* us that a microbatch really takes */
    struct rb_steal *steal[RANKS];
    uint64_t begins[RANKS];            /* after the vote before */
    uint64_t busy[RANKS], done[RANKS]; /* until when; when it was last done */
    bool computes[RANKS];
    uint32_t by[MICROBATCHES]; /* how often it was computed */
    struct letter letters[LETTERS];
    size_t n_letters, n_read;
    uint64_t last[RANKS][RANKS];
};

static void send(struct play *play, uint32_t from, uint32_t to, struct rb_steal_message message)
{
    uint64_t at = play->now + 1 + draw(&play->seed) % play->latency;

    if (at <= play->last[from][to])
        at = play->last[from][to] + 1;
    play->last[from][to] = at;
    assert_true(play->n_letters < LETTERS);
    play->letters[play->n_letters++] = (struct letter){from, to, at, message};
}

/* What rb_stealing_run does. */
static void act(struct play *play, uint32_t r)
{
    struct rb_steal_message message;
    uint32_t microbatch;
    bool has = rb_steal_next(play->steal[r], &microbatch);
    int whom;

    while (rb_steal_tell(play->steal[r], has, &message))
        for (uint32_t to = 0; to < play->ranks; to++)
            if (to != r)
                send(play, r, to, message);
    whom = rb_steal_ask(play->steal[r], has, play->now, &message);
    if (whom >= 0)
        send(play, r, (uint32_t)whom, message);
    if (!has)
        return;
    play->by[microbatch]++;
    play->computes[r] = true;
    play->busy[r] = play->done[r] = play->now + play->takes[r];
    rb_steal_took(play->steal[r], play->takes[r]);
}

static void hear(struct play *play, uint32_t r)
{
    for (bool more = true; more;) {
        struct letter *first = NULL;
        struct rb_steal_message answer;
        bool answers;

        for (size_t i = 0; i < play->n_letters; i++) {
            struct letter *letter = &play->letters[i];

            if (letter->to == r && letter->at <= play->now && (!first || letter->at < first->at))
                first = letter;
        }
        more = first != NULL;
        if (!more)
            break;
        assert_int_equal(rb_steal_hear(play->steal[r], first->from, first->message, play->now,
                                       &answers, &answer, NULL),
                         0);
        if (answers)
            send(play, r, first->from, answer);
        *first = play->letters[--play->n_letters];
    }
}

static bool ended(const struct play *play)
{
    for (uint32_t r = 0; r < play->ranks; r++)
        if (play->computes[r] || !rb_steal_ended(play->steal[r]))
            return false;
    return true;
}

/* Until all have ended; returns the time it took. */
static uint64_t run(struct play *play)
{
    uint64_t last = 0;

    while (!ended(play)) {
        uint64_t next = UINT64_MAX;

        for (uint32_t r = 0; r < play->ranks; r++)
            if (play->computes[r] && play->busy[r] <= play->now)
                play->computes[r] = false;
        for (uint32_t r = 0; r < play->ranks; r++)
            if (play->begins[r] <= play->now && !play->computes[r] &&
                !rb_steal_ended(play->steal[r])) {
                hear(play, r);
                act(play, r);
            }
        for (uint32_t r = 0; r < play->ranks; r++)
            if (play->computes[r] && play->busy[r] < next)
                next = play->busy[r];
        for (uint32_t r = 0; r < play->ranks; r++)
            if (play->begins[r] > play->now && play->begins[r] < next)
                next = play->begins[r];
        for (size_t i = 0; i < play->n_letters; i++)
            if (play->letters[i].at > play->now && play->letters[i].at < next)
                next = play->letters[i].at;
        if (ended(play))
            break;
        assert_true(next != UINT64_MAX); /* otherwise all wait for ever */
        play->now = next;
    }
    assert_int_equal(play->n_letters, 0); /* no message is left in front of the reduction */
    for (uint32_t m = 0; m < play->microbatches; m++)
        assert_int_equal(play->by[m], 1);
    for (uint32_t r = 0; r < play->ranks; r++)
        last = play->done[r] > last ? play->done[r] : last;
    return last;
}

static void begin(struct play *play, const int32_t *owners, const uint32_t *said)
{
    for (uint32_t r = 0; r < play->ranks; r++) {
        play->steal[r] = rb_steal_new(r, play->ranks, owners, play->microbatches);
        for (uint32_t i = 0; i < play->ranks; i++)
            play->steal[r]->paces[i] = said[i];
        rb_steal_begin(play->steal[r]);
    }
}

static void end(struct play *play)
{
    for (uint32_t r = 0; r < play->ranks; r++)
        rb_steal_free(play->steal[r]);
}

/* Whatever the shares, the speeds, and the believed speeds: each microbatch is computed once, and
 * all ranks come to an end. */
static void test_each_once(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct play play = {.seed = draw(&seed), .ranks = 2 + draw(&seed) % (RANKS - 1)};
        int32_t owners[MICROBATCHES];
        uint32_t said[RANKS];

        play.microbatches = 1 + draw(&seed) % MICROBATCHES;
        play.latency = 1 + draw(&seed) % (round % 3 ? 20 : 2000);
        for (uint32_t m = 0; m < play.microbatches; m++)
            owners[m] = (int32_t)(draw(&seed) % play.ranks);
        for (uint32_t r = 0; r < play.ranks; r++) {
            play.takes[r] = 100 + draw(&seed) % 2000;
            said[r] = round % 2 ? play.takes[r] : 1 + draw(&seed) % 3000;
        }
        begin(&play, owners, said);
        run(&play);
        end(&play);
    }
}

/* Speeds 1, 1, 1/2, 1/4 and even shares: at most the time of one of the slowest rank's microbatches
 * more than the ideal, where the shares alone take 2.75 times as long. */
static void test_evens_out(void **state)
{
    static const uint32_t takes[] = {1000, 1000, 2000, 4000};
    struct play play = {.seed = 1, .ranks = 4, .microbatches = MICROBATCHES, .latency = 10};
    int32_t owners[MICROBATCHES];
    uint64_t took;

    (void)state;
    for (int32_t m = 0; m < MICROBATCHES; m++)
        owners[m] = m / (MICROBATCHES / 4);
    memcpy(play.takes, takes, sizeof takes);
    begin(&play, owners, takes);
    took = run(&play);
    print_message("even shares: 40 ms, with stealing: %.1f ms, ideal: %.1f ms\n",
                  (double)took / 1e3, MICROBATCHES / 2.75);
    assert_true(took < 1000 * MICROBATCHES / 2.75 + 4000);
    end(&play);
}

/* A rank that was quick until now is slow in this step: the others take over. */
static void test_hiccup(void **state)
{
    static const uint32_t said[] = {1000, 1000, 1000, 1000}, takes[] = {1000, 1000, 1000, 6000};
    struct play play = {.seed = 1, .ranks = 4, .microbatches = MICROBATCHES, .latency = 10};
    int32_t owners[MICROBATCHES];
    uint64_t took;

    (void)state;
    for (int32_t m = 0; m < MICROBATCHES; m++)
        owners[m] = m / (MICROBATCHES / 4);
    memcpy(play.takes, takes, sizeof takes);
    begin(&play, owners, said);
    took = run(&play);
    assert_true(took < 20000); /* 60 without */
    end(&play);
}

/* A rank saves before it begins: it counts the others' reports from the moment of the vote, not
 * from its own beginning, and gives microbatches to a rank that is done long before it. */
static void test_late(void **state)
{
    static const uint32_t takes[] = {1000, 1000};
    struct play play = {.ranks = 2, .microbatches = 20, .latency = 10, .begins = {8000, 0}};
    int32_t owners[MICROBATCHES];

    (void)state;
    for (int32_t m = 0; m < 20; m++)
        owners[m] = m / 10;
    memcpy(play.takes, takes, sizeof takes);
    begin(&play, owners, takes);
    assert_true(run(&play) < 16000); /* 18 without */
    end(&play);
}

static void test_judge(void **state)
{
    const int32_t owners[] = {0, 0, 1, 1}, single[] = {0, 1};
    struct rb_steal *steal = rb_steal_new(0, 2, owners, 4);

    (void)state;
    steal->paces[0] = steal->paces[1] = 1000;
    rb_steal_judge(steal, 1e7, 1.2e7, 0);
    assert_false(steal->on); /* once may be chance */
    rb_steal_judge(steal, 1e7, 1.2e7, 0);
    assert_true(steal->on);
    rb_steal_judge(steal, 1e7, 1e7, 2);
    assert_true(steal->on); /* stealing is why they are done at once */
    for (int i = 0; i < 4; i++)
        rb_steal_judge(steal, 1e7, 1e7, 0);
    assert_false(steal->on);
    for (int i = 0; i < 4; i++)
        rb_steal_judge(steal, 1e7, 1.02e7, 0);
    assert_false(steal->on);
    steal->paces[1] = 0;
    for (int i = 0; i < 4; i++)
        rb_steal_judge(steal, 1e7, 2e7, 0);
    assert_false(steal->on); /* one rank has not measured */
    rb_steal_free(steal);
    steal = rb_steal_new(0, 2, single, 2);
    steal->paces[0] = steal->paces[1] = 1000;
    for (int i = 0; i < 4; i++)
        rb_steal_judge(steal, 1e7, 2e7, 0);
    assert_false(steal->on); /* there is nothing to take */
    rb_steal_free(steal);
}

/* A rank that owns nothing has nothing to measure: that must not keep the others from stealing, and
 * this rank steals too. */
static void test_unmeasured(void **state)
{
    const int32_t owners[] = {0, 0, 0, 1};
    struct rb_steal *steal = rb_steal_new(0, 3, owners, 4);

    (void)state;
    steal->paces[0] = 1000;
    for (int i = 0; i < 4; i++)
        rb_steal_judge(steal, 1e7, 2e7, 0);
    assert_false(steal->on); /* rank 1 has something, and is not measured yet */
    for (int i = 0; i < 4; i++) {
        steal->paces[1] = 3000;
        steal->paces[2] = 0;
        rb_steal_judge(steal, 1e7, 2e7, 0);
        if (steal->on)
            break;
    }
    assert_true(steal->on);
    assert_int_equal(steal->paces[0], 1000);
    assert_int_equal(steal->paces[2], 3000);
    steal->paces[2] = 500;
    rb_steal_judge(steal, 1e7, 1e7, 1);
    assert_int_equal(steal->paces[2], 500); /* its own pace, as soon as there is one */
    rb_steal_free(steal);
}

/* Uneven and not to be divided, three on two ranks: stealing is tried less and less often, and as
 * often as at first once a microbatch has moved. */
static void test_in_vain(void **state)
{
    const int32_t owners[] = {0, 0, 1};
    struct rb_steal *steal = rb_steal_new(0, 2, owners, 3);

    (void)state;
    steal->paces[0] = steal->paces[1] = 1000;
    for (int i = 0; i < 8; i++) {
        int votes = 0;

        for (; !steal->on; votes++)
            rb_steal_judge(steal, 1.5e7, 2e7, 0);
        assert_int_equal(votes, i < 5 ? 2 << i : 64);
        rb_steal_judge(steal, 1.5e7, 2e7, 0);
        assert_true(steal->on);
        rb_steal_judge(steal, 1.5e7, 2e7, 0);
        assert_false(steal->on);
    }
    while (!steal->on)
        rb_steal_judge(steal, 1.5e7, 2e7, 0);
    rb_steal_judge(steal, 1.5e7, 1.5e7, 1);
    while (steal->on)
        rb_steal_judge(steal, 1.5e7, 1.5e7, 0);
    for (int i = 0; i < 2; i++)
        rb_steal_judge(steal, 1.5e7, 2e7, 0);
    assert_true(steal->on);
    rb_steal_free(steal);
}

/* Two of three own something and are done at the same time: that the third is done before them is
 * planned. */
static void test_no_share(void **state)
{
    const int32_t owners[] = {0, 0, 1, 1};
    struct rb_steal *steal = rb_steal_new(0, 3, owners, 4);

    (void)state;
    steal->paces[0] = steal->paces[1] = steal->paces[2] = 1000;
    for (int i = 0; i < 8; i++) {
        rb_steal_judge(steal, 2e7 * 2 / 3, 2e7, 0);
        assert_false(steal->on);
    }
    for (int i = 0; i < 2; i++)
        rb_steal_judge(steal, 3e7 * 2 / 3, 4e7, 0);
    assert_true(steal->on);
    rb_steal_free(steal);
}

/* A peer that is broken, or worse. */
static void test_refused(void **state)
{
    static const struct rb_steal_message bad[] = {{RB_STEAL_GIVE, 2, 2, 0},
                                                  {RB_STEAL_GIVE, 2, 0, 0},
                                                  {RB_STEAL_GIVE, 2, 3, 0},
                                                  {RB_STEAL_GIVE, 1, 1, 0},
                                                  {RB_STEAL_GIVE, 4, 1, 0},
                                                  {RB_STEAL_GIVE, UINT32_MAX, 1, 0},
                                                  {99, 0, 0, 0}};
    const int32_t owners[] = {0, 0, 1, 1};
    struct rb_steal_message answer;
    struct rb_why why;
    bool answers;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        for (int asked = 0; asked < 2; asked++) {
            struct rb_steal *steal = rb_steal_new(0, 2, owners, 4);

            steal->paces[0] = steal->paces[1] = 1000;
            rb_steal_begin(steal);
            steal->asked = asked ? 1 : -1;
            assert_int_equal(rb_steal_hear(steal, 1, bad[i], 0, &answers, &answer, &why),
                             asked && i == 0 ? 0 : RB_EINTERNAL);
            rb_steal_free(steal);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once), cmocka_unit_test(test_evens_out),
        cmocka_unit_test(test_hiccup),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_judge),     cmocka_unit_test(test_unmeasured),
        cmocka_unit_test(test_in_vain),   cmocka_unit_test(test_no_share),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
