/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/compile.h"

#include "base/arena.h"
#include "base/hash.h"
#include "data/source.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"
#include "plan/compile/check.h"
#include "plan/compile/footprint.h"
#include "plan/compile/initial.h"
#include "plan/compile/job.h"
#include "plan/compile/laps.h"
#include "plan/compile/lower.h"
#include "plan/compile/recompute.h"
#include "plan/compile/summary.h"
#include "proto/spec.h"
#include "proto/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_MICROBATCHES = 1 << 20,
};

/* An automatic microbatch is halved until its activations fit: many small ones cost less than a
 * device that cannot hold one. */
static const uint64_t arena_limit = UINT64_C(1) << 30;

/* Everything open while a job is compiled. */
struct compile {
    const Rb__Spec *spec;
    struct rb_onnx *onnx;
    struct rb_onnx_info info;
    struct rb_source *train, *eval;
    int64_t seq_len;
    bool blocks;            /* activations may be in blocks of channels, which GPUs do not take */
    struct rb_graph *graph; /* the training graph of a whole microbatch, nothing computed again */
    struct rb_recompute_cuts cuts;      /* of what is computed again, in all graphs but that */
    char recomputed[96];                /* of it, for the summary */
    const struct rb_compile_part *part; /* that is made now; NULL: all of it */
    Rb__Model *model;
    struct rb_why *why;
};

static void done(struct compile *compile)
{
    rb_graph_free(compile->graph);
    rb_source_close(compile->train);
    rb_source_close(compile->eval);
    rb_onnx_close(compile->onnx);
    if (compile->model)
        rb__model__free_unpacked(compile->model, NULL);
}

/* ---- Opening ---- */

static int check_complete(const Rb__Spec *spec, struct rb_why *why)
{
    if (!spec->model || !spec->model->onnx || !spec->loss || !spec->loss->type || !spec->data ||
        !spec->data->train || !spec->data->train->path || !spec->train || !spec->train->precision ||
        !spec->train->optimizer || !spec->train->schedule || !spec->train->eval ||
        !spec->train->on_non_finite || !spec->devices)
        return rb_why_set(why, RB_EINVAL, "the job file's values are not complete");
    return 0;
}

/* Sequences are as long as the job file says, else as the model's input, else unknown (0). */
static int64_t sequence_length(const Rb__SourceSpec *source, const struct rb_onnx_info *info)
{
    if (source->has_seq_len)
        return source->seq_len;
    if (info->input_type.rank >= 2 && info->input_type.dim[1] > 0)
        return info->input_type.dim[1];
    return 0;
}

static int open_source(struct compile *compile, const char *key, const Rb__SourceSpec *spec,
                       int64_t seq_len, struct rb_source **ret_source)
{
    const struct rb_source_options options = {
        .path = spec->path,
        .targets = spec->targets,
        .format = spec->format,
        .seq_len = seq_len,
    };
    int err = rb_source_open(&options, ret_source, compile->why);

    if (err)
        return rb_why_add(compile->why, err, "%s", key);
    if (rb_source_info(*ret_source)->samples < 1)
        return rb_why_set(compile->why, RB_EINVAL, "%s.path: %s holds no whole sample", key,
                          spec->path);
    return 0;
}

static int open_all(struct compile *compile)
{
    const Rb__DataSpec *data = compile->spec->data;
    int err = rb_onnx_open(compile->spec->model->onnx, 0, &compile->onnx, compile->why);

    if (!err)
        err = rb_onnx_info(compile->onnx, &compile->info, compile->why);
    if (err)
        return rb_why_add(compile->why, err, "spec.model.onnx");
    compile->seq_len = sequence_length(data->train, &compile->info);
    err = open_source(compile, "spec.data.train", data->train, compile->seq_len, &compile->train);
    if (!err && !compile->seq_len) /* a symbolic second axis is as long as the samples */
        compile->seq_len = rb_source_info(compile->train)->features.rank > 0
                               ? rb_source_info(compile->train)->features.dim[0]
                               : 0;
    if (!err && data->eval)
        err = open_source(compile, "spec.data.eval", data->eval,
                          data->eval->has_seq_len ? data->eval->seq_len : compile->seq_len,
                          &compile->eval);
    return err;
}

