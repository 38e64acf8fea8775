/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/spec.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "proto/reflect.h"
#include "proto/reflect_field.h"
#include "proto/spec_paths.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_LIMIT = 1 << 20 };

/* ---- Overrides ---- */

static int apply_overrides(Rb__JobFile *job, const char *const *overrides, int n,
                           struct rb_why *why)
{
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(overrides[i], '=');
        RB_CLEANUP(rb_freep) char *path = NULL;
        int err;

        if (!equals)
            return rb_why_set(why, RB_EINVAL, "--set %.100s: expected key=value", overrides[i]);
        path = rb_format("%.*s", (int)(equals - overrides[i]), overrides[i]);
        err = rb_reflect_set(&job->base, path, equals + 1, why);
        if (err)
            return rb_why_add(why, err, "--set %.100s", overrides[i]);
    }
    return 0;
}

/* The newest override that touches `path`, or NULL: then the override is to blame, not the file. */
static const char *overridden(const char *path, const char *const *overrides, int n)
{
    for (int i = n; i-- > 0;) {
        size_t size = strcspn(overrides[i], "=");

        if (strncmp(overrides[i], path, size) == 0 && (path[size] == '.' || path[size] == '\0'))
            return overrides[i];
    }
    return NULL;
}

/* ---- Completing ---- */

/* A missing source is missing on purpose; every other part has defaults. */
static bool made_from_defaults(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE && field->label == PROTOBUF_C_LABEL_OPTIONAL &&
           field->descriptor != &rb__source_spec__descriptor;
}

/* Write the schema's defaults into every field without a value. */
static void complete(ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        void *slot;

        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            continue;
        if (rb_field_present(message, field)) {
            if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                complete(*(ProtobufCMessage *const *)rb_field_at(message, field, 0));
        } else if (made_from_defaults(field)) {
            slot = rb_field_slot(message, field);
            *(ProtobufCMessage **)slot = rb_field_new(field->descriptor);
            complete(*(ProtobufCMessage **)slot);
        } else if (field->default_value) {
            slot = rb_field_slot(message, field);
            if (field->type == PROTOBUF_C_TYPE_STRING)
                *(char **)slot = rb_string(field->default_value);
        }
    }
}

static void complete_optimizer(Rb__OptimizerSpec *optimizer)
{
    if (optimizer->n_betas == 0) {
        optimizer->betas = rb_alloc(2 * sizeof *optimizer->betas);
        optimizer->betas[0] = 0.9;
        optimizer->betas[1] = 0.999;
        optimizer->n_betas = 2;
    }
    if (!optimizer->has_weight_decay) {
        optimizer->has_weight_decay = 1;
        optimizer->weight_decay = strcmp(optimizer->type, "sgd") == 0 ? 0 : 0.01;
    }
}

/* `buffers: auto` and no list at all are the same: buffers are found by themselves. */
static void complete_buffers(Rb__ModelSpec *model)
{
    if (model->n_buffers != 1 || strcmp(model->buffers[0], "auto") != 0)
        return;
    free(model->buffers[0]);
    free(model->buffers);
    model->buffers = NULL;
    model->n_buffers = 0;
}

static void complete_job(Rb__JobFile *job, const char *folder)
{
    complete(&job->base);
    complete_optimizer(job->spec->train->optimizer);
    complete_buffers(job->spec->model);
    rb_spec_paths_complete(job->spec, folder);
}

/* ---- Reading ---- */

static int check_head(const Rb__JobFile *job, struct rb_why *why)
{
    if (!job->api_version || strcmp(job->api_version, "rubato/v1") != 0)
        return rb_why_set(why, RB_EINVAL, "apiVersion: expected 'rubato/v1'%s%.40s",
                          job->api_version ? ", found " : "",
                          job->api_version ? job->api_version : "");
    if (!job->kind || strcmp(job->kind, "TrainJob") != 0)
        return rb_why_set(why, RB_EINVAL, "kind: expected 'TrainJob'%s%.40s",
                          job->kind ? ", found " : "", job->kind ? job->kind : "");
    if (!job->metadata || !job->metadata->name)
        return rb_why_set(why, RB_EINVAL, "metadata.name: a job needs a name");
    return 0;
}

/* Put the place where a key was written in front of a sentence that begins with that key. */
static int add_position(const char *file, const char *text, size_t size,
                        const char *const *overrides, int n, int err, struct rb_why *why)
{
    size_t line, column;
    const char *override;
    char path[128];

    if (!why)
        return err;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(why->text, ":"), why->text);
    override = overridden(path, overrides, n);
    if (override)
        return rb_why_add(why, err, "--set %.100s", override);
    if (rb_reflect_locate(text, size, path, &line, &column))
        return rb_why_add(why, err, "%s:%zu:%zu", file, line, column);
    return rb_why_add(why, err, "%s", file);
}

