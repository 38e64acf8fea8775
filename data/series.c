/* SPDX-License-Identifier: Apache-2.0 */
#include "data/series.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

/* "a.bin", or "a.bin and 2 more files"; free it. */
static char *name_of(const struct rb_series_options *options)
{
    return options->n == 1 ? rb_string(options->path[0])
                           : rb_format("%s and %zu more file%s", options->path[0], options->n - 1,
                                       options->n == 2 ? "" : "s");
}

static int find_format(const struct rb_series_options *options, const struct rb_series *series,
                       const struct rb_map *map, const char *path, enum rb_format *ret,
                       struct rb_why *why)
{
    bool is_said = options->format && strcmp(options->format, "auto") != 0;
    enum rb_format format;
    int err = is_said ? rb_format_find(options->format, &format, why)
                      : rb_format_guess(map, path, &format, why);

    if (err)
        return err;
    if (options->arrays && rb_format_is_sequence(format))
        return rb_why_set(why, RB_EUNSUPPORTED, "%s looks like %s; expected .npy or IDX", path,
                          rb_format_text(format));
    if (series->n > 1 && format != series->format)
        return rb_why_set(why, RB_EINVAL,
                          "%s looks like %s, and %s before it like %s; expected files of one "
                          "format",
                          path, rb_format_text(format), series->at[0].file.path,
                          rb_format_text(series->format));
    *ret = format;
    return 0;
}

/* "u2", or "f4 in samples of float32[3,8,8]" */
static char *describe(const struct rb_column *column, bool is_sequence)
{
    char type[RB_TENSOR_TEXT];

    return is_sequence ? rb_string(column->stored->name)
                       : rb_format("%s in samples of %s", column->stored->name,
                                   rb_tensor_text(&column->type, type));
}

static int check_alike(const struct rb_series *series, const struct rb_series_file *file,
                       struct rb_why *why)
{
    const struct rb_column *first = &series->at[0].column, *own = &file->column;
    bool is_sequence = rb_format_is_sequence(series->format);
    RB_CLEANUP(rb_freep) char *has = NULL;
    RB_CLEANUP(rb_freep) char *had = NULL;

    if (own->stored == first->stored && (is_sequence || rb_tensor_same(&own->type, &first->type)))
        return 0;
    has = describe(own, is_sequence);
    had = describe(first, is_sequence);
    return rb_why_set(why, RB_EINVAL,
                      "%s holds elements of type %s, and %s before it %s; expected files that are "
                      "alike",
                      file->file.path, has, series->at[0].file.path, had);
}

static int add_file(const struct rb_series_options *options, const char *path,
                    struct rb_series *series, struct rb_why *why)
{
    struct rb_series_file *file = &series->at[series->n++];
    int err = rb_mapped_open(path, &file->file, why);

    if (!err)
        err = find_format(options, series, &file->file.map, path, &series->format, why);
    if (!err)
        err =
            rb_format_open(series->format, &file->file.map, path, options->use, &file->column, why);
    if (!err)
        err = check_alike(series, file, why);
    file->first = series->column.elements;
    series->column.elements += file->column.elements;
    return err;
}

/* Are samples worth reading?  Those of a small data set may well stay mapped, and so may samples of
 * few bytes or of a few tokens, on which training takes so little that a system call for each would
 * show. */
static bool reads(const struct rb_series *series)
{
    enum { SMALL_DATA = 2 << 20, SMALL_SAMPLE = 2 << 10, SHORT = 128 };
    const struct rb_column *column = &series->column;
    size_t size = 0;

    for (size_t i = 0; i < series->n; i++)
        size += series->at[i].file.map.size;
    if (size <= SMALL_DATA)
        return false;
    return rb_format_is_sequence(series->format)
               ? column->count >= SHORT
               : (size_t)column->count * column->stored->size >= SMALL_SAMPLE;
}

int rb_series_open(const struct rb_series_options *options, struct rb_series *ret,
                   struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *name = NULL;
    struct rb_column *column = &ret->column;
    int64_t elements;
    int err = 0;

    if (!options->n)
        return rb_why_set(why, RB_EINVAL, "no data file is named");
    ret->at = rb_alloc(options->n * sizeof *ret->at);
    for (size_t i = 0; !err && i < options->n; i++)
        err = add_file(options, options->path[i], ret, why);
    if (err)
        return err;
    elements = column->elements;
    *column = ret->at[0].column;
    column->data = NULL;
    column->elements = elements;
    if (rb_format_is_sequence(ret->format)) {
        name = name_of(options);
        err = rb_column_sequence(column, name, options->seq_len, why);
    } else {
        column->samples = elements / column->count;
    }
    ret->reads = !err && reads(ret);
    return err;
}

