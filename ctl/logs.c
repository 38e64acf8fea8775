/* SPDX-License-Identifier: Apache-2.0 */
/* What workers wrote to stderr: whole lines, each prefixed with its node and worker. */
#include "base/arena.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <string.h>

enum { POLL_MS = 300 };

struct logs {
    const struct rb_session *session;
    json_t *after; /* FILE: bytes read */
    json_t *part;  /* FILE: a line whose end has not arrived yet */
    json_t *node;  /* FILE: where it is */
};

static void put_line(const struct logs *logs, const char *file, const char *line, size_t size)
{
    size_t name = strlen(file), end = strlen(".log");

    if (name > end && strcmp(file + name - end, ".log") == 0)
        name -= end;
    fprintf(logs->session->out, "[%s %.*s] %.*s\n", rb_value_text(logs->node, file, "?"), (int)name,
            file, (int)size, line);
}

static void take_piece(struct logs *logs, const json_t *piece)
{
    const char *file = rb_value_text(piece, "file", "?"), *text = rb_value_text(piece, "text", "");
    RB_CLEANUP(rb_freep) char *whole = rb_format("%s%s", rb_value_text(logs->part, file, ""), text);
    const char *at = whole, *end;

    json_object_set_new(logs->node, file, json_string(rb_value_text(piece, "node", "?")));
    while ((end = strchr(at, '\n'))) {
        put_line(logs, file, at, (size_t)(end - at));
        at = end + 1;
    }
    json_object_set_new(logs->part, file, json_string(at));
    json_object_set_new(logs->after, file, json_integer(rb_value_integer(piece, "offset", 0)));
}

static void put_parts(const struct logs *logs)
{
    const char *file;
    json_t *part;

    json_object_foreach(logs->part, file, part)
    {
        const char *text = json_string_value(part);

        if (text && text[0])
            put_line(logs, file, text, strlen(text));
    }
}

/* Returns how many pieces there were. */
static size_t take_pieces(struct logs *logs, const json_t *reply)
{
    const json_t *pieces = json_object_get(reply, "pieces"), *piece;
    size_t i;

    json_array_foreach(pieces, i, piece)
    {
        take_piece(logs, piece);
    }
    fflush(logs->session->out);
    return json_array_size(pieces);
}

static int read_all(struct logs *logs, const char *job, bool follow, struct rb_why *why)
{
    bool first = true;
    int err = 0;

    while (!err) {
        json_t *reply = NULL, *body = json_pack("{s:s, s:O}", "job", job, "after", logs->after);
        size_t pieces;
        bool over;

        err = first ? rb_session_call(logs->session, "logs", body, 0, &reply, why)
                    : rb_session_ask_again(logs->session, "logs", body, 0, &reply, why);
        if (err)
            break;
        first = false;
        pieces = take_pieces(logs, reply);
        over = rb_value_over(reply);
        json_decref(reply);
        if (pieces)
            continue;
        if (!follow || over)
            break;
        err = rb_session_sleep(logs->session, POLL_MS, 0, why);
    }
    return err;
}

int rb_logs(struct rb_session *session, const struct rb_arguments *arguments)
{
    struct logs logs = {
        .session = session, .after = json_object(), .part = json_object(), .node = json_object()};
    bool follow = rb_arguments_has(arguments, "follow");
    struct rb_why why = {0};
    int err = read_all(&logs, arguments->word[0], follow, &why);

    put_parts(&logs);
    json_decref(logs.after);
    json_decref(logs.part);
    json_decref(logs.node);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
