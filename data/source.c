/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/series.h"

#include <stdlib.h>
#include <string.h>

enum { FEATURES, TARGETS, INPUTS };

struct rb_source {
    struct rb_source_info info;
    struct rb_series series[INPUTS + RB_SOURCE_INPUTS]; /* TARGETS only with files of their own */
    size_t n;
    struct rb_source_input inputs[RB_SOURCE_INPUTS];
};

/* Are targets the next elements of the features? */
static bool is_sequence(const struct rb_source *source)
{
    return rb_format_is_sequence(source->series[FEATURES].format);
}

static int open_features(const struct rb_source_options *options, struct rb_source *source,
                         struct rb_why *why)
{
    const struct rb_series_options features = {
        .path = options->path,
        .n = options->n_path,
        .format = options->format,
        .use = options->floats ? RB_FLOATS : RB_NUMBERS,
        .seq_len = options->seq_len,
    };
    const char *more = options->n_targets  ? options->targets[0]
                       : options->n_inputs ? options->inputs[0].path[0]
                                           : NULL;
    int err = rb_series_open(&features, &source->series[FEATURES], why);

    if (err || !more || !is_sequence(source))
        return err;
    return rb_why_set(why, RB_EINVAL,
                      "%s is taken as %s, a sequence whose targets are its own next elements; "
                      "expected no %s file, found %s (features that have one are .npy or IDX)",
                      options->path[0], rb_format_text(source->series[FEATURES].format),
                      options->n_targets ? "targets" : "further", more);
}

/* One for each sample of the features. */
static int check_samples(const struct rb_source_options *options, const struct rb_source *source,
                         const struct rb_series *series, const char *what, struct rb_why *why)
{
    int64_t have = series->column.samples, want = source->series[FEATURES].column.samples;

    if (!series->n || have == want)
        return 0;
    return rb_why_set(
        why, RB_EINVAL, "%s%s has %lld %s; expected %lld, one for each sample of %s%s",
        series->at[0].file.path, series->n > 1 ? " and so on" : "", (long long)have, what,
        (long long)want, options->path[0], options->n_path > 1 ? " and so on" : "");
}

static int open_targets(const struct rb_source_options *options, struct rb_source *source,
                        struct rb_why *why)
{
    const struct rb_series_options targets = {
        .path = options->targets,
        .n = options->n_targets,
        .use = RB_NUMBERS,
        .arrays = true,
    };
    int err = options->n_targets ? rb_series_open(&targets, &source->series[TARGETS], why) : 0;

    if (err)
        return rb_why_add(why, err, "targets");
    return check_samples(options, source, &source->series[TARGETS], "targets", why);
}

static int open_input(const struct rb_source_options *options, size_t input,
                      struct rb_source *source, struct rb_why *why)
{
    const struct rb_source_input_options *one = &options->inputs[input];
    const struct rb_series_options how = {
        .path = one->path,
        .n = one->n_path,
        .use = one->floats ? RB_FLOATS : RB_NUMBERS,
        .arrays = true,
    };
    struct rb_series *series = &source->series[source->n++];
    int err = rb_series_open(&how, series, why);

    if (!err)
        err = check_samples(options, source, series, "rows", why);
    return err ? rb_why_add(why, err, "input '%s'", one->name) : 0;
}

static int open_inputs(const struct rb_source_options *options, struct rb_source *source,
                       struct rb_why *why)
{
    int err = 0;

    for (size_t i = 0; !err && i < options->n_inputs; i++)
        err = open_input(options, i, source, why);
    return err;
}

static int check_inputs(const struct rb_source_options *options, struct rb_why *why)
{
    if (options->n_inputs > RB_SOURCE_INPUTS)
        return rb_why_set(why, RB_ELIMIT, "%zu further inputs; the most is %d", options->n_inputs,
                          RB_SOURCE_INPUTS);
    for (size_t i = 0; i < options->n_inputs; i++)
        if (!options->inputs[i].n_path)
            return rb_why_set(why, RB_EINVAL, "input '%s' has no file", options->inputs[i].name);
    return 0;
}

static const struct rb_extremes none = {-1, -1, -1, -1}, bytes = {0, 1, 254, 255};

static struct rb_extremes find_extremes(const struct rb_series *series)
{
    return series->column.type.dtype == RB_I64 ? rb_series_extremes(series, series->column.elements)
                                               : none;
}

/* Sequences: all elements that are used as a feature or as a target, in one pass. */
static struct rb_extremes find_token_extremes(const struct rb_series *series)
{
    return rb_series_extremes(series, series->column.samples * series->column.count + 1);
}

/* The first value that is no probability, rounding aside. */
static float find_stray(const struct rb_column *column)
{
    float room[1024];
    const int64_t most = sizeof room / sizeof *room;

    for (int64_t i = 0; i < column->elements; i += most) {
        int64_t n = column->elements - i < most ? column->elements - i : most;

        column->stored->to_f32(column->data + (size_t)i * column->stored->size, n, room);
        for (int64_t j = 0; j < n; j++)
            if (!(room[j] >= -1e-6f && room[j] <= 1 + 1e-6f))
                return room[j];
    }
    return 0;
}

