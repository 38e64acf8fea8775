/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/server_scene.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/store.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ = 65536 };

static void echo(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_reply(request, json_object());
}

static void large(struct rb_request *request, void *context)
{
    struct scene *scene = context;
    char *data = rb_alloc(LARGE);
    scene->n_large++;
    rb_request_piece(request, data, LARGE);
    rb_request_reply(request, json_object());
    free(data);
}

static void hold(struct rb_request *request, void *context)
{
    struct scene *scene = context;
    scene->held[scene->n_held++] = request;
}

static const struct rb_server_method methods[] = {
    {"echo", false, echo}, {"large", false, large}, {"hold", false, hold}, {0}};

int scene_setup(void **state)
{
    static struct scene scene;
    struct rb_why why = {0};
    const char *nowhere = "unix:/nowhere/at/all";
    char taken[128];

    signal(SIGPIPE, SIG_IGN); /* as rubatod does */
    scene = (struct scene){.folder = "/tmp/rubato-bounds.XXXXXX"};
    assert_non_null(mkdtemp(scene.folder));
    until_open(&scene.until);
    assert_int_equal(rb_etcd_new(&scene.until.loop, &nowhere, 1, &scene.etcd, &why), RB_OK);
    scene.store = rb_store_new(&scene.until.loop, scene.etcd);
    scene.server = rb_server_new(&scene.until.loop, scene.store, "a");
    scene.server->most = MOST;
    scene.server->silent_ms = SILENT_MS;
    scene.server->stalled_ms = STALLED_MS;
    scene.server->deaf_ms = DEAF_MS;
    rb_server_add(scene.server, methods, &scene);
    RB_CLEANUP(rb_freep) char *local = rb_format("unix:%s/sock", scene.folder);
    assert_int_equal(rb_server_listen(scene.server, local, taken, &why), RB_OK);
    *state = &scene;
    return 0;
}

int scene_teardown(void **state)
{
    struct scene *scene = *state;
    struct rb_why why;

    rb_server_free(scene->server);
    rb_store_free(scene->store);
    rb_etcd_free(scene->etcd);
    assert_int_equal(until_close(&scene->until), 0);
    return rb_file_remove(scene->folder, &why);
}

/* ---- Callers --------------------------------------------------------------------------------- */

int scene_call_in(struct scene *scene)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_return_code(fd, errno);
    strcat(strcpy(to.sun_path, scene->folder), "/sock");
    assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof(to)), errno);
    return fd;
}

void scene_send(int fd, const Rb__Call *call, size_t less)
{
    struct rb_buffer out = {0};

    rb_frame_put(&out, RB_FRAME_CALL, &call->base);
    assert_int_equal(write(fd, out.data, out.size - less), out.size - less);
    rb_buffer_done(&out);
}

void scene_say(int fd, const char *method, size_t less)
{
    Rb__Call call = RB__CALL__INIT;

    call.method = (char *)method;
    scene_send(fd, &call, less);
}

bool scene_is_shut(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0 || errno == ECONNRESET;
}

/* A whole reply, if it is there; its error is told. */
static bool hears(int fd, struct rb_buffer *in, bool *heard, int *ret_error)
{
    struct rb_why why;
    ProtobufCMessage *message;

    for (ssize_t n; (n = read(fd, rb_buffer_reserve(in, READ), READ)) > 0;)
        in->size += (size_t)n;
    *heard = !rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, &why);
    if (!*heard)
        return false;
    *ret_error = ((Rb__Reply *)message)->error;
    protobuf_c_message_free_unpacked(message, NULL);
    return true;
}

size_t scene_take(int fd, size_t most)
{
    char some[4096];
    size_t all = 0;

    for (ssize_t n = 1; n > 0 && all<most; all += n> 0 ? (size_t)n : 0)
        n = read(fd, some, most - all < sizeof(some) ? most - all : sizeof(some));
    return all;
}

bool scene_forget(int fd)
{
    scene_take(fd, SIZE_MAX);
    return true;
}

int scene_answer(struct scene *scene, int fd)
{
    struct rb_buffer in = {0};
    bool heard = false;
    int error = 0;

    UNTIL(&scene->until, heard || hears(fd, &in, &heard, &error));
    rb_buffer_done(&in);
    return error;
}

int scene_ask(struct scene *scene, int fd)
{
    scene_say(fd, "echo", 0);
    return scene_answer(scene, fd);
}

uint64_t scene_shut_ms(struct scene *scene, int fd, uint64_t since_ns)
{
    UNTIL(&scene->until, scene_is_shut(fd));
    close(fd);
    return (rb_clock_ns() - since_ns) / 1000000;
}
