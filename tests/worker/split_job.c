/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/split_job.h"

#include "tests/worker/split_nets.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const struct split_kind split_kinds[SPLIT_KINDS] = {
    {"mlp", {"inputs=48", "hidden=40", "depth=3", "classes=4"}, 4, 48, "48"},
    {"cnn", {"image=8", "channels=3", "classes=4", "batchnorm=1"}, 4, 192, "3, 8, 8"},
    {.name = "residual", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_residual},
    {.name = "gated", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_gated},
    {.name = "branches", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_branches},
    {.name = "pooled", .inputs = 192, .shape = "3, 8, 8", .write = split_nets_pooled},
};

const enum rb_filters_aim split_aims[SPLIT_AIMS] = {RB_FILTERS_WORDS, RB_FILTERS_LAYERS};

Rb__JobFile *split_job_read(const char *folder, int parts, enum rb_filters_aim aim)
{
    RB_CLEANUP(rb_freep)
    char *text =
        rb_format("apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
                  "spec:\n  model: {onnx: model.onnx}\n"
                  "  data: {train: {path: features.npy, targets: targets.npy}}\n"
                  "  train: {globalBatch: %d, microBatch: 4, steps: 1, optimizer: {type: sgd}}\n"
                  "  parallel: {hypergraph: %d, cut: %s}\n",
                  SPLIT_SAMPLES, parts, aim == RB_FILTERS_WORDS ? "words" : "layers");
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;

    if (rb_spec_parse("job.yaml", folder, text, strlen(text), NULL, 0, &job, &why))
        fail_msg("%s", why.text);
    return job;
}

void split_job_write(const struct split_kind *kind, struct split_job *made)
{
    RB_CLEANUP(rb_freep) char *onnx_path = NULL;
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};

    strcpy(made->folder, "/tmp/rubato-split-XXXXXX");
    assert_non_null(mkdtemp(made->folder));
    onnx_path = rb_format("%s/model.onnx", made->folder);
    tiny_write_data(made->folder, "", 31, kind->inputs, kind->shape, 4, 1);
    if (kind->write)
        kind->write(&onnx);
    else if (rb_models_new(kind->name, kind->settings, kind->n_settings, &onnx, &why))
        fail_msg("%s", why.text);
    assert_int_equal(rb_file_write(onnx_path, onnx.data, onnx.size, NULL), 0);
    rb_buffer_done(&onnx);
}

void split_job_make(const struct split_kind *kind, enum rb_filters_aim aim, struct split_job *made)
{
    const char *class = rb_device_numeric_class("cpu");
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    Rb__JobFile *job;

    split_job_write(kind, made);
    made->aim = aim;
    job = split_job_read(made->folder, SPLIT_MOST, aim);
    if (rb_compile(job->spec, class, &compiled, &why) ||
        rb_split_make(job->spec, class, &compiled, &why))
        fail_msg("%s", why.text);
    tiny_write_message(made->folder, "model", &compiled.model->base);
    made->model = RB_TAKE(compiled.model);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
}

void split_job_done(struct split_job *made)
{
    RB_CLEANUP(rb_freep) char *command = rb_format("rm -r %s", made->folder);

    if (made->model)
        rb__model__free_unpacked(made->model, NULL);
    assert_int_equal(system(command), 0);
}
