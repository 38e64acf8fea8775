/* SPDX-License-Identifier: Apache-2.0 */
/* Every sentence begins with the key that it is about: spec.c uses the key to find its place in the
 * file. */
#include "proto/spec.h"

#include "proto/spec_paths.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STAGES = 64, MOST_PARTS = 16 };

/* `words` is "a | b | c". */
static int check_word(const char *path, const char *value, const char *words, struct rb_why *why)
{
    size_t size = strlen(value);

    for (const char *at = words; size && *at;) {
        size_t part = strcspn(at, " ");

        if (part == size && strncmp(at, value, size) == 0)
            return 0;
        at += part;
        at += strspn(at, " |");
    }
    return rb_why_set(why, RB_EINVAL, "%s: '%.40s' is none of %s", path, value, words);
}

static int check_count(const char *path, int64_t x, int64_t low, int64_t high, struct rb_why *why)
{
    if (x >= low && x <= high)
        return 0;
    return rb_why_set(why, RB_EINVAL, "%s: %lld is not within %lld and %lld", path, (long long)x,
                      (long long)low, (long long)high);
}

/* low <= x < high (x <= high where `closed`). */
static int check_real(const char *path, double x, double low, double high, bool closed,
                      struct rb_why *why)
{
    if (isfinite(x) && x >= low && (x < high || (closed && x == high)))
        return 0;
    return rb_why_set(why, RB_EINVAL, "%s: %g is not within %g and %g%s", path, x, low, high,
                      closed ? "" : " (exclusive)");
}

static int check_name(const char *name, struct rb_why *why)
{
    static const char inner[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t size = strlen(name);

    if (size >= 1 && size <= 63 && strspn(name, inner) == size && name[0] != '-' &&
        name[size - 1] != '-')
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "metadata.name: '%.70s' is not a name: 1 to 63 of a-z, 0-9 and '-', "
                      "with no '-' at either end",
                      name);
}

/* Is a name in a list of files empty? */
static bool has_empty(char *const *paths, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!paths[i][0])
            return true;
    return false;
}

static int check_source(const char *key, const Rb__SourceSpec *source, struct rb_why *why)
{
    char path[64];
    int err = 0;

    if (!source->n_path || has_empty(source->path, source->n_path))
        return rb_why_set(why, RB_EINVAL, "%s.path: is missing", key);
    if (has_empty(source->targets, source->n_targets))
        return rb_why_set(why, RB_EINVAL, "%s.targets: one is empty", key);
    for (size_t i = 0; i < source->n_inputs; i++)
        if (!source->inputs[i]->n_path ||
            has_empty(source->inputs[i]->path, source->inputs[i]->n_path))
            return rb_why_set(why, RB_EINVAL, "%s.inputs: '%s' has no path", key,
                              source->inputs[i]->name);
    snprintf(path, sizeof path, "%s.format", key);
    if (source->format)
        err = check_word(path, source->format, "text | npy | idx | tokens", why);
    snprintf(path, sizeof path, "%s.seqLen", key);
    if (!err && source->has_seq_len)
        err = check_count(path, source->seq_len, 1, 1 << 24, why);
    return err;
}

static int check_inputs(const Rb__Spec *spec, struct rb_why *why)
{
    int err;

    if (!spec->model->onnx || !spec->model->onnx[0])
        return rb_why_set(why, RB_EINVAL, "spec.model.onnx: is missing");
    if (!spec->data->train)
        return rb_why_set(why, RB_EINVAL, "spec.data.train.path: is missing");
    err = check_source("spec.data.train", spec->data->train, why);
    if (!err && spec->data->eval)
        err = check_source("spec.data.eval", spec->data->eval, why);
    if (!err)
        err = check_word("spec.loss.type", spec->loss->type,
                         "cross_entropy | mse | bce_with_logits | graph", why);
    if (!err)
        err = check_real("spec.loss.labelSmoothing", spec->loss->label_smoothing, 0, 1, false, why);
    if (!err && spec->loss->label_smoothing != 0 && strcmp(spec->loss->type, "cross_entropy") != 0)
        err = rb_why_set(why, RB_EINVAL, "spec.loss.labelSmoothing: goes with cross_entropy only");
    return err;
}

