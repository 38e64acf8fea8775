/* SPDX-License-Identifier: Apache-2.0 */
/* A model forward over the samples of a .npy file, batch by batch, through the workers' own
 * interpreter; the first output comes out as a .npy file. */
#include "base/arena.h"
#include "base/file.h"
#include "ctl/forward.h"
#include "ctl/npy.h"
#include "ctl/verbs.h"
#include "data/source.h"
#include "graph/onnx/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };

/* What all batches share. */
struct forward {
    const char *path;
    struct rb_source *source;
    const struct rb_source_info *info;
    struct rb_device *device;
    struct rb_buffer out;       /* rows of the output so far */
    struct rb_tensor_type type; /* of one batch's output */
    char name[128];             /* the output's */
};

static int runner_open(const struct forward *forward, int64_t batch, struct rb_forward *runner,
                       struct rb_why *why)
{
    int err = rb_compile_forward(forward->path, batch, &runner->compiled, why);

    return err ? err : rb_forward_open(forward->device, runner, why);
}

static const Rb__Tensor *input_tensor(const Rb__Program *program)
{
    for (size_t i = 0; i < program->n_tensors; i++) {
        if (program->tensors[i]->space == RB__TENSOR__SPACE__INPUT &&
            program->tensors[i]->offset == 0)
            return program->tensors[i];
    }
    return NULL;
}

/* The samples against the model's input: elements of the same type, as many of them. */
static int check_input(const struct forward *forward, const Rb__Program *program,
                       const Rb__Tensor *input, struct rb_why *why)
{
    const struct rb_tensor_type *sample = &forward->info->features;
    uint64_t need = 1, have = (uint64_t)rb_tensor_elements(sample) * program->batch;

    for (size_t i = 0; input && i < input->n_dims; i++)
        need *= (uint64_t)input->dims[i];
    if (!input || (input->dtype == (int)sample->dtype && need == have))
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "the model takes %" PRIu64 " %s for %u samples, the file has %" PRIu64 " %s",
                      need, rb_dtype_text((enum rb_dtype)input->dtype), program->batch, have,
                      rb_dtype_text(sample->dtype));
}

static int take_type(struct forward *forward, const Rb__Tensor *output, struct rb_why *why)
{
    forward->type =
        (struct rb_tensor_type){.dtype = (enum rb_dtype)output->dtype, .rank = (int)output->n_dims};
    if (output->n_dims > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "the output has more than %d axes", RB_MAX_RANK);
    for (size_t i = 0; i < output->n_dims; i++)
        forward->type.dim[i] = output->dims[i];
    snprintf(forward->name, sizeof forward->name, "%s",
             output->name && output->name[0] ? output->name : "output");
    return 0;
}

static int run_batch(struct forward *forward, struct rb_forward *runner, int64_t first,
                     struct rb_why *why)
{
    const Rb__Program *program = runner->compiled.model->programs[0];
    const Rb__Tensor *input = input_tensor(program), *output;
    const struct rb_tensor_type *sample = &forward->info->features;
    size_t bytes = (size_t)rb_tensor_elements(sample) * rb_dtype_size(sample->dtype);
    struct rb_key key = {0};
    int err = check_input(forward, program, input, why);

    if (!err && !program->n_outputs)
        err = rb_why_set(why, RB_EUNSUPPORTED, "the model has no output");
    if (err)
        return err;
    for (uint32_t i = 0; input && i < program->batch; i++)
        rb_source_read(forward->source, first + i,
                       (char *)rb_program_input(runner->program, 0) + i * bytes, NULL);
    err = rb_program_run(runner->program, &key, NULL, NULL, NULL);
    if (err)
        return rb_why_set(why, err, "the run failed");
    output = program->tensors[program->outputs[0]];
    err = take_type(forward, output, why);
    if (!err)
        rb_buffer_add(&forward->out, rb_program_result(runner->program, program->outputs[0]),
                      (size_t)rb_tensor_elements(&forward->type) *
                          rb_dtype_size(forward->type.dtype));
    return err;
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

static int fixed_batch(const char *path, int64_t *ret_batch, struct rb_why *why)
{
    struct rb_onnx_info info = {0};
    struct rb_onnx *onnx = NULL;
    int err = rb_onnx_open(path, 0, &onnx, why);

    if (!err)
        err = rb_onnx_info(onnx, &info, why);
    *ret_batch = info.fixed_batch;
    rb_onnx_close(onnx);
    return err;
}

static int run_all(struct forward *forward, struct rb_why *why)
{
    int64_t samples = forward->info->samples, batch = 0, whole;
    int err = fixed_batch(forward->path, &batch, why);

    if (err)
        return err;
    if (batch > 0 && samples % batch)
        return rb_why_set(why, RB_EINVAL,
                          "the model was exported for batches of %" PRId64 " only, and %" PRId64
                          " samples are no multiple of that",
                          batch, samples);
    if (batch <= 0)
        batch = samples < BATCH ? samples : BATCH;
    whole = samples / batch * batch;
    err = run_batches(forward, 0, whole, batch, why);
    if (!err && samples > whole)
        err = run_batches(forward, whole, samples - whole, samples - whole, why);
    return err;
}

/* One array over all samples where the output's first axis is the batch. */
static int write_output(const struct rb_session *session, struct forward *forward,
                        const char *folder, struct rb_why *why)
{
    size_t element = rb_dtype_size(forward->type.dtype), row;
    RB_CLEANUP(rb_freep) char *path = NULL;
    int64_t tail = 1;
    int err = 0;

    for (int axis = 1; axis < forward->type.rank; axis++)
        tail *= forward->type.dim[axis];
    row = (size_t)tail * element;
    if (forward->type.rank > 0 && row)
        forward->type.dim[0] = (int64_t)(forward->out.size / row);
    else if (forward->out.size != element && forward->type.rank == 0)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the output has no batch axis, and the samples "
                          "took more than one batch");
    for (char *at = forward->name; *at; at++) {
        if (*at == '/' || (unsigned char)*at < 0x20)
            *at = '_';
    }
    path = rb_format("%s/%s.npy", folder, forward->name);
    err = rb_file_make_folder(folder, why);
    if (!err)
        err = rb_npy_write(path, &forward->type, forward->out.data, why);
    if (!err)
        fprintf(session->out, "%s\n", path);
    return err;
}

int rb_model_run(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *input = rb_arguments_value(arguments, "input");
    const char *folder = rb_arguments_value(arguments, "out");
    struct rb_source_options options = {.path = input, .format = "npy"};
    struct forward forward = {.path = arguments->word[0]};
    struct rb_why why = {0};
    int err;

    if (!input)
        return rb_session_usage(session, "--input says which .npy file");
    err = rb_source_open(&options, &forward.source, &why);
    if (!err) {
        forward.info = rb_source_info(forward.source);
        err = rb_device_open("cpu", 0, &forward.device, &why);
    }
    if (!err && forward.info->samples < 1)
        err = rb_why_set(&why, RB_EINVAL, "%s holds no samples", input);
    if (!err)
        err = run_all(&forward, &why);
    if (!err)
        err = write_output(session, &forward, folder ? folder : ".", &why);
    if (forward.device)
        rb_device_close(forward.device);
    if (forward.source)
        rb_source_close(forward.source);
    rb_buffer_done(&forward.out);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
