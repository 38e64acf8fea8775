/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/rows.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MOST = 1024, COLUMNS = 18, WAITING_MOST = 64 << 20 };

static const int64_t steps_most = (int64_t)1 << 28;
static const uint64_t file_most = (uint64_t)1 << 38;

const char *const rb_rows_columns[] = {
    "step",      "time",          "loss",         "grad_norm",  "lr",        "step_ms",
    "devices",   "configuration", "first_sample", "samples",    "skipped",   "redone",
    "eval_loss", "eval_accuracy", "compute_ms",   "slowest_ms", "variation", "stolen",
    NULL,
};

struct place {
    uint64_t offset; /* of the line; UINT64_MAX: none */
    uint32_t configuration;
    uint32_t lost; /* the newest line that it has replaced, + 1; 0: none */
};

/* A line that a later one of the same step has replaced. */
struct lost {
    uint64_t offset;
    uint32_t earlier; /* the lost line before it of the same step, + 1; 0: none */
};

struct rb_rows {
    int fd;
    uint64_t size;            /* on disk */
    struct rb_buffer waiting; /* what comes behind, once the disk takes it */
    struct place *places;     /* of step i + 1 */
    size_t room;
    struct lost *lost;
    size_t n_lost, lost_room;
    int64_t first, last; /* steps; 0: none */
    int64_t unbroken;    /* from `first` to here none is missing */
};

/* Keep a line that is about to be replaced; its number + 1. */
static uint32_t keep_lost(struct rb_rows *rows, const struct place *place)
{
    if (rows->n_lost == rows->lost_room) {
        rows->lost_room = rows->lost_room ? 2 * rows->lost_room : 64;
        rows->lost = rb_realloc(rows->lost, rows->lost_room * sizeof(*rows->lost));
    }
    rows->lost[rows->n_lost++] = (struct lost){place->offset, place->lost};
    return (uint32_t)rows->n_lost;
}

static const struct place *find(const struct rb_rows *rows, int64_t step)
{
    if (step < 1 || (uint64_t)step > rows->room || rows->places[step - 1].offset == UINT64_MAX)
        return NULL;
    return &rows->places[step - 1];
}

static void note(struct rb_rows *rows, int64_t step, uint32_t configuration, uint64_t offset)
{
    size_t i = (size_t)step - 1;
    if (i >= rows->room) {
        size_t room = rows->room ? rows->room : 1024;
        while (room <= i)
            room *= 2;
        rows->places = rb_realloc(rows->places, room * sizeof(*rows->places));
        for (size_t j = rows->room; j < room; j++)
            rows->places[j].offset = UINT64_MAX;
        rows->room = room;
    }
    uint32_t lost = 0;
    if (rows->places[i].offset != UINT64_MAX)
        lost = keep_lost(rows, &rows->places[i]);
    rows->places[i] = (struct place){offset, configuration, lost};
    if (!rows->first || step < rows->first) {
        rows->first = step;
        rows->unbroken = step;
    }
    while (find(rows, rows->unbroken + 1))
        rows->unbroken++;
    if (step > rows->last)
        rows->last = step;
}

/* step and configuration of a line; false where it is none. */
static bool read_line(const char *line, int64_t *ret_step, uint32_t *ret_configuration)
{
    long long step;
    unsigned configuration;
    if (sscanf(line, "%lld %*s %*s %*s %*s %*s %*s %u", &step, &configuration) != 2 || step < 1 ||
        step > steps_most)
        return false;
    *ret_step = step;
    *ret_configuration = configuration;
    return true;
}

/* Note every whole line of the file, and cut off what is behind the last. */
static int load(struct rb_rows *rows, const char *path, struct rb_why *why)
{
    struct rb_map map;
    int err = rb_map_open(path, &map, why);
    if (err)
        return err;
    const char *text = (const char *)map.data;
    uint64_t at = 0;
    while (at < map.size) {
        const char *end = memchr(text + at, '\n', map.size - at);
        char line[LINE_MOST];
        int64_t step;
        uint32_t configuration;
        if (!end)
            break;
        size_t length = (size_t)(end - (text + at));
        if (length < sizeof(line)) {
            memcpy(line, text + at, length);
            line[length] = 0;
            if (read_line(line, &step, &configuration))
                note(rows, step, configuration, at);
        }
        at += length + 1;
    }
    bool half = at < map.size;
    rb_map_close(&map);
    rows->size = at;
    if (half && ftruncate(rows->fd, (off_t)at))
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", path, strerror(errno));
    return RB_OK;
}

int rb_rows_open(const char *path, struct rb_rows **ret_rows, struct rb_why *why)
{
    struct rb_rows *rows = rb_alloc(sizeof(*rows));
    rows->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (rows->fd < 0) {
        int err = rb_why_set(why, rb_error_from_errno(errno), "%s: %s", path, strerror(errno));
        free(rows);
        return err;
    }
    int err = load(rows, path, why);
    if (err)
        rb_rows_close(rows);
    else
        *ret_rows = rows;
    return err;
}

