/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/safetensors_inside.h"

#include "base/arena.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_LIMIT = 100000000 };

struct entry {
    const char *name;
    struct rb_tensor_type type;
    uint64_t begin, end;
};

static int read_dtype(const json_t *json, enum rb_dtype *ret_dtype, struct rb_why *why)
{
    const char *text = json_string_value(json);

    if (!text)
        return rb_why_set(why, RB_EINVAL, "dtype is not a string");
    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        if (strcmp(kinds[i].name, text) == 0) {
            *ret_dtype = kinds[i].dtype;
            return 0;
        }
    }
    return rb_why_set(why, RB_EUNSUPPORTED, "elements of type '%.16s' are not supported", text);
}

/* Shape and size agree, without a product that overflows. */
static int read_shape(const json_t *json, struct entry *entry, struct rb_why *why)
{
    uint64_t bytes = rb_dtype_size(entry->type.dtype);
    bool empty = false;

    if (!json_is_array(json))
        return rb_why_set(why, RB_EINVAL, "shape is not an array");
    if (json_array_size(json) > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "more than %d axes", RB_MAX_RANK);
    entry->type.rank = (int)json_array_size(json);
    for (int axis = 0; axis < entry->type.rank; axis++) {
        const json_t *dim = json_array_get(json, (size_t)axis);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return rb_why_set(why, RB_EINVAL, "shape has an axis that is no count");
        entry->type.dim[axis] = json_integer_value(dim);
        empty |= entry->type.dim[axis] == 0;
    }
    for (int axis = 0; axis < entry->type.rank; axis++) {
        uint64_t dim = (uint64_t)entry->type.dim[axis];

        if (__builtin_mul_overflow(bytes, dim ? dim : 1, &bytes) || bytes > INT64_MAX)
            return rb_why_set(why, RB_EINVAL, "shape is larger than any file");
    }
    if ((empty ? 0 : bytes) != entry->end - entry->begin)
        return rb_why_set(why, RB_EINVAL, "shape and data_offsets do not agree");
    return 0;
}

static int read_entry(const json_t *json, uint64_t data_size, struct entry *entry,
                      struct rb_why *why)
{
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    int err;

    if (!json_is_object(json) || json_object_size(json) != 3)
        return rb_why_set(why, RB_EINVAL, "expected dtype, shape and data_offsets");
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_size)
        return rb_why_set(why, RB_EINVAL, "data_offsets do not lie in the file");
    entry->begin = (uint64_t)json_integer_value(begin);
    entry->end = (uint64_t)json_integer_value(end);
    err = read_dtype(json_object_get(json, "dtype"), &entry->type.dtype, why);
    if (err)
        return err;
    return read_shape(json_object_get(json, "shape"), entry, why);
}

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int check_metadata(const json_t *json, struct rb_why *why)
{
    const char *key;
    const json_t *value;

    if (!json_is_object(json))
        return rb_why_set(why, RB_EINVAL, "__metadata__ is not an object");
    json_object_foreach((json_t *)json, key, value)
    {
        if (!json_is_string(value))
            return rb_why_set(why, RB_EINVAL, "__metadata__ holds more than strings");
    }
    return 0;
}

/* All tensors, in the order of their data, covering it with no hole and no overlap. */
static int read_entries(const json_t *root, uint64_t data_size, struct entry *entries, size_t *n,
                        struct rb_why *why)
{
    const char *key;
    const json_t *value;
    uint64_t at = 0;
    int err;

    json_object_foreach((json_t *)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            err = check_metadata(value, why);
            if (err)
                return err;
            continue;
        }
        entries[*n].name = key;
        err = read_entry(value, data_size, &entries[(*n)++], why);
        if (err)
            return rb_why_add(why, err, "tensor '%.100s'", key);
    }
    if (*n)
        qsort(entries, *n, sizeof *entries, compare_entries);
    for (size_t i = 0; i < *n; at = entries[i++].end) {
        if (entries[i].begin != at)
            return rb_why_set(why, RB_EINVAL, "tensor '%.100s': data %s", entries[i].name,
                              entries[i].begin < at ? "overlap" : "leave a hole");
    }
    if (at != data_size)
        return rb_why_set(why, RB_EINVAL,
                          "the tensors end at byte %" PRIu64 " of %" PRIu64 ": cut off or damaged",
                          at, data_size);
    return 0;
}

