/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/model_case.h"

#include "base/arena.h"
#include "ctl/forward.h"
#include "graph/onnx/onnx.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* relative_bfloat is the unit in the last place, the step between neighbours of bfloat16: files
 * round either way. */
static const double relative = 1e-3, relative_bfloat = 0x1p-7, absolute = 1e-7;

/* One data set while it is run. */
struct data_set {
    char *folder;
    const struct rb_onnx *onnx;
    struct rb_device *device;
    struct rb_arena arena;
    struct rb_onnx_sample *inputs;
    struct rb_forward forward;
    struct rb_why *why;
};

bool rb_model_case_is(const char *folder)
{
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/model.onnx", folder);
    RB_CLEANUP(rb_freep) char *data = rb_format("%s/test_data_set_0", folder);

    return access(model, R_OK) == 0 && access(data, R_OK) == 0;
}

/* Test data store bfloat16 as uint16 bits. */
static void set_type(struct rb_onnx_sample *sample, enum rb_dtype declared)
{
    if (declared == RB_BF16 && sample->type.dtype == RB_U16)
        sample->type.dtype = RB_BF16;
}

/* Refuses sequences, optional values and strings, which are no tensors of numbers. */
static int check_types(const struct data_set *set)
{
    for (int i = 0; i < rb_onnx_inputs(set->onnx); i++)
        if (!rb_dtype_size(rb_onnx_declared_input(set->onnx, i)))
            return rb_why_set(set->why, RB_EUNSUPPORTED, "input %d is no tensor of numbers", i);
    for (int i = 0; i < rb_onnx_outputs(set->onnx); i++)
        if (!rb_dtype_size(rb_onnx_declared_output(set->onnx, i)))
            return rb_why_set(set->why, RB_EUNSUPPORTED, "output %d is no tensor of numbers", i);
    return 0;
}

static int read_inputs(struct data_set *set)
{
    int n = rb_onnx_inputs(set->onnx), err = check_types(set);

    set->inputs = RB_ARENA_NEW(&set->arena, struct rb_onnx_sample, n + 1);
    for (int i = 0; !err && i < n; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/input_%d.pb", set->folder, i);

        err = rb_onnx_sample_read(path, &set->arena, &set->inputs[i], set->why);
        if (!err)
            set_type(&set->inputs[i], rb_onnx_declared_input(set->onnx, i));
    }
    return err;
}

/* Shapes and axes that come as inputs are given to the import only if it requires them, so that the
 * kernels compute as much as possible. */
static int compile(struct data_set *set)
{
    struct rb_import_options options = {.given = set->inputs};
    struct rb_why first = {0}, second = {0};
    int err = rb_compile_opened(set->onnx, &options, NULL, &set->forward.compiled, &first);

    if (err == RB_EUNSUPPORTED) {
        options.know_integers = true;
        err = rb_compile_opened(set->onnx, &options, NULL, &set->forward.compiled, &second);
    }
    return err ? rb_why_set(set->why, err, "%s", first.text) : 0;
}

static void fill_inputs(struct data_set *set)
{
    const Rb__Program *program = set->forward.compiled.model->programs[0];

    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];
        const struct rb_onnx_sample *from = &set->inputs[0]; /* slot 0: the features */

        if (tensor->space != RB__TENSOR__SPACE__INPUT)
            continue;
        for (int j = 1; tensor->offset && j < rb_onnx_inputs(set->onnx); j++)
            if (!strcmp(rb_onnx_input_name(set->onnx, j), program->inputs[tensor->offset]))
                from = &set->inputs[j];
        memcpy(rb_program_input(set->forward.program, (int)tensor->offset), from->data,
               (size_t)rb_tensor_elements(&from->type) * rb_dtype_size(from->type.dtype));
    }
}

