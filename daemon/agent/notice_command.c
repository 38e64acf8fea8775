/* SPDX-License-Identifier: Apache-2.0 */
/*   running --ends--> its output is at its end, or a moment has passed --> told --> handles closed
 *      |                                                                    ^
 *      +-- its time is over: killed ----------------------------------------+ */
#include "daemon/agent/notice_command.h"

#include "base/arena.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 64, DRAIN_MS = 100 /* for output of one that has ended */ };

struct rb_notice_command {
    uv_process_t process;
    uv_pipe_t output;
    uv_timer_t timer;
    char text[RB_NOTICE_OUTPUT + 1], rest[256];
    size_t size;
    int status, open; /* handles */
    bool started, ended, drained, killed, over;
    rb_notice_command_done *done;
    void *context;
};

static void on_closed(uv_handle_t *handle)
{
    struct rb_notice_command *command = handle->data;
    if (--command->open == 0)
        free(command);
}

static void close_handles(struct rb_notice_command *command)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&command->process, (uv_handle_t *)&command->output,
                              (uv_handle_t *)&command->timer};
    command->over = true;
    command->open = RB_COUNT(handles);
    for (size_t i = 0; i < RB_COUNT(handles); i++) {
        handles[i]->data = command;
        uv_close(handles[i], on_closed);
    }
}

static void kill_group(const struct rb_notice_command *command)
{
    if (command->started)
        kill(-command->process.pid, SIGKILL);
}

static void settle(struct rb_notice_command *command)
{
    if (command->over || !command->ended || (!command->drained && !command->killed))
        return;
    rb_notice_command_done *done = command->done;
    kill_group(command);
    close_handles(command);
    if (done)
        done(command->killed ? -1 : command->status, command->text, command->context);
}

static void on_time(uv_timer_t *timer)
{
    struct rb_notice_command *command = timer->data;
    if (command->ended)
        command->drained = true; /* a process that it left behind still holds its output */
    else
        command->killed = true;
    kill_group(command);
    settle(command);
}

static void on_ended(uv_process_t *process, int64_t status, int number)
{
    struct rb_notice_command *command = process->data;
    command->ended = true;
    command->status = number ? -1 : (int)status;
    if (!command->over)
        uv_timer_start(&command->timer, on_time, DRAIN_MS, 0);
    settle(command);
}

/* Output beyond what is looked at is read and dropped, so that the command does not wait. */
static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct rb_notice_command *command = handle->data;
    (void)suggested;
    if (command->size < RB_NOTICE_OUTPUT)
        *room = uv_buf_init(command->text + command->size,
                            (unsigned)(RB_NOTICE_OUTPUT - command->size));
    else
        *room = uv_buf_init(command->rest, sizeof(command->rest));
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *room)
{
    struct rb_notice_command *command = stream->data;
    if (n > 0 && room->base != command->rest)
        command->size += (size_t)n;
    if (n >= 0)
        return;
    uv_read_stop(stream);
    command->drained = true;
    settle(command);
}

/* Cut `text` up into words, in place; NULL behind the last. */
static void split(char *text, char *words[WORDS_MOST + 1])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\n", &rest); word && n < WORDS_MOST;
         word = strtok_r(NULL, " \t\n", &rest))
        words[n++] = word;
    words[n] = NULL;
}

int rb_notice_command_run(uv_loop_t *loop, const char *text, uint64_t timeout_ms,
                          rb_notice_command_done *done, void *context,
                          struct rb_notice_command **ret, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *copy = rb_string(text);
    char *words[WORDS_MOST + 1];
    split(copy, words);
    if (!words[0])
        return rb_why_set(why, RB_EINVAL, "an empty command");
    struct rb_notice_command *command = rb_alloc(sizeof(*command));
    command->done = done;
    command->context = context;
    uv_pipe_init(loop, &command->output, 0);
    uv_timer_init(loop, &command->timer);
    command->process.data = command->output.data = command->timer.data = command;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&command->output},
        {.flags = UV_IGNORE},
    };
    uv_process_options_t options = {
        .exit_cb = on_ended,
        .file = words[0],
        .args = words,
        .flags = UV_PROCESS_DETACHED, /* a group of its own */
        .stdio_count = 3,
        .stdio = stdio,
    };
    int status = uv_spawn(loop, &command->process, &options);
    if (status) {
        close_handles(command);
        return rb_why_set(why, RB_EIO, "starting %s: %s", words[0], uv_strerror(status));
    }
    command->started = true;
    uv_read_start((uv_stream_t *)&command->output, on_room, on_output);
    uv_timer_start(&command->timer, on_time, timeout_ms, 0);
    *ret = command;
    return RB_OK;
}

void rb_notice_command_stop(struct rb_notice_command *command)
{
    if (!command || command->over)
        return;
    kill_group(command);
    close_handles(command);
}

int rb_notice_command_read(const char *output, double *ret_seconds)
{
    static const char blanks[] = " \t\r\n";
    const char *text = output + strspn(output, blanks);
    char *end;
    if (!*text) {
        *ret_seconds = -1;
        return RB_OK;
    }
    if (*text < '0' || *text > '9')
        return RB_EINVAL;
    double seconds = strtod(text, &end);
    if (!isfinite(seconds) || seconds > 1e9 || end[strspn(end, blanks)])
        return RB_EINVAL;
    *ret_seconds = seconds;
    return RB_OK;
}
