/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/column.h"
#include "data/mapped.h"

#include <stdlib.h>
#include <string.h>

struct rb_source {
    struct rb_source_info info;
    struct rb_mapped features_file, targets_file; /* the second only for a file of its own */
    struct rb_column features, targets;
};

static const char *const formats[] = {"text", "tokens", "npy", "idx"};

enum format { TEXT, TOKENS, NPY, IDX, UNKNOWN };

static enum format find_format(const char *name)
{
    int i = 0;

    while (i < UNKNOWN && strcmp(formats[i], name))
        i++;
    return (enum format)i;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);

    return size >= tail && !strcmp(text + size - tail, end);
}

/* The format by the content, then by the name.  A bare token file may begin with any bytes, so
 * its name goes before IDX's four. */
static int guess_format(const struct rb_map *map, const char *path, enum format *ret,
                        struct rb_why *why)
{
    if (map->size >= 2 && map->data[0] == 0x1f && map->data[1] == 0x8b)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is compressed with gzip; expected plain data: unpack it with gunzip",
                          path);
    if (map->size >= 4 && !memcmp(map->data, "PK\3\4", 4))
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "%s is an archive (.npz or .zip); expected one array: save it with "
                          "numpy.save",
                          path);
    if (rb_npy_match(map) || ends_with(path, ".npy"))
        *ret = NPY;
    else if (rb_tokens_match(map) || ends_with(path, ".bin"))
        *ret = TOKENS;
    else if (rb_idx_match(map) || ends_with(path, "-ubyte"))
        *ret = IDX;
    else
        *ret = TEXT;
    return 0;
}

static int open_features(const struct rb_source_options *options, struct rb_source *source,
                         enum format *ret_format, struct rb_why *why)
{
    const char *path = options->path;
    enum format format;
    int err = rb_mapped_open(path, &source->features_file, why);

    if (err)
        return err;
    if (!options->format || !strcmp(options->format, "auto"))
        err = guess_format(&source->features_file.map, path, &format, why);
    else if ((format = find_format(options->format)) == UNKNOWN)
        err = rb_why_set(why, RB_EINVAL,
                         "data format %s is unknown; expected auto, text, tokens, npy or idx",
                         options->format);
    if (err)
        return err;
    *ret_format = format;
    switch (format) {
    case TEXT:
        return rb_text_open(&source->features_file.map, path, options->seq_len, &source->features,
                            why);
    case TOKENS:
        return rb_tokens_open(&source->features_file.map, path, options->seq_len, &source->features,
                              why);
    case NPY:
        return rb_npy_open(&source->features_file.map, path,
                           options->floats ? RB_FLOATS : RB_FEATURES, &source->features, why);
    case IDX:
    case UNKNOWN:
        break;
    }
    return rb_idx_open(&source->features_file.map, path, RB_FEATURES, &source->features, why);
}

/* The next element of each: the same samples, one element later. */
static int open_next(const struct rb_source_options *options, struct rb_source *source,
                     enum format format, struct rb_why *why)
{
    if (options->targets && *options->targets)
        return rb_why_set(why, RB_EINVAL,
                          "%s is taken as %s, a sequence whose targets are its own next elements; "
                          "expected no targets file, found %s (features that have one are .npy or "
                          "IDX)",
                          options->path, formats[format], options->targets);
    source->targets = source->features;
    source->targets.data += source->features.stored->size;
    return 0;
}

static int open_targets(const struct rb_source_options *options, struct rb_source *source,
                        struct rb_why *why)
{
    const char *path = options->targets;
    enum format format;
    int err;

    if (!path || !*path)
        return 0;
    err = rb_mapped_open(path, &source->targets_file, why);
    if (!err)
        err = guess_format(&source->targets_file.map, path, &format, why);
    if (err)
        return rb_why_add(why, err, "targets");
    if (format == NPY)
        err = rb_npy_open(&source->targets_file.map, path, RB_TARGETS, &source->targets, why);
    else if (format == IDX)
        err = rb_idx_open(&source->targets_file.map, path, RB_TARGETS, &source->targets, why);
    else
        err = rb_why_set(why, RB_EUNSUPPORTED, "%s looks like %s; expected .npy or IDX", path,
                         formats[format]);
    if (err)
        return rb_why_add(why, err, "targets");
    if (source->targets.samples != source->features.samples)
        return rb_why_set(
            why, RB_EINVAL, "%s has %lld targets; expected %lld, one for each sample of %s", path,
            (long long)source->targets.samples, (long long)source->features.samples, options->path);
    return 0;
}

static const struct rb_extremes none = {-1, -1, -1, -1}, bytes = {0, 1, 254, 255};

static struct rb_extremes find_extremes(const struct rb_column *column)
{
    if (column->type.dtype != RB_I64)
        return none;
    return column->stored->extremes(column->data, column->samples * column->count);
}

/* Sequences: all elements that are used as a feature or as a target, in one pass. */
static struct rb_extremes find_token_extremes(const struct rb_column *column)
{
    return column->stored->extremes(column->data, column->samples * column->count + 1);
}

/* The first that is no probability, but for rounding. */
static float find_stray(const struct rb_column *column)
{
    const int64_t total = column->samples * column->count;
    float room[1024];
    const int64_t most = sizeof room / sizeof *room;

    for (int64_t i = 0; i < total; i += most) {
        int64_t n = total - i < most ? total - i : most;

        column->stored->to_f32(column->data + (size_t)i * column->stored->size, n, room);
        for (int64_t j = 0; j < n; j++)
            if (!(room[j] >= -1e-6f && room[j] <= 1 + 1e-6f))
                return room[j];
    }
    return 0;
}

