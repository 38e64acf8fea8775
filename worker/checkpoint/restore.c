/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/restore.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/safetensors.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_LIMIT = 64 << 20 };

static int by_name(const void *a, const void *b)
{
    const struct rb_safetensor *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* `have` (from a file) must be exactly `want` (of the model, data inside the state). */
static int take(struct rb_safetensor *want, int n_want, struct rb_safetensor *have, int n_have,
                struct rb_why *why)
{
    if (n_want)
        qsort(want, (size_t)n_want, sizeof *want, by_name);
    if (n_have)
        qsort(have, (size_t)n_have, sizeof *have, by_name);
    for (int i = 0; i < n_want || i < n_have; i++) {
        int order = i >= n_want ? 1 : i >= n_have ? -1 : strcmp(want[i].name, have[i].name);

        if (order < 0)
            return rb_why_set(why, RB_EINVAL, "tensor %s is missing", want[i].name);
        if (order > 0)
            return rb_why_set(why, RB_EINVAL, "tensor %s is not in the model", have[i].name);
        if (!rb_tensor_same(&want[i].type, &have[i].type))
            return rb_why_set(why, RB_EINVAL, "tensor %s has another shape or type than the model",
                              want[i].name);
    }
    for (int i = 0; i < n_want; i++)
        memcpy((void *)want[i].data, have[i].data,
               (size_t)rb_tensor_elements(&want[i].type) * rb_dtype_size(want[i].type.dtype));
    return 0;
}

/* The file is read, not mapped: data that the disk cannot return are then an error, after which an
 * older checkpoint is tried, and not the end of the process. */
static int check_digest(const char *path, const struct rb_manifest_file *listed, struct rb_why *why)
{
    char digest[33];
    uint64_t bytes;
    int err = rb_hash_file(path, digest, &bytes, why);

    if (!err && (bytes != listed->bytes || strcmp(digest, listed->digest) != 0))
        err = rb_why_set(why, RB_EINVAL, "%s: it is not the file that the manifest lists", path);
    return err;
}

/* listed: NULL for a file that no manifest lists. */
static int load_file(const char *path, const struct rb_manifest_file *listed,
                     enum rb_checkpoint_file file, const Rb__Model *model, struct rb_state *state,
                     struct rb_why *why)
{
    struct rb_safetensor *want = NULL, *have = NULL;
    int n_want = 0, n_have = 0, err;
    struct rb_map map;

    err = listed ? check_digest(path, listed, why) : 0;
    err = err ? err : rb_map_open(path, &map, why);
    if (err)
        return err;
    err = rb_safetensors_read(map.data, map.size, &have, &n_have, why);
    if (!err) {
        n_want = rb_checkpoint_tensors(model, state, file, &want);
        err = take(want, n_want, have, n_have, why);
    }
    rb_checkpoint_tensors_free(want, n_want);
    free(have);
    rb_map_close(&map);
    return err ? rb_why_add(why, err, "%s", path) : 0;
}

static int load_folder(const char *folder, const Rb__Model *model, struct rb_state *state,
                       struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *manifest = rb_format("%s/%s", folder, RB_CHECKPOINT_MANIFEST);
    struct rb_manifest_file files[2] = {
        {.name = RB_CHECKPOINT_MODEL},
        {.name = RB_CHECKPOINT_OPTIMIZER},
    };
    int n = state->m ? 2 : 1;
    struct rb_buffer text = {0};
    int err = rb_file_read(manifest, MANIFEST_LIMIT, &text, why);

    if (!err) {
        err = rb_manifest_read(text.data, text.size, model, state, files, n, why);
        if (err)
            rb_why_add(why, err, "%s", manifest);
    }
    rb_buffer_done(&text);
    for (int i = 0; !err && i < n; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, files[i].name);

        err = load_file(path, &files[i], i ? RB_CHECKPOINT_MOMENTS : RB_CHECKPOINT_WEIGHTS, model,
                        state, why);
    }
    return err;
}

static void start_fresh(struct rb_state *state)
{
    state->level = state->applied = state->not_finite = 0;
    memset(state->exponents, 0, state->variables * sizeof *state->exponents);
    rb_state_clear_moments(state);
}

/* A checkpoint that is gone has made way for newer ones that were never reported: workers go on
 * writing them while rubatod or etcd is away.  Returns the newest of those; NULL: none. */
static char *find_newer(const char *path)
{
    const char *name = strrchr(path, '/');
    RB_CLEANUP(rb_freep) char *folder = rb_format("%.*s", name ? (int)(name - path) : 0, path);
    const int64_t step = name ? rb_checkpoint_step(name + 1) : -1;
    const int64_t latest = step < 0 ? -1 : rb_checkpoint_latest(folder);
    RB_CLEANUP(rb_freep) char *newer = rb_checkpoint_name(latest);

    return latest > step ? rb_format("%s/%s", folder, newer) : NULL;
}

static bool is_folder(const char *path)
{
    struct stat status;

    return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int rb_restore(const char *path, const Rb__Model *model, struct rb_state *state, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *newer = access(path, F_OK) ? find_newer(path) : NULL;
    int err;

    if (is_folder(path)) {
        err = load_folder(path, model, state, why);
    } else if (is_folder(newer)) {
        err = load_folder(newer, model, state, why);
    } else {
        start_fresh(state);
        err = load_file(path, NULL, RB_CHECKPOINT_WEIGHTS, model, state, why);
    }
    if (err) {
        state->level = -1;
    } else {
        rb_state_hold_all(state);
        rb_state_push(state, 0, state->elements);
        rb_device_push(state->device, state->fixed, state->fixed_bytes);
    }
    return err ? rb_why_add(why, err, "cannot load the state to start from") : 0;
}