static double real_at(const struct rb_onnx_sample *tensor, int64_t i)
{
    uint32_t bits;
    float x;

    switch (tensor->type.dtype) {
    case RB_F64:
        return ((const double *)tensor->data)[i];
    case RB_F32:
        return (double)((const float *)tensor->data)[i];
    case RB_F16:
        return (double)rb_dtype_half(((const uint16_t *)tensor->data)[i]);
    default: /* RB_BF16 */
        bits = (uint32_t)((const uint16_t *)tensor->data)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
}

static int compare(const struct data_set *set, int output, const struct rb_onnx_sample *got,
                   const struct rb_onnx_sample *want)
{
    int64_t n = rb_tensor_elements(&want->type);
    double tolerance = want->type.dtype == RB_BF16 ? relative_bfloat : relative;
    size_t width = rb_dtype_size(want->type.dtype);
    char text_got[RB_TENSOR_TEXT], text_want[RB_TENSOR_TEXT];

    if (!rb_tensor_same(&got->type, &want->type))
        return rb_why_set(set->why, RB_EINVAL, "output %d is %s and should be %s", output,
                          rb_tensor_text(&got->type, text_got),
                          rb_tensor_text(&want->type, text_want));
    for (int64_t i = 0; i < n; i++) {
        double a, b;

        if (!rb_dtype_is_real(want->type.dtype)) {
            if (memcmp((const char *)got->data + (size_t)i * width,
                       (const char *)want->data + (size_t)i * width, width))
                return rb_why_set(set->why, RB_EINVAL,
                                  "output %d differs at element %" PRId64 " of %" PRId64, output, i,
                                  n);
            continue;
        }
        a = real_at(got, i);
        b = real_at(want, i);
        if (a == b || (a != a && b != b) || fabs(a - b) <= absolute + tolerance * fabs(b))
            continue;
        return rb_why_set(set->why, RB_EINVAL,
                          "output %d at element %" PRId64 " of %" PRId64 " is %.9g and should be "
                          "%.9g",
                          output, i, n, a, b);
    }
    return 0;
}

static int check_outputs(struct data_set *set)
{
    const Rb__Program *program = set->forward.compiled.model->programs[0];
    int err = 0;

    for (size_t i = 0; !err && i < program->n_outputs; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/output_%zu.pb", set->folder, i);
        const Rb__Tensor *tensor = program->tensors[program->outputs[i]];
        struct rb_onnx_sample want,
            got = {
                .type = {.dtype = (enum rb_dtype)tensor->dtype, .rank = (int)tensor->n_dims},
                .data = rb_program_result(set->forward.program, program->outputs[i]),
            };

        for (int k = 0; k < got.type.rank; k++)
            got.type.dim[k] = tensor->dims[k];
        err = rb_onnx_sample_read(path, &set->arena, &want, set->why);
        if (!err)
            set_type(&want, rb_onnx_declared_output(set->onnx, (int)i));
        if (!err)
            err = compare(set, (int)i, &got, &want);
    }
    return err;
}

static int run_set(struct data_set *set)
{
    int err = read_inputs(set);

    if (!err)
        err = compile(set);
    if (!err)
        err = rb_forward_open(set->device, &set->forward, set->why);
    if (!err)
        fill_inputs(set);
    if (!err)
        err = rb_forward_run(set->device, &set->forward, set->why);
    if (!err)
        err = check_outputs(set);
    if (set->forward.compiled.model)
        rb_forward_done(set->device, &set->forward);
    rb_arena_done(&set->arena);
    return err;
}

int rb_model_case_run(const char *folder, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model.onnx", folder);
    struct rb_device *device = NULL;
    struct rb_onnx *onnx = NULL;
    int err = rb_onnx_open(path, 0, &onnx, why);

    if (!err)
        err = rb_device_open("cpu", 0, &device, why);
    for (int i = 0; !err; i++) {
        struct data_set set = {.onnx = onnx, .device = device, .why = why};

        set.folder = rb_format("%s/test_data_set_%d", folder, i);
        if (access(set.folder, R_OK) != 0) {
            rb_freep(&set.folder);
            break;
        }
        err = run_set(&set);
        rb_freep(&set.folder);
    }
    rb_device_close(device);
    rb_onnx_close(onnx);
    return err;
}
