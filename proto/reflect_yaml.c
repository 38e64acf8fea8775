/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect.h"

#include "base/arena.h"
#include "proto/reflect_field.h"
#include "proto/yaml_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int read_value(struct rb_yaml_reader *reader, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field);

/* ---- Scalars ---- */

static bool parse_real(const char *text, double *ret_x)
{
    char *end;

    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    *ret_x = strtod(text, &end);
    return !*end && isfinite(*ret_x);
}

/* 1e4 is a fine way to say ten thousand. */
static bool parse_integer(const char *text, bool *ret_negative, uint64_t *ret_magnitude)
{
    double x;

    if (rb_field_parse_integer(text, ret_negative, ret_magnitude))
        return true;
    if (!strpbrk(text, "eE") || !parse_real(text, &x) || x != trunc(x) || fabs(x) >= 0x1p64)
        return false;
    *ret_negative = x < 0;
    *ret_magnitude = (uint64_t)fabs(x);
    return true;
}

static int put_scalar(struct rb_yaml_reader *reader, const ProtobufCFieldDescriptor *field,
                      void *slot, const char *text)
{
    struct rb_why *why = reader->why;
    uint64_t magnitude;
    bool negative;
    double x;

    if (rb_field_is_integer(field)) {
        if (!parse_integer(text, &negative, &magnitude))
            return rb_why_set(why, RB_EINVAL, "expected an integer, found '%.60s'", text);
        if (rb_field_put_integer(field, slot, negative, magnitude))
            return rb_why_set(why, RB_EINVAL, "%.60s is %s", text,
                              negative && !rb_field_is_signed(field) ? "negative" : "too large");
        return 0;
    }
    if (rb_field_is_real(field)) {
        if (!parse_real(text, &x))
            return rb_why_set(why, RB_EINVAL, "expected a number, found '%.60s'", text);
        rb_field_put_real(field, slot, x);
        return 0;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return rb_why_set(why, RB_EINVAL, "expected true or false, found '%.60s'", text);
        *(protobuf_c_boolean *)slot = text[0] == 't';
        return 0;
    case PROTOBUF_C_TYPE_STRING:
        *(char **)slot = rb_string(text);
        return 0;
    case PROTOBUF_C_TYPE_ENUM:
        if (rb_field_put_enum(field, slot, text))
            return rb_why_set(why, RB_EINVAL, "unknown word '%.60s'", text);
        return 0;
    default:
        return rb_why_set(why, RB_EUNSUPPORTED, "bytes have no YAML form");
    }
}

/* ---- Values ---- */

/* The key at the current event; *ret_field is the field that it names. */
static int read_key(struct rb_yaml_reader *reader, const ProtobufCMessage *message, bool *seen,
                    const ProtobufCFieldDescriptor **ret_field)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    char text[400];
    const char *key;
    size_t size;

    if (reader->event.type != YAML_SCALAR_EVENT)
        return rb_yaml_reader_refuse(reader, "expected a key");
    key = (const char *)reader->event.data.scalar.value;
    size = reader->event.data.scalar.length;
    *ret_field = rb_field_find(descriptor, key, size);
    if (!*ret_field) {
        rb_field_unknown(descriptor, key, size, text, sizeof text);
        return rb_yaml_reader_refuse(reader, text);
    }
    if (seen[*ret_field - descriptor->fields]) {
        snprintf(text, sizeof text, "'%s' is there twice", key);
        return rb_yaml_reader_refuse(reader, text);
    }
    seen[*ret_field - descriptor->fields] = true;
    return 0;
}

static int check_required(struct rb_yaml_reader *reader, yaml_mark_t mark,
                          const ProtobufCMessage *message, const bool *seen)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        char key[RB_FIELD_KEY];

        if (field->label != PROTOBUF_C_LABEL_REQUIRED || seen[i])
            continue;
        rb_field_key(field, key);
        return rb_yaml_reader_at(reader, mark,
                                 rb_why_set(reader->why, RB_EINVAL, "'%s' is missing", key));
    }
    return 0;
}

