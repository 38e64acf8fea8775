/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting, cancelling and disagreeing: ranks as threads of one process, and strangers. */
#include "base/arena.h"
#include "base/file.h"
#include "coll/coll.h"
#include "coll/dial.h"
#include "coll/hello.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONG_MS = 30000, SHORT_MS = 150 };

/* Two workers with their doors. */
struct pair {
    char folder[64];
    struct rb_listener *listener[2];
};

static int set_up(void **state)
{
    struct pair *pair = rb_alloc(sizeof *pair);

    alarm(120);
    strcpy(pair->folder, "/tmp/rubato-meet-XXXXXX");
    assert_non_null(mkdtemp(pair->folder));
    for (int i = 0; i < 2; i++) {
        char path[100];

        snprintf(path, sizeof path, "%s/%d", pair->folder, i);
        assert_int_equal(rb_listener_open(path, "127.0.0.1", &pair->listener[i], NULL), 0);
    }
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;

    for (int i = 0; i < 2; i++)
        rb_listener_close(pair->listener[i]);
    rb_file_remove(pair->folder, NULL);
    free(pair);
    return 0;
}

/* One rank that opens, in a thread of its own. */
struct opener {
    struct pair *pair;
    int rank;
    uint32_t configuration;
    const char *job, *digest, *worker; /* NULL: what all say */
    int timeout_ms;
    const atomic_bool *cancel;

    pthread_t thread;
    int err;
    struct rb_why why;
    struct rb_coll *coll;
};

static void *open_one(void *data)
{
    struct opener *o = data;
    const char *addresses[2][2];
    struct rb_coll_member members[2] = {{"first", addresses[0], 2}, {"second", addresses[1], 2}};
    struct rb_group group = {
        .job = o->job ? o->job : "job",
        .configuration = o->configuration,
        .digest = o->digest ? o->digest : "digest",
        .rank = o->rank,
        .size = 2,
        .members = members,
    };

    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 2; i++)
            addresses[r][i] = rb_listener_address(o->pair->listener[r], i);
    if (o->worker)
        members[o->rank].worker = o->worker;
    o->err = rb_coll_open(o->pair->listener[o->rank], &group, o->timeout_ms, o->cancel, &o->coll,
                          &o->why);
    return NULL;
}

static void start(struct opener *o)
{
    assert_int_equal(pthread_create(&o->thread, NULL, open_one, o), 0);
}

static void join(struct opener *o)
{
    pthread_join(o->thread, NULL);
}

static void open_both(struct pair *pair, uint32_t configuration, struct rb_coll *ret[2])
{
    struct opener o[2];

    for (int r = 0; r < 2; r++) {
        o[r] = (struct opener){
            .pair = pair, .rank = r, .configuration = configuration, .timeout_ms = LONG_MS};
        start(&o[r]);
    }
    for (int r = 0; r < 2; r++) {
        join(&o[r]);
        assert_int_equal(o[r].err, 0);
        ret[r] = o[r].coll;
    }
}

static void close_both(struct rb_coll *coll[2])
{
    rb_coll_close(coll[0]);
    rb_coll_close(coll[1]);
}

/* ---- Strangers ---- */

/* The other opens a configuration that is not ours in some way: it is refused, we wait on. */
static void refuse(struct pair *pair, struct opener odd, const char *says)
{
    struct opener us = {.pair = pair, .configuration = 1, .timeout_ms = SHORT_MS};

    odd.pair = pair;
    odd.rank = 1;
    odd.configuration = 1;
    odd.timeout_ms = LONG_MS;
    start(&odd);
    do { /* until it has come: its hello is kept until we open, or open again */
        start(&us);
        join(&us);
        assert_int_equal(us.err, RB_ETIMEOUT);
        assert_non_null(strstr(us.why.text, "rank 1 (second)"));
    } while (!strstr(us.why.text, says));
    join(&odd);
    assert_int_equal(odd.err, RB_EREFUSED);
    assert_non_null(strstr(odd.why.text, says));
}

static void other_digest(void **state)
{
    refuse(*state, (struct opener){.digest = "another"}, "another");
}

static void other_job(void **state)
{
    refuse(*state, (struct opener){.job = "another job"}, "another job");
}

static void other_worker(void **state)
{
    refuse(*state, (struct opener){.worker = "third"}, "third");
}

static void other_configuration(void **state)
{
    struct opener a = {.pair = *state, .configuration = 1, .timeout_ms = SHORT_MS};
    struct opener b = {.pair = *state, .rank = 1, .configuration = 2, .timeout_ms = SHORT_MS};

    start(&a);
    start(&b);
    join(&a);
    join(&b);
    assert_int_equal(a.err, RB_ETIMEOUT);
    assert_int_equal(b.err, RB_ETIMEOUT);
    assert_non_null(strstr(a.why.text, "configuration 1: did not come within"));
}

static int call_door(struct pair *pair, int door)
{
    bool local;
    int fd = rb_dial(rb_listener_address(pair->listener[0], door), &local);

    assert_true(fd >= 0);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, LONG_MS), 1);
    return fd;
}