static int check_end(const Rb__TrainSpec *train, struct rb_why *why)
{
    int said = train->has_steps + train->has_epochs + train->has_tokens;

    if (said == 0)
        return rb_why_set(why, RB_EINVAL, "spec.train: say one of steps, epochs, tokens");
    if (said > 1)
        return rb_why_set(why, RB_EINVAL,
                          "spec.train: say only one of steps, epochs, tokens (null unsets a key)");
    if (train->has_steps)
        return check_count("spec.train.steps", train->steps, 1, INT64_C(1) << 40, why);
    if (train->has_tokens)
        return check_count("spec.train.tokens", train->tokens, 1, INT64_C(1) << 53, why);
    if (train->epochs <= 0)
        return rb_why_set(why, RB_EINVAL, "spec.train.epochs: must be above 0");
    return check_real("spec.train.epochs", train->epochs, 0, 1e9, true, why);
}

static int check_train(const Rb__Spec *spec, struct rb_why *why)
{
    const Rb__TrainSpec *train = spec->train;
    int err = check_end(train, why);

    if (!err)
        err = check_count("spec.train.globalBatch", train->global_batch, 1, 1 << 24, why);
    if (!err && train->has_micro_batch)
        err = check_count("spec.train.microBatch", train->micro_batch, 1, train->global_batch, why);
    if (!err)
        err = check_word("spec.train.precision", train->precision, "fp32 | bf16", why);
    if (!err)
        err = check_real("spec.train.clipNorm", train->clip_norm, 0, 1e30, true, why);
    if (!err)
        err = check_count("spec.train.eval.every", train->eval->every, 0, INT64_C(1) << 40, why);
    if (!err && train->eval->every > 0 && !spec->data->eval)
        err = rb_why_set(why, RB_EINVAL,
                         "spec.train.eval.every: there is no spec.data.eval to evaluate on");
    if (!err)
        err = check_word("spec.train.onNonFinite.action", train->on_non_finite->action,
                         "skip | stop", why);
    if (!err)
        err = check_count("spec.train.onNonFinite.limit", train->on_non_finite->limit, 1, 1 << 30,
                          why);
    return err;
}

static int check_optimizer(const Rb__OptimizerSpec *optimizer, struct rb_why *why)
{
    bool sgd = strcmp(optimizer->type, "sgd") == 0;
    int err = check_word("spec.train.optimizer.type", optimizer->type, "adamw | sgd", why);

    if (!err)
        err = check_real("spec.train.optimizer.lr", optimizer->lr, 0, 1e6, true, why);
    if (!err && optimizer->n_betas != 2)
        err = rb_why_set(why, RB_EINVAL, "spec.train.optimizer.betas: expected two numbers");
    for (size_t i = 0; !err && i < 2; i++)
        err = check_real("spec.train.optimizer.betas", optimizer->betas[i], 0, 1, false, why);
    if (!err)
        err = check_real("spec.train.optimizer.eps", optimizer->eps, 1e-30, 1, true, why);
    if (!err)
        err = check_real("spec.train.optimizer.weightDecay", optimizer->weight_decay, 0, 1e6, true,
                         why);
    if (!err)
        err = check_word("spec.train.optimizer.decay", optimizer->decay, "matrices | all", why);
    if (!err)
        err = check_real("spec.train.optimizer.momentum", optimizer->momentum, 0, 1, false, why);
    if (!err && !sgd && optimizer->momentum != 0)
        err =
            rb_why_set(why, RB_EINVAL, "spec.train.optimizer.momentum: is sgd's; adamw has betas");
    if (!err && optimizer->nesterov && (!sgd || optimizer->momentum == 0))
        err = rb_why_set(why, RB_EINVAL,
                         "spec.train.optimizer.nesterov: goes with sgd and a momentum");
    return err;
}

static int check_schedule(const Rb__ScheduleSpec *schedule, struct rb_why *why)
{
    int err =
        check_word("spec.train.schedule.type", schedule->type, "constant | linear | cosine", why);

    if (!err)
        err = check_count("spec.train.schedule.warmup", schedule->warmup, 0, INT64_C(1) << 40, why);
    if (!err)
        err = check_real("spec.train.schedule.minRatio", schedule->min_ratio, 0, 1, true, why);
    return err;
}

