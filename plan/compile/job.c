/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/job.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "plan/compile/laps.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static Rb__Optimizer *new_optimizer(const Rb__TrainSpec *train)
{
    const Rb__OptimizerSpec *from = train->optimizer;
    const Rb__ScheduleSpec *schedule = train->schedule;
    Rb__Optimizer *to = rb_alloc(sizeof(*to));
    bool sgd = !strcmp(from->type, "sgd");

    rb__optimizer__init(to);
    to->kind = sgd ? RB__OPTIMIZER__KIND__SGD : RB__OPTIMIZER__KIND__ADAMW;
    to->lr = from->lr;
    to->beta1 = from->n_betas > 0 ? from->betas[0] : 0.9;
    to->beta2 = from->n_betas > 1 ? from->betas[1] : 0.999;
    to->eps = from->eps;
    to->weight_decay = from->has_weight_decay ? from->weight_decay : sgd ? 0 : 0.01;
    to->momentum = from->momentum;
    to->nesterov = from->nesterov;
    to->schedule = !strcmp(schedule->type, "linear")   ? RB__OPTIMIZER__SCHEDULE__LINEAR
                   : !strcmp(schedule->type, "cosine") ? RB__OPTIMIZER__SCHEDULE__COSINE
                                                       : RB__OPTIMIZER__SCHEDULE__CONSTANT;
    to->warmup = schedule->warmup;
    to->min_ratio = schedule->min_ratio;
    to->clip_norm = train->clip_norm;
    return to;
}

void rb_job_fill(const Rb__Spec *spec, int64_t micro_batch, Rb__Model *model)
{
    const Rb__TrainSpec *train = spec->train;

    model->format = 1;
    model->seed = train->seed;
    model->global_batch = train->global_batch;
    model->micro_batch = micro_batch;
    model->optimizer = new_optimizer(train);
    model->asynchronous = rb_laps_of(spec);
    model->eval_every = train->eval->every;
    model->stop_on_non_finite = !strcmp(train->on_non_finite->action, "stop");
    model->non_finite_limit = train->on_non_finite->limit;
    if (strcmp(train->optimizer->decay, "all"))
        return;
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->role == RB__VARIABLE__ROLE__TRAINED)
            model->variables[i]->decay = model->variables[i]->has_decay = 1;
}

static void add_path(char ***paths, size_t *n, const char *path)
{
    *paths = rb_realloc(*paths, (*n + 1) * sizeof **paths);
    (*paths)[(*n)++] = rb_string(path);
}

static void add_file(Rb__Source *source, const struct rb_source_file *file)
{
    switch (file->of) {
    case RB_FILE_FEATURES:
        add_path(&source->path, &source->n_path, file->path);
        break;
    case RB_FILE_TARGETS:
        add_path(&source->targets, &source->n_targets, file->path);
        break;
    case RB_FILE_INPUT:
        add_path(&source->inputs[file->input]->path, &source->inputs[file->input]->n_path,
                 file->path);
        break;
    }
}

static void add_inputs(Rb__Source *source, const struct rb_source_info *info)
{
    source->inputs = rb_alloc((info->n_inputs + 1) * sizeof *source->inputs);
    for (size_t i = 0; i < info->n_inputs; i++) {
        Rb__SourceInput *input = rb_alloc(sizeof(*input));

        rb__source_input__init(input);
        input->name = rb_string(info->inputs[i].name);
        input->floats = info->inputs[i].type.dtype == RB_F32;
        source->inputs[source->n_inputs++] = input;
    }
}

static void add_contents(Rb__Source *source, const struct rb_source *from)
{
    size_t n = rb_source_files(from);

    source->contents = rb_alloc(n * sizeof *source->contents);
    for (size_t i = 0; i < n; i++) {
        struct rb_source_file file = rb_source_file(from, i);

        add_file(source, &file);
        source->contents[i] = file.hash;
    }
    source->n_contents = n;
}

Rb__Source *rb_job_source(const struct rb_source *from)
{
    const struct rb_source_info *info = rb_source_info(from);
    Rb__Source *source = rb_alloc(sizeof(*source));

    rb__source__init(source);
    add_inputs(source, info);
    add_contents(source, from);
    source->format = rb_string(info->format);
    if (!strcmp(info->format, "text") || !strcmp(info->format, "tokens"))
        source->seq_len = info->features.dim[0];
    source->samples = info->samples;
    source->has_content = 1;
    source->content = rb_source_hash(from);
    return source;
}

/* ---- Digest ---- */

static void add_globs(json_t *object, const char *key, char *const *globs, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(globs[i]));
    json_object_set_new(object, key, list);
}

