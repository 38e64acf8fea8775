/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/model_inputs.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Which file for which input ---- */

/* "int64[any, 7]" */
static char *declared_text(const struct rb_onnx *onnx, int i)
{
    struct rb_buffer text = {0};
    struct rb_tensor_type type;

    if (rb_onnx_input_declared(onnx, i, &type, NULL))
        return rb_string("no tensor that can be read from a file");
    rb_buffer_format(&text, "%s[", rb_dtype_text(type.dtype));
    for (int axis = 0; axis < type.rank; axis++) {
        rb_buffer_text(&text, axis ? ", " : "");
        if (type.dim[axis] < 0)
            rb_buffer_text(&text, "any");
        else
            rb_buffer_format(&text, "%" PRId64, type.dim[axis]);
    }
    rb_buffer_text(&text, "]");
    return rb_buffer_take(&text);
}

/* The input that "NAME=FILE" names, and where FILE begins; a plain FILE belongs to the only input.
 * -1: the model has no input of that name. */
static int find_input(const struct rb_onnx *onnx, const char *word, const char **ret_file)
{
    *ret_file = word;
    for (int i = 0; i < rb_onnx_inputs(onnx); i++) {
        const char *name = rb_onnx_input_name(onnx, i);
        size_t size = strlen(name);

        if (!strncmp(word, name, size) && word[size] == '=') {
            *ret_file = word + size + 1;
            return i;
        }
    }
    if (strchr(word, '=') && access(word, F_OK))
        return -1;
    return rb_onnx_inputs(onnx) == 1 ? 0 : -1;
}

static int no_input(const struct rb_onnx *onnx, const char *word, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer names = {0};

    for (int i = 0; i < rb_onnx_inputs(onnx); i++) {
        RB_CLEANUP(rb_freep) char *type = declared_text(onnx, i);

        rb_buffer_format(&names, "%s'%s' (%s)", i ? ", " : "", rb_onnx_input_name(onnx, i), type);
    }
    return rb_why_set(why, RB_EINVAL,
                      "--input %s: the model has the input%s %s; say --input NAME=FILE%s", word,
                      rb_onnx_inputs(onnx) == 1 ? "" : "s", names.data ? names.data : "(none)",
                      rb_onnx_inputs(onnx) == 1 ? "" : " for each");
}

static int open_file(struct rb_model_inputs *inputs, int i, const char *file, struct rb_why *why)
{
    const struct rb_source_options options = {
        .path = &file,
        .n_path = 1,
        .format = "npy",
        .floats = rb_onnx_declared_input(inputs->onnx, i) == RB_F32,
    };
    const struct rb_source_info *info;
    int err;

    if (inputs->source[i])
        return rb_why_set(why, RB_EINVAL, "two files for the model's input '%s'",
                          rb_onnx_input_name(inputs->onnx, i));
    err = rb_source_open(&options, &inputs->source[i], why);
    if (err)
        return err;
    info = rb_source_info(inputs->source[i]);
    inputs->sample[i] = info->features;
    if (info->samples < 1)
        return rb_why_set(why, RB_EINVAL, "%s holds no samples", file);
    if (inputs->samples && info->samples != inputs->samples)
        return rb_why_set(why, RB_EINVAL,
                          "%s holds %" PRId64 " samples, the file before it %" PRId64, file,
                          info->samples, inputs->samples);
    inputs->samples = info->samples;
    return 0;
}

static int check_all(const struct rb_model_inputs *inputs, struct rb_why *why)
{
    for (int i = 0; i < inputs->n; i++) {
        RB_CLEANUP(rb_freep) char *type = NULL;
        const char *name = rb_onnx_input_name(inputs->onnx, i);

        if (inputs->source[i])
            continue;
        type = declared_text(inputs->onnx, i);
        return rb_why_set(why, RB_EINVAL,
                          "the model's input '%s', %s, has no file: --input %s=FILE.npy", name,
                          type, name);
    }
    return 0;
}

int rb_model_inputs_open(const struct rb_onnx *onnx, const char *const *words, int n,
                         struct rb_model_inputs *ret_inputs, struct rb_why *why)
{
    struct rb_model_inputs inputs = {.onnx = onnx, .n = rb_onnx_inputs(onnx)};
    int err = 0;

    inputs.source = rb_alloc(sizeof(*inputs.source) * (size_t)(inputs.n + 1));
    inputs.sample = rb_alloc(sizeof(*inputs.sample) * (size_t)(inputs.n + 1));
    for (int i = 0; !err && i < n; i++) {
        const char *file;
        int input = find_input(onnx, words[i], &file);

        err = input < 0 ? no_input(onnx, words[i], why) : open_file(&inputs, input, file, why);
    }
    if (!err)
        err = check_all(&inputs, why);
    if (err)
        rb_model_inputs_done(&inputs);
    else
        *ret_inputs = inputs;
    return err;
}