static int check_devices(const Rb__DevicesSpec *devices, struct rb_why *why)
{
    int err = check_count("spec.devices.max", devices->max, 1, 1024, why);

    if (!err && devices->min > devices->max)
        err = rb_why_set(why, RB_EINVAL, "spec.devices.min: %u is above spec.devices.max, %u",
                         devices->min, devices->max);
    if (!err)
        err = check_count("spec.devices.min", devices->min, 1, devices->max, why);
    if (!err && devices->want > devices->max)
        err = rb_why_set(why, RB_EINVAL, "spec.devices.want: %u is above spec.devices.max, %u",
                         devices->want, devices->max);
    if (!err)
        err = check_count("spec.devices.want", devices->want, devices->min, devices->max, why);
    if (!err)
        err = check_word("spec.devices.kind", devices->kind, "any | cpu | cuda", why);
    return err;
}

/* Refuses what the contract has words for and this release has no code for. */
static int check_unsupported(const Rb__Spec *spec, struct rb_why *why)
{
    if (!spec->parallel->has_data)
        return 0;
    return rb_why_set(
        why, RB_EUNSUPPORTED,
        "spec.parallel.data: this release has no such pin: leave it out; devices beyond "
        "those of a pipeline or a hypergraph are data-parallel");
}

static int check_keeping(const Rb__Spec *spec, struct rb_why *why)
{
    const Rb__CheckpointSpec *checkpoint = spec->checkpoint;
    uint64_t limit;
    int64_t window;
    int err = check_count("spec.checkpoint.every", checkpoint->every, 0, INT64_C(1) << 40, why);

    if (!err)
        err = check_count("spec.checkpoint.keep", checkpoint->keep, 1, 1 << 30, why);
    if (!err)
        err = check_word("spec.checkpoint.numericClass", checkpoint->numeric_class, "same | any",
                         why);
    if (!err && checkpoint->every > 0 && !rb_spec_checkpoints(spec))
        err = rb_why_set(why, RB_EINVAL, "spec.checkpoint.every: needs spec.checkpoint.path");
    if (!err && rb_spec_duration_ms(spec->failure->window, &window))
        err = rb_why_set(why, RB_EINVAL,
                         "spec.failure.window: '%.40s' is no duration: seconds, or 90s 5m 2h",
                         spec->failure->window);
    if (!err && spec->memory->recompute)
        err = check_word("spec.memory.recompute", spec->memory->recompute, "auto | never | always",
                         why);
    if (!err && spec->memory->limit && strcmp(spec->memory->limit, "auto") != 0 &&
        rb_spec_bytes(spec->memory->limit, &limit))
        err =
            rb_why_set(why, RB_EINVAL, "spec.memory.limit: '%.40s' is no size: bytes, or 512Mi 4Gi",
                       spec->memory->limit);
    return err;
}

/* An asynchronous schedule has one device a stage, and steps that are not cut, except for 2bw,
 * whose steps have as many microbatches as stages. */
static int check_laps(const Rb__Spec *spec, struct rb_why *why)
{
    const char *schedule = spec->parallel->schedule;
    uint32_t stages = spec->parallel->pipeline;
    const Rb__TrainSpec *train = spec->train;
    bool cuts = schedule && !strcmp(schedule, "2bw");

    if (!rb_spec_asynchronous(spec))
        return 0;
    if (stages < 2)
        return rb_why_set(
            why, RB_EINVAL,
            "spec.parallel.schedule: '%s' needs a spec.parallel.pipeline of 2 or more", schedule);
    if (spec->devices->max > stages)
        return rb_why_set(why, RB_EINVAL,
                          "spec.devices.max: %u is above spec.parallel.pipeline, %u: with schedule "
                          "'%s' each stage has one device",
                          spec->devices->max, stages, schedule);
    if (spec->memory->recompute && !strcmp(spec->memory->recompute, "always"))
        return rb_why_set(why, RB_EINVAL,
                          "spec.memory.recompute: with schedule '%s' weights have changed when "
                          "activations would be computed again",
                          schedule);
    if (cuts && train->global_batch < stages)
        return rb_why_set(why, RB_EINVAL,
                          "spec.train.globalBatch: %lld is less than spec.parallel.pipeline, %u: "
                          "'2bw' needs as many microbatches as stages",
                          (long long)train->global_batch, stages);
    if (!train->has_micro_batch)
        return 0;
    if (cuts && (train->global_batch - 1) / train->micro_batch + 1 < stages)
        return rb_why_set(why, RB_EINVAL,
                          "spec.train.microBatch: '2bw' needs as many microbatches as stages, %u",
                          stages);
    if (!cuts && train->micro_batch != train->global_batch)
        return rb_why_set(why, RB_EINVAL,
                          "spec.train.microBatch: with schedule '%s' a step is one microbatch; say "
                          "%lld, the globalBatch, or nothing",
                          schedule, (long long)train->global_batch);
    return 0;
}