/* One path is a string, as it always was. */
static json_t *paths_part(char *const *paths, size_t n)
{
    json_t *list = n > 1 ? json_array() : NULL;

    for (size_t i = 0; i < n && list; i++)
        json_array_append_new(list, json_string(paths[i]));
    return list ? list : n ? json_string(paths[0]) : json_null();
}

static json_t *data_part(const Rb__Source *source)
{
    json_t *inputs = source->n_inputs ? json_object() : NULL;
    json_t *part = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:o}", "path", paths_part(source->path, source->n_path),
        "targets", paths_part(source->targets, source->n_targets), "format", source->format,
        "seqLen", (json_int_t)source->seq_len, "samples", (json_int_t)source->samples, "content",
        json_sprintf("%016" PRIx64, source->content));

    for (size_t i = 0; i < source->n_inputs; i++)
        json_object_set_new(inputs, source->inputs[i]->name,
                            paths_part(source->inputs[i]->path, source->inputs[i]->n_path));
    if (inputs)
        json_object_set_new(part, "inputs", inputs);
    return part;
}

static json_t *train_part(const Rb__Spec *spec, const Rb__Model *model)
{
    const Rb__TrainSpec *train = spec->train;
    const Rb__Optimizer *how = model->optimizer;
    bool constant = how->schedule == RB__OPTIMIZER__SCHEDULE__CONSTANT;
    json_t *part = json_pack(
        "{s:I, s:I, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:s, s:i, s:I, s:f, s:f}",
        "globalBatch", (json_int_t)model->global_batch, "microBatch",
        (json_int_t)model->micro_batch, "precision", train->precision, "decay",
        train->optimizer->decay, "optimizer", (int)how->kind, "lr", how->lr, "beta1", how->beta1,
        "beta2", how->beta2, "eps", how->eps, "weightDecay", how->weight_decay, "momentum",
        how->momentum, "nesterov", (int)how->nesterov, "onNonFinite", train->on_non_finite->action,
        "schedule", (int)how->schedule, "warmup", (json_int_t)how->warmup, "minRatio",
        how->min_ratio, "clipNorm", how->clip_norm);
    char seed[32];

    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)model->seed);
    json_object_set_new(part, "seed", json_string(seed));
    json_object_set_new(part, "limit", json_integer(model->non_finite_limit));
    if (!constant)
        json_object_set_new(part, "steps", json_integer(model->steps));
    return part;
}

/* The part for an asynchronous pipeline, whose bits depend on its stages and laps. */
static json_t *laps_part(const Rb__Spec *spec, const Rb__Asynchronous *how)
{
    json_t *stops = json_array();

    for (size_t i = 0; i < how->n_stops; i++)
        json_array_append_new(stops, json_integer((json_int_t)how->stops[i]));
    return json_pack("{s:s, s:i, s:i, s:o}", "schedule", rb_laps_word(how), "stages",
                     (int)spec->parallel->pipeline, "lap", (int)how->lap, "stops", stops);
}

int rb_job_digest(const Rb__Spec *spec, const char weights_digest[33], Rb__Model *model,
                  struct rb_why *why)
{
    char onnx_digest[33], digest[33];
    struct rb_map file;
    json_t *all, *part;
    char *text;
    int err = rb_map_open(spec->model->onnx, &file, why);

    if (err)
        return rb_why_add(why, err, "spec.model.onnx");
    rb_hash_digest(file.data, file.size, onnx_digest);
    rb_map_close(&file);
    part = json_pack("{s:s, s:s}", "onnx", onnx_digest, "weights", weights_digest);
    add_globs(part, "freeze", spec->model->freeze, spec->model->n_freeze);
    add_globs(part, "buffers", spec->model->buffers, spec->model->n_buffers);
    all = json_pack("{s:o, s:{s:s, s:I, s:f}, s:o, s:o}", "model", part, "loss", "type",
                    spec->loss->type, "ignoreIndex", (json_int_t)spec->loss->ignore_index,
                    "labelSmoothing", spec->loss->label_smoothing, "data", data_part(model->train),
                    "train", train_part(spec, model));
    if (spec->parallel->hypergraph > 1) /* its bits depend on its parts */
        json_object_set_new(all, "hypergraph", json_integer(spec->parallel->hypergraph));
    if (spec->parallel->hypergraph > 1 && spec->parallel->cut &&
        strcmp(spec->parallel->cut, "words")) /* the default is left out */
        json_object_set_new(all, "cut", json_string(spec->parallel->cut));
    if (model->asynchronous)
        json_object_set_new(all, "pipeline", laps_part(spec, model->asynchronous));
    text = json_dumps(all, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(all);
    if (!text)
        return rb_why_set(why, RB_EINTERNAL, "the job file cannot be written as JSON");
    rb_hash_digest(text, strlen(text), digest);
    model->spec_digest = rb_string(digest);
    model->settings = text;
    return 0;
}
