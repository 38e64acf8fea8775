/* SPDX-License-Identifier: Apache-2.0 */
/* Two servers on one loop, as two nodes: calls, forwarding, files, and callers that misbehave.  The
 * store's etcd is not there; no test needs facts. */
#include "base/arena.h"
#include "base/file.h"
#include "daemon/etcd/etcd.h"
#include "daemon/rpc/request.h"
#include "daemon/etcd/store.h"
#include "tests/daemon/until.h"
#include "daemon/rpc/stream.h"
#include "proto/frame.h"
#include "rpc.pb-c.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_SIZE = 9 << 20 };

struct world {
    struct until until;
    char folder[64], address[128], tcp[128];
    char *file;
    struct rb_etcd *etcd;
    struct rb_store *store;
    struct rb_server *server;
    struct rb_request *held;
    struct rb_stream *stream;
    struct rb_buffer got; /* data pieces */
    Rb__Reply *reply;
    bool done, ended;
    unsigned replies;
    int err;
    char *body;
};

static void echo(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_reply(request, json_deep_copy(rb_request_body(request)));
}

static void refuse(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_failf(request, RB_EREFUSED, "no, because");
}

static void hold(struct rb_request *request, void *context)
{
    ((struct world *)context)->held = request;
}

static void file(struct rb_request *request, void *context)
{
    struct world *world = context;
    rb_request_file(request, world->file, NULL);
}

static void leader_only(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_reply(request, json_object());
}

static const struct rb_server_method methods[] = {
    {"echo", false, echo}, {"refuse", false, refuse},          {"hold", false, hold},
    {"file", false, file}, {"leader-only", true, leader_only}, {0},
};

static int setup(void **state)
{
    static struct world world;
    struct rb_why why = {0};
    world = (struct world){.folder = "/tmp/rubato-server.XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    until_open(&world.until);
    const char *nowhere = "unix:/nowhere/at/all";
    assert_int_equal(rb_etcd_new(&world.until.loop, &nowhere, 1, &world.etcd, &why), RB_OK);
    world.store = rb_store_new(&world.until.loop, world.etcd);
    world.server = rb_server_new(&world.until.loop, world.store, "a");
    rb_server_add(world.server, methods, &world);
    RB_CLEANUP(rb_freep) char *local = rb_format("unix:%s/a.sock", world.folder);
    assert_int_equal(rb_server_listen(world.server, local, world.address, &why), RB_OK);
    assert_int_equal(rb_server_listen(world.server, "tcp:127.0.0.1:0", world.tcp, &why), RB_OK);
    world.file = rb_format("%s/file", world.folder);
    char *bytes = rb_alloc(FILE_SIZE);
    for (size_t i = 0; i < FILE_SIZE; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    assert_int_equal(rb_file_write(world.file, bytes, FILE_SIZE, &why), RB_OK);
    free(bytes);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct rb_why why;
    rb_stream_close(world->stream);
    rb_server_free(world->server);
    rb_store_free(world->store);
    rb_etcd_free(world->etcd);
    assert_int_equal(until_close(&world->until), 0);
    if (world->reply)
        rb__reply__free_unpacked(world->reply, NULL);
    rb_buffer_done(&world->got);
    rb_file_remove(world->folder, &why);
    free(world->file);
    free(world->body);
    return 0;
}

/* ---- From within ----------------------------------------------------------------------------- */

static void on_piece(const void *data, size_t size, void *context)
{
    rb_buffer_add(&((struct world *)context)->got, data, size);
}

static void on_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct world *world = context;
    world->err = err;
    free(world->body);
    world->body = err ? rb_string(why->text) : json_dumps(body, JSON_COMPACT);
    world->done = true;
}

static struct rb_client_call *start_call(struct world *world, const char *method, const char *node,
                                         uint64_t timeout_ms)
{
    world->done = false;
    return rb_server_call(world->server, &(struct rb_client_options){
                                             .method = method,
                                             .body = json_pack("{si}", "x", 3),
                                             .node = node,
                                             .timeout_ms = timeout_ms,
                                             .piece = on_piece,
                                             .done = on_done,
                                             .context = world,
                                         });
}

static void calls_on_itself(void **state)
{
    struct world *world = *state;
    start_call(world, "echo", "a", 0);
    assert_false(world->done); /* never at once */
    UNTIL(&world->until, world->done);
    assert_string_equal(world->body, "{\"x\":3}");
    start_call(world, "refuse", NULL, 0);
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, RB_EREFUSED);
    assert_string_equal(world->body, "no, because");
    start_call(world, "nonsense", "a", 0);
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, RB_EUNSUPPORTED);
    start_call(world, "echo", "z", 0); /* no such node */
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, RB_EUNREACHABLE);
    start_call(world, "file", "a", 0);
    UNTIL(&world->until, world->done);
    assert_int_equal(world->got.size, FILE_SIZE);
    start_call(world, "hold", "a", 30);
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, RB_ETIMEOUT);
    assert_true(rb_request_gone(world->held));
    rb_request_reply(world->held, NULL); /* goes nowhere */
    rb_client_cancel(start_call(world, "echo", "a", 0));
    start_call(world, "leader-only", "a", 60); /* nobody leads: it waits */
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, RB_ETIMEOUT);
}