void rb_model_inputs_done(struct rb_model_inputs *inputs)
{
    for (int i = 0; i < inputs->n; i++)
        rb_source_close(inputs->source[i]);
    free(inputs->source);
    free(inputs->sample);
    *inputs = (struct rb_model_inputs){0};
}

/* ---- Batches ---- */

/* Files have only float32 and int64; other types of inputs are converted from them. */
static bool converts(enum rb_dtype from, enum rb_dtype to)
{
    return from == to || to == RB_BOOL || (from == RB_I64 && (to == RB_I32 || to == RB_U8));
}

static int convert(enum rb_dtype from, const void *sample, int64_t n, enum rb_dtype to, void *ret,
                   struct rb_why *why)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t whole = from == RB_I64 ? ((const int64_t *)sample)[i] : 0;

        if (to == RB_BOOL)
            ((uint8_t *)ret)[i] = from == RB_I64 ? whole != 0 : ((const float *)sample)[i] != 0;
        else if (to == RB_U8 ? whole < 0 || whole > UINT8_MAX
                             : whole < INT32_MIN || whole > INT32_MAX)
            return rb_why_set(why, RB_EINVAL, "%" PRId64 " is no %s", whole, rb_dtype_text(to));
        else if (to == RB_U8)
            ((uint8_t *)ret)[i] = (uint8_t)whole;
        else
            ((int32_t *)ret)[i] = (int32_t)whole;
    }
    return 0;
}

/* Checks the samples against the program's input: the type of the elements, and their number. */
static int check_input(const struct rb_model_inputs *inputs, int i, const Rb__Program *program,
                       const Rb__Tensor *tensor, struct rb_why *why)
{
    const struct rb_tensor_type *sample = &inputs->sample[i];
    uint64_t need = 1, have = (uint64_t)rb_tensor_elements(sample) * program->batch;

    for (size_t k = 0; k < tensor->n_dims; k++)
        need *= (uint64_t)tensor->dims[k];
    if (converts(sample->dtype, (enum rb_dtype)tensor->dtype) && need == have)
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "the model's input '%s' takes %" PRIu64 " %s for %u samples, the file has "
                      "%" PRIu64 " %s",
                      rb_onnx_input_name(inputs->onnx, i), need,
                      rb_dtype_text((enum rb_dtype)tensor->dtype), program->batch, have,
                      rb_dtype_text(sample->dtype));
}

static int read_input(const struct rb_model_inputs *inputs, int i, int64_t first, int64_t n,
                      enum rb_dtype dtype, char *to, struct rb_why *why)
{
    const struct rb_tensor_type *sample = &inputs->sample[i];
    size_t elements = (size_t)rb_tensor_elements(sample);
    RB_CLEANUP(rb_freep)
    char *own = dtype == sample->dtype ? NULL : rb_alloc(elements * rb_dtype_size(sample->dtype));
    int err = 0;

    for (int64_t at = 0; !err && at < n; at++, to += elements * rb_dtype_size(dtype)) {
        rb_source_read(inputs->source[i], first + at, own ? own : to, NULL);
        if (own)
            err = convert(sample->dtype, own, (int64_t)elements, dtype, to, why);
    }
    return err ? rb_why_add(why, err, "the model's input '%s'", rb_onnx_input_name(inputs->onnx, i))
               : 0;
}

/* Slot 0 is the model's first input; the others are found by name. */
static int input_of_slot(const struct rb_model_inputs *inputs, const Rb__Program *program,
                         uint64_t slot)
{
    for (int i = 1; slot && i < inputs->n; i++)
        if (!strcmp(rb_onnx_input_name(inputs->onnx, i), program->inputs[slot]))
            return i;
    return 0;
}

int rb_model_inputs_read(const struct rb_model_inputs *inputs, const Rb__Program *program,
                         int64_t first, struct rb_program *ready, struct rb_why *why)
{
    for (size_t t = 0; t < program->n_tensors; t++) {
        const Rb__Tensor *tensor = program->tensors[t];
        int i, err;

        if (tensor->space != RB__TENSOR__SPACE__INPUT)
            continue;
        i = input_of_slot(inputs, program, tensor->offset);
        err = check_input(inputs, i, program, tensor, why);
        if (!err)
            err = read_input(inputs, i, first, program->batch, (enum rb_dtype)tensor->dtype,
                             rb_program_input(ready, (int)tensor->offset), why);
        if (err)
            return err;
    }
    return 0;
}