static int read_mapping(struct rb_yaml_reader *reader, ProtobufCMessage *message)
{
    RB_CLEANUP(rb_freep) bool *seen = rb_alloc(message->descriptor->n_fields + 1);
    yaml_mark_t start = reader->event.start_mark;
    const ProtobufCFieldDescriptor *field = NULL;
    int err;

    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return rb_yaml_reader_refuse(reader, "expected keys and values");
    for (;;) {
        err = rb_yaml_reader_next(reader);
        if (err)
            return err;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return check_required(reader, start, message, seen);
        err = read_key(reader, message, seen, &field);
        if (!err)
            err = rb_yaml_reader_next(reader);
        if (!err)
            err = read_value(reader, message, field);
        if (err)
            return err;
    }
}

static int read_single(struct rb_yaml_reader *reader, ProtobufCMessage *message,
                       const ProtobufCFieldDescriptor *field)
{
    yaml_mark_t mark = reader->event.start_mark;
    char text[RB_FIELD_KEY + 64], key[RB_FIELD_KEY];
    bool scalar = reader->event.type == YAML_SCALAR_EVENT;
    int err;

    rb_field_key(field, key);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage **slot;

        if (reader->event.type != YAML_MAPPING_START_EVENT) {
            snprintf(text, sizeof text, "%s: expected keys and values", key);
            return rb_yaml_reader_refuse(reader, text);
        }
        slot = rb_field_slot(message, field);
        *slot = rb_field_new(field->descriptor);
        return read_mapping(reader, *slot);
    }
    if (!scalar || rb_yaml_reader_null(reader)) {
        snprintf(text, sizeof text, "%s: expected %s", key, scalar ? "a value" : "a single value");
        return rb_yaml_reader_refuse(reader, text);
    }
    err = put_scalar(reader, field, rb_field_slot(message, field),
                     (const char *)reader->event.data.scalar.value);
    if (!err)
        return 0;
    rb_why_add(reader->why, err, "%s", key);
    return rb_yaml_reader_at(reader, mark, err);
}

static int read_value(struct rb_yaml_reader *reader, ProtobufCMessage *message,
                      const ProtobufCFieldDescriptor *field)
{
    bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    bool words = repeated && field->type == PROTOBUF_C_TYPE_STRING;
    int err;

    if (rb_yaml_reader_null(reader) || (rb_yaml_reader_plain(reader, "auto") && !words))
        return 0;
    if (!repeated || reader->event.type != YAML_SEQUENCE_START_EVENT)
        return read_single(reader, message, field);
    for (;;) {
        err = rb_yaml_reader_next(reader);
        if (err || reader->event.type == YAML_SEQUENCE_END_EVENT)
            return err;
        err = read_single(reader, message, field);
        if (err)
            return err;
    }
}

int rb_reflect_from_yaml(const char *file, const char *text, size_t size,
                         const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why)
{
    ProtobufCMessage *message;
    struct rb_yaml_reader reader;
    int err;

    if (size > RB_YAML_LIMIT)
        return rb_why_set(why, RB_ELIMIT, "%s: larger than 1 MiB", file);
    if (why)
        why->text[0] = '\0';
    rb_yaml_reader_start(&reader, file, text, size, why);
    message = rb_field_new(descriptor);
    err = rb_yaml_reader_open(&reader);
    if (!err)
        err = read_mapping(&reader, message);
    if (!err)
        err = rb_yaml_reader_close(&reader);
    rb_yaml_reader_done(&reader);
    if (err) {
        protobuf_c_message_free_unpacked(message, NULL);
        return err;
    }
    *ret_message = message;
    return 0;
}

/* Shared with reflect_set.c: the whole text is the field's value. */
int rb_field_read_yaml(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const char *text, struct rb_why *why)
{
    struct rb_yaml_reader reader;
    int err;

    if (strlen(text) > RB_YAML_LIMIT)
        return rb_why_set(why, RB_ELIMIT, "larger than 1 MiB");
    if (why)
        why->text[0] = '\0';
    rb_yaml_reader_start(&reader, NULL, text, strlen(text), why);
    err = rb_yaml_reader_next(&reader);
    if (!err)
        err = rb_yaml_reader_next(&reader);
    if (!err && reader.event.type == YAML_DOCUMENT_START_EVENT) {
        err = rb_yaml_reader_next(&reader);
        if (!err)
            err = read_value(&reader, message, field);
        if (!err)
            err = rb_yaml_reader_close(&reader);
    }
    rb_yaml_reader_done(&reader);
    return err;
}
