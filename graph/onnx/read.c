/* SPDX-License-Identifier: Apache-2.0 */
/* Reading whole files and ranges of them into checked memory.  The file is read and not mapped:
 * another process that shortens it meanwhile must not end the process that reads it. */
#include "graph/onnx/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the character at `text` if it is printable UTF-8, else 0. */
static size_t character(const char *text)
{
    const unsigned char first = (unsigned char)*text;
    size_t size = first < 0x80   ? 1
                  : first < 0xc2 ? 0
                  : first < 0xe0 ? 2
                  : first < 0xf0 ? 3
                  : first < 0xf5 ? 4
                                 : 0;

    if (first < 0x20 || first == 0x7f)
        return 0;
    for (size_t i = 1; i < size; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
    if (size == 3 && ((first == 0xe0 && (unsigned char)text[1] < 0xa0) ||
                      (first == 0xed && (unsigned char)text[1] > 0x9f)))
        return 0;
    if (size == 4 && ((first == 0xf0 && (unsigned char)text[1] < 0x90) ||
                      (first == 0xf4 && (unsigned char)text[1] > 0x8f)))
        return 0;
    return size;
}

const char *rb_onnx_quote(const char *text, char room[80])
{
    enum { MOST = 76 };
    size_t n = 0, size;

    for (; text && text[n]; n += size) {
        size = character(text + n);
        if (n + (size ? size : 1) > MOST)
            break;
        memcpy(room + n, size ? text + n : "?", size ? size : 1);
        size = size ? size : 1;
    }
    if (text && text[n]) {
        memcpy(room + n, "...", 3);
        n += 3;
    }
    room[n] = '\0';
    return room;
}

bool rb_onnx_made_up(const char *name)
{
    return !strncmp(name, "onnx::", 6) || (*name && strspn(name, "0123456789") == strlen(name));
}

bool rb_onnx_was_constant(const char *name, int rank)
{
    static const char digits[] = "0123456789", first[] = "Constant", second[] = "_output_";
    const char *last = strrchr(name, '/'), *at;

    if (name[0] != '/' || strncmp(last + 1, first, strlen(first)) != 0)
        return rank == 0 && rb_onnx_made_up(name);
    at = last + 1 + strlen(first);
    if (at[0] == '_' && strspn(at + 1, digits))
        at += 1 + strspn(at + 1, digits);
    if (strncmp(at, second, strlen(second)) != 0)
        return false;
    at += strlen(second);
    return *at && strspn(at, digits) == strlen(at);
}

static int fail(struct rb_why *why, const char *verb, const char *path)
{
    int number = errno;
    char room[80];

    if (number == ELOOP)
        return rb_why_set(why, RB_EINVAL, "%s is a symbolic link", rb_onnx_quote(path, room));
    return rb_why_set(why, rb_error_from_errno(number), "cannot %s %s: %s", verb, path,
                      strerror(number));
}

static int read_fully(int fd, const char *path, char *bytes, size_t size, uint64_t offset,
                      struct rb_why *why)
{
    while (size) {
        ssize_t got = pread(fd, bytes, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(why, "read", path);
        if (got == 0)
            return rb_why_set(why, RB_EIO, "%s became shorter while it was read", path);
        bytes += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

static int read_open(int fd, const char *path, uint64_t offset, size_t size, uint64_t limit,
                     void **ret_bytes, size_t *ret_size, struct rb_why *why)
{
    struct stat status;
    uint64_t length;
    char *bytes;
    int err;

    if (fstat(fd, &status) < 0)
        return fail(why, "read", path);
    if (!S_ISREG(status.st_mode))
        return rb_why_set(why, RB_EINVAL, "%s is not a regular file", path);
    length = (uint64_t)status.st_size;
    if (offset > length || (size != SIZE_MAX && size > length - offset))
        return rb_why_set(why, RB_EINVAL,
                          "%s has %" PRIu64 " bytes; %zu at %" PRIu64 " lie outside", path, length,
                          size, offset);
    if (size == SIZE_MAX)
        size = (size_t)(length - offset);
    if (size > limit)
        return rb_why_set(why, RB_ELIMIT, "%s is larger than %" PRIu64 " bytes", path, limit);
    bytes = malloc(size ? size : 1);
    if (!bytes)
        return rb_why_set(why, RB_ENOMEM, "no memory for the %zu bytes of %s", size, path);
    err = read_fully(fd, path, bytes, size, offset, why);
    if (err) {
        free(bytes);
        return err;
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

int rb_onnx_read(int folder, const char *path, bool plain, uint64_t offset, size_t size,
                 uint64_t limit, void **ret_bytes, size_t *ret_size, struct rb_why *why)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (plain ? O_NOFOLLOW : 0);
    int fd = openat(folder, path, flags);
    int err;

    if (fd < 0)
        return fail(why, "open", path);
    err = read_open(fd, path, offset, size, limit, ret_bytes, ret_size, why);
    close(fd);
    return err;
}

const uint8_t *rb_onnx_newer_field(const ProtobufCMessage *message, unsigned i, unsigned tag,
                                   size_t *ret_size)
{
    const ProtobufCMessageUnknownField *field = &message->unknown_fields[i];
    size_t at = 0;

    if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return NULL;
    while (at < field->len && field->data[at] & 0x80)
        at++;
    if (at >= field->len)
        return NULL;
    *ret_size = field->len - at - 1;
    return field->data + at + 1;
}