static void fill_info(const struct rb_source_options *options, struct rb_source *source,
                      enum format format)
{
    struct rb_source_info *info = &source->info;

    info->format = formats[format];
    info->samples = source->features.samples;
    info->features = source->features.type;
    info->targets = source->targets.type;
    info->extremes = none;
    info->largest_feature = none.most;
    info->least_feature = 0;
    if (format == TEXT) {
        info->extremes = bytes;
        info->largest_feature = bytes.most;
    } else if (!options->unscanned && format == TOKENS) {
        info->extremes = find_token_extremes(&source->features);
        info->largest_feature = info->extremes.most;
    } else if (!options->unscanned) {
        struct rb_extremes features = find_extremes(&source->features);

        info->largest_feature = features.most;
        if (source->features.type.dtype == RB_I64)
            info->least_feature = features.least;
        if (source->targets.stored)
            info->extremes = find_extremes(&source->targets);
        if (options->probabilities && source->targets.type.dtype == RB_F32)
            info->stray_target = find_stray(&source->targets);
    }
}

int rb_source_open(const struct rb_source_options *options, struct rb_source **ret_source,
                   struct rb_why *why)
{
    struct rb_source *source = rb_alloc(sizeof *source);
    enum format format = UNKNOWN;
    int err = open_features(options, source, &format, why);

    if (!err && (format == TEXT || format == TOKENS))
        err = open_next(options, source, format, why);
    else if (!err)
        err = open_targets(options, source, why);
    if (err) {
        rb_source_close(source);
        return err;
    }
    fill_info(options, source, format);
    rb_mapped_forget(&source->features_file);
    rb_mapped_forget(&source->targets_file);
    *ret_source = source;
    return 0;
}

const struct rb_source_info *rb_source_info(const struct rb_source *source)
{
    return &source->info;
}

void rb_source_close(struct rb_source *source)
{
    if (!source)
        return;
    rb_mapped_close(&source->features_file);
    rb_mapped_close(&source->targets_file);
    free(source);
}

uint64_t rb_source_hash(const struct rb_source *source)
{
    uint64_t hashes[] = {rb_mapped_hash(&source->features_file),
                         source->targets_file.path ? rb_mapped_hash(&source->targets_file) : 0};

    return rb_hash64(hashes, sizeof hashes);
}

int rb_source_check(const struct rb_source *source, struct rb_why *why)
{
    int err = rb_mapped_check(&source->features_file, why);

    return err ? err : rb_mapped_check(&source->targets_file, why);
}

/* ---- Samples ----
 *
 * Those of a small file may well stay mapped, and so may those that take so little to train on that
 * a system call for each would show: of few bytes, or of a few tokens. */
enum { SMALL_FILE = 2 << 20, SMALL_SAMPLE = 2 << 10, SHORT = 128 };

static bool is_sequence(const struct rb_source *source)
{
    return source->targets.stored && !source->targets_file.path;
}

/* Are samples read, and not looked at in the map? */
static bool reads(const struct rb_source *source, const struct rb_mapped *file,
                  const struct rb_column *column)
{
    if (file->map.size <= SMALL_FILE)
        return false;
    return is_sequence(source) ? column->count >= SHORT
                               : (size_t)column->count * column->stored->size >= SMALL_SAMPLE;
}

/* Are elements stored as a slot has them? */
static bool is_plain(const struct rb_column *column)
{
    return column->stored->size == rb_dtype_size(column->type.dtype) &&
           column->stored->integer == (column->type.dtype == RB_I64);
}

/* What cannot be read is looked at in the map, where a file that was cut off ends the process. */
static void read_pieces(const struct rb_mapped *file, const struct rb_column *column,
                        const uint8_t *from, uint8_t *to)
{
    const size_t size = column->stored->size, slot = rb_dtype_size(column->type.dtype);
    uint8_t room[16 << 10];
    const int64_t most = (int64_t)(sizeof room / size);

    for (int64_t i = 0; i < column->count; i += most) {
        int64_t n = column->count - i < most ? column->count - i : most;
        const uint8_t *piece = from + (size_t)i * size;
        bool got = rb_mapped_read(file, piece, (size_t)n * size, room);

        column->convert(got ? room : piece, n, to + (size_t)i * slot);
    }
}

static void read_sample(const struct rb_source *source, const struct rb_mapped *file,
                        const struct rb_column *column, int64_t i, void *to)
{
    const size_t size = column->stored->size;
    const uint8_t *from = column->data + (size_t)(i * column->stride) * size;

    if (!reads(source, file, column))
        column->convert(from, column->count, to);
    else if (!is_plain(column) || !rb_mapped_read(file, from, (size_t)column->count * size, to))
        read_pieces(file, column, from, to);
}

void rb_source_read(const struct rb_source *source, int64_t i, void *features, void *targets)
{
    const struct rb_mapped *file =
        is_sequence(source) ? &source->features_file : &source->targets_file;

    if (features)
        read_sample(source, &source->features_file, &source->features, i, features);
    if (targets && source->targets.stored)
        read_sample(source, file, &source->targets, i, targets);
}
