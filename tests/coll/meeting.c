/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting: doors, addresses, an opening that is cancelled, and one while other ranks are at
 * work. */
#include "tests/coll/pair.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

static void *cancel_open(void *data)
{
    usleep(20000);
    atomic_store((atomic_bool *)data, true);
    return NULL;
}

static void cancel_while_opening(void **state)
{
    atomic_bool cancel = false;
    struct opener us = {
        .pair = *state, .configuration = 1, .timeout_ms = LONG_MS, .cancel = &cancel};
    pthread_t thread;

    pair_start(&us);
    assert_int_equal(pthread_create(&thread, NULL, cancel_open, &cancel), 0);
    pair_join(&us);
    pthread_join(thread, NULL);
    assert_int_equal(us.err, RB_ECANCELED);
}

struct worker {
    struct rb_coll *coll;
    const bool *stop; /* rank 0 says when */
    pthread_t thread;
    int err, rounds;
};

static void *work(void *data)
{
    struct worker *w = data;
    int32_t in[1000] = {1}, out[1000];

    for (bool stop = false; !stop && !w->err; w->rounds++) {
        in[1] = rb_coll_rank(w->coll) == 0 && __atomic_load_n(w->stop, __ATOMIC_RELAXED);
        w->err = rb_coll_sum(w->coll, (uint64_t)w->rounds, in, out, 1000, NULL);
        stop = out[1];
        if (!w->err && out[0] != 2)
            w->err = RB_EINTERNAL;
    }
    return NULL;
}

static void next_opens_while_busy(void **state)
{
    struct rb_coll *now[2], *next[2], *later[2];
    struct worker workers[2] = {0};
    bool stop = false;
    char byte = 7;

    pair_open(*state, 1, now);
    for (int r = 0; r < 2; r++) {
        workers[r] = (struct worker){.coll = now[r], .stop = &stop};
        assert_int_equal(pthread_create(&workers[r].thread, NULL, work, &workers[r]), 0);
    }
    pair_open(*state, 2, next);
    pair_open(*state, 3, later);
    pair_close(next);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int r = 0; r < 2; r++) {
        pthread_join(workers[r].thread, NULL);
        assert_int_equal(workers[r].err, 0);
        assert_true(workers[r].rounds > 0);
    }
    assert_int_equal(workers[0].rounds, workers[1].rounds);
    pair_close(now);
    assert_int_equal(rb_coll_send(later[0], 1, 1, &byte, 1, NULL), 0);
    byte = 0;
    assert_int_equal(rb_coll_receive(later[1], 1, 0, &byte, 1, NULL), 0);
    assert_int_equal(byte, 7);
    pair_close(later);
}

static void doors(void **state)
{
    struct pair *pair = *state;
    struct rb_listener *listener = NULL;
    struct rb_why why = {{0}};
    char path[200];

    assert_true(!strncmp(rb_listener_address(pair->listener[0], 0), "unix:/", 6));
    assert_true(!strncmp(rb_listener_address(pair->listener[0], 1), "tcp:127.0.0.1:", 14));
    assert_null(rb_listener_address(pair->listener[0], 2));
    assert_null(rb_listener_address(pair->listener[0], -1));
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(rb_listener_open(path, NULL, &listener, &why), RB_ELIMIT);
    assert_int_equal(rb_listener_open("/nowhere/at/all", NULL, &listener, &why), RB_ENOTFOUND);
    assert_true(rb_listener_open(NULL, "not a host", &listener, &why) < 0);
    assert_null(listener);
}

static void wrong_addresses(void **state)
{
    static const char *const wrong[] = {"unix:", "tcp:", "tcp:host", "tcp::80", "http://x", ""};
    struct pair *pair = *state;

    for (size_t i = 0; i < RB_COUNT(wrong); i++) {
        struct rb_coll_member members[2] = {{"first", &wrong[i], 1}, {"second", NULL, 0}};
        struct rb_group group = {
            .job = "j", .digest = "d", .rank = 1, .size = 2, .members = members};
        struct rb_coll *coll = NULL;
        struct rb_why why = {{0}};

        assert_int_equal(rb_coll_open(pair->listener[1], &group, LONG_MS, NULL, &coll, &why),
                         RB_EINVAL);
        assert_non_null(strstr(why.text, "rank 0 (first)"));
        assert_null(coll);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(cancel_while_opening),
        PAIR_TEST(next_opens_while_busy),
        PAIR_TEST(doors),
        PAIR_TEST(wrong_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