/* ---- Graphs ---- */

static const char *data_key(bool train)
{
    return train ? "spec.data.train" : "spec.data.eval";
}

static int make_graph(struct compile *compile, int64_t batch, bool train,
                      const struct rb_source_info *info, struct rb_graph **ret_graph)
{
    const Rb__Spec *spec = compile->spec;
    const struct rb_import_options import = {
        .batch = batch,
        .seq_len = compile->seq_len,
        .train = train,
        .freeze = (const char *const *)spec->model->freeze,
        .n_freeze = (int)spec->model->n_freeze,
        .buffers = (const char *const *)spec->model->buffers,
        .n_buffers = (int)spec->model->n_buffers,
    };
    const struct rb_loss_options loss = {
        .type = spec->loss->type,
        .ignore_index = spec->loss->ignore_index,
        .label_smoothing = spec->loss->label_smoothing,
        .targets = info->targets,
    };
    struct rb_graph *graph = NULL;
    int err = rb_onnx_import(compile->onnx, &import, &graph, compile->why);

    if (err)
        return rb_why_add(compile->why, err, "spec.model.onnx");
    err = rb_check_features(graph, info, compile->why);
    if (err)
        rb_why_add(compile->why, err, "%s", data_key(train));
    if (!err) {
        err = rb_loss_attach(graph, &loss, compile->why);
        if (err)
            rb_why_add(compile->why, err, "spec.loss");
    }
    if (!err) {
        err = rb_check_targets(graph, info, loss.ignore_index, compile->why);
        if (err)
            rb_why_add(compile->why, err, "%s", data_key(train));
    }
    if (!err)
        err = rb_fuse(graph, compile->why);
    if (!err && !compile->blocks)
        rb_fuse_attention(graph);
    if (!err && compile->part)
        err = compile->part->change(&graph, compile->part->owner, compile->why);
    if (!err && train) {
        err = rb_autodiff(graph, compile->why);
        if (err)
            rb_why_add(compile->why, err, "spec.model.onnx");
    }
    if (!err && compile->blocks)
        err = rb_layout(graph, compile->why);
    if (!err && !strcmp(spec->train->precision, "bf16"))
        err = rb_narrow(graph, compile->why);
    if (!err && !compile->blocks && !compile->part && spec->parallel->hypergraph <= 1)
        rb_fuse_points(graph);
    if (!err && train && compile->cuts.n)
        rb_recompute(graph, &compile->cuts);
    if (err) {
        rb_graph_free(graph);
        return err;
    }
    *ret_graph = graph;
    return 0;
}

/* Make, lower and drop the graph of one more batch size. */
static int add_program(struct compile *compile, int64_t batch, bool train)
{
    const struct rb_source_info *info = rb_source_info(train ? compile->train : compile->eval);
    struct rb_graph *graph = NULL;
    char name[48];
    int err = make_graph(compile, batch, train, info, &graph);

    snprintf(name, sizeof(name), "%s b=%" PRId64, train ? "train" : "eval", batch);
    if (!err)
        err = rb_lower_program(graph, name, compile->model, compile->why);
    rb_graph_free(graph);
    return err;
}

/* ---- Batch sizes ---- */

