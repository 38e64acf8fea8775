/* SPDX-License-Identifier: Apache-2.0 */
/* A model forward over the samples of .npy files, batch by batch, through the workers' own
 * interpreter; the first output is written as a .npy file. */
#include "base/arena.h"
#include "base/file.h"
#include "ctl/forward.h"
#include "ctl/model_inputs.h"
#include "ctl/npy.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };

/* What the first axis of the output counts, as far as the types at several batch sizes tell. */
enum first_axis {
    OF_SAMPLES, /* as long as the batch, or a multiple of it */
    OF_OTHER,   /* the type does not depend on the batch */
    UNKNOWN,    /* the model takes one batch size only */
};

/* The state that all batches share. */
struct forward {
    struct rb_onnx *onnx;
    const char *weights;    /* used instead of the model's; NULL: none */
    struct rb_buffer notes; /* about the weights, a line each */
    struct rb_model_inputs inputs;
    struct rb_device *device;
    struct rb_buffer out;       /* outputs of all batches, one after the other */
    struct rb_tensor_type type; /* of the first batch's output */
    int64_t batch, batches;     /* samples in the first one; how many have run */
    enum first_axis first_axis;
    char name[128]; /* the output's */
};

static int runner_open(struct forward *forward, int64_t batch, struct rb_forward *runner,
                       struct rb_why *why)
{
    const struct rb_import_options options = {
        .batch = batch,
        .samples = forward->inputs.sample,
        .n_samples = forward->inputs.n,
    };
    int err = rb_compile_opened(forward->onnx, &options, forward->weights, &runner->compiled, why);

    if (!err && runner->compiled.notes.size && !forward->notes.size)
        rb_buffer_text(&forward->notes, runner->compiled.notes.data);
    return err ? err : rb_forward_open(forward->device, runner, why);
}

static int read_type(const Rb__Tensor *output, struct rb_tensor_type *ret, struct rb_why *why)
{
    *ret =
        (struct rb_tensor_type){.dtype = (enum rb_dtype)output->dtype, .rank = (int)output->n_dims};
    if (output->n_dims > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "the output has more than %d axes", RB_MAX_RANK);
    for (size_t i = 0; i < output->n_dims; i++)
        ret->dim[i] = output->dims[i];
    return 0;
}

static int run_batch(struct forward *forward, struct rb_forward *runner, int64_t first,
                     struct rb_why *why)
{
    const Rb__Program *program = runner->compiled.model->programs[0];
    struct rb_tensor_type type;
    int err = rb_model_inputs_read(&forward->inputs, program, first, runner->program, why);

    if (!err && !program->n_outputs)
        err = rb_why_set(why, RB_EUNSUPPORTED, "the model has no output");
    if (err)
        return err;
    err = rb_forward_run(forward->device, runner, why);
    if (err)
        return err;
    err = read_type(program->tensors[program->outputs[0]], &type, why);
    if (err)
        return err;
    rb_buffer_add(&forward->out, rb_program_result(runner->program, program->outputs[0]),
                  (size_t)rb_tensor_elements(&type) * rb_dtype_size(type.dtype));
    if (!forward->batches++)
        forward->type = type;
    return 0;
}

/* `count` samples from `first` on, all in batches of `batch`, which divides count. */
static int run_batches(struct forward *forward, int64_t first, int64_t count, int64_t batch,
                       struct rb_why *why)
{
    struct rb_forward runner = {0};
    int err = runner_open(forward, batch, &runner, why);

    for (int64_t at = 0; !err && at < count; at += batch)
        err = run_batch(forward, &runner, first + at, why);
    rb_forward_done(forward->device, &runner);
    return err;
}

/* The type of the first output where the batch is `batch`. */
static int type_for(const struct forward *forward, int64_t batch, struct rb_tensor_type *ret)
{
    const struct rb_import_options options = {
        .batch = batch,
        .samples = forward->inputs.sample,
        .n_samples = forward->inputs.n,
    };
    struct rb_graph *graph = NULL;
    struct rb_why why;
    int err = rb_onnx_import(forward->onnx, &options, &graph, &why);

    if (!err && graph->n_outputs)
        *ret = graph->outputs[0]->type;
    else
        err = err ? err : RB_EINVAL;
    rb_graph_free(graph);
    return err;
}

/* `other`: another batch size, which the model may not take. */
static enum first_axis find_first_axis(const struct forward *forward, int64_t other)
{
    struct rb_tensor_type a, b;

    if (type_for(forward, forward->batch, &a) || type_for(forward, other, &b))
        return UNKNOWN;
    return a.rank > 0 && a.dim[0] % forward->batch == 0 && a.dim[0] != b.dim[0] &&
                   a.dim[0] / forward->batch * other == b.dim[0]
               ? OF_SAMPLES
               : OF_OTHER;
}

