/* SPDX-License-Identifier: Apache-2.0 */
/* Callers whose answers come from other nodes: what is asked for them ends with them, and a call
 * that only looks is asked again of the next coordinator.  Where a node is lost, a state is asked
 * for elsewhere.  All other nodes are one socket of this test, which answers nothing by itself. */
#include "tests/daemon/server_scene.h"

#include "base/arena.h"
#include "daemon/etcd/store.h"
#include "daemon/facts/mirror.h"
#include "daemon/rpc/methods_inside.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NODES = 100, MOST_ASKED = 64 };

static struct nodes {
    struct scene *scene;
    struct rb_mirror *mirror;
    struct rb_daemon daemon;
    struct rb_methods methods;
    int listens, lines[2 * NODES]; /* lines: connections that have called it */
    size_t n_lines, n_came, n_answers;
} nodes;

/* In the place of the store's function, whose etcd is not there. */
const struct rb_facts *__wrap_rb_store_facts(struct rb_store *store);
const struct rb_facts *__wrap_rb_store_facts(struct rb_store *store)
{
    (void)store;
    return rb_mirror_facts(nodes.mirror);
}

static void came(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                 void *context)
{
    (void)methods;
    (void)context;
    nodes.n_came++;
    nodes.n_answers = json_array_size(answers);
    rb_request_reply(request, json_object());
}

static void gather(struct rb_request *request, void *context)
{
    (void)context;
    rb_methods_ask_nodes(&nodes.methods, request, "echo", json_object(), came, NULL);
}

/* A handler for the coordinator, which this node never is here. */
static void nobody(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_failf(request, RB_EINTERNAL, "it is not served here");
}

static const struct rb_server_method methods[] = {{"gather", false, gather},
                                                  {"look", true, nobody, .reads = true},
                                                  {"change", true, nobody},
                                                  {0}};

