/* SPDX-License-Identifier: Apache-2.0 */
/* Which agent has connected to a worker, and counts as having been told. */
#include "worker/control/agent_link.h"

#include "base/buffer.h"
#include "base/error.h"
#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(struct rb_agent_link *link)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    rb_agent_link_take(link, ends[0]);
    rb_agent_link_write(link);
    return ends[1];
}

/* As an agent greets a worker. */
static void greet(struct rb_agent_link *link, int fd)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer out = {0};
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Settings settings = RB__SETTINGS__INIT;

    message.settings = &settings;
    rb_frame_put(&out, RB_FRAME_TO_WORKER, &message.base);
    assert_int_equal(write(fd, out.data, out.size), out.size);
    rb_agent_link_read(link);
    rb_agent_link_write(link);
}

/* A rubatod that starts asks each worker for its name, and hangs up: what the worker sends it is
 * lost, maybe that the state is saved. */
static void who_only_asks_is_not_told(void **state)
{
    static const struct rb_worker_options options = {.job = "job", .worker = "worker"};
    struct rb_reports *reports = rb_reports_new();
    struct rb_mailbox *mailbox = rb_mailbox_new(reports);
    struct rb_listener *peers = NULL;
    struct rb_agent_link link = {
        .options = &options, .mailbox = mailbox, .reports = reports, .fd = -1};
    struct rb_why why = {{0}};
    int asks, listens;

    (void)state;
    assert_int_equal(rb_listener_open(NULL, "127.0.0.1", &peers, &why), 0);
    link.peers = peers;
    asks = connect_to(&link);
    assert_false(rb_agent_link_told(&link));
    close(asks);
    rb_agent_link_read(&link);
    listens = connect_to(&link);
    assert_false(rb_agent_link_told(&link));
    greet(&link, listens);
    assert_true(rb_agent_link_told(&link));
    close(listens);
    rb_agent_link_done(&link);
    rb_listener_close(peers);
    rb_mailbox_free(mailbox);
    rb_reports_free(reports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_only_asks_is_not_told)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