/* From the job file alone: at least devices.max microbatches where the batch allows. */
static int first_micro_batch(const struct compile *compile, int64_t *ret_micro_batch)
{
    const Rb__TrainSpec *train = compile->spec->train;
    int64_t fixed = compile->info.fixed_batch, most = compile->spec->devices->max;
    int64_t lap = rb_laps_micro_batch(compile->spec);

    if (fixed > 0 && lap > 0 && (fixed > lap || (fixed < lap && lap == train->global_batch)))
        return rb_why_set(compile->why, RB_EINVAL,
                          "spec.parallel.schedule: '%s' needs microbatches of %" PRId64
                          ", but the model was exported for batches of %" PRId64
                          " only; export it with a dynamic first axis",
                          compile->spec->parallel->schedule, lap, fixed);
    if (fixed > 0) {
        if (train->has_micro_batch && train->micro_batch != fixed)
            return rb_why_set(compile->why, RB_EINVAL,
                              "spec.train.microBatch: %" PRId64 ", but the model was exported for "
                              "batches of %" PRId64 " only; export it with a dynamic first axis",
                              train->micro_batch, fixed);
        if (train->global_batch % fixed)
            return rb_why_set(compile->why, RB_EINVAL,
                              "spec.train.globalBatch: %" PRId64 " is no multiple of %" PRId64
                              ", the only batch that the model was exported for; export it with a "
                              "dynamic first axis",
                              train->global_batch, fixed);
        *ret_micro_batch = fixed;
        return 0;
    }
    *ret_micro_batch = train->global_batch / (most > 0 ? most : 1);
    if (*ret_micro_batch < 1)
        *ret_micro_batch = 1;
    if (lap > 0)
        *ret_micro_batch = lap;
    if (train->has_micro_batch)
        *ret_micro_batch = train->micro_batch;
    if (*ret_micro_batch > train->global_batch)
        return rb_why_set(compile->why, RB_EINVAL,
                          "spec.train.microBatch: %" PRId64 " is more than globalBatch, %" PRId64,
                          *ret_micro_batch, train->global_batch);
    return 0;
}

static Rb__Model *new_model(void)
{
    Rb__Model *model = rb_alloc(sizeof(*model));

    rb__model__init(model);
    model->format = 1;
    return model;
}

/* The training graph of a whole microbatch and, with it, the state and the first program. */
static int add_first_program(struct compile *compile, int64_t batch)
{
    struct rb_why *why = compile->why;
    char name[48];
    int err = make_graph(compile, batch, true, rb_source_info(compile->train), &compile->graph);

    if (err)
        return err;
    snprintf(name, sizeof(name), "train b=%" PRId64, batch);
    compile->model = new_model();
    err = rb_lower_variables(compile->graph, compile->model, why);
    return err ? err : rb_lower_program(compile->graph, name, compile->model, why);
}

static int choose_micro_batch(struct compile *compile, int64_t *ret_micro_batch)
{
    bool automatic = !compile->spec->train->has_micro_batch && compile->info.fixed_batch <= 0 &&
                     !rb_laps_micro_batch(compile->spec);
    int64_t batch = 1;
    int err = first_micro_batch(compile, &batch);

    while (!err) {
        err = add_first_program(compile, batch);
        if (err || !automatic || batch == 1 ||
            compile->model->programs[0]->arena_bytes <= arena_limit)
            break;
        rb_graph_free(RB_TAKE(compile->graph));
        rb__model__free_unpacked(RB_TAKE(compile->model), NULL);
        batch = (batch + 1) / 2;
    }
    if (!err && (compile->spec->train->global_batch - 1) / batch >= MOST_MICROBATCHES)
        err = rb_why_set(compile->why, RB_ELIMIT,
                         "spec.train.globalBatch: %" PRId64 " samples in microbatches of %" PRId64
                         " are more than %d microbatches",
                         compile->spec->train->global_batch, batch, MOST_MICROBATCHES);
    *ret_micro_batch = batch;
    return err;
}

/* Evaluation goes through its samples in chunks of a microbatch, and what is left over. */
static int add_other_programs(struct compile *compile, int64_t batch)
{
    int64_t rest = compile->spec->train->global_batch % batch, samples = 0;
    int err = 0;

    if (rest)
        err = add_program(compile, rest, true);
    if (compile->eval)
        samples = rb_source_info(compile->eval)->samples;
    if (!err && samples >= batch)
        err = add_program(compile, batch, false);
    if (!err && samples % batch && compile->info.fixed_batch <= 0)
        err = add_program(compile, samples % batch, false);
    return err;
}

/* ---- Recomputation ---- */

