/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at the door: ranks that open something else, and callers that talk nonsense. */
#include "coll/dial.h"
#include "coll/hello.h"
#include "tests/coll/pair.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The other rank opens a configuration that differs in some way: it is refused, and this one waits
 * on. */
static void refuse(struct pair *pair, struct opener odd, const char *says)
{
    struct opener us = {.pair = pair, .configuration = 1, .timeout_ms = SHORT_MS};

    odd.pair = pair;
    odd.rank = 1;
    odd.configuration = 1;
    odd.timeout_ms = LONG_MS;
    pair_start(&odd);
    do { /* until it has come: its hello is kept until this rank opens, or opens again */
        pair_start(&us);
        pair_join(&us);
        assert_int_equal(us.err, RB_ETIMEOUT);
        assert_non_null(strstr(us.why.text, "rank 1 (second)"));
    } while (!strstr(us.why.text, says));
    pair_join(&odd);
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

    pair_start(&a);
    pair_start(&b);
    pair_join(&a);
    pair_join(&b);
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

/* The connection is shown out: the other side ends it. */
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

    pair_open(pair, 1, coll); /* undisturbed */
    pair_close(coll);
    assert_true(send(known, bytes, size, MSG_NOSIGNAL) > 0); /* it speaks before it is welcome */
    check_shown_out(known);
    check_shown_out(half); /* its time is up */
    check_shown_out(silent[0]);
    check_shown_out(silent[1]);
}

static struct rb_hello proper_hello(void)
{
    return (struct rb_hello){
        .configuration = 1,
        .rank = 1,
        .size = 2,
        .dialect = RB_HELLO_DIALECT,
        .job = "job",
        .digest = "digest",
        .worker = "second",
    };
}

/* For example a worker that lives on from before Rubato was upgraded. */
static void another_version(void **state)
{
    struct pair *pair = *state;
    struct opener us = {.pair = pair, .configuration = 1, .timeout_ms = SHORT_MS};
    struct rb_hello hello = proper_hello();
    uint8_t bytes[RB_HELLO_MAX], answer[RB_WELCOME_SIZE];
    struct rb_welcome welcome;
    size_t size;
    int fd = call_door(pair, 0);

    hello.dialect++;
    size = rb_hello_encode(&hello, bytes);
    assert_true(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    do { /* until it has come, as above */
        pair_start(&us);
        pair_join(&us);
        assert_int_equal(us.err, RB_ETIMEOUT);
    } while (!poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0));
    assert_int_equal(recv(fd, answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(rb_welcome_decode(answer, &welcome), 0);
    assert_int_equal(welcome.err, RB_EREFUSED);
    assert_non_null(strstr(welcome.text, "two versions of Rubato"));
    close(fd);
}

/* A caller says a proper hello as rank 1, is welcome, then sends nonsense. */
static void nonsense_after_welcome(void **state)
{
    struct pair *pair = *state;
    struct opener us = {.pair = pair, .configuration = 1, .timeout_ms = LONG_MS};
    struct rb_hello hello = proper_hello();
    uint8_t bytes[RB_HELLO_MAX];
    int32_t in[64] = {0}, out[64];
    size_t size = rb_hello_encode(&hello, bytes);

    for (int round = 0; round < 2; round++) {
        struct rb_why why = {{0}};
        struct rb_welcome welcome;
        int fd = call_door(pair, round);

        pair_start(&us);
        assert_true(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
        pair_join(&us);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(other_digest),           PAIR_TEST(other_job), PAIR_TEST(other_worker),
        PAIR_TEST(other_configuration),    PAIR_TEST(strangers), PAIR_TEST(another_version),
        PAIR_TEST(nonsense_after_welcome),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
