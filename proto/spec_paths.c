/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/spec_paths.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* ---- Completing ---- */

static void make_absolute(char **path, const char *folder)
{
    const char *rest = *path;
    char *whole;

    if (!rest || rest[0] == '/' || rest[0] == '\0')
        return;
    while (strncmp(rest, "./", 2) == 0)
        rest += 2;
    whole = rb_format("%s/%s", strcmp(folder, "/") == 0 ? "" : folder, rest);
    free(*path);
    *path = whole;
}

/* The folder as a pattern that matches only itself: only what the user has written may have
 * wildcards. */
static char *escaped(const char *folder)
{
    char *pattern = rb_alloc(2 * strlen(folder) + 1), *to = pattern;

    for (const char *from = folder; *from; from++) {
        if (strchr("*?[\\", *from))
            *to++ = '\\';
        *to++ = *from;
    }
    *to = '\0';
    return pattern;
}

static void make_each_absolute(char **paths, size_t n, const char *folder)
{
    RB_CLEANUP(rb_freep) char *pattern = escaped(folder);

    for (size_t i = 0; i < n; i++)
        make_absolute(&paths[i], strpbrk(paths[i], "*?[") ? pattern : folder);
}

static void make_source_absolute(Rb__SourceSpec *source, const char *folder)
{
    if (!source)
        return;
    make_each_absolute(source->path, source->n_path, folder);
    make_each_absolute(source->targets, source->n_targets, folder);
    for (size_t i = 0; i < source->n_inputs; i++)
        make_each_absolute(source->inputs[i]->path, source->inputs[i]->n_path, folder);
}

void rb_spec_paths_complete(Rb__Spec *spec, const char *folder)
{
    make_absolute(&spec->model->onnx, folder);
    make_absolute(&spec->model->weights, folder);
    make_source_absolute(spec->data->train, folder);
    make_source_absolute(spec->data->eval, folder);
    make_absolute(&spec->checkpoint->path, folder);
}

/* ---- Checking ---- */

static int check_one(const char *key, const char *path, struct rb_why *why)
{
    if (!path || path[0] == '/' || path[0] == '\0')
        return 0;
    return rb_why_set(why, RB_EINVAL,
                      "%s: '%s' is relative, and here is no job file whose folder it could count "
                      "from: say where it is from / on",
                      key, path);
}

static int check_list(const char *key, char *const *paths, size_t n, struct rb_why *why)
{
    int err = 0;

    for (size_t i = 0; !err && i < n; i++)
        err = check_one(key, paths[i], why);
    return err;
}

static int check_source(const char *key, const Rb__SourceSpec *source, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s.path", key);
    RB_CLEANUP(rb_freep) char *targets = rb_format("%s.targets", key);
    RB_CLEANUP(rb_freep) char *inputs = rb_format("%s.inputs", key);
    int err = source ? check_list(path, source->path, source->n_path, why) : 0;

    if (!err && source)
        err = check_list(targets, source->targets, source->n_targets, why);
    for (size_t i = 0; !err && source && i < source->n_inputs; i++)
        err = check_list(inputs, source->inputs[i]->path, source->inputs[i]->n_path, why);
    return err;
}

int rb_spec_paths_check(const Rb__Spec *spec, struct rb_why *why)
{
    int err = check_one("spec.model.onnx", spec->model->onnx, why);

    if (!err)
        err = check_one("spec.model.weights", spec->model->weights, why);
    if (!err)
        err = check_source("spec.data.train", spec->data->train, why);
    if (!err)
        err = check_source("spec.data.eval", spec->data->eval, why);
    if (!err)
        err = check_one("spec.checkpoint.path", spec->checkpoint->path, why);
    return err;
}

/* ---- Meaning ---- */

const char *rb_spec_checkpoints(const Rb__Spec *spec)
{
    const char *path = spec && spec->checkpoint ? spec->checkpoint->path : NULL;

    return path && path[0] ? path : NULL;
}
