/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/compile_inside.h"

#include "base/arena.h"
#include "base/hash.h"
#include "plan/compile/initial.h"
#include "plan/compile/job.h"
#include "plan/compile/laps.h"
#include "plan/compile/lower.h"
#include "plan/compile/notes.h"
#include "plan/compile/summary.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Opening ---- */

static void done(struct rb_compile_work *work)
{
    rb_graph_free(work->graph);
    rb_attentions_done(&work->attentions);
    rb_source_close(work->train);
    rb_source_close(work->eval);
    rb_onnx_close(work->onnx);
    if (work->model)
        rb__model__free_unpacked(work->model, NULL);
}

static int check_complete(const Rb__Spec *spec, struct rb_why *why)
{
    if (!spec->model || !spec->model->onnx || !spec->loss || !spec->loss->type || !spec->data ||
        !spec->data->train || !spec->data->train->n_path || !spec->train ||
        !spec->train->precision || !spec->train->optimizer || !spec->train->schedule ||
        !spec->train->eval || !spec->train->on_non_finite || !spec->devices)
        return rb_why_set(why, RB_EINVAL, "the job file's values are not complete");
    return 0;
}

static int open_model(struct rb_compile_work *work)
{
    const Rb__ModelSpec *model = work->spec->model;
    int err = rb_onnx_open(model->onnx, 0, &work->onnx, work->why);

    if (!err)
        err = rb_onnx_info(work->onnx, &work->info, work->why);
    if (err)
        return rb_why_add(work->why, err, "spec.model.onnx");
    err = rb_onnx_check_globs(work->onnx, (const char *const *)model->freeze, (int)model->n_freeze,
                              work->why);
    if (err)
        return rb_why_add(work->why, err, "spec.model.freeze");
    err = rb_onnx_check_globs(work->onnx, (const char *const *)model->buffers,
                              (int)model->n_buffers, work->why);
    return err ? rb_why_add(work->why, err, "spec.model.buffers") : 0;
}

static int open_all(struct rb_compile_work *work)
{
    int err = open_model(work);

    return err ? err : rb_compile_open_data(work);
}

/* ---- The whole ---- */

static int fill_job(struct rb_compile_work *work, int64_t micro_batch, const char *numeric_class)
{
    const Rb__Spec *spec = work->spec;
    const struct rb_source_info *info = rb_source_info(work->train);
    Rb__Model *model = work->model;

    rb_job_fill(spec, micro_batch, model);
    model->numeric_class = rb_string(numeric_class);
    model->train = rb_job_source(work->train);
    if (model->train->n_inputs)
        model->format = 2;
    if (work->eval)
        model->eval = rb_job_source(work->eval);
    model->steps = rb_spec_steps(spec, info->samples, model->train->seq_len);
    if (work->graph->own_loss > RB_OWN_LOSS_MEAN) {
        model->has_state_per_microbatch_mean = 1;
        model->state_per_microbatch_mean = 1;
    }
    if (model->steps < 1)
        return rb_why_set(work->why, RB_EINVAL,
                          "spec.train.tokens: the data are no tokens; say steps or epochs");
    return 0;
}

static int finish(struct rb_compile_work *work, struct rb_compiled *compiled)
{
    const Rb__Spec *spec = work->spec;
    char weights_digest[33];
    struct rb_buffer *weights = &compiled->weights;
    int err = rb_initial_weights(work->graph, "spec.model.weights", spec->model->weights,
                                 work->model, weights, &compiled->notes, work->why);

    if (err)
        return err;
    rb_hash_digest(weights->data, weights->size, weights_digest);
    return rb_job_digest(spec, weights_digest, work->model, work->why);
}

static int compile_all(struct rb_compile_work *work, const char *numeric_class,
                       struct rb_compiled *compiled)
{
    int64_t micro_batch = 0;
    int err = check_complete(work->spec, work->why);

    if (!err)
        err = open_all(work);
    if (!err)
        err = rb_compile_microbatch(work, &micro_batch);
    if (!err)
        err = rb_compile_add_others(work, micro_batch);
    if (!err)
        err = fill_job(work, micro_batch, numeric_class);
    if (!err)
        rb_compile_notes(work, micro_batch, &compiled->notes);
    if (!err)
        err = rb_compile_recompute(work, micro_batch);
    return err ? err : finish(work, compiled);
}

/* Laps make another promise, which is said wherever a job is described. */
static void say_laps(const Rb__Model *model, struct rb_compiled *compiled)
{
    size_t size = strlen(compiled->summary);

    if (model->asynchronous)
        snprintf(compiled->summary + size, sizeof(compiled->summary) - size,
                 ", %s in laps of %" PRIu32 " steps, whose bits depend on the number of stages",
                 rb_laps_word(model->asynchronous), model->asynchronous->lap);
}

/* For bfloat16, only where processors multiply pairs of it (kernels/cpu/pairs.h). */
static bool has_tiles(const char *numeric_class, bool narrow)
{
    if (narrow)
        return strstr(numeric_class, " avx512_core_bf16 ") &&
               !strstr(numeric_class, " bf16-as-fp32");
    return strstr(numeric_class, " avx2") || strstr(numeric_class, " avx512");
}

/* Work for devices of this class. */
static struct rb_compile_work new_work(const Rb__Spec *spec, const char *numeric_class,
                                       struct rb_why *why)
{
    return (struct rb_compile_work){
        .spec = spec,
        .why = why,
        .blocks = !rb_spec_class_is(numeric_class, "cuda"),
        .tiles = has_tiles(numeric_class, strcmp(spec->train->precision, "bf16") == 0),
    };
}

int rb_compile(const Rb__Spec *spec, const char *numeric_class, struct rb_compiled *ret_compiled,
               struct rb_why *why)
{
    struct rb_compile_work work = new_work(spec, numeric_class, why);
    struct rb_compiled compiled = {0};
    int err = compile_all(&work, numeric_class, &compiled);

    if (err) {
        rb_compiled_done(&compiled);
    } else {
        compiled.model = RB_TAKE(work.model);
        rb_summary_write(spec->model->onnx, &compiled);
        strncat(compiled.summary, work.recomputed,
                sizeof(compiled.summary) - strlen(compiled.summary) - 1);
        say_laps(compiled.model, &compiled);
        *ret_compiled = compiled;
    }
    done(&work);
    return err;
}

static int add_part(struct rb_compile_work *work)
{
    const struct rb_compile_part *part = work->part;
    const struct rb_source_info *info = rb_source_info(work->train);
    struct rb_graph *graph = NULL;
    char name[64];
    int err = rb_compile_graph(work, part->batch, true, info, &graph);

    snprintf(name, sizeof(name), "train b=%" PRId64 " part %" PRIu32 " of %" PRIu32, part->batch,
             part->part + 1, part->parts);
    if (!err)
        err = rb_lower_program(graph, name, work->model, work->why);
    if (!err) {
        Rb__Program *program = work->model->programs[work->model->n_programs - 1];

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
    struct rb_compile_work work = new_work(spec, numeric_class, why);
    int err = open_all(&work);

    work.model = model;
    for (size_t i = 0; !err && i < n; i++) {
        work.part = &parts[i];
        err = add_part(&work);
    }
    work.model = NULL; /* the caller's */
    done(&work);
    return err;
}

void rb_compiled_done(struct rb_compiled *compiled)
{
    if (compiled->model)
        rb__model__free_unpacked(compiled->model, NULL);
    rb_buffer_done(&compiled->weights);
    rb_buffer_done(&compiled->notes);
    *compiled = (struct rb_compiled){0};
}
