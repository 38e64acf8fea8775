/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/jobs.h"

#include "base/arena.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "proto/spec.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/rubato-compile-XXXXXX";

const char *jobs_folder(void)
{
    return folder;
}

void jobs_save(const char *name, const void *bytes, size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_why why = {0};

    if (rb_file_write(path, bytes, size, &why))
        fail_msg("%s", why.text);
}

static void save_model(const char *name, const char *kind, const char *const *settings, int n)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};

    if (rb_models_new(kind, settings, n, &onnx, &why))
        fail_msg("%s", why.text);
    jobs_save(name, onnx.data, onnx.size);
}

void jobs_save_npy(const char *name, const char *descr, const char *shape, const void *bytes,
                   size_t size)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};
    char header[119];

    memset(header, ' ', sizeof(header));
    snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
             descr, shape);
    header[strlen(header)] = ' ';
    header[117] = '\n';
    rb_buffer_add(&file, "\x93NUMPY\x01\x00\x76\x00", 10);
    rb_buffer_add(&file, header, 118);
    rb_buffer_add(&file, bytes, size);
    jobs_save(name, file.data, file.size);
}

static void save_numbers(const char *prefix, const char *shape, int samples, int width, int classes)
{
    RB_CLEANUP(rb_freep) float *x = rb_alloc(sizeof(*x) * (size_t)(samples * width));
    RB_CLEANUP(rb_freep) int64_t *y = rb_alloc(sizeof(*y) * (size_t)samples);
    RB_CLEANUP(rb_freep) char *features = rb_format("%s.npy", prefix);
    RB_CLEANUP(rb_freep) char *labels = rb_format("%s-labels.npy", prefix);
    RB_CLEANUP(rb_freep) char *count = rb_format("%d,", samples);

    for (int i = 0; i < samples * width; i++)
        x[i] = (float)(i % 17) / 17.0f;
    for (int i = 0; i < samples; i++)
        y[i] = i % classes;
    jobs_save_npy(features, "<f4", shape, x, sizeof(*x) * (size_t)(samples * width));
    jobs_save_npy(labels, "<i8", count, y, sizeof(*y) * (size_t)samples);
}

int jobs_open(void **state)
{
    static const char *const gpt[] = {"vocab=256", "layers=1", "width=16",
                                      "heads=2",   "seq=8",    "dropout=0.1"};
    static const char *const ascii[] = {"vocab=128", "layers=1", "width=16", "heads=2", "seq=8"};
    static const char *const longer[] = {"vocab=256", "layers=1", "width=16",
                                         "heads=2",   "seq=64",   "dropout=0.1"};
    static const char *const mlp[] = {"inputs=6", "hidden=8", "depth=2", "classes=3"};
    static const char *const cnn[] = {"image=8", "channels=1", "classes=3", "batchnorm=1",
                                      "dropout=0.25"};
    char text[1000];

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    save_model("gpt.onnx", "gpt", gpt, 6);
    save_model("longer.onnx", "gpt", longer, 6);
    save_model("ascii.onnx", "gpt", ascii, 5);
    save_model("mlp.onnx", "mlp", mlp, 4);
    save_model("cnn.onnx", "cnn", cnn, 5);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    jobs_save("text.txt", text, sizeof(text));
    save_numbers("rows", "50, 6", 50, 6, 3);
    save_numbers("wide", "50, 7", 50, 7, 5);
    save_numbers("held", "7, 6", 7, 6, 3);
    save_numbers("images", "50, 8, 8", 50, 64, 3);
    return 0;
}

int jobs_close(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

const char jobs_text[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: t}\n"
                         "spec:\n"
                         "  model: {onnx: gpt.onnx}\n"
                         "  data: {train: {path: text.txt, format: text}}\n"
                         "  train: {steps: 5, globalBatch: 30}\n";

const char jobs_rows[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: t}\n"
                         "spec:\n"
                         "  model: {onnx: mlp.onnx}\n"
                         "  data:\n"
                         "    train: {path: rows.npy, targets: rows-labels.npy}\n"
                         "    eval: {path: held.npy, targets: held-labels.npy}\n"
                         "  train: {epochs: 2, globalBatch: 10, microBatch: 4}\n";

int jobs_compile(const char *job, const char *class, struct rb_compiled *ret, struct rb_why *why,
                 ...)
{
    const char *overrides[8];
    Rb__JobFile *file = NULL;
    va_list list;
    int n = 0, err;

    va_start(list, why);
    while ((overrides[n] = va_arg(list, const char *)))
        n++;
    va_end(list);
    if (rb_spec_parse("job.yaml", folder, job, strlen(job), overrides, n, &file, why))
        fail_msg("%s", why->text);
    err = rb_compile(file->spec, class, ret, why);
    rb__job_file__free_unpacked(file, NULL);
    return err;
}
