/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows and words an agent is sent, and how long they are kept. */
#include "worker/control/reports.h"

#include "base/arena.h"
#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

static void tell(struct rb_reports *reports, int64_t first, int64_t last)
{
    Rb__Row row = RB__ROW__INIT;

    for (row.step = first; row.step <= last; row.step++)
        rb_reports_row(reports, 0, &row);
}

/* Take everything: rows must be `first` to `last`, each once; 0: none. */
static void expect(struct rb_reports *reports, int64_t first, int64_t last)
{
    struct rb_buffer out = {0};
    ProtobufCMessage *message;
    struct rb_why why;
    int64_t next = first;

    while (rb_reports_take(reports, &out))
        ;
    while (
        !rb_frame_take(&out, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor, &message, &why)) {
        Rb__FromWorker *from = (Rb__FromWorker *)message;

        for (size_t i = 0; i < from->n_rows; i++)
            assert_int_equal(from->rows[i]->step, next++);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    assert_int_equal(next, last ? last + 1 : first);
    rb_buffer_done(&out);
}

static void an_agent_gets_what_it_lacks(void **state)
{
    struct rb_reports *reports = rb_reports_new();

    (void)state;
    tell(reports, 1, 1000);
    expect(reports, 1, 0);
    rb_reports_rows_after(reports, 300);
    expect(reports, 301, 1000);
    tell(reports, 1001, 1010);
    expect(reports, 1001, 1010);
    rb_reports_restart(reports);
    rb_reports_rows_after(reports, 500);
    expect(reports, 501, 1010);
    rb_reports_free(reports);
}

static void what_is_known_is_dropped_and_nothing_else(void **state)
{
    struct rb_reports *reports = rb_reports_new();

    (void)state;
    rb_reports_rows_after(reports, 0);
    tell(reports, 1, 100);
    expect(reports, 1, 100);
    tell(reports, 101, 110);
    rb_reports_rows_known(reports, 105); /* the agent cannot know those: they were not sent */
    expect(reports, 101, 110);
    rb_reports_rows_known(reports, 60);
    rb_reports_rows_known(reports, 10);
    rb_reports_restart(reports);
    rb_reports_rows_after(reports, 0);
    expect(reports, 101, 110); /* 1 to 100 went with the first word */
    rb_reports_free(reports);
}

static size_t allocated(void)
{
    struct mallinfo2 now = mallinfo2();

    return now.uordblks + now.hblkhd;
}

static void rows_do_not_pile_up(void **state)
{
    struct rb_reports *reports = rb_reports_new();
    size_t before = 0;

    (void)state;
    rb_reports_rows_after(reports, 0);
    for (int64_t step = 1; step < 100000; step += 100) {
        tell(reports, step, step + 99);
        expect(reports, step, step + 99);
        rb_reports_rows_known(reports, step > 1000 ? step - 1000 : 0);
        if (step < 20000)
            before = allocated();
    }
    assert_true(allocated() < before + 65536);
    rb_reports_free(reports);
}

static void tell_ready(struct rb_reports *reports, uint32_t number)
{
    Rb__Ready body = RB__READY__INIT;
    Rb__FromWorker message = RB__FROM_WORKER__INIT;

    body.number = number;
    message.ready = &body;
    rb_reports_post(reports, &message);
}

static void tell_unready(struct rb_reports *reports, uint32_t number)
{
    Rb__Unready body = RB__UNREADY__INIT;
    Rb__FromWorker message = RB__FROM_WORKER__INIT;

    body.number = number;
    body.reason = "given up";
    message.unready = &body;
    rb_reports_post(reports, &message);
}

/* Take everything: the configurations that are reported ready and not ready; 0: none. */
static void expect_words(struct rb_reports *reports, uint32_t ready, uint32_t unready)
{
    struct rb_buffer out = {0};
    ProtobufCMessage *message;
    struct rb_why why;

    while (rb_reports_take(reports, &out))
        ;
    while (
        !rb_frame_take(&out, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor, &message, &why)) {
        Rb__FromWorker *from = (Rb__FromWorker *)message;

        if (from->ready) {
            assert_int_equal(from->ready->number, ready);
            ready = 0;
        }
        if (from->unready) {
            assert_int_equal(from->unready->number, unready);
            unready = 0;
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
    assert_int_equal(ready, 0);
    assert_int_equal(unready, 0);
    rb_buffer_done(&out);
}

static void the_last_word_on_a_configuration_counts(void **state)
{
    struct rb_reports *reports = rb_reports_new();

    (void)state;
    tell_ready(reports, 4);
    tell_unready(reports, 4);
    expect_words(reports, 0, 4);
    tell_ready(reports, 4);
    rb_reports_restart(reports);
    expect_words(reports, 4, 0);
    tell_ready(reports, 6); /* a recovery is ready, and the one prepared beside is given up */
    tell_unready(reports, 5);
    expect_words(reports, 6, 5);
    rb_reports_free(reports);
}

static bool is_readable(const struct rb_reports *reports)
{
    struct pollfd one = {rb_reports_fd(reports), POLLIN, 0};

    return poll(&one, 1, 0) > 0;
}

/* A worker that trains in short steps is not interrupted for each row; but no row is kept for long,
 * and none any longer than a report. */
static void rows_wait_for_each_other(void **state)
{
    enum { WAIT_MS = 30 };
    struct rb_reports *reports = rb_reports_new();
    int due;

    (void)state;
    rb_reports_rows_wait(reports, WAIT_MS);
    rb_reports_rows_after(reports, 0);
    tell(reports, 1, 1);
    assert_int_equal(rb_reports_due_ms(reports), 0); /* the first row that an agent hears of */
    expect(reports, 1, 1);
    assert_int_equal(rb_reports_due_ms(reports), -1);
    rb_reports_quiet(reports);
    tell(reports, 2, 2);
    assert_true(is_readable(reports));
    rb_reports_quiet(reports);
    tell(reports, 3, 9);
    assert_false(is_readable(reports));
    due = rb_reports_due_ms(reports);
    assert_in_range(due, 0, WAIT_MS);
    usleep((useconds_t)due * 1000 + 1000);
    assert_int_equal(rb_reports_due_ms(reports), 0);
    expect(reports, 2, 9);

    tell(reports, 10, 10);
    tell_ready(reports, 2);
    assert_int_equal(rb_reports_due_ms(reports), 0);
    expect(reports, 10, 10);
    tell(reports, 11, 11);
    rb_reports_quiet(reports);
    rb_reports_hurry(reports);
    assert_true(is_readable(reports));
    assert_int_equal(rb_reports_due_ms(reports), 0);
    expect(reports, 11, 11);
    rb_reports_free(reports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_gets_what_it_lacks),
        cmocka_unit_test(rows_wait_for_each_other),
        cmocka_unit_test(what_is_known_is_dropped_and_nothing_else),
        cmocka_unit_test(rows_do_not_pile_up),
        cmocka_unit_test(the_last_word_on_a_configuration_counts),
    };

    return cmocka_run_group_tests_name("reports", tests, NULL, NULL);
}