/* Has it been called so often, in all? */
static bool are_called(size_t times)
{
    for (int fd; (fd = accept4(nodes.listens, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        nodes.lines[nodes.n_lines++] = fd;
    return nodes.n_lines >= times;
}

static bool hang_up_on_all(void)
{
    are_called(0);
    for (size_t i = 0; i < nodes.n_lines; i++)
        if (nodes.lines[i] >= 0)
            close(nodes.lines[i]), nodes.lines[i] = -1;
    return true;
}

static void put_fact(const char *key, const char *value, int64_t revision)
{
    struct rb_why why = {0};

    if (rb_mirror_put(nodes.mirror, key, value, strlen(value), revision, revision, 0, &why))
        fail_msg("%s", why.text);
}

static void put_node(int i)
{
    RB_CLEANUP(rb_freep) char *key = rb_format("nodes/n%d", i);
    RB_CLEANUP(rb_freep)
    char *value = rb_format("{\"name\":\"n%d\",\"address\":\"unix:%s/nodes\","
                            "\"numericClass\":\"cpu\",\"started\":1}",
                            i, nodes.scene->folder);

    put_fact(key, value, 1);
}

static int setup(void **state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    nodes = (struct nodes){.mirror = rb_mirror_new()};
    if (scene_setup(state))
        return -1;
    nodes.scene = *state;
    nodes.daemon.server = nodes.scene->server;
    nodes.daemon.store = nodes.scene->store;
    nodes.methods.daemon = &nodes.daemon;
    rb_server_add(nodes.scene->server, methods, NULL);
    rb_server_add(nodes.scene->server, rb_methods_state, &nodes.methods);
    strcat(strcpy(to.sun_path, nodes.scene->folder), "/nodes");
    nodes.listens = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(nodes.listens, (struct sockaddr *)&to, sizeof(to)) || listen(nodes.listens, 2 * NODES))
        return -1;
    for (int i = 0; i < NODES; i++)
        put_node(i);
    return 0;
}

static int teardown(void **state)
{
    hang_up_on_all();
    close(nodes.listens);
    int status = scene_teardown(state);
    rb_mirror_free(nodes.mirror);
    return status;
}

/* Everything that was sent to it is taken. */
static bool is_hung_up_on(int line)
{
    scene_forget(line);
    return scene_is_shut(line);
}

static bool hears_call(int line, struct rb_buffer *in, bool *heard)
{
    enum { READ = 4096 };
    ProtobufCMessage *call;
    struct rb_why why;
    ssize_t n = read(line, rb_buffer_reserve(in, READ), READ);

    in->size += n > 0 ? (size_t)n : 0;
    *heard = !rb_frame_take(in, RB_FRAME_CALL, &rb__call__descriptor, &call, &why);
    if (*heard)
        protobuf_c_message_free_unpacked(call, NULL);
    return *heard;
}

static void lead(const char *node, int64_t fence)
{
    RB_CLEANUP(rb_freep)
    char *value =
        rb_format("{\"node\":\"%s\",\"address\":\"unix:%s/nodes\"}", node, nodes.scene->folder);

    put_fact("leader", value, fence);
}

static void put_reply(int line, const Rb__Reply *reply)
{
    struct rb_buffer out = {0};

    rb_frame_put(&out, RB_FRAME_REPLY, &reply->base);
    assert_int_equal(write(line, out.data, out.size), out.size);
    rb_buffer_done(&out);
}

/* A piece of an answer, or all of one. */
static void answer(int line, bool last)
{
    Rb__Reply reply = RB__REPLY__INIT;

    reply.has_last = reply.has_data = true;
    reply.last = last;
    reply.data = (ProtobufCBinaryData){1, (uint8_t *)"x"};
    put_reply(line, &reply);
}

static void answer_error(int line, int error)
{
    Rb__Reply reply = RB__REPLY__INIT;

    reply.error = error;
    reply.why = (char *)"so it is";
    put_reply(line, &reply);
}

/* The first call has reached it. */
static void hear_first(void)
{
    char byte;

    UNTIL(&nodes.scene->until, are_called(1));
    UNTIL(&nodes.scene->until, recv(nodes.lines[0], &byte, 1, MSG_PEEK) == 1);
}

/* While n1 coordinates. */
static int call_coordinator(const char *method)
{
    int caller = scene_call_in(nodes.scene);

    lead("n1", 1);
    scene_say(caller, method, 0);
    hear_first();
    return caller;
}

/* The call is asked a second time, and the caller gets that answer. */
static void end_answered(int caller)
{
    UNTIL(&nodes.scene->until, are_called(2));
    answer(nodes.lines[1], true);
    assert_int_equal(scene_answer(nodes.scene, caller), 0);
    close(caller);
}

/* After so many calls no node is asked any more. */
static void end_unreachable(int caller, size_t times)
{
    assert_int_equal(scene_answer(nodes.scene, caller), RB_EUNREACHABLE);
    assert_false(are_called(times + 1));
    close(caller);
}

static void hang_up(size_t line)
{
    close(nodes.lines[line]);
    nodes.lines[line] = -1;
}

static int call_node(const char *node)
{
    Rb__Call call = RB__CALL__INIT;
    int fd = scene_call_in(nodes.scene);

    call.method = "echo";
    call.node = (char *)node;
    scene_send(fd, &call, 0);
    return fd;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void a_forward_ends_with_its_caller(void **state)
{
    struct scene *scene = *state;
    int caller = call_node("n1");

    hear_first();
    close(caller);
    UNTIL(&scene->until, is_hung_up_on(nodes.lines[0]));
    UNTIL(&scene->until, !scene->server->requests);
    assert_int_equal(scene->server->n_asked, 0);
}

static void what_was_asked_for_is_passed_on(void **state)
{
    struct scene *scene = *state;
    struct rb_buffer in = {0};
    bool heard = false;
    int caller = call_node("n1");

    close(caller); /* before the server has looked at the call */
    UNTIL(&scene->until, are_called(1));
    UNTIL(&scene->until, heard || hears_call(nodes.lines[0], &in, &heard));
    rb_buffer_done(&in);
}

static void a_gather_ends_with_its_caller(void **state)
{
    struct scene *scene = *state;
    int caller = scene_call_in(scene);

    scene_say(caller, "gather", 0);
    UNTIL(&scene->until, are_called(MOST_ASKED));
    close(caller);
    for (size_t i = 0; i < MOST_ASKED; i++)
        UNTIL(&scene->until, is_hung_up_on(nodes.lines[i]));
    UNTIL(&scene->until, !scene->server->requests && !scene->server->calls);
    assert_int_equal(nodes.n_came, 1);
    assert_int_equal(nodes.n_answers, 0); /* nor that none came in time */
    assert_int_equal(scene->server->n_asked, 0);
}

/* A caller in this process, which has waited long enough. */
static void a_call_from_within_ends_too(void **state)
{
    struct scene *scene = *state;
    struct rb_client_call *call = rb_server_call(
        scene->server, &(struct rb_client_options){
                           .method = "gather", .body = json_object(), .timeout_ms = LIMIT_MS});

    UNTIL(&scene->until, are_called(MOST_ASKED));
    rb_client_cancel(call);
    for (size_t i = 0; i < MOST_ASKED; i++)
        UNTIL(&scene->until, is_hung_up_on(nodes.lines[i]));
    UNTIL(&scene->until, !scene->server->requests && !scene->server->calls);
    assert_int_equal(nodes.n_answers, 0);
}

static void not_all_are_asked_at_once(void **state)
{
    struct scene *scene = *state;
    int first = scene_call_in(scene), second;

    scene_say(first, "gather", 0);
    UNTIL(&scene->until, are_called(MOST_ASKED));
    scene_say(second = scene_call_in(scene), "gather", 0);
    UNTIL(&scene->until, scene->server->n_asked == 2);
    until_passed(&scene->until, 20);
    assert_false(are_called(MOST_ASKED + 1));
    for (size_t n = 0; n < NODES; n++) {
        UNTIL(&scene->until, are_called(n + 1));
        assert_true(nodes.n_lines <= n + MOST_ASKED);
        assert_int_equal(nodes.n_came, 0);
        close(nodes.lines[n]);
        nodes.lines[n] = -1;
    }
    UNTIL(&scene->until, hang_up_on_all() && nodes.n_came == 2);
    assert_int_equal(nodes.n_answers, NODES);
    assert_int_equal(scene_answer(scene, first), 0);
    assert_int_equal(scene_answer(scene, second), 0);
    close(first);
    close(second);
    UNTIL(&scene->until, !scene->server->requests && !scene->server->calls);
    assert_int_equal(nodes.methods.asking, 0);
}

static void what_only_looks_is_asked_again(void **state)
{
    int caller = call_coordinator("look");

    (void)state;
    lead("n2", 2);
    UNTIL(&nodes.scene->until, are_called(2));
    assert_true(is_hung_up_on(nodes.lines[0]));
    end_answered(caller);
}

static void what_changes_something_is_not(void **state)
{
    int caller = call_coordinator("change");

    (void)state;
    lead("n2", 2);
    end_unreachable(caller, 1);
}

/* A second answer would give the caller the beginning twice. */
static void nor_is_what_has_been_answered_in_part(void **state)
{
    int caller = call_coordinator("look");

    answer(nodes.lines[0], false);
    assert_int_equal(scene_answer(*state, caller), 0);
    lead("n2", 2);
    end_unreachable(caller, 1);
}

/* Who coordinated until it stood still hears what was asked of it, when the next one does. */
static void nor_is_what_its_caller_has_given_up(void **state)
{
    struct scene *scene = *state;
    Rb__Call call = RB__CALL__INIT;
    int caller = scene_call_in(scene), next;

    lead("n1", 1);
    call.method = "change";
    call.has_hops = true;
    call.hops = 1;
    scene_send(caller, &call, 0);
    close(caller);
    next = scene_call_in(scene);
    assert_int_equal(scene_ask(scene, next), 0); /* the first call was heard before this one */
    close(next);
    UNTIL(&scene->until, !scene->server->n_connections && !scene->server->requests);
    assert_false(are_called(1));
}

static void a_lost_link_is_no_answer(void **state)
{
    int caller = call_coordinator("look");

    (void)state;
    hang_up(0);
    end_answered(caller);
}

static void nor_is_it_asked_for_ever(void **state)
{
    int caller = call_coordinator("look");

    (void)state;
    hang_up(0);
    UNTIL(&nodes.scene->until, are_called(2));
    hang_up(1);
    end_unreachable(caller, 2);
}

static void over_a_lost_link_nothing_is_changed_twice(void **state)
{
    int caller = call_coordinator("change");

    (void)state;
    hang_up(0);
    end_unreachable(caller, 1);
}

/* RB_EUNREACHABLE from the coordinator says that it does not reach another node, not that it is not
 * reached. */
static void an_answered_error_is_an_answer(void **state)
{
    int caller = call_coordinator("look");

    (void)state;
    answer_error(nodes.lines[0], RB_EUNREACHABLE);
    end_unreachable(caller, 1);
}

/* ---- States, of nodes that are lost -----------------------------------------------------------*/

/* A checkpoint of a job that trains on n1 and n2: the first of them is asked to save. */
static int ask_for_checkpoint(struct scene *scene)
{
    Rb__Call call = RB__CALL__INIT;
    int caller = scene_call_in(scene);

    lead("a", 1);
    put_fact("jobs/j/job",
             "{\"name\":\"gpt\",\"id\":\"j\",\"created\":1,\"spec\":{},\"model\":\"M\","
             "\"weights\":\"W\",\"node\":\"a\",\"steps\":9,\"microbatches\":4,"
             "\"numericClass\":\"cpu\"}",
             2);
    put_fact("jobs/j/wish", "{\"want\":2,\"asked\":1}", 3);
    put_fact("jobs/j/state", "{\"phase\":\"Running\",\"active\":1}", 4);
    put_fact("jobs/j/configurations/00000001",
             "{\"number\":1,\"state\":\"ACTIVE\",\"cause\":\"start\",\"asked\":1,\"created\":1,"
             "\"members\":[{\"node\":\"n1\",\"device\":0},{\"node\":\"n2\",\"device\":0}]}",
             5);
    call.method = "checkpoint";
    call.body = "{\"job\":\"gpt\"}";
    scene_send(caller, &call, 0);
    hear_first();
    return caller;
}

static void say_saved(int line)
{
    Rb__Reply reply = RB__REPLY__INIT;

    reply.body = "{\"step\":5,\"path\":\"/saved\"}";
    put_reply(line, &reply);
}

static void lose_node(const char *key)
{
    rb_mirror_delete(nodes.mirror, key);
    rb_methods_look_for_lost(&nodes.methods);
}

static void who_is_lost_is_not_waited_for(void **state)
{
    struct scene *scene = *state;
    int caller = ask_for_checkpoint(scene);

    lose_node("nodes/n1");
    UNTIL(&scene->until, are_called(2));
    say_saved(nodes.lines[1]);
    assert_int_equal(scene_answer(scene, caller), 0);
    close(caller);
}

/* Leases end after an etcd that stood still, and nodes are there again in a moment. */
static void who_is_there_again_is(void **state)
{
    struct scene *scene = *state;
    int caller = ask_for_checkpoint(scene);

    lose_node("nodes/n1");
    put_node(1);
    rb_methods_look_for_lost(&nodes.methods);
    say_saved(nodes.lines[0]);
    assert_int_equal(scene_answer(scene, caller), 0);
    assert_false(are_called(2));
    close(caller);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_forward_ends_with_its_caller),
        TEST(what_was_asked_for_is_passed_on),
        TEST(a_gather_ends_with_its_caller),
        TEST(a_call_from_within_ends_too),
        TEST(not_all_are_asked_at_once),
        TEST(what_only_looks_is_asked_again),
        TEST(what_changes_something_is_not),
        TEST(nor_is_what_has_been_answered_in_part),
        TEST(nor_is_what_its_caller_has_given_up),
        TEST(a_lost_link_is_no_answer),
        TEST(nor_is_it_asked_for_ever),
        TEST(over_a_lost_link_nothing_is_changed_twice),
        TEST(an_answered_error_is_an_answer),
        TEST(who_is_lost_is_not_waited_for),
        TEST(who_is_there_again_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