static void a_file_is_held_back(void **state)
{
    struct world *world = *state;
    struct rb_client_call *call;
    rb_buffer_clear(&world->got);
    call = start_call(world, "file", "a", 3000);
    UNTIL(&world->until, world->got.size > 0);
    rb_client_pause(call, true);
    until_passed(&world->until, 3300); /* longer than a call waits */
    assert_false(world->done);
    assert_true(world->got.size < FILE_SIZE);
    rb_client_pause(call, false);
    UNTIL(&world->until, world->done);
    assert_int_equal(world->err, 0);
    assert_int_equal(world->got.size, FILE_SIZE);

    rb_buffer_clear(&world->got); /* a caller that goes while it is held back leaves nothing */
    call = start_call(world, "file", "a", 0);
    UNTIL(&world->until, world->got.size > 0);
    rb_client_pause(call, true);
    until_passed(&world->until, 20);
    assert_non_null(world->server->requests);
    rb_client_cancel(call);
    UNTIL(&world->until, !world->server->requests);
    rb_buffer_clear(&world->got);
}

/* ---- From outside ---------------------------------------------------------------------------- */

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    struct world *world = context;
    struct rb_why why;
    ProtobufCMessage *message;
    (void)stream;
    while (!rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, &why)) {
        world->replies++;
        Rb__Reply *reply = (Rb__Reply *)message;
        if (reply->has_data)
            rb_buffer_add(&world->got, reply->data.data, reply->data.len);
        world->done = reply->last;
        if (world->reply)
            rb__reply__free_unpacked(world->reply, NULL);
        world->reply = reply;
    }
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    (void)stream;
    (void)err;
    (void)why;
    ((struct world *)context)->ended = true;
}

static const struct rb_stream_events events = {.bytes = on_bytes, .ended = on_ended};

static void put_call(struct rb_buffer *out, const char *method, const char *body)
{
    Rb__Call call = RB__CALL__INIT;
    call.method = (char *)method;
    call.body = (char *)body;
    rb_frame_put(out, RB_FRAME_CALL, &call.base);
}

static void send_call(struct world *world, const char *method, const char *body)
{
    struct rb_buffer out = {0};
    put_call(&out, method, body);
    world->done = false;
    rb_stream_write(world->stream, &out);
    rb_buffer_done(&out);
}

static void calls_on_sockets(void **state)
{
    struct world *world = *state;
    const char *addresses[] = {world->address, world->tcp};
    for (size_t i = 0; i < 2; i++) {
        world->stream = rb_stream_connect(&world->until.loop, addresses[i], NULL, &events, world);
        send_call(world, "echo", "{\"y\":1}");
        UNTIL(&world->until, world->done);
        assert_int_equal(world->reply->error, 0);
        assert_string_equal(world->reply->body, "{\"y\":1}");
        send_call(world, "refuse", NULL); /* the same connection again */
        UNTIL(&world->until, world->done);
        assert_int_equal(world->reply->error, RB_EREFUSED);
        rb_buffer_clear(&world->got);
        send_call(world, "file", "{}");
        UNTIL(&world->until, world->done);
        assert_int_equal(world->got.size, FILE_SIZE);
        rb_stream_close(world->stream);
        world->stream = NULL;
    }
}

static void many_calls_at_once(void **state)
{
    struct world *world = *state;
    struct rb_buffer out = {0};
    for (unsigned i = 0; i < 5000; i++)
        put_call(&out, i == 4999 ? "refuse" : "echo", "{}");
    world->stream = rb_stream_connect(&world->until.loop, world->address, NULL, &events, world);
    rb_stream_write(world->stream, &out);
    rb_buffer_done(&out);
    UNTIL(&world->until, world->replies == 5000);
    assert_int_equal(world->reply->error, RB_EREFUSED);
}

static void misbehaving_callers(void **state)
{
    struct world *world = *state;
    struct rb_buffer out = {0};
    world->stream = rb_stream_connect(&world->until.loop, world->address, NULL, &events, world);
    rb_buffer_text(&out, "GET / HTTP/1.0\r\nHost: x\r\n\r\n");
    rb_stream_write(world->stream, &out);
    UNTIL(&world->until, world->ended); /* the caller is told, and hung up on */
    assert_int_not_equal(world->reply->error, 0);
    rb_stream_close(world->stream);
    world->stream = rb_stream_connect(&world->until.loop, world->address, NULL, &events, world);
    send_call(world, "echo", "[1]");
    UNTIL(&world->until, world->done);
    assert_int_equal(world->reply->error, RB_EINVAL);
    rb_stream_close(world->stream);
    /* Hang up before the answer. */
    world->stream = rb_stream_connect(&world->until.loop, world->address, NULL, &events, world);
    send_call(world, "hold", "{}");
    UNTIL(&world->until, world->held);
    rb_stream_close(world->stream);
    world->stream = NULL;
    UNTIL(&world->until, rb_request_gone(world->held));
    rb_request_piece(world->held, "x", 1);
    rb_request_reply(world->held, json_object());
    rb_buffer_done(&out);
}

static void addresses_in_use(void **state)
{
    struct world *world = *state;
    struct rb_why why = {0};
    char address[128];
    assert_int_equal(rb_server_listen(world->server, world->address, address, &why), RB_EEXISTS);
    assert_int_equal(rb_server_listen(world->server, world->tcp, address, &why), RB_EEXISTS);
    assert_non_null(strstr(why.text, strrchr(world->tcp, ':') + 1));
    assert_int_equal(rb_server_listen(world->server, "tcp:nonsense", address, &why), RB_EINVAL);
    assert_int_equal(rb_server_listen(world->server, "tcp:host.name:5", address, &why), RB_EINVAL);
    assert_int_equal(rb_server_listen(world->server, "ftp:x", address, &why), RB_EINVAL);
    RB_CLEANUP(rb_freep) char *stale = rb_format("unix:%s/stale.sock", world->folder);
    assert_int_equal(rb_server_listen(world->server, stale, address, &why), RB_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_on_itself),    TEST(a_file_is_held_back), TEST(calls_on_sockets),
        TEST(many_calls_at_once), TEST(misbehaving_callers), TEST(addresses_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
