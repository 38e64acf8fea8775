/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is fetched from where it lies: what arrives, and when it counts for nothing. */
#include "coll/link.h"

#include "base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
    assert_int_equal(reach->fetch(ends.taker, &found, 8, sizeof found), RB_EINTERNAL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_offered_is_fetched),
        cmocka_unit_test(what_is_no_memory_is_an_error),
        cmocka_unit_test(what_is_withdrawn_counts_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