/* A line that is cut in two here is whole with the next flush, or cut off by the next open. */
static int flush(struct rb_rows *rows)
{
    while (rows->waiting.size) {
        ssize_t n = pwrite(rows->fd, rows->waiting.data, rows->waiting.size, (off_t)rows->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        rows->size += (uint64_t)n;
        rb_buffer_drop(&rows->waiting, (size_t)n);
    }
    return 0;
}

void rb_rows_close(struct rb_rows *rows)
{
    if (!rows)
        return;
    flush(rows);
    close(rows->fd);
    rb_buffer_done(&rows->waiting);
    free(rows->places);
    free(rows->lost);
    free(rows);
}

static void add_real(struct rb_buffer *line, bool there, double value)
{
    if (there)
        rb_buffer_format(line, " %.17g", value);
    else
        rb_buffer_text(line, " -");
}

static void add_line(struct rb_buffer *line, const Rb__Row *row)
{
    rb_buffer_format(line, "%" PRId64 " %" PRIu64, row->step, row->time);
    add_real(line, true, row->loss);
    add_real(line, true, row->grad_norm);
    add_real(line, true, row->lr);
    add_real(line, true, row->step_ms);
    rb_buffer_format(line, " %u %u %" PRIu64 " %u %d %u", row->devices, row->configuration,
                     row->first_sample, row->samples, row->skipped, row->redone);
    add_real(line, row->has_eval_loss, row->eval_loss);
    add_real(line, row->has_eval_accuracy, row->eval_accuracy);
    add_real(line, row->has_compute_ms, row->compute_ms);
    add_real(line, row->has_slowest_ms, row->slowest_ms);
    add_real(line, row->has_variation, row->variation);
    rb_buffer_format(line, " %u", row->stolen);
    rb_buffer_text(line, "\n");
}

int rb_rows_add(struct rb_rows *rows, const Rb__Row *row, bool *ret_new, struct rb_why *why)
{
    if (row->step < 1 || row->step > steps_most)
        return rb_why_set(why, RB_EINVAL, "a row for step %" PRId64, row->step);
    const struct place *known = find(rows, row->step);
    *ret_new = !known || known->configuration < row->configuration;
    if (!*ret_new)
        return RB_OK;
    if (rows->waiting.size > WAITING_MOST || rows->size > file_most)
        return rb_why_set(why, RB_EFULL,
                          "too many metrics wait to be written: step %" PRId64 " is left out",
                          row->step);
    note(rows, row->step, row->configuration, rows->size + rows->waiting.size);
    add_line(&rows->waiting, row);
    int number = flush(rows);
    if (number)
        return rb_why_set(why, rb_error_from_errno(number), "writing metrics: %s",
                          strerror(number));
    return RB_OK;
}

int64_t rb_rows_last(const struct rb_rows *rows)
{
    return rows->last;
}

int64_t rb_rows_unbroken(const struct rb_rows *rows)
{
    return rows->unbroken;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static json_t *read_field(const char *text, size_t column)
{
    bool whole = column < 2 || (column >= 6 && column < 12) || column == 17;
    if (!strcmp(text, "-"))
        return json_null();
    if (whole)
        return json_integer(strtoll(text, NULL, 10));
    double value = strtod(text, NULL);
    return isfinite(value) ? json_real(value) : json_null(); /* JSON has no NaN */
}

static json_t *read_row(char *line)
{
    json_t *row = json_array();
    char *rest = NULL;
    for (char *field = strtok_r(line, " ", &rest); field && json_array_size(row) < COLUMNS;
         field = strtok_r(NULL, " ", &rest))
        json_array_append_new(row, read_field(field, json_array_size(row)));
    while (json_array_size(row) < COLUMNS)
        json_array_append_new(row, json_null());
    return row;
}

/* At most `room` bytes from an offset, of which the last may still wait for the disk. */
static ssize_t read_at(const struct rb_rows *rows, uint64_t offset, char *bytes, size_t room)
{
    uint64_t on_disk = offset < rows->size ? rows->size - offset : 0;
    size_t n = on_disk < room ? (size_t)on_disk : room, at = 0, rest = 0;
    if (n && pread(rows->fd, bytes, n, (off_t)offset) != (ssize_t)n)
        return -1;
    if (offset > rows->size)
        at = (size_t)(offset - rows->size);
    if (at < rows->waiting.size)
        rest = rows->waiting.size - at;
    if (rest > room - n)
        rest = room - n;
    if (rest)
        memcpy(bytes + n, rows->waiting.data + at, rest);
    return (ssize_t)(n + rest);
}

static int read_line_at(const struct rb_rows *rows, uint64_t offset, json_t *all,
                        struct rb_why *why)
{
    char line[LINE_MOST];
    ssize_t n = read_at(rows, offset, line, sizeof(line) - 1);
    if (n < 0)
        return rb_why_set(why, RB_EIO, "reading metrics: %s", strerror(errno));
    line[n] = 0;
    line[strcspn(line, "\n")] = 0;
    json_array_append_new(all, read_row(line));
    return RB_OK;
}

int rb_rows_read(struct rb_rows *rows, int64_t after, size_t limit, bool lost, json_t **ret,
                 struct rb_why *why)
{
    json_t *all = json_array();
    int err = RB_OK;
    flush(rows);
    int64_t step = after < 0 ? 1 : after < rows->last ? after + 1 : INT64_MAX;
    if (step < rows->first)
        step = rows->first;
    for (size_t n = 0; !err && step <= rows->last && n < limit; step++) {
        const struct place *place = find(rows, step);
        if (!place)
            continue;
        for (uint32_t i = lost ? place->lost : 0; !err && i; i = rows->lost[i - 1].earlier)
            err = read_line_at(rows, rows->lost[i - 1].offset, all, why);
        if (!err)
            err = read_line_at(rows, place->offset, all, why);
        n++;
    }
    if (err)
        json_decref(all);
    else
        *ret = all;
    return err;
}