/* It is shown out: the other side ends the connection. */
static void check_shown_out(int fd)
{
    char byte;

    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, LONG_MS), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static void strangers(void **state)
{
    struct pair *pair = *state;
    struct rb_hello hello = {.configuration = 77, .rank = 1, .size = 2, .job = "j"};
    uint8_t bytes[RB_HELLO_MAX + 1] = {0};
    size_t size = rb_hello_encode(&hello, bytes);
    struct rb_coll *coll[2];
    int silent[2], half, known;

    for (int door = 0; door < 2; door++) {
        int nonsense = call_door(pair, door), talker = call_door(pair, door);

        silent[door] = call_door(pair, door);
        assert_true(send(nonsense, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) == 16);
        check_shown_out(nonsense);
        assert_true(send(talker, bytes, size + 1, MSG_NOSIGNAL) == (ssize_t)size + 1);
        check_shown_out(talker);
    }
    half = call_door(pair, 0);
    assert_true(send(half, bytes, size / 2, MSG_NOSIGNAL) > 0);
    known = call_door(pair, 1);
    assert_true(send(known, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);

    open_both(pair, 1, coll); /* undisturbed */
    close_both(coll);
    assert_true(send(known, bytes, size, MSG_NOSIGNAL) > 0); /* speaks before it is welcome */
    check_shown_out(known);
    check_shown_out(half); /* has had its time */
    check_shown_out(silent[0]);
    check_shown_out(silent[1]);
}

/* Says a proper hello as rank 1, is welcome, then sends nonsense. */
static void nonsense_after_welcome(void **state)
{
    struct pair *pair = *state;
    struct opener us = {.pair = pair, .configuration = 1, .timeout_ms = LONG_MS};
    struct rb_hello hello = {
        .configuration = 1, .rank = 1, .size = 2, .job = "job", .digest = "digest"};
    uint8_t bytes[RB_HELLO_MAX];
    int32_t in[64] = {0}, out[64];
    size_t size;

    strcpy(hello.worker, "second");
    size = rb_hello_encode(&hello, bytes);
    for (int round = 0; round < 2; round++) {
        struct rb_why why = {{0}};
        struct rb_welcome welcome;
        int fd = call_door(pair, round);

        start(&us);
        assert_true(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
        join(&us);
        assert_int_equal(us.err, 0);
        assert_string_equal(rb_coll_link(us.coll, 1), round ? "tcp" : "unix");
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, LONG_MS), 1);
        assert_int_equal(recv(fd, bytes, RB_WELCOME_SIZE, MSG_WAITALL), RB_WELCOME_SIZE);
        assert_int_equal(rb_welcome_decode(bytes, &welcome), 0);
        assert_int_equal(welcome.err, 0);
        memset(bytes, 'x', sizeof bytes);
        assert_true(send(fd, bytes, 100, MSG_NOSIGNAL) == 100);
        assert_int_equal(rb_coll_sum(us.coll, 1, in, out, 64, &why), RB_EINTERNAL);
        assert_non_null(strstr(why.text, "no frame"));
        rb_coll_close(us.coll);
        close(fd);
        rb_hello_encode(&hello, bytes);
    }
}

/* ---- Cancelling ---- */

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

    start(&us);
    assert_int_equal(pthread_create(&thread, NULL, cancel_open, &cancel), 0);
    join(&us);
    pthread_join(thread, NULL);
    assert_int_equal(us.err, RB_ECANCELED);
}

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

    open_both(*state, 1, coll);
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

/* ---- Disagreeing ---- */

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

    open_both(pair, 1, coll);
    for (int r = 0; r < 2; r++) {
        callers[r]->coll = coll[r];
        assert_int_equal(pthread_create(&callers[r]->thread, NULL, call, callers[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(callers[r]->thread, NULL);
        assert_int_equal(callers[r]->err, RB_EINTERNAL);
        assert_non_null(strstr(callers[r]->why.text, "ranks disagree"));
    }
    close_both(coll);
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

    open_both(*state, 1, coll);
    assert_int_equal(rb_coll_send(coll[0], 1, 0, &byte, 1, &why), RB_EINVAL);
    assert_int_equal(rb_coll_receive(coll[0], 1, 2, &byte, 1, &why), RB_EINVAL);
    assert_int_equal(rb_coll_broadcast(coll[0], 1, -1, &byte, 1, &why), RB_EINVAL);
    /* These end nothing. */
    assert_int_equal(rb_coll_send(coll[0], 1, 1, &byte, 1, &why), 0);
    assert_int_equal(rb_coll_receive(coll[1], 1, 0, &byte, 1, &why), 0);
    close_both(coll);
}

/* ---- The next configuration opens while this one works ---- */

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

    open_both(*state, 1, now);
    for (int r = 0; r < 2; r++) {
        workers[r] = (struct worker){.coll = now[r], .stop = &stop};
        assert_int_equal(pthread_create(&workers[r].thread, NULL, work, &workers[r]), 0);
    }
    open_both(*state, 2, next);
    open_both(*state, 3, later);
    close_both(next);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int r = 0; r < 2; r++) {
        pthread_join(workers[r].thread, NULL);
        assert_int_equal(workers[r].err, 0);
        assert_true(workers[r].rounds > 0);
    }
    assert_int_equal(workers[0].rounds, workers[1].rounds);
    close_both(now);
    assert_int_equal(rb_coll_send(later[0], 1, 1, &byte, 1, NULL), 0);
    byte = 0;
    assert_int_equal(rb_coll_receive(later[1], 1, 0, &byte, 1, NULL), 0);
    assert_int_equal(byte, 7);
    close_both(later);
}

/* ---- Doors ---- */

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
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(other_digest),
        TEST(other_job),
        TEST(other_worker),
        TEST(other_configuration),
        TEST(strangers),
        TEST(nonsense_after_welcome),
        TEST(cancel_while_opening),
        TEST(cancel_while_calling),
        TEST(disagreement),
        TEST(wrong_arguments),
        TEST(next_opens_while_busy),
        TEST(doors),
        TEST(wrong_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
