/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that end with an error: cancelled, of ranks that disagree, with wrong arguments. */
#include "tests/coll/pair.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

static void *cancel_call(void *data)
{
    usleep(20000); /* so that the call most likely sleeps; it ends in any case */
    rb_coll_cancel(data);
    return NULL;
}

static void cancel_while_calling(void **state)
{
    struct rb_coll *coll[2];
    struct rb_why why = {{0}};
    pthread_t thread;
    char bytes[8];

    pair_open(*state, 1, coll);
    assert_int_equal(pthread_create(&thread, NULL, cancel_call, coll[0]), 0);
    assert_int_equal(rb_coll_receive(coll[0], 1, 1, bytes, sizeof bytes, &why), RB_ECANCELED);
    pthread_join(thread, NULL);
    assert_int_equal(rb_coll_send(coll[0], 1, 1, bytes, sizeof bytes, &why), RB_ECANCELED);
    assert_false(rb_coll_lost(coll[1], 0));
    rb_coll_close(coll[0]);
    assert_true(rb_coll_lost(coll[1], 0));
    assert_int_equal(rb_coll_receive(coll[1], 1, 0, bytes, sizeof bytes, &why), RB_EPEER);
    rb_coll_close(coll[1]);
}

struct caller {
    struct rb_coll *coll;
    int (*call)(struct caller *caller);
    uint64_t tag;
    size_t n;
    pthread_t thread;
    int err;
    struct rb_why why;
    int32_t in[64], out[128];
};

static int call_sum(struct caller *c)
{
    return rb_coll_sum(c->coll, c->tag, c->in, c->out, c->n, &c->why);
}

static int call_gather(struct caller *c)
{
    return rb_coll_gather(c->coll, c->tag, c->in, c->out, 4 * c->n, &c->why);
}

static void *call(void *data)
{
    struct caller *c = data;

    c->err = c->call(c);
    return NULL;
}

static void disagree(struct pair *pair, struct caller a, struct caller b)
{
    struct caller *callers[2] = {&a, &b};
    struct rb_coll *coll[2];

    pair_open(pair, 1, coll);
    for (int r = 0; r < 2; r++) {
        callers[r]->coll = coll[r];
        assert_int_equal(pthread_create(&callers[r]->thread, NULL, call, callers[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(callers[r]->thread, NULL);
        assert_int_equal(callers[r]->err, RB_EINTERNAL);
        assert_non_null(strstr(callers[r]->why.text, "ranks disagree"));
    }
    pair_close(coll);
}

static void disagreement(void **state)
{
    struct caller sum = {.call = call_sum, .tag = 5, .n = 10};
    struct caller other_tag = {.call = call_sum, .tag = 6, .n = 10};
    struct caller other_size = {.call = call_sum, .tag = 5, .n = 12};
    struct caller gather = {.call = call_gather, .tag = 5, .n = 10};

    disagree(*state, sum, other_tag);
    disagree(*state, sum, other_size);
    disagree(*state, sum, gather);
}

static void wrong_arguments(void **state)
{
    struct rb_coll *coll[2];
    struct rb_why why = {{0}};
    char byte = 0;

    pair_open(*state, 1, coll);
    assert_int_equal(rb_coll_send(coll[0], 1, 0, &byte, 1, &why), RB_EINVAL);
    assert_int_equal(rb_coll_receive(coll[0], 1, 2, &byte, 1, &why), RB_EINVAL);
    assert_int_equal(rb_coll_broadcast(coll[0], 1, -1, &byte, 1, &why), RB_EINVAL);
    /* These errors end nothing. */
    assert_int_equal(rb_coll_send(coll[0], 1, 1, &byte, 1, &why), 0);
    assert_int_equal(rb_coll_receive(coll[1], 1, 0, &byte, 1, &why), 0);
    pair_close(coll);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(cancel_while_calling),
        PAIR_TEST(disagreement),
        PAIR_TEST(wrong_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
