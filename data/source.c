/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/series.h"

#include <stdlib.h>

struct rb_source {
    struct rb_source_info info;
    struct rb_series features, targets; /* the second only with files of their own */
};

/* Are targets the next elements of the features? */
static bool is_sequence(const struct rb_source *source)
{
    return rb_format_is_sequence(source->features.format);
}

static int open_features(const struct rb_source_options *options, struct rb_source *source,
                         struct rb_why *why)
{
    const struct rb_series_options features = {
        .path = options->path,
        .n = options->n_path,
        .format = options->format,
        .use = options->floats ? RB_FLOATS : RB_FEATURES,
        .seq_len = options->seq_len,
    };
    int err = rb_series_open(&features, &source->features, why);

    if (err || !options->n_targets || !is_sequence(source))
        return err;
    return rb_why_set(why, RB_EINVAL,
                      "%s is taken as %s, a sequence whose targets are its own next elements; "
                      "expected no targets file, found %s (features that have one are .npy or "
                      "IDX)",
                      options->path[0], rb_format_text(source->features.format),
                      options->targets[0]);
}

static int open_targets(const struct rb_source_options *options, struct rb_source *source,
                        struct rb_why *why)
{
    const struct rb_series_options targets = {
        .path = options->targets,
        .n = options->n_targets,
        .use = RB_TARGETS,
        .arrays = true,
    };
    int err = options->n_targets ? rb_series_open(&targets, &source->targets, why) : 0;

    if (err)
        return rb_why_add(why, err, "targets");
    if (source->targets.n && source->targets.column.samples != source->features.column.samples)
        return rb_why_set(
            why, RB_EINVAL, "%s%s has %lld targets; expected %lld, one for each sample of %s%s",
            options->targets[0], options->n_targets > 1 ? " and so on" : "",
            (long long)source->targets.column.samples, (long long)source->features.column.samples,
            options->path[0], options->n_path > 1 ? " and so on" : "");
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

/* The first that is no probability, but for rounding. */
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

static void fill_info(const struct rb_source_options *options, struct rb_source *source)
{
    struct rb_source_info *info = &source->info;
    const struct rb_series *features = &source->features, *targets = &source->targets;

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
    int err = open_features(options, source, why);

    if (!err)
        err = open_targets(options, source, why);
    if (err) {
        rb_source_close(source);
        return err;
    }
    fill_info(options, source);
    rb_series_forget(&source->features);
    rb_series_forget(&source->targets);
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
    rb_series_close(&source->features);
    rb_series_close(&source->targets);
    free(source);
}

/* ---- Files ---- */

uint64_t rb_source_hash(const struct rb_source *source)
{
    uint64_t hashes[] = {rb_series_hash(&source->features), rb_series_hash(&source->targets)};

    return rb_hash64(hashes, sizeof hashes);
}

size_t rb_source_files(const struct rb_source *source)
{
    return source->features.n + source->targets.n;
}

struct rb_source_file rb_source_file(const struct rb_source *source, size_t i)
{
    bool is_target = i >= source->features.n;
    const struct rb_series *series = is_target ? &source->targets : &source->features;
    const struct rb_mapped *file = &series->at[is_target ? i - source->features.n : i].file;

    return (struct rb_source_file){file->path, is_target, rb_mapped_hash(file)};
}

int rb_source_check(const struct rb_source *source, struct rb_why *why)
{
    int err = rb_series_check(&source->features, why);

    return err ? err : rb_series_check(&source->targets, why);
}

void rb_source_read(const struct rb_source *source, int64_t i, void *features, void *targets)
{
    if (features)
        rb_series_read(&source->features, i, 0, features);
    if (targets && is_sequence(source))
        rb_series_read(&source->features, i, 1, targets);
    else if (targets && source->targets.n)
        rb_series_read(&source->targets, i, 0, targets);
}
