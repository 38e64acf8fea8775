/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/pretrained.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "proto/digested.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    INDEX_LIMIT = 64 << 20, /* bytes */
    MOST_FILES = 1024,
    MOST_ENTRIES = 1 << 20, /* tensors and notes of all files together: links to one are cheap */
};

struct rb_pretrained_file {
    char *name; /* in the index; NULL: there is none */
    struct rb_map map;
    struct rb_safetensor *tensors;
    int n;
    struct rb_safetensor_note *notes;
    int n_notes;
};

/* ---- Files ---- */

static int open_file(struct rb_pretrained *pretrained, const char *path, const char *name,
                     struct rb_why *why)
{
    struct rb_pretrained_file *file;
    int err;

    pretrained->files =
        rb_realloc(pretrained->files, sizeof(*file) * (size_t)(pretrained->n_files + 1));
    file = &pretrained->files[pretrained->n_files++];
    *file = (struct rb_pretrained_file){.name = name ? rb_string(name) : NULL};
    err = rb_map_open(path, &file->map, why);
    if (err)
        return err;
    err = rb_safetensors_read(file->map.data, file->map.size, &file->tensors, &file->n, why);
    if (!err)
        err =
            rb_safetensors_notes(file->map.data, file->map.size, &file->notes, &file->n_notes, why);
    return err && name ? rb_why_add(why, err, "%.100s", name) : err;
}

/* As with external data of a model: an index must not be able to name a file that its sender could
 * not.  (Links are followed: downloads are kept as links to files by digest.) */
static int check_name(const char *name, struct rb_why *why)
{
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return rb_why_set(why, RB_EINVAL, "it names a file with control characters");
    if (!name[0] || strchr(name, '/') || !strcmp(name, "..") || !strcmp(name, "."))
        return rb_why_set(why, RB_EINVAL,
                          "it names '%.100s': only files right beside the index are read", name);
    return 0;
}

/* ---- The index ---- */

static struct rb_pretrained_file *file_named(const struct rb_pretrained *pretrained,
                                             const char *name)
{
    for (int i = pretrained->n_files; i-- > 0;) /* neighbours are mostly in the same one */
        if (!strcmp(pretrained->files[i].name, name))
            return &pretrained->files[i];
    return NULL;
}

static int open_listed(struct rb_pretrained *pretrained, const char *folder, const json_t *map,
                       struct rb_why *why)
{
    const json_t *value;
    const char *tensor;
    int64_t entries = 0;

    json_object_foreach((json_t *)map, tensor, value)
    {
        RB_CLEANUP(rb_freep) char *path = NULL;
        const char *name = json_string_value(value);
        int err;

        if (!name)
            return rb_why_set(why, RB_EINVAL, "weight_map holds more than names of files");
        if (file_named(pretrained, name))
            continue;
        err = check_name(name, why);
        if (!err && pretrained->n_files == MOST_FILES)
            err = rb_why_set(why, RB_ELIMIT, "it names more than %d files", MOST_FILES);
        path = rb_format("%s%s", folder, name);
        if (!err)
            err = open_file(pretrained, path, name, why);
        if (err)
            return err;
        entries += pretrained->files[pretrained->n_files - 1].n +
                   pretrained->files[pretrained->n_files - 1].n_notes;
        if (entries > MOST_ENTRIES)
            return rb_why_set(why, RB_ELIMIT, "its files hold more than %d tensors", MOST_ENTRIES);
    }
    return 0;
}

/* Tensors that the index does not list in that file do not count; tensors that it lists must be
 * there. */
static int keep_listed(struct rb_pretrained *pretrained, const json_t *map, struct rb_why *why)
{
    size_t found = 0;

    for (int i = 0; i < pretrained->n_files; i++) {
        struct rb_pretrained_file *file = &pretrained->files[i];
        int kept = 0;

        for (int j = 0; j < file->n; j++) {
            const char *where = json_string_value(json_object_get(map, file->tensors[j].name));

            if (where && !strcmp(where, file->name))
                file->tensors[kept++] = file->tensors[j];
        }
        file->n = kept;
        found += (size_t)kept;
    }
    if (found != json_object_size(map))
        return rb_why_set(why, RB_EINVAL, "%zu of its %zu tensors are not in the files it names",
                          json_object_size(map) - found, json_object_size(map));
    return 0;
}