static void measure_programs(const Rb__Model *model, uint64_t *ret_arena, double *ret_flops)
{
    *ret_arena = 0;
    *ret_flops = 0;
    for (size_t i = 0; i < model->n_programs; i++)
        if (model->programs[i]->arena_bytes > *ret_arena)
            *ret_arena = model->programs[i]->arena_bytes;
    for (size_t i = 0; i < model->programs[0]->n_instructions; i++)
        *ret_flops += rb_work_flops(model->programs[0], i);
}

/* All of them anew, with the cuts as they are now. */
static int make_programs(struct compile *compile, int64_t batch)
{
    Rb__Model *model = compile->model;
    int err;

    while (model->n_programs)
        rb__program__free_unpacked(model->programs[--model->n_programs], NULL);
    err = add_program(compile, batch, true);
    return err ? err : add_other_programs(compile, batch);
}

/* The fewest segments that make the job fit; where none does, or `always`, those that take the
 * least memory. */
static int search_cuts(struct compile *compile, int64_t batch, uint64_t limit)
{
    struct rb_recompute_cuts best = {0};
    uint64_t least, arena;
    double flops;
    int err = 0;

    measure_programs(compile->model, &least, &flops);
    for (int segments = 2; !err && segments <= RB_RECOMPUTE_SEGMENTS;
         segments += segments / 4 + 1) {
        rb_recompute_cut(compile->graph, segments, &compile->cuts);
        err = make_programs(compile, batch);
        if (err)
            break;
        measure_programs(compile->model, &arena, &flops);
        if (arena < least) {
            least = arena;
            best = compile->cuts;
        }
        if (limit && rb_footprint_least(compile->spec, compile->model) <= limit)
            return 0;
    }
    compile->cuts = best;
    return err ? err : make_programs(compile, batch);
}

static int choose_recompute(struct compile *compile, int64_t batch)
{
    const Rb__MemorySpec *memory = compile->spec->memory;
    const char *word = memory && memory->recompute ? memory->recompute : "auto";
    bool always = !strcmp(word, "always");
    uint64_t limit = always ? 0 : rb_footprint_limit(compile->spec), before, after;
    double flops, more;
    int err;

    if (compile->model->asynchronous || compile->spec->parallel->hypergraph > 1 ||
        !strcmp(word, "never") || (!always && !limit) ||
        (limit && rb_footprint_least(compile->spec, compile->model) <= limit))
        return 0;
    measure_programs(compile->model, &before, &flops);
    err = search_cuts(compile, batch, limit);
    if (err || !compile->cuts.n)
        return err;
    measure_programs(compile->model, &after, &more);
    snprintf(compile->recomputed, sizeof(compile->recomputed),
             ", activations in %.1f MiB instead of %.1f for %.0f %% more products",
             (double)after / (1 << 20), (double)before / (1 << 20),
             flops > 0 ? 100 * (more / flops - 1) : 0);
    return 0;
}

/* ---- The whole ---- */

static int fill_job(struct compile *compile, int64_t micro_batch, const char *numeric_class)
{
    const Rb__Spec *spec = compile->spec;
    const struct rb_source_info *info = rb_source_info(compile->train);
    Rb__Model *model = compile->model;

    rb_job_fill(spec, micro_batch, model);
    model->numeric_class = rb_string(numeric_class);
    model->train = rb_job_source(spec->data->train, info);
    if (compile->eval)
        model->eval = rb_job_source(spec->data->eval, rb_source_info(compile->eval));
    model->steps = rb_spec_steps(spec, info->samples, model->train->seq_len);
    if (compile->graph->mean_of_means) {
        model->has_state_per_microbatch_mean = 1;
        model->state_per_microbatch_mean = 1;
    }
    if (model->steps < 1)
        return rb_why_set(compile->why, RB_EINVAL,
                          "spec.train.tokens: the data are no tokens; say steps or epochs");
    return 0;
}

