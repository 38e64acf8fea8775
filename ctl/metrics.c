/* SPDX-License-Identifier: Apache-2.0 */
/* A row per committed step, page by page: csv, or JSON objects (a list; a line each with --follow),
 * or events for TensorBoard.
 * --lost: also the rows of steps that were lost with a fall back to a checkpoint and done again. */
#include "ctl/tensorboard.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "ctl/write.h"

#include <inttypes.h>
#include <string.h>

enum { PAGE = 4096, POLL_MS = 300 };

struct metrics {
    const struct rb_session *session;
    bool json, follow, lost;
    bool headed;                 /* the head of the csv is printed */
    json_t *list;                /* json without --follow */
    struct rb_tensorboard board; /* folder NULL: none */
    int64_t after;
};

static void put_csv(const struct metrics *metrics, const json_t *cells)
{
    struct rb_buffer line = {0};
    const json_t *cell;
    size_t i;

    json_array_foreach(cells, i, cell)
    {
        if (i)
            rb_buffer_text(&line, ",");
        if (json_is_string(cell))
            rb_buffer_text(&line, json_string_value(cell));
        else if (json_is_boolean(cell))
            rb_buffer_text(&line, json_is_true(cell) ? "1" : "0");
        else if (json_is_null(cell)) /* so that the column stays numeric */
            rb_buffer_text(&line, "nan");
        else {
            rb_write_line(cell, &line);
            line.size--; /* drop the newline */
        }
    }
    rb_buffer_text(&line, "\n");
    rb_session_put(metrics->session, &line);
}

static void put_row(struct metrics *metrics, const json_t *columns, const json_t *row)
{
    struct rb_buffer line = {0};
    json_t *object;

    if (!metrics->json) {
        put_csv(metrics, row);
        return;
    }
    object = rb_value_row(columns, row);
    if (metrics->follow) {
        rb_write_line(object, &line);
        rb_session_put(metrics->session, &line);
        json_decref(object);
    } else {
        json_array_append_new(metrics->list, object);
    }
}

static void put_page(struct metrics *metrics, const json_t *columns, const json_t *rows)
{
    const json_t *row;
    size_t i;

    if (!metrics->json && !metrics->headed)
        put_csv(metrics, columns);
    metrics->headed = true;
    json_array_foreach(rows, i, row)
    {
        put_row(metrics, columns, row);
    }
    fflush(metrics->session->out);
}

/* Take one page; *ret_more: another may be there already, by the page length that rubatod
 * states. */
static int take_page(struct metrics *metrics, const json_t *reply, bool *ret_more,
                     struct rb_why *why)
{
    const json_t *columns = json_object_get(reply, "columns");
    const json_t *rows = json_object_get(reply, "rows"), *row;
    int64_t before = metrics->after;
    int err = 0;
    size_t i;

    if (metrics->board.folder)
        err = rb_tensorboard_add(&metrics->board, columns, rows, why);
    else
        put_page(metrics, columns, rows);
    json_array_foreach(rows, i, row)
    {
        metrics->after = rb_value_cell(columns, row, "step", metrics->after);
    }
    *ret_more = json_array_size(rows) > 0;
    if (!err && json_array_size(rows) && metrics->after <= before)
        err = rb_why_set(why, RB_EINTERNAL, "rubatod sent rows without a step");
    return err;
}

static int read_all(struct metrics *metrics, const char *job, struct rb_why *why)
{
    bool first = true, more = true, over = false;
    int err = 0;

    while (!err) {
        json_t *reply = NULL, *body = json_pack("{s:s, s:I, s:i, s:b}", "job", job, "after",
                                                (json_int_t)metrics->after, "limit", PAGE, "lost",
                                                (int)metrics->lost);

        err = first ? rb_session_call(metrics->session, "metrics", body, 0, &reply, why)
                    : rb_session_ask_again(metrics->session, "metrics", body, 0, &reply, why);
        if (err)
            break;
        first = false;
        over = rb_value_over(reply);
        err = take_page(metrics, reply, &more, why);
        json_decref(reply);
        if (err || (!more && (!metrics->follow || over)))
            break;
        if (!more)
            err = rb_session_sleep(metrics->session, POLL_MS, 0, why);
    }
    return err;
}

/* Say what TensorBoard can show now. */
static void say_board(const struct metrics *metrics)
{
    const struct rb_tensorboard *board = &metrics->board;
    json_t *said;

    if (metrics->json) {
        said = json_pack("{s:s?,s:I,s:I,s:I}", "path", board->path, "rows", (json_int_t)board->rows,
                         "first", (json_int_t)board->first, "last", (json_int_t)board->last);
        rb_session_print(metrics->session, said);
        json_decref(said);
    } else if (board->path) {
        fprintf(metrics->session->out, "%s: steps %" PRId64 " to %" PRId64 " of %s\n", board->path,
                board->first, board->last, board->job);
    } else {
        fprintf(metrics->session->err, "rubatoctl: %s has done no step: nothing was written\n",
                board->job);
    }
}

int rb_metrics(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *folder = rb_arguments_value(arguments, "tensorboard");
    struct metrics metrics = {
        .session = session,
        .json = session->format == RB_FORMAT_JSON,
        .follow = rb_arguments_has(arguments, "follow"),
        .lost = rb_arguments_has(arguments, "lost"),
        .board = {.folder = folder, .job = arguments->word[0], .fd = -1},
    };
    struct rb_why why = {0};
    int err;

    if (folder && !folder[0])
        return rb_session_usage(session, "--tensorboard says into which folder");
    if (folder && metrics.lost)
        return rb_session_usage(session, "--tensorboard has each step once, and none with --lost");
    metrics.list = json_array();
    err = read_all(&metrics, arguments->word[0], &why);
    if (!err && metrics.board.folder)
        say_board(&metrics);
    else if (!err && metrics.json && !metrics.follow)
        rb_session_print(session, metrics.list);
    json_decref(metrics.list);
    rb_tensorboard_done(&metrics.board);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