static int open_index(struct rb_pretrained *pretrained, const char *path, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    RB_CLEANUP(rb_freep) char *folder = rb_string(path);
    char *slash = strrchr(folder, '/');
    json_error_t error;
    json_t *root, *map;
    int err = rb_file_read(path, INDEX_LIMIT, &text, why);

    if (err)
        return err;
    folder[slash ? slash + 1 - folder : 0] = '\0';
    root = json_loadb(text.data ? text.data : "", text.size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return rb_why_set(why, RB_EINVAL, "the index is not JSON: %s", error.text);
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        err = rb_why_set(why, RB_EINVAL, "the index has no weight_map");
    if (!err)
        err = open_listed(pretrained, folder, map, why);
    if (!err)
        err = keep_listed(pretrained, map, why);
    json_decref(root);
    return err;
}

/* A checkpoint says what its files are, and without this check a damaged file would be trained on.
 * Where the manifest is damaged the weights may be whole. */
static int check_checkpoint(const char *path, struct rb_why *why)
{
    json_t *manifest = NULL;
    int err;

    if (rb_digested_open(path, &manifest, NULL))
        return 0;
    err = rb_digested_file(path, "model.safetensors", manifest, NULL);
    json_decref(manifest);
    return err ? rb_why_set(
                     why, err,
                     "the checkpoint is damaged: its model.safetensors is not what state.json "
                     "lists; name another, or the file itself to take it as it is")
               : 0;
}

static int open_folder(struct rb_pretrained *pretrained, const char *path, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *one = rb_format("%s/model.safetensors", path);
    RB_CLEANUP(rb_freep) char *index = rb_format("%s/model.safetensors.index.json", path);
    struct stat status;
    int err;

    if (!stat(one, &status)) {
        err = check_checkpoint(path, why);
        return err ? err : open_file(pretrained, one, NULL, why);
    }
    if (!stat(index, &status))
        return open_index(pretrained, index, why);
    return rb_why_set(why, RB_ENOTFOUND,
                      "the folder has neither model.safetensors nor model.safetensors.index.json");
}

/* ---- All of them ---- */

static int by_name(const void *left, const void *right)
{
    const struct rb_safetensor *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

/* By key, and notes of one key by text; a key without a text finds its notes. */
static int by_key(const void *left, const void *right)
{
    const struct rb_safetensor_note *const *a = left, *const *b = right;
    int order = strcmp((*a)->key, (*b)->key);

    return order || !(*a)->text || !(*b)->text ? order : strcmp((*a)->text, (*b)->text);
}

/* Files of an index mostly have the same notes.  Where they differ, one of them counts. */
static void drop_repeated(struct rb_pretrained *pretrained)
{
    int n = 0;

    for (int i = 0; i < pretrained->n_notes; i++)
        if (!n || strcmp(pretrained->notes[n - 1]->key, pretrained->notes[i]->key) != 0)
            pretrained->notes[n++] = pretrained->notes[i];
    pretrained->n_notes = n;
}

static void list_all(struct rb_pretrained *pretrained)
{
    size_t tensors = 0, notes = 0;

    for (int i = 0; i < pretrained->n_files; i++) {
        tensors += (size_t)pretrained->files[i].n;
        notes += (size_t)pretrained->files[i].n_notes;
    }
    pretrained->tensors = rb_alloc(sizeof(*pretrained->tensors) * (tensors + 1));
    pretrained->notes = rb_alloc(sizeof(*pretrained->notes) * (notes + 1));
    for (int i = 0; i < pretrained->n_files; i++) {
        const struct rb_pretrained_file *file = &pretrained->files[i];

        for (int j = 0; j < file->n; j++)
            pretrained->tensors[pretrained->n++] = &file->tensors[j];
        for (int j = 0; j < file->n_notes; j++)
            pretrained->notes[pretrained->n_notes++] = &file->notes[j];
    }
    qsort(pretrained->tensors, tensors, sizeof(*pretrained->tensors), by_name);
    qsort(pretrained->notes, notes, sizeof(*pretrained->notes), by_key);
    drop_repeated(pretrained);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && !strcmp(text + length - tail, end);
}

int rb_pretrained_open(const char *path, struct rb_pretrained *ret, struct rb_why *why)
{
    struct rb_pretrained pretrained = {0};
    struct stat status;
    int err;

    if (!stat(path, &status) && S_ISDIR(status.st_mode))
        err = open_folder(&pretrained, path, why);
    else if (ends_with(path, ".json"))
        err = open_index(&pretrained, path, why);
    else
        err = open_file(&pretrained, path, NULL, why);
    if (err) {
        rb_pretrained_close(&pretrained);
        return err;
    }
    list_all(&pretrained);
    *ret = pretrained;
    return 0;
}

void rb_pretrained_close(struct rb_pretrained *pretrained)
{
    for (int i = 0; i < pretrained->n_files; i++) {
        free(pretrained->files[i].name);
        free(pretrained->files[i].tensors);
        free(pretrained->files[i].notes);
        rb_map_close(&pretrained->files[i].map);
    }
    free(pretrained->files);
    free(pretrained->tensors);
    free(pretrained->notes);
    *pretrained = (struct rb_pretrained){0};
}

int rb_pretrained_find(const struct rb_pretrained *pretrained, const char *name)
{
    const struct rb_safetensor wanted = {.name = name}, *key = &wanted, **found;

    if (!pretrained->n)
        return -1;
    found = bsearch(&key, pretrained->tensors, (size_t)pretrained->n, sizeof(*pretrained->tensors),
                    by_name);
    return found ? (int)(found - pretrained->tensors) : -1;
}

int rb_pretrained_kept(const struct rb_pretrained *pretrained, const char *name)
{
    const struct rb_safetensor_note wanted = {.key = name}, *key = &wanted, **found;

    if (!pretrained->n_notes || rb_pretrained_find(pretrained, name) >= 0)
        return -1;
    found = bsearch(&key, pretrained->notes, (size_t)pretrained->n_notes,
                    sizeof(*pretrained->notes), by_key);
    return found ? rb_pretrained_find(pretrained, (*found)->text) : -1;
}