int rb_spec_parse(const char *file, const char *folder, const char *text, size_t size,
                  const char *const *overrides, int n, Rb__JobFile **ret_job, struct rb_why *why)
{
    ProtobufCMessage *message = NULL;
    Rb__JobFile *job;
    int err = rb_reflect_from_yaml(file, text, size, &rb__job_file__descriptor, &message, why);

    if (err)
        return err;
    job = (Rb__JobFile *)message;
    err = apply_overrides(job, overrides, n, why);
    if (!err) {
        err = check_head(job, why);
        if (!err) {
            complete_job(job, folder);
            err = rb_spec_check(job->metadata->name, job->spec, why);
        }
        if (err)
            add_position(file, text, size, overrides, n, err, why);
    }
    if (err) {
        rb__job_file__free_unpacked(job, NULL);
        return err;
    }
    *ret_job = job;
    return 0;
}

/* The folder of a job file; if that is no regular file, but a pipe, the current folder. */
static char *folder_of(const char *path)
{
    struct stat status;
    char *folder, *slash;

    if (stat(path, &status) < 0 || !S_ISREG(status.st_mode))
        return realpath(".", NULL);
    folder = realpath(path, NULL);
    slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = '\0';
    return folder;
}

int rb_spec_read(const char *path, const char *const *overrides, int n, Rb__JobFile **ret_job,
                 struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    RB_CLEANUP(rb_freep) char *folder = NULL;
    bool is_stdin = strcmp(path, "-") == 0;
    int err = rb_file_read(is_stdin ? "/dev/stdin" : path, FILE_LIMIT, &text, why);

    if (err)
        return err;
    folder = folder_of(path);
    if (!folder)
        return rb_why_set(why, RB_EIO, "cannot find the folder of %s", path);
    return rb_spec_parse(is_stdin ? "stdin" : path, folder, text.data, text.size, overrides, n,
                         ret_job, why);
}

/* ---- Values made of a spec ---- */

int64_t rb_spec_steps(const Rb__Spec *spec, int64_t samples, int64_t tokens_a_sample)
{
    const Rb__TrainSpec *train = spec->train;
    double batch = (double)train->global_batch, steps = 0;

    if (train->has_steps)
        return train->steps;
    if (train->has_epochs)
        steps = ceil(train->epochs * (double)samples / batch);
    else if (train->has_tokens && tokens_a_sample > 0)
        return (train->tokens - 1) / tokens_a_sample / train->global_batch + 1;
    else
        return 0;
    if (!(steps < 0x1p53))
        return INT64_C(1) << 53;
    return steps < 1 ? 1 : (int64_t)steps;
}

struct unit {
    const char *name;
    double value;
};

/* A number with one of the units behind it. */
static int read_amount(const char *text, const struct unit *units, size_t n, double most,
                       double *ret_amount)
{
    size_t digits = strspn(text, "0123456789.");
    char *end;
    double x;

    if (digits == 0 || digits > 15)
        return RB_EINVAL;
    x = strtod(text, &end);
    if (end != text + digits)
        return RB_EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        x *= units[i].value;
        if (!(x < most))
            return RB_ELIMIT;
        *ret_amount = x;
        return 0;
    }
    return RB_EINVAL;
}

int rb_spec_duration_ms(const char *text, int64_t *ret_ms)
{
    static const struct unit units[] = {{"", 1e3},  {"s", 1e3},   {"ms", 1},
                                        {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
    const double most = 1e15;
    const char *at = text;
    double sum = 0, ms;

    do {
        size_t digits = strspn(at, "0123456789.");
        size_t size = digits + strcspn(at + digits, "0123456789.");
        char part[32];
        int err;

        if (size >= sizeof part || (at != text && size == digits))
            return RB_EINVAL;
        snprintf(part, sizeof part, "%.*s", (int)size, at);
        err = read_amount(part, units, RB_COUNT(units), most - sum, &ms);
        if (err)
            return err;
        sum += ms;
        at += size;
    } while (*at);
    *ret_ms = (int64_t)(sum + 0.5);
    return 0;
}

int rb_spec_bytes(const char *text, uint64_t *ret_bytes)
{
    static const struct unit units[] = {
        {"", 1},        {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},
        {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40},
    };
    double bytes;
    int err = read_amount(text, units, RB_COUNT(units), 0x1p60, &bytes);

    if (!err)
        *ret_bytes = (uint64_t)bytes;
    return err;
}
