/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ctl/fake.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "proto/frame.h"
#include "rpc.pb-c.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 64 };

static Rb__Call *read_call(int fd)
{
    struct rb_buffer in = {0};
    ProtobufCMessage *message = NULL;

    while (rb_frame_take(&in, RB_FRAME_CALL, &rb__call__descriptor, &message, NULL)) {
        ssize_t got = read(fd, rb_buffer_reserve(&in, 4096), 4096);

        if (got <= 0)
            break;
        in.size += (size_t)got;
    }
    rb_buffer_done(&in);
    return (Rb__Call *)message;
}

static void note(const char *folder, const Rb__Call *call)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/calls", folder);
    RB_CLEANUP(rb_freep)
    char *line = rb_format("%s %s %s\n", call->method, call->node ? call->node : "here",
                           call->body ? call->body : "");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (write(fd, line, strlen(line)) < 0)
        _exit(1);
    close(fd);
}

static const struct fake_reply *choose(const struct fake_reply *replies, bool *used,
                                       const char *method)
{
    const struct fake_reply *last = NULL;

    for (int i = 0; replies[i].method; i++) {
        if (strcmp(replies[i].method, method) != 0)
            continue;
        last = &replies[i];
        if (!used[i]) {
            used[i] = true;
            break;
        }
    }
    return last;
}

static void put_piece(struct rb_buffer *out, const char *data, size_t size)
{
    Rb__Reply reply = RB__REPLY__INIT;

    reply.has_data = 1;
    reply.data = (ProtobufCBinaryData){size, (uint8_t *)data};
    reply.has_last = 1;
    reply.last = 0;
    rb_frame_put(out, RB_FRAME_REPLY, &reply.base);
}

static void answer(int fd, const struct fake_reply *how)
{
    struct rb_buffer out = {0};
    Rb__Reply reply = RB__REPLY__INIT;

    if (how && how->data) {
        size_t half = strlen(how->data) / 2;

        put_piece(&out, how->data, half);
        put_piece(&out, how->data + half, strlen(how->data) - half);
    }
    reply.error = how ? how->error : RB_EINTERNAL;
    reply.why = (char *)(how ? how->why : "no such method");
    reply.body = (char *)(how && how->body ? how->body : "{}");
    if (how && how->how == FAKE_GARBAGE)
        rb_buffer_text(&out, "HTTP/1.1 400 Bad Request");
    else if (!how || how->how == FAKE_ANSWER)
        rb_frame_put(&out, RB_FRAME_REPLY, &reply.base);
    for (size_t at = 0; at < out.size;) {
        ssize_t put = send(fd, out.data + at, out.size - at, MSG_NOSIGNAL);

        if (put <= 0)
            break;
        at += (size_t)put;
    }
    rb_buffer_done(&out);
}

static void serve(int listener, const char *folder, const struct fake_reply *replies)
{
    bool used[ROWS] = {false};

    for (;;) {
        int fd = accept(listener, NULL, NULL);
        Rb__Call *call = fd < 0 ? NULL : read_call(fd);

        if (call) {
            const struct fake_reply *how = choose(replies, used, call->method);
            char byte;

            note(folder, call);
            answer(fd, how);
            while (how && how->how == FAKE_SILENCE && read(fd, &byte, 1) > 0)
                ; /* a caller that goes without reading all is an error, and gone as well */
            rb__call__free_unpacked(call, NULL);
        }
        close(fd);
    }
}

void fake_start(struct fake *fake, const struct fake_reply *replies)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(fake->folder, "/tmp/rubato-ctl-XXXXXX");
    assert_non_null(mkdtemp(fake->folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", fake->folder);
    snprintf(fake->endpoint, sizeof fake->endpoint, "unix:%s/socket", fake->folder);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 16), 0);
    fake->pid = fork();
    if (fake->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, fake->folder, replies);
        _exit(0);
    }
    close(listener);
}

void fake_stop(struct fake *fake)
{
    kill(fake->pid, SIGKILL);
    waitpid(fake->pid, NULL, 0);
    rb_file_remove(fake->folder, NULL);
}

static char *read_text(const char *folder, const char *name)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_buffer text = {0};

    rb_file_read(path, 1 << 24, &text, NULL);
    return rb_buffer_take(&text);
}

char *fake_calls(const struct fake *fake)
{
    return read_text(fake->folder, "calls");
}

static void point(const char *name, int to)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
}

pid_t fake_spawn(const struct fake *fake, const char *const *words)
{
    const char *argv[40] = {"rubatoctl"};
    pid_t pid;
    int in;

    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    pid = fork();
    if (pid == 0) {
        if (chdir(fake->folder) < 0)
            _exit(99);
        if ((in = open("in", O_RDONLY)) >= 0)
            dup2(in, STDIN_FILENO);
        point("out", STDOUT_FILENO);
        point("err", STDERR_FILENO);
        setenv("RUBATO_ENDPOINT", fake->endpoint, 1);
        execv(getenv("RUBATOCTL"), (char *const *)argv);
        _exit(98);
    }
    return pid;
}

struct outcome fake_wait(const struct fake *fake, pid_t pid)
{
    struct outcome outcome;
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = read_text(fake->folder, "out");
    outcome.err = read_text(fake->folder, "err");
    return outcome;
}

struct outcome fake_run(const struct fake *fake, const char *const *words)
{
    return fake_wait(fake, fake_spawn(fake, words));
}

void outcome_done(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->err);
}
