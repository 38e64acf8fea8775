/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/job.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "coll/coll.h"
#include "graph/models/models.h"
#include "plan/compile/compile.h"
#include "plan/schedule.h"
#include "proto/spec.h"
#include "tests/bench/data.h"
#include "worker/checkpoint/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLASSES = 10, CLASS_SAMPLES = 2048, WORDS = 8192 };

void bench_check(int err, const struct rb_why *why)
{
    if (!err)
        return;
    fprintf(stderr, "bench: %s\n", why->text);
    exit(1);
}

uint64_t bench_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double bench_since(uint64_t start)
{
    return (double)(rb_clock_ns() - start) / 1e6;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, order);
    return n ? (values[n / 2] + values[(n - 1) / 2]) / 2 : 0;
}

void bench_cpu_print(void)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256], name[128] = "unknown";
    int family = 0, model = 0;
    double load[1] = {0};

    while (file && fgets(line, sizeof line, file) && line[0] != '\n') {
        sscanf(line, "model name : %127[^\n]", name);
        sscanf(line, "cpu family : %d", &family);
        sscanf(line, "model : %d", &model);
    }
    if (file)
        fclose(file);
    getloadavg(load, 1);
    printf("CPU: %s, family %d model %d; %s; load %.1f\n", name, family, model,
           rb_device_numeric_class("cpu"), load[0]);
}

/* ---- Making -----------------------------------------------------------------------------------*/

static void in_folder(const struct bench_job *job, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", job->folder, name);
}

static void write_bytes(const struct bench_job *job, const char *name, const void *bytes,
                        size_t size)
{
    struct rb_why why;
    char path[128];

    in_folder(job, name, path);
    bench_check(rb_file_write(path, bytes, size, &why), &why);
}

static void make_onnx(const struct bench_job *job, const struct bench_case *from)
{
    struct rb_buffer onnx = {0};
    struct rb_why why;
    int n = 0;

    if (!from->kind && !from->onnx) {
        fprintf(stderr, "bench: this model needs a file: %s=MODEL.onnx\n", from->name);
        exit(2);
    }
    while (n < BENCH_MAX_SETTINGS && from->settings[n])
        n++;
    bench_check(from->kind ? rb_models_new(from->kind, from->settings, n, &onnx, &why)
                           : rb_file_read(from->onnx, (size_t)1 << 30, &onnx, &why),
                &why);
    write_bytes(job, "model.onnx", onnx.data, onnx.size);
    rb_buffer_done(&onnx);
}

/* The `train` line of the job file's data. */
static const char *make_data(const struct bench_job *job, const struct bench_case *from)
{
    char path[128], labels[128];

    if (strcmp(from->data, "text") == 0) {
        in_folder(job, "train.txt", path);
        bench_data_text(path);
        return "path: train.txt, format: text, seqLen: ";
    }
    if (strcmp(from->data, "words") == 0) {
        in_folder(job, "train.bin", path);
        bench_data_words(path, WORDS);
        return "path: train.bin, format: tokens, seqLen: ";
    }
    in_folder(job, "train.npy", path);
    in_folder(job, "labels.npy", labels);
    bench_data_classes(path, labels, from->features, CLASS_SAMPLES, CLASSES);
    return "path: train.npy, targets: labels.npy, seqLen: ";
}

static void compile(struct bench_job *job, const struct bench_case *from, int64_t micro_batch,
                    const char *data)
{
    struct rb_buffer text = {0};
    struct rb_device_about about;
    struct rb_compiled compiled;
    struct rb_why why;
    Rb__JobFile *file;
    uint8_t *packed;
    size_t size;

    rb_buffer_format(&text,
                     "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: bench}\nspec:\n"
                     "  model: {onnx: model.onnx}\n  data: {train: {%s",
                     data);
    if (from->seq)
        rb_buffer_format(&text, "%lld}}\n", (long long)from->seq);
    else
        rb_buffer_text(&text, "auto}}\n");
    rb_buffer_format(&text,
                     "  train: {steps: %lld, globalBatch: %lld, microBatch: %lld,\n"
                     "    precision: %s, optimizer: {%s}}\n",
                     (long long)from->steps, (long long)from->batch, (long long)micro_batch,
                     from->precision ? from->precision : "fp32", from->optimizer);
    bench_check(rb_spec_parse("bench", job->folder, text.data, text.size, NULL, 0, &file, &why),
                &why);
    bench_check(rb_device_describe(job->device, 0, &about, &why), &why);
    bench_check(rb_compile(file->spec, about.numeric_class, &compiled, &why), &why);
    snprintf(job->summary, sizeof job->summary, "%s", compiled.summary);
    size = rb__model__get_packed_size(compiled.model);
    packed = rb_alloc(size);
    rb__model__pack(compiled.model, packed);
    write_bytes(job, "model", packed, size);
    write_bytes(job, "weights.safetensors", compiled.weights.data, compiled.weights.size);
    free(packed);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(file, NULL);
    rb_buffer_done(&text);
}

