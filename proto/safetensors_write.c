/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/safetensors_inside.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t kind_of(enum rb_dtype dtype)
{
    size_t i = 0;

    while (i < RB_COUNT(kinds) && kinds[i].dtype != dtype)
        i++;
    return i;
}

static int compare(const void *left, const void *right)
{
    const struct rb_safetensor *a = left, *b = right;
    size_t x = kind_of(a->type.dtype), y = kind_of(b->type.dtype);

    return x != y ? (x < y ? -1 : 1) : strcmp(a->name, b->name);
}

static uint64_t tensor_bytes(const struct rb_safetensor *tensor)
{
    return (uint64_t)rb_tensor_elements(&tensor->type) * rb_dtype_size(tensor->type.dtype);
}

/* The escapes of the reference writer: short ones where JSON has them, the rest as \u00XX. */
static void put_string(struct rb_buffer *out, const char *text)
{
    static const char shorts[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                     {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

    rb_buffer_text(out, "\"");
    for (; *text; text++) {
        size_t i = 0;

        while (i < RB_COUNT(shorts) && shorts[i][0] != *text)
            i++;
        if (i < RB_COUNT(shorts))
            rb_buffer_format(out, "\\%c", shorts[i][1]);
        else if ((unsigned char)*text < 0x20)
            rb_buffer_format(out, "\\u%04x", (unsigned)*text);
        else
            rb_buffer_add(out, text, 1);
    }
    rb_buffer_text(out, "\"");
}

static void put_notes(const struct rb_safetensor_note *notes, int n, struct rb_buffer *out)
{
    rb_buffer_text(out, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        if (i)
            rb_buffer_text(out, ",");
        put_string(out, notes[i].key);
        rb_buffer_text(out, ":");
        put_string(out, notes[i].text);
    }
    rb_buffer_text(out, "}");
}

static void put_header(struct rb_safetensor *tensors, int n, const struct rb_safetensor_note *notes,
                       int n_notes, struct rb_buffer *out)
{
    size_t start = out->size;
    uint64_t offset = 0, size;

    if (n > 0)
        qsort(tensors, (size_t)n, sizeof *tensors, compare);
    rb_buffer_add(out, "\0\0\0\0\0\0\0\0", 8);
    rb_buffer_text(out, "{");
    if (n_notes)
        put_notes(notes, n_notes, out);
    for (int i = 0; i < n; i++) {
        const struct rb_tensor_type *type = &tensors[i].type;

        if (i || n_notes)
            rb_buffer_text(out, ",");
        put_string(out, tensors[i].name);
        rb_buffer_format(out, ":{\"dtype\":\"%s\",\"shape\":[", kinds[kind_of(type->dtype)].name);
        for (int axis = 0; axis < type->rank; axis++)
            rb_buffer_format(out, "%s%" PRId64, axis ? "," : "", type->dim[axis]);
        size = tensor_bytes(&tensors[i]);
        rb_buffer_format(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
                         offset + size);
        offset += size;
    }
    rb_buffer_text(out, "}");
    while ((out->size - start) % 8)
        rb_buffer_text(out, " ");
    size = out->size - start - 8;
    for (int i = 0; i < 8; i++)
        out->data[start + (size_t)i] = (char)(size >> (8 * i));
}

void rb_safetensors_header(struct rb_safetensor *tensors, int n, struct rb_buffer *out)
{
    put_header(tensors, n, NULL, 0, out);
}

static int put(int fd, const void *data, uint64_t size, struct rb_why *why)
{
    int number;

    if (rb_file_put(fd, data, (size_t)size) == 0)
        return 0;
    number = errno;
    return rb_why_set(why, rb_error_from_errno(number), "cannot write tensors: %s",
                      strerror(number));
}

int rb_safetensors_write(int fd, struct rb_safetensor *tensors, int n,
                         const struct rb_safetensor_note *notes, int n_notes, uint64_t *ret_bytes,
                         struct rb_why *why)
{
    struct rb_buffer header = {0};
    uint64_t bytes;
    int err;

    put_header(tensors, n, notes, n_notes, &header);
    bytes = header.size;
    err = put(fd, header.data, header.size, why);
    rb_buffer_done(&header);
    for (int i = 0; i < n && !err; i++) {
        err = put(fd, tensors[i].data, tensor_bytes(&tensors[i]), why);
        if (err)
            rb_why_add(why, err, "%s", tensors[i].name);
        bytes += tensor_bytes(&tensors[i]);
    }
    if (!err && fsync(fd) < 0 && errno != EINVAL && errno != EROFS) {
        int number = errno;

        err = rb_why_set(why, rb_error_from_errno(number), "cannot sync tensors: %s",
                         strerror(number));
    }
    if (!err && ret_bytes)
        *ret_bytes = bytes;
    return err;
}