static void fill_inputs(const struct rb_source_options *options, struct rb_source *source)
{
    source->info.inputs = source->inputs;
    source->info.n_inputs = options->n_inputs;
    for (size_t i = 0; i < options->n_inputs; i++) {
        const struct rb_series *series = &source->series[INPUTS + i];
        bool scanned = !options->unscanned && series->column.type.dtype == RB_I64;

        source->inputs[i] = (struct rb_source_input){
            .name = rb_string(options->inputs[i].name),
            .type = series->column.type,
            .scanned = scanned,
            .extremes = scanned ? find_extremes(series) : none,
        };
    }
}

static void fill_info(const struct rb_source_options *options, struct rb_source *source)
{
    struct rb_source_info *info = &source->info;
    const struct rb_series *features = &source->series[FEATURES];
    const struct rb_series *targets = &source->series[TARGETS];

    info->format = rb_format_text(features->format);
    info->samples = features->column.samples;
    info->features = features->column.type;
    info->targets = is_sequence(source) ? features->column.type : targets->column.type;
    info->extremes = none;
    info->largest_feature = none.most;
    info->least_feature = 0;
    if (features->format == RB_FORMAT_TEXT) {
        info->extremes = bytes;
        info->largest_feature = bytes.most;
    } else if (!options->unscanned && features->format == RB_FORMAT_TOKENS) {
        info->extremes = find_token_extremes(features);
        info->largest_feature = info->extremes.most;
    } else if (!options->unscanned) {
        struct rb_extremes extremes = find_extremes(features);

        info->largest_feature = extremes.most;
        if (features->column.type.dtype == RB_I64)
            info->least_feature = extremes.least;
        if (targets->n)
            info->extremes = find_extremes(targets);
        for (size_t i = 0; options->probabilities && targets->column.type.dtype == RB_F32 &&
                           !info->stray_target && i < targets->n;
             i++)
            info->stray_target = find_stray(&targets->at[i].column);
    }
}

int rb_source_open(const struct rb_source_options *options, struct rb_source **ret_source,
                   struct rb_why *why)
{
    struct rb_source *source = rb_alloc(sizeof *source);
    int err = check_inputs(options, why);

    source->n = INPUTS;
    if (!err)
        err = open_features(options, source, why);
    if (!err)
        err = open_targets(options, source, why);
    if (!err)
        err = open_inputs(options, source, why);
    if (err) {
        rb_source_close(source);
        return err;
    }
    fill_info(options, source);
    fill_inputs(options, source);
    for (size_t i = 0; i < source->n; i++)
        rb_series_forget(&source->series[i]);
    *ret_source = source;
    return 0;
}

const struct rb_source_info *rb_source_info(const struct rb_source *source)
{
    return &source->info;
}

const struct rb_source_input *rb_source_find_input(const struct rb_source_info *info,
                                                   const char *name)
{
    for (size_t i = 0; i < info->n_inputs; i++)
        if (!strcmp(info->inputs[i].name, name))
            return &info->inputs[i];
    return NULL;
}

void rb_source_close(struct rb_source *source)
{
    if (!source)
        return;
    for (size_t i = 0; i < RB_COUNT(source->series); i++)
        rb_series_close(&source->series[i]);
    for (size_t i = 0; i < source->info.n_inputs; i++)
        free((char *)source->inputs[i].name);
    free(source);
}

/* ---- Files ---- */

uint64_t rb_source_hash(const struct rb_source *source)
{
    uint64_t hashes[INPUTS + RB_SOURCE_INPUTS];

    for (size_t i = 0; i < source->n; i++)
        hashes[i] = rb_series_hash(&source->series[i]);
    return rb_hash64(hashes, source->n * sizeof *hashes);
}

size_t rb_source_files(const struct rb_source *source)
{
    size_t n = 0;

    for (size_t i = 0; i < source->n; i++)
        n += source->series[i].n;
    return n;
}

struct rb_source_file rb_source_file(const struct rb_source *source, size_t i)
{
    const struct rb_mapped *file;
    size_t at = 0;

    for (; i >= source->series[at].n; at++)
        i -= source->series[at].n;
    file = &source->series[at].at[i].file;
    return (struct rb_source_file){
        .path = file->path,
        .of = at == FEATURES  ? RB_FILE_FEATURES
              : at == TARGETS ? RB_FILE_TARGETS
                              : RB_FILE_INPUT,
        .input = at < INPUTS ? 0 : at - INPUTS,
        .hash = rb_mapped_hash(file),
    };
}

int rb_source_check(const struct rb_source *source, struct rb_why *why)
{
    int err = 0;

    for (size_t i = 0; !err && i < source->n; i++)
        err = rb_series_check(&source->series[i], why);
    return err;
}

void rb_source_read(const struct rb_source *source, int64_t i, void *features, void *targets)
{
    if (features)
        rb_series_read(&source->series[FEATURES], i, 0, features);
    if (targets && is_sequence(source))
        rb_series_read(&source->series[FEATURES], i, 1, targets);
    else if (targets && source->series[TARGETS].n)
        rb_series_read(&source->series[TARGETS], i, 0, targets);
}

void rb_source_read_input(const struct rb_source *source, int64_t i, size_t input, void *to)
{
    rb_series_read(&source->series[INPUTS + input], i, 0, to);
}