static int finish(struct compile *compile, struct rb_buffer *weights)
{
    const Rb__Spec *spec = compile->spec;
    char weights_digest[33], digest[33];
    int err = rb_initial_weights(compile->graph, compile->model, spec->model->weights, weights,
                                 compile->why);

    if (err)
        return err;
    rb_hash_digest(weights->data, weights->size, weights_digest);
    err = rb_job_digest(spec, compile->model, weights_digest, digest, compile->why);
    if (!err)
        compile->model->spec_digest = rb_string(digest);
    return err;
}

static int compile_all(struct compile *compile, const char *numeric_class,
                       struct rb_buffer *weights)
{
    int64_t micro_batch = 0;
    int err = check_complete(compile->spec, compile->why);

    if (!err)
        err = open_all(compile);
    if (!err)
        err = choose_micro_batch(compile, &micro_batch);
    if (!err)
        err = add_other_programs(compile, micro_batch);
    if (!err)
        err = fill_job(compile, micro_batch, numeric_class);
    if (!err)
        err = choose_recompute(compile, micro_batch);
    return err ? err : finish(compile, weights);
}

/* What they promise is another thing, and said wherever a job is described. */
static void say_laps(const Rb__Model *model, struct rb_compiled *compiled)
{
    size_t size = strlen(compiled->summary);

    if (model->asynchronous)
        snprintf(compiled->summary + size, sizeof(compiled->summary) - size,
                 ", %s in laps of %" PRIu32 " steps, whose bits depend on the number of stages",
                 rb_laps_word(model->asynchronous), model->asynchronous->lap);
}

int rb_compile(const Rb__Spec *spec, const char *numeric_class, struct rb_compiled *ret_compiled,
               struct rb_why *why)
{
    struct compile compile = {
        .spec = spec,
        .why = why,
        .blocks = !rb_spec_class_is(numeric_class, "cuda"),
    };
    struct rb_compiled compiled = {0};
    int err = compile_all(&compile, numeric_class, &compiled.weights);

    if (err) {
        rb_buffer_done(&compiled.weights);
    } else {
        compiled.model = RB_TAKE(compile.model);
        rb_summary_write(spec->model->onnx, &compiled);
        strncat(compiled.summary, compile.recomputed,
                sizeof(compiled.summary) - strlen(compiled.summary) - 1);
        say_laps(compiled.model, &compiled);
        *ret_compiled = compiled;
    }
    done(&compile);
    return err;
}

static int add_part(struct compile *compile)
{
    const struct rb_compile_part *part = compile->part;
    const struct rb_source_info *info = rb_source_info(compile->train);
    struct rb_graph *graph = NULL;
    char name[64];
    int err = make_graph(compile, part->batch, true, info, &graph);

    snprintf(name, sizeof(name), "train b=%" PRId64 " part %" PRIu32 " of %" PRIu32, part->batch,
             part->part + 1, part->parts);
    if (!err)
        err = rb_lower_program(graph, name, compile->model, compile->why);
    if (!err) {
        Rb__Program *program = compile->model->programs[compile->model->n_programs - 1];

        program->has_parts = program->has_part = 1;
        program->parts = part->parts;
        program->part = part->part;
    }
    rb_graph_free(graph);
    return err;
}

int rb_compile_parts(const Rb__Spec *spec, const char *numeric_class,
                     const struct rb_compile_part *parts, size_t n, Rb__Model *model,
                     struct rb_why *why)
{
    struct compile compile = {
        .spec = spec,
        .why = why,
        .blocks = !rb_spec_class_is(numeric_class, "cuda"),
    };
    int err = open_all(&compile);

    compile.model = model;
    for (size_t i = 0; !err && i < n; i++) {
        compile.part = &parts[i];
        err = add_part(&compile);
    }
    compile.model = NULL; /* the caller's */
    done(&compile);
    return err;
}

void rb_compiled_done(struct rb_compiled *compiled)
{
    if (compiled->model)
        rb__model__free_unpacked(compiled->model, NULL);
    rb_buffer_done(&compiled->weights);
    *compiled = (struct rb_compiled){0};
}