void rb_series_close(struct rb_series *series)
{
    for (size_t i = 0; i < series->n; i++)
        rb_mapped_close(&series->at[i].file);
    free(series->at);
    *series = (struct rb_series){0};
}

/* ---- All files ---- */

int rb_series_check(const struct rb_series *series, struct rb_why *why)
{
    int err = 0;

    for (size_t i = 0; !err && i < series->n; i++)
        err = rb_mapped_check(&series->at[i].file, why);
    return err;
}

uint64_t rb_series_hash(const struct rb_series *series)
{
    RB_CLEANUP(rb_freep) uint64_t *hashes = rb_alloc((series->n + 1) * sizeof *hashes);

    for (size_t i = 0; i < series->n; i++)
        hashes[i] = rb_mapped_hash(&series->at[i].file);
    return series->n > 1 ? rb_hash64(hashes, series->n * sizeof *hashes)
           : series->n   ? hashes[0]
                         : 0;
}

void rb_series_forget(const struct rb_series *series)
{
    for (size_t i = 0; i < series->n; i++)
        rb_mapped_forget(&series->at[i].file);
}

struct rb_extremes rb_series_extremes(const struct rb_series *series, int64_t elements)
{
    struct rb_extremes all = {0};

    for (size_t i = 0; i < series->n && series->at[i].first < elements; i++) {
        const struct rb_column *column = &series->at[i].column;
        int64_t left = elements - series->at[i].first;
        int64_t n = left < column->elements ? left : column->elements;
        struct rb_extremes own;

        if (n < 1)
            continue;
        own = column->stored->extremes(column->data, n);
        all = series->at[i].first ? rb_extremes_join(all, own) : own;
    }
    return all;
}

/* ---- Samples ---- */

/* Are elements stored as a slot has them? */
static bool is_plain(const struct rb_column *column)
{
    return column->stored->size == rb_dtype_size(column->type.dtype) &&
           column->stored->integer == (column->type.dtype == RB_I64);
}

/* Bytes that cannot be read are looked at in the map, where a file that was cut off ends the
 * process. */
static void read_pieces(const struct rb_mapped *file, const struct rb_column *column,
                        const uint8_t *from, int64_t count, uint8_t *to)
{
    const size_t size = column->stored->size, slot = rb_dtype_size(column->type.dtype);
    uint8_t room[16 << 10];
    const int64_t most = (int64_t)(sizeof room / size);

    for (int64_t i = 0; i < count; i += most) {
        int64_t n = count - i < most ? count - i : most;
        const uint8_t *piece = from + (size_t)i * size;
        bool got = rb_mapped_read(file, piece, (size_t)n * size, room);

        column->convert(got ? room : piece, n, to + (size_t)i * slot);
    }
}

/* `count` elements of one file. */
static void read_elements(const struct rb_series *series, const struct rb_series_file *file,
                          int64_t first, int64_t count, uint8_t *to)
{
    const struct rb_column *column = &series->column;
    const size_t size = column->stored->size;
    const uint8_t *from = file->column.data + (size_t)first * size;

    if (!series->reads)
        column->convert(from, count, to);
    else if (!is_plain(column) || !rb_mapped_read(&file->file, from, (size_t)count * size, to))
        read_pieces(&file->file, column, from, count, to);
}

/* The file that an element lies in. */
static const struct rb_series_file *find(const struct rb_series *series, int64_t element)
{
    size_t low = 0, high = series->n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (series->at[middle].first <= element)
            low = middle;
        else
            high = middle;
    }
    return &series->at[low];
}

void rb_series_read(const struct rb_series *series, int64_t i, int64_t shift, void *to)
{
    const struct rb_column *column = &series->column;
    const size_t slot = rb_dtype_size(column->type.dtype);
    int64_t at = i * column->stride + shift, done = 0;

    for (const struct rb_series_file *file = find(series, at); done < column->count; file++) {
        int64_t first = at + done - file->first, left = column->count - done;
        int64_t have = file->column.elements - first;
        int64_t n = left < have ? left : have;

        read_elements(series, file, first, n, (uint8_t *)to + (size_t)done * slot);
        done += n;
    }
}