/* Made in a child, so that this process has the memory of a worker and no more. */
static void make_elsewhere(struct bench_job *job, const struct bench_case *from,
                           int64_t micro_batch)
{
    struct rb_buffer summary = {0};
    struct rb_why why;
    char path[128];
    int status;
    pid_t child;

    fflush(NULL); /* otherwise the child would write it once more */
    child = fork();
    if (!child) {
        make_onnx(job, from);
        compile(job, from, micro_batch, make_data(job, from));
        write_bytes(job, "summary", job->summary, strlen(job->summary));
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "bench: the job could not be made\n");
        exit(1);
    }
    in_folder(job, "summary", path);
    bench_check(rb_file_read(path, sizeof job->summary, &summary, &why), &why);
    snprintf(job->summary, sizeof job->summary, "%s", summary.data);
    rb_buffer_done(&summary);
}

/* Each worker's door is named by its rank. */
static void meet(struct bench_job *job, int rank, int size)
{
    struct rb_coll_member members[BENCH_MAX_WORKERS];
    char names[BENCH_MAX_WORKERS][16], texts[BENCH_MAX_WORKERS][128];
    const char *addresses[BENCH_MAX_WORKERS];
    struct rb_group group = {.job = "bench",
                             .configuration = 1,
                             .digest = "",
                             .rank = rank,
                             .size = size,
                             .members = members};
    struct rb_why why;
    char path[128];

    for (int r = 0; r < size; r++) {
        snprintf(names[r], sizeof names[r], "%d", r);
        snprintf(texts[r], sizeof texts[r], "unix:%s/peer%d", job->folder, r);
        addresses[r] = texts[r];
        members[r] = (struct rb_coll_member){names[r], &addresses[r], 1};
    }
    snprintf(path, sizeof path, "%s/peer%d", job->folder, rank);
    bench_check(rb_listener_open(path, NULL, &job->listener, &why), &why);
    job->configuration =
        (struct rb_configuration){.number = 1, .rank = (uint32_t)rank, .size = (uint32_t)size};
    bench_check(
        rb_schedule_data(job->model->message, (uint32_t)size, &job->configuration.plan, &why),
        &why);
    job->configuration.orders = job->configuration.plan->ranks[rank];
    bench_check(rb_coll_open(job->listener, &group, 20000, NULL, &job->configuration.coll, &why),
                &why);
}

void bench_job_reset(struct bench_job *job)
{
    struct rb_state *state = &job->model->state;
    struct rb_why why;
    char path[128];

    for (int part = RB_STATE_M; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            memset(rb_state_part(state, part), 0, state->elements * sizeof(float));
    memset(state->exponents, 0, state->variables * sizeof *state->exponents);
    in_folder(job, "weights.safetensors", path);
    bench_check(rb_restore(path, job->model->message, state, &why), &why);
}

void bench_job_make(const struct bench_case *from, int64_t micro_batch, struct bench_job *ret_job)
{
    struct bench_job job = {.folder = "/tmp/rubato-bench-XXXXXX",
                            .device = from->device ? from->device : "cpu"};

    if (!mkdtemp(job.folder)) {
        perror("bench: mkdtemp");
        exit(1);
    }
    make_elsewhere(&job, from, micro_batch);
    *ret_job = job;
}

void bench_job_load(struct bench_job *job, int rank, int size)
{
    struct rb_why why;
    char path[128];

    in_folder(job, "model", path);
    bench_check(rb_model_load(path, job->device, 0, &job->model, &why), &why);
    bench_check(rb_model_use(job->model, false, &why), &why);
    bench_job_reset(job);
    meet(job, rank, size);
}

void bench_job_unload(struct bench_job *job)
{
    rb_coll_close(job->configuration.coll);
    rb_listener_close(job->listener);
    rb__plan__free_unpacked(job->configuration.plan, NULL);
    rb_model_free(job->model);
}

void bench_job_remove(struct bench_job *job)
{
    rb_file_remove(job->folder, NULL);
}

void bench_job_open(const struct bench_case *from, int64_t micro_batch, struct bench_job *ret_job)
{
    bench_job_make(from, micro_batch, ret_job);
    bench_job_load(ret_job, 0, 1);
}

void bench_job_close(struct bench_job *job)
{
    bench_job_unload(job);
    bench_job_remove(job);
}

static void not_ready(struct rb_vote_ready *ret_ready, void *owner)
{
    (void)owner;
    *ret_ready = (struct rb_vote_ready){0};
}

static void no_matter(void *owner)
{
    (void)owner;
}

void bench_job_step(struct bench_job *job, struct rb_step_result *ret_result)
{
    static const atomic_bool never;
    struct rb_step step = {
        .model = job->model,
        .configuration = &job->configuration,
        .stop = &never,
        .ready = not_ready,
        .voted = no_matter,
        .changing = no_matter,
    };
    struct rb_why why;

    bench_check(rb_step_run(&step, ret_result, &why), &why);
}