static int run_all(struct forward *forward, struct rb_why *why)
{
    int64_t samples = forward->inputs.samples, batch, whole;
    struct rb_onnx_info info;
    int err = rb_onnx_info(forward->onnx, &info, why);
    const char *name;

    if (err)
        return err;
    name = rb_onnx_outputs(forward->onnx) ? rb_onnx_output_name(forward->onnx, 0) : NULL;
    snprintf(forward->name, sizeof forward->name, "%s", name && name[0] ? name : "output");
    batch = info.fixed_batch;
    if (batch > 0 && samples % batch)
        return rb_why_set(why, RB_EINVAL,
                          "the model was exported for batches of %" PRId64 " only, and %" PRId64
                          " samples are no multiple of that",
                          batch, samples);
    if (batch <= 0)
        batch = samples < BATCH ? samples : BATCH;
    whole = samples / batch * batch;
    forward->batch = batch;
    forward->first_axis = UNKNOWN;
    if (samples > batch && info.fixed_batch <= 0)
        forward->first_axis = find_first_axis(forward, samples > whole ? samples - whole : 1);
    err = run_batches(forward, 0, whole, batch, why);
    if (!err && samples > whole)
        err = run_batches(forward, whole, samples - whole, samples - whole, why);
    return err;
}

/* Has every batch made the same output? */
static bool is_one(const struct forward *forward)
{
    size_t size = (size_t)rb_tensor_elements(&forward->type) * rb_dtype_size(forward->type.dtype);

    if (forward->out.size != size * (size_t)forward->batches)
        return false;
    for (int64_t i = 1; i < forward->batches; i++)
        if (memcmp(forward->out.data, (const char *)forward->out.data + (size_t)i * size, size) !=
            0)
            return false;
    return true;
}

/* Joins the outputs into one array over all samples where the output's first axis counts samples.
 * An output that belongs to no sample is given once, if all batches made the same. */
static int join_batches(struct forward *forward, struct rb_why *why)
{
    int64_t *first = &forward->type.dim[0];
    bool joins = forward->type.rank > 0 && *first % forward->batch == 0;

    if (forward->batches <= 1)
        return 0;
    if (forward->first_axis == UNKNOWN && *first != forward->batch && is_one(forward))
        return 0;
    if (joins && forward->first_axis != OF_OTHER) {
        *first = *first / forward->batch * forward->inputs.samples;
        return 0;
    }
    return is_one(forward)
               ? 0
               : rb_why_set(why, RB_EUNSUPPORTED,
                            "the first axis of the output '%s' is not the batch, and the output is "
                            "another one for every %" PRId64
                            " samples: run it on no more than those at once",
                            forward->name, forward->batch);
}

static int write_output(const struct rb_session *session, struct forward *forward,
                        const char *folder, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = NULL;
    int err = join_batches(forward, why);

    if (err)
        return err;
    for (char *at = forward->name; *at; at++) {
        if (*at == '/' || (unsigned char)*at < 0x20)
            *at = '_';
    }
    path = rb_format("%s/%s.npy", folder, forward->name);
    err = rb_file_make_folder(folder, RB_FOLDER_SHARED, why);
    if (!err)
        err = rb_npy_write(path, &forward->type, forward->out.data, why);
    if (!err)
        fprintf(session->out, "%s\n", path);
    return err;
}

/* Say what the file of weights has and the model lacks, and the reverse. */
static void say_notes(const struct rb_session *session, const struct rb_buffer *notes)
{
    for (const char *at = notes->data; at && *at;) {
        size_t size = strcspn(at, "\n");

        fprintf(session->err, "rubatoctl: %.*s\n", (int)size, at);
        at += size + (at[size] == '\n');
    }
}

static int run_files(struct forward *forward, const char *const *words, int n, struct rb_why *why)
{
    int err = rb_model_inputs_open(forward->onnx, words, n, &forward->inputs, why);

    if (!err)
        err = rb_device_open("cpu", 0, &forward->device, why);
    return err ? err : run_all(forward, why);
}

int rb_model_run(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *folder = rb_arguments_value(arguments, "out");
    const char *words[RB_ARGUMENTS_MAX];
    int n = rb_arguments_values(arguments, "input", words), err;
    struct forward forward = {.weights = rb_arguments_value(arguments, "weights")};
    struct rb_why why = {0};

    if (!n)
        return rb_session_usage(session, "--input says which .npy file");
    if (folder && strcmp(folder, "-") == 0)
        return rb_session_usage(session, "--out names a folder");
    err = rb_onnx_open(arguments->word[0], 0, &forward.onnx, &why);
    if (!err)
        err = run_files(&forward, words, n, &why);
    if (!err)
        err = write_output(session, &forward, folder ? folder : ".", &why);
    say_notes(session, &forward.notes);
    if (forward.device)
        rb_device_close(forward.device);
    rb_model_inputs_done(&forward.inputs);
    rb_buffer_done(&forward.out);
    rb_buffer_done(&forward.notes);
    rb_onnx_close(forward.onnx);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