static void hand_out(const struct entry *entries, size_t n, const uint8_t *data,
                     struct rb_safetensor **ret_tensors)
{
    size_t names = 0;
    struct rb_safetensor *tensors;
    char *name;

    for (size_t i = 0; i < n; i++)
        names += strlen(entries[i].name) + 1;
    tensors = rb_alloc(n * sizeof *tensors + names + 1);
    name = (char *)(tensors + n);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(entries[i].name) + 1;

        memcpy(name, entries[i].name, length);
        tensors[i] = (struct rb_safetensor){name, entries[i].type, data + entries[i].begin};
        name += length;
    }
    *ret_tensors = tensors;
}

/* The header of a file as JSON, and where the data begin. */
static int open_header(const uint8_t *file, size_t size, json_t **ret_root, size_t *ret_data,
                       struct rb_why *why)
{
    uint64_t header = 0;
    json_error_t error;

    if (size < 8)
        return rb_why_set(why, RB_EINVAL, "too short for a safetensors file");
    if (memcmp(file, "PK\3\4", 4) == 0)
        return rb_why_set(why, RB_EINVAL,
                          "a zip file, as torch.save writes: save the state_dict with "
                          "safetensors.torch.save_file");
    for (int i = 8; i-- > 0;)
        header = header << 8 | file[i];
    if (header > HEADER_LIMIT || header > size - 8)
        return rb_why_set(why, RB_EINVAL,
                          "not a safetensors file, or cut off: a header of %" PRIu64 " bytes",
                          header);
    if (header == 0 || file[8] != '{')
        return rb_why_set(why, RB_EINVAL, "not a safetensors file: the header is no JSON object");
    *ret_root = json_loadb((const char *)file + 8, (size_t)header, JSON_REJECT_DUPLICATES, &error);
    if (!*ret_root)
        return rb_why_set(why, RB_EINVAL, "the safetensors header is not JSON: %s", error.text);
    *ret_data = 8 + (size_t)header;
    return 0;
}

int rb_safetensors_read(const void *bytes, size_t size, struct rb_safetensor **ret_tensors,
                        int *ret_n, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) struct entry *entries = NULL;
    size_t data = 0, n = 0;
    json_t *root = NULL;
    int err = open_header(bytes, size, &root, &data, why);

    if (err)
        return err;
    entries = rb_alloc((json_object_size(root) + 1) * sizeof *entries);
    err = read_entries(root, size - data, entries, &n, why);
    if (!err) {
        hand_out(entries, n, (const uint8_t *)bytes + data, ret_tensors);
        *ret_n = (int)n;
    }
    json_decref(root);
    return err;
}

/* ---- Notes ---- */

static int compare_notes(const void *left, const void *right)
{
    const struct rb_safetensor_note *a = left, *b = right;

    return strcmp(a->key, b->key);
}

static const char *keep_text(char **at, const char *text)
{
    size_t length = strlen(text) + 1;
    char *kept = memcpy(*at, text, length);

    *at += length;
    return kept;
}

static int take_notes(const json_t *json, struct rb_safetensor_note **ret_notes)
{
    size_t room = json_object_size(json) * sizeof **ret_notes + 1;
    struct rb_safetensor_note *notes;
    const json_t *value;
    const char *key;
    char *texts;
    int n = 0;

    json_object_foreach((json_t *)json, key, value) room +=
        strlen(key) + strlen(json_string_value(value)) + 2;
    notes = rb_alloc(room);
    texts = (char *)(notes + json_object_size(json));
    json_object_foreach((json_t *)json, key, value)
    {
        notes[n].key = keep_text(&texts, key);
        notes[n++].text = keep_text(&texts, json_string_value(value));
    }
    if (n)
        qsort(notes, (size_t)n, sizeof *notes, compare_notes);
    *ret_notes = notes;
    return n;
}

int rb_safetensors_notes(const void *bytes, size_t size, struct rb_safetensor_note **ret_notes,
                         int *ret_n, struct rb_why *why)
{
    size_t data = 0;
    json_t *root = NULL;
    const json_t *json;
    int err = open_header(bytes, size, &root, &data, why);

    if (err)
        return err;
    json = json_object_get(root, "__metadata__");
    if (json)
        err = check_metadata(json, why);
    if (!err)
        *ret_n = take_notes(json, ret_notes);
    json_decref(root);
    return err;
}
