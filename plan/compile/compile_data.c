/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a job: which files there are, and opening them as the model's inputs need them. */
#include "plan/compile/compile_inside.h"

#include "data/expand.h"

#include <string.h>

/* Sequences are as long as the job file says, else as the model's input, else unknown (0). */
static int64_t sequence_length(const Rb__SourceSpec *source, const struct rb_onnx_info *info)
{
    if (source->has_seq_len)
        return source->seq_len;
    if (info->input_type.rank >= 2 && info->input_type.dim[1] > 0)
        return info->input_type.dim[1];
    return 0;
}

static int expand(char *const *paths, size_t n, const char *key, const char *name,
                  struct rb_expanded *ret, struct rb_why *why)
{
    int err = rb_expand(paths, n, ret, why);

    return err ? rb_why_add(why, err, "%s.%s", key, name) : 0;
}

/* Is it one of the model's further inputs? */
static int find_input(const struct rb_compile_work *work, const char *key, const char *name)
{
    char room[80], other[80];
    int n = rb_onnx_inputs(work->onnx), i = 0;

    while (i < n && strcmp(rb_onnx_input_name(work->onnx, i), name) != 0)
        i++;
    if (i == n && n < 2)
        return rb_why_set(work->why, RB_EINVAL, "%s.inputs: the model has one input alone, '%s'",
                          key, rb_onnx_quote(rb_onnx_input_name(work->onnx, 0), room));
    if (i == n)
        return rb_why_set(
            work->why, RB_EINVAL,
            "%s.inputs: the model has no input '%s'; beside the first there %s '%s'%s", key,
            rb_onnx_quote(name, room), n == 2 ? "is" : "are",
            rb_onnx_quote(rb_onnx_input_name(work->onnx, 1), other),
            n == 2 ? "" : " and others: model check names them");
    if (i == 0)
        return rb_why_set(work->why, RB_EINVAL,
                          "%s.inputs: '%s' is the model's first input, and path is its data", key,
                          rb_onnx_quote(name, room));
    if (!strcmp(name, "features") || !strcmp(name, "targets"))
        return rb_why_set(work->why, RB_EUNSUPPORTED,
                          "%s.inputs: a further input by the name of '%s' is what the data have "
                          "already: export the model with another name for it",
                          key, name);
    return 0;
}

/* The files of a source, one list for each key. */
struct files {
    struct rb_expanded features, targets, inputs[RB_SOURCE_INPUTS];
    struct rb_source_input_options options[RB_SOURCE_INPUTS];
    size_t n_inputs;
};

static void files_done(struct files *files)
{
    rb_expanded_done(&files->features);
    rb_expanded_done(&files->targets);
    for (size_t i = 0; i < RB_SOURCE_INPUTS; i++)
        rb_expanded_done(&files->inputs[i]);
}

static int find_files(struct rb_compile_work *work, const char *key, const Rb__InputSpec *spec,
                      int input, struct files *files)
{
    struct rb_expanded *expanded = &files->inputs[files->n_inputs];
    struct rb_tensor_type declared = {0};
    int err = expand(spec->path, spec->n_path, key, "inputs", expanded, work->why);

    if (err)
        return err;
    files->options[files->n_inputs++] = (struct rb_source_input_options){
        .name = spec->name,
        .path = (const char *const *)expanded->path,
        .n_path = expanded->n,
        .floats =
            !rb_onnx_input_declared(work->onnx, input, &declared, NULL) && declared.dtype == RB_F32,
    };
    return 0;
}

/* A process that reads the data keeps all of them open. */
static int count_files(struct rb_compile_work *work, const struct files *files, const char *key)
{
    work->data_files += files->features.n + files->targets.n;
    for (size_t i = 0; i < files->n_inputs; i++)
        work->data_files += files->inputs[i].n;
    if (work->data_files > RB_EXPAND_MOST_OF_ALL)
        return rb_why_set(work->why, RB_ELIMIT,
                          "%s: with it the job's data are %zu files in all; the most is %d: put "
                          "several into one",
                          key, work->data_files, RB_EXPAND_MOST_OF_ALL);
    return 0;
}

/* In the model's order, whatever the order in the job file: the data are the same. */
static int find_all_files(struct rb_compile_work *work, const char *key, const Rb__SourceSpec *spec,
                          struct files *files)
{
    int err = expand(spec->path, spec->n_path, key, "path", &files->features, work->why);

    if (!err)
        err = expand(spec->targets, spec->n_targets, key, "targets", &files->targets, work->why);
    if (!err && spec->n_inputs > RB_SOURCE_INPUTS)
        err = rb_why_set(work->why, RB_ELIMIT, "%s.inputs: %zu; the most is %d", key,
                         spec->n_inputs, RB_SOURCE_INPUTS);
    for (size_t i = 0; !err && i < spec->n_inputs; i++) {
        err = find_input(work, key, spec->inputs[i]->name);
        for (size_t k = 0; !err && k < i; k++)
            if (!strcmp(spec->inputs[k]->name, spec->inputs[i]->name))
                err = rb_why_set(work->why, RB_EINVAL, "%s.inputs: '%s' is there twice", key,
                                 spec->inputs[i]->name);
    }
    for (int input = 1; !err && input < rb_onnx_inputs(work->onnx); input++)
        for (size_t i = 0; !err && i < spec->n_inputs; i++)
            if (!strcmp(spec->inputs[i]->name, rb_onnx_input_name(work->onnx, input)))
                err = find_files(work, key, spec->inputs[i], input, files);
    return err ? err : count_files(work, files, key);
}

/* The list of files is decided here, once: workers open the files that were found. */
static int open_source(struct rb_compile_work *work, const char *key, const Rb__SourceSpec *spec,
                       int64_t seq_len, struct rb_source **ret_source)
{
    struct files files = {0};
    int err = find_all_files(work, key, spec, &files);
    const struct rb_source_options options = {
        .path = (const char *const *)files.features.path,
        .n_path = files.features.n,
        .targets = (const char *const *)files.targets.path,
        .n_targets = files.targets.n,
        .inputs = files.options,
        .n_inputs = files.n_inputs,
        .format = spec->format,
        .seq_len = seq_len,
        .floats = work->info.input_type.dtype == RB_F32,
        .probabilities = !strcmp(work->spec->loss->type, "bce_with_logits"),
    };

    if (!err) {
        err = rb_source_open(&options, ret_source, work->why);
        if (err)
            rb_why_add(work->why, err, "%s", key);
    }
    if (!err && rb_source_info(*ret_source)->samples < 1)
        err = rb_why_set(work->why, RB_EINVAL, "%s.path: %s holds no whole sample", key,
                         files.features.path[0]);
    files_done(&files);
    return err;
}

int rb_compile_open_data(struct rb_compile_work *work)
{
    const Rb__DataSpec *data = work->spec->data;
    int err;

    work->seq_len = sequence_length(data->train, &work->info);
    err = open_source(work, "spec.data.train", data->train, work->seq_len, &work->train);
    if (!err && !work->seq_len) /* a symbolic second axis is as long as the samples */
        work->seq_len = rb_source_info(work->train)->features.rank > 0
                            ? rb_source_info(work->train)->features.dim[0]
                            : 0;
    if (!err && data->eval)
        err =
            open_source(work, "spec.data.eval", data->eval,
                        data->eval->has_seq_len ? data->eval->seq_len : work->seq_len, &work->eval);
    return err;
}