/* Pins of what this release can run. */
static int check_parallel(const Rb__Spec *spec, struct rb_why *why)
{
    const Rb__ParallelSpec *parallel = spec->parallel;
    int err = 0;

    if (parallel->has_pipeline)
        err = check_count("spec.parallel.pipeline", parallel->pipeline, 1, MOST_STAGES, why);
    if (!err && parallel->schedule)
        err = check_word("spec.parallel.schedule", parallel->schedule,
                         "1f1b | vanilla | stashing | 2bw | spectrain | spectrain-formula", why);
    if (!err && parallel->has_hypergraph)
        err = check_count("spec.parallel.hypergraph", parallel->hypergraph, 1, MOST_PARTS, why);
    if (!err && parallel->has_hypergraph && parallel->has_pipeline)
        err = rb_why_set(why, RB_EUNSUPPORTED,
                         "spec.parallel.hypergraph: not together with spec.parallel.pipeline");
    if (!err && parallel->cut)
        err = check_word("spec.parallel.cut", parallel->cut, "words | layers", why);
    if (!err && parallel->cut && !parallel->has_hypergraph)
        err = rb_why_set(why, RB_EINVAL, "spec.parallel.cut: needs spec.parallel.hypergraph");
    if (!err && parallel->hypergraph > 1 && spec->memory->recompute &&
        !strcmp(spec->memory->recompute, "always"))
        err = rb_why_set(why, RB_EUNSUPPORTED,
                         "spec.memory.recompute: parts of the filters compute nothing again");
    if (!err && parallel->schedule && !parallel->has_pipeline)
        err = rb_why_set(why, RB_EINVAL, "spec.parallel.schedule: needs spec.parallel.pipeline");
    if (!err)
        err = check_word("spec.parallel.balance", parallel->balance, "auto | shares | even", why);
    return err;
}

/* Is every part there that the checks look into?  A spec may come from outside. */
static bool is_complete(const Rb__Spec *spec)
{
    const Rb__TrainSpec *train = spec ? spec->train : NULL;

    return train && spec->model && spec->loss && spec->data && spec->devices && spec->parallel &&
           spec->state && spec->memory && spec->checkpoint && spec->failure && train->optimizer &&
           train->schedule && train->eval && train->on_non_finite && spec->loss->type &&
           train->precision && train->optimizer->type && train->optimizer->decay &&
           train->schedule->type && train->on_non_finite->action && spec->devices->kind &&
           spec->failure->window && spec->parallel->balance;
}

int rb_spec_check(const char *name, const Rb__Spec *spec, struct rb_why *why)
{
    int err = check_name(name, why);

    if (err)
        return err;
    if (!is_complete(spec))
        return rb_why_set(why, RB_EINVAL, "spec: parts are missing");
    err = check_inputs(spec, why);
    if (!err)
        err = rb_spec_paths_check(spec, why);
    if (!err)
        err = check_unsupported(spec, why);
    if (!err)
        err = check_parallel(spec, why);
    if (!err)
        err = check_train(spec, why);
    if (!err)
        err = check_optimizer(spec->train->optimizer, why);
    if (!err)
        err = check_schedule(spec->train->schedule, why);
    if (!err)
        err = check_devices(spec->devices, why);
    if (!err)
        err = check_laps(spec, why);
    if (!err && spec->state->replicas)
        err = check_word("spec.state.replicas", spec->state->replicas, "auto | all | 1 | 2", why);
    if (!err)
        err = check_keeping(spec, why);
    return err;
}

bool rb_spec_asynchronous(const Rb__Spec *spec)
{
    const char *schedule = spec->parallel->schedule;

    return schedule && strcmp(schedule, "1f1b") != 0;
}

bool rb_spec_class_is(const char *numeric_class, const char *kind)
{
    size_t n = strlen(kind);

    return numeric_class && !strncmp(numeric_class, kind, n) &&
           (numeric_class[n] == ' ' || !numeric_class[n]);
}
