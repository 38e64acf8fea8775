/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensorboard.h"

#include "base/arena.h"
#include "base/file.h"
#include "ctl/value.h"
#include "tensorboard.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A record --------------------------------------------------------------------------------*/

uint32_t rb_crc32c(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint32_t crc = ~UINT32_C(0);

    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

static void add_number(struct rb_buffer *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++, number >>= 8)
        rb_buffer_add(out, &(uint8_t){(uint8_t)number}, 1);
}

/* The sum, masked: for bytes that contain such sums themselves, a plain sum would tell too
 * little. */
static uint32_t masked(const void *bytes, size_t size)
{
    uint32_t crc = rb_crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* As in a TFRecord: u64 length, its masked sum, the bytes, their masked sum. */
static void add_record(struct rb_buffer *out, const Rb__Tensorboard__Event *event)
{
    const size_t size = rb__tensorboard__event__get_packed_size(event), from = out->size;
    uint8_t *bytes = rb_alloc(size);

    rb__tensorboard__event__pack(event, bytes);
    add_number(out, size, 8);
    add_number(out, masked(out->data + from, 8), 4);
    rb_buffer_add(out, bytes, size);
    add_number(out, masked(bytes, size), 4);
    free(bytes);
}

/* ---- Events ----------------------------------------------------------------------------------*/

/* A column's name in TensorBoard, and its factor. */
static const struct curve {
    const char *column, *tag;
    double times;
} curves[] = {
    {"loss", "train/loss", 1},
    {"grad_norm", "train/grad_norm", 1},
    {"lr", "train/lr", 1},
    {"skipped", "train/skipped", 1},
    {"eval_loss", "eval/loss", 1},
    {"eval_accuracy", "eval/accuracy", 1},
    {"step_ms", "perf/step_s", 1e-3},
    {"compute_ms", "perf/compute_s", 1e-3},
    {"slowest_ms", "perf/slowest_s", 1e-3},
    {"variation", "perf/variation", 1},
    {"devices", "elastic/devices", 1},
    {"configuration", "elastic/configuration", 1},
    {"stolen", "elastic/stolen", 1},
};

void rb_tensorboard_begin(int64_t time, struct rb_buffer *out)
{
    Rb__Tensorboard__Event event = RB__TENSORBOARD__EVENT__INIT;

    event.has_wall_time = true;
    event.wall_time = (double)time / 1e3;
    event.file_version = (char *)"brain.Event:2";
    add_record(out, &event);
}

/* The cell's number; yes and no are 1 and 0. */
static double number_of(const json_t *cells, const char *column)
{
    return rb_value_true(cells, column) ? 1 : rb_value_real(cells, column, 0);
}

static void add_point(Rb__Tensorboard__Summary *summary, const char *tag, double value)
{
    Rb__Tensorboard__Value *point = summary->value[summary->n_value++];

    rb__tensorboard__value__init(point);
    point->tag = (char *)tag;
    point->has_simple_value = true;
    point->simple_value = (float)value;
}

void rb_tensorboard_row(const json_t *columns, const json_t *row, struct rb_buffer *out)
{
    Rb__Tensorboard__Value values[RB_COUNT(curves) + 1], *points[RB_COUNT(curves) + 1];
    Rb__Tensorboard__Summary summary = RB__TENSORBOARD__SUMMARY__INIT;
    Rb__Tensorboard__Event event = RB__TENSORBOARD__EVENT__INIT;
    json_t *cells = rb_value_row(columns, row);
    const double ms = rb_value_real(cells, "step_ms", 0);

    for (size_t i = 0; i < RB_COUNT(points); i++)
        points[i] = &values[i];
    summary.value = points;
    for (const struct curve *curve = curves; curve < curves + RB_COUNT(curves); curve++)
        if (rb_value_there(cells, curve->column))
            add_point(&summary, curve->tag, curve->times * number_of(cells, curve->column));
    if (ms > 0 && rb_value_there(cells, "samples"))
        add_point(&summary, "perf/samples_per_s", 1e3 / ms * number_of(cells, "samples"));
    event.has_wall_time = event.has_step = true;
    event.wall_time = (double)rb_value_integer(cells, "time", 0) / 1e3;
    event.step = rb_value_integer(cells, "step", 0);
    event.summary = &summary;
    add_record(out, &event);
    json_decref(cells);
}

/* ---- The file --------------------------------------------------------------------------------*/

static int failed(const char *verb, const char *path, struct rb_why *why)
{
    int number = errno;

    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

static int begin(struct rb_tensorboard *board, int64_t time, struct rb_buffer *out,
                 struct rb_why *why)
{
    int err = rb_file_make_folder(board->folder, RB_FOLDER_SHARED, why);

    if (err)
        return err;
    board->path = rb_format("%s/events.out.tfevents.%010" PRId64 ".%s", board->folder, time / 1000,
                            board->job);
    board->fd = open(board->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (board->fd < 0)
        return failed("create", board->path, why);
    rb_tensorboard_begin(time, out);
    return 0;
}

int rb_tensorboard_add(struct rb_tensorboard *board, const json_t *columns, const json_t *rows,
                       struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer out = {0};
    const json_t *first = json_array_get(rows, 0), *row;
    int err = 0;
    size_t i;

    if (!first)
        return 0;
    if (!board->path) {
        err = begin(board, rb_value_cell(columns, first, "time", 0), &out, why);
        board->first = rb_value_cell(columns, first, "step", 0);
    }
    if (err)
        return err;
    json_array_foreach(rows, i, row)
    {
        rb_tensorboard_row(columns, row, &out);
        board->last = rb_value_cell(columns, row, "step", 0);
        board->rows++;
    }
    return rb_file_put(board->fd, out.data, out.size) < 0 ? failed("write", board->path, why) : 0;
}

void rb_tensorboard_done(struct rb_tensorboard *board)
{
    if (board->fd >= 0)
        close(board->fd);
    free(board->path);
}
