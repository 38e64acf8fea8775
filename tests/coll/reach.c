/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is fetched from where it lies: what arrives, and when it does not count. */
#include "coll/link.h"

#include "base/error.h"
#include "coll/reach.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two ends of one link, both in this process. */
struct ends {
    struct rb_link *giver, *taker;
};

static struct ends connect_ends(void)
{
    int fds[2], memory = rb_link_shared_create();
    struct ends ends;

    assert_true(memory >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ends.giver = rb_link_shared_new(fds[0], memory, 0);
    ends.taker = rb_link_shared_new(fds[1], memory, 1);
    close(memory);
    assert_non_null(ends.giver);
    assert_non_null(ends.taker);
    return ends;
}

static void close_ends(struct ends *ends)
{
    ends->giver->ops->close(ends->giver);
    ends->taker->ops->close(ends->taker);
}

/* The first bytes that arrive make the receiver try. */
static void say_a_word(struct rb_link *from, struct rb_link *to)
{
    uint64_t word = 7, heard = 0;
    struct iovec piece = {&word, sizeof word};

    assert_int_equal(from->ops->send(from, &piece, 1), sizeof word);
    assert_int_equal(to->ops->receive(to, &heard, sizeof heard), sizeof heard);
    assert_int_equal(heard, word);
}

static void what_is_offered_is_fetched(void **state)
{
    enum { SIZE = 3 << 20 };
    struct ends ends = connect_ends();
    const struct rb_reach_ops *reach = ends.giver->ops->reach;
    uint8_t *bytes = malloc(SIZE), *found = calloc(1, SIZE);
    short events;

    (void)state;
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    assert_false(reach->reached(ends.giver));
    say_a_word(ends.giver, ends.taker);
    if (!reach->reached(ends.giver)) { /* not allowed here: then nothing is ever offered */
        free(bytes);
        free(found);
        close_ends(&ends);
        skip();
    }
    assert_false(reach->reached(ends.taker));
    reach->offer(ends.giver);
    assert_false(reach->taken(ends.giver));
    assert_false(ends.giver->ops->arm(ends.giver, false, true, &events));
    assert_int_equal(reach->fetch(ends.taker, found, (uintptr_t)bytes, SIZE), 0);
    assert_memory_equal(bytes, found, SIZE);
    reach->take(ends.taker);
    assert_true(reach->taken(ends.giver));
    ends.giver->ops->disarm(ends.giver, events);
    assert_true(ends.giver->ops->arm(ends.giver, false, true, &events));
    free(bytes);
    free(found);
    close_ends(&ends);
}

static void what_is_no_memory_is_an_error(void **state)
{
    struct ends ends = connect_ends();
    const struct rb_reach_ops *reach = ends.giver->ops->reach;
    uint64_t found;

    (void)state;
    assert_int_equal(reach->fetch(ends.taker, &found, 8, sizeof found), RB_EPEER);
    close_ends(&ends);
}

static void what_is_withdrawn_counts_for_nothing(void **state)
{
    struct ends ends = connect_ends();
    const struct rb_reach_ops *reach = ends.giver->ops->reach;
    uint64_t word = 7, found;

    (void)state;
    reach->offer(ends.giver);
    reach->withdraw(ends.giver);
    assert_int_equal(reach->fetch(ends.taker, &found, (uintptr_t)&word, sizeof word), RB_EPEER);
    assert_int_equal(reach->fetch(ends.taker, &found, 8, sizeof found), RB_EPEER);
    close_ends(&ends);
}

/* ---- Two processes ---- */

/* A word that only the giver sets, and that the taker asks for by its address. */
static uint64_t private_word;

/* The taker: what it finds while the giver lives, and after its end. */
static _Noreturn void take(struct rb_link *link, int told, int answers)
{
    const struct rb_reach_ops *reach = link->ops->reach;
    uint64_t found = 0, word = 0;
    char answer[2] = {'-', '-'}, byte;

    while (link->ops->receive(link, &word, sizeof word) != sizeof word)
        ;
    if (!reach->fetch(link, &found, (uintptr_t)&private_word, sizeof found))
        answer[0] = found == 4711 ? 'y' : 'n';
    (void)!write(answers, answer, 1);
    (void)!read(told, &byte, 1); /* the giver is gone */
    if (reach->fetch(link, &found, (uintptr_t)&private_word, sizeof found) == RB_EPEER)
        answer[1] = 'y';
    (void)!write(answers, answer + 1, 1);
    _exit(0);
}

/* The giver, which makes both ends and is killed. */
static _Noreturn void give(int told, int answers)
{
    uint64_t word = 7;
    struct iovec piece = {&word, sizeof word};
    int fds[2], memory = rb_link_shared_create();
    struct rb_link *link;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
        _exit(1);
    rb_reach_allow();
    if (!fork()) {
        close(fds[0]);
        take(rb_link_shared_new(fds[1], memory, 1), told, answers);
    }
    close(fds[1]);
    private_word = 4711; /* the taker's own stays 0 */
    link = rb_link_shared_new(fds[0], memory, 0);
    link->ops->send(link, &piece, 1);
    pause();
    _exit(1);
}

static void a_process_is_read_and_ends(void **state)
{
    int told[2], answers[2];
    char answer[2] = {0};
    pid_t giver;

    (void)state;
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(answers), 0);
    giver = fork();
    if (!giver) {
        close(told[1]);
        give(told[0], answers[1]);
    }
    assert_int_equal(read(answers[0], answer, 1), 1);
    kill(giver, SIGKILL);
    waitpid(giver, NULL, 0);
    close(told[1]);
    assert_int_equal(read(answers[0], answer + 1, 1), 1);
    close(told[0]);
    close(answers[0]);
    close(answers[1]);
    assert_true(answer[0] != 'n');
    assert_int_equal(answer[1], 'y');
    if (answer[0] == '-')
        skip(); /* not allowed here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_offered_is_fetched),
        cmocka_unit_test(what_is_no_memory_is_an_error),
        cmocka_unit_test(what_is_withdrawn_counts_for_nothing),
        cmocka_unit_test(a_process_is_read_and_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
