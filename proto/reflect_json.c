/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect.h"

#include "base/arena.h"
#include "proto/reflect_field.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- To JSON ---- */

/* JSON is UTF-8; bytes that are not become '?'. */
static json_t *string_to_json(const char *text)
{
    json_t *json = json_string(text ? text : "");

    if (!json) {
        RB_CLEANUP(rb_freep) char *plain = rb_string(text);

        for (char *at = plain; *at; at++) {
            if (*at & 0x80)
                *at = '?';
        }
        json = json_string(plain);
    }
    return json;
}

void rb_reflect_lines(const char *text, json_t *lines)
{
    for (const char *end; text && (end = strchr(text, '\n')); text = end + 1) {
        RB_CLEANUP(rb_freep) char *line = rb_format("%.*s", (int)(end - text), text);

        json_array_append_new(lines, string_to_json(line));
    }
}

/* JSON has no word for a number that is not finite, and a loss may well be such a number. */
static json_t *real_to_json(double x)
{
    if (isnan(x))
        return json_string("nan");
    if (isinf(x))
        return json_string(x > 0 ? "inf" : "-inf");
    return json_real(x);
}

static json_t *unsigned_to_json(uint64_t x)
{
    if (x > INT64_MAX) {
        RB_CLEANUP(rb_freep) char *digits = rb_format("%llu", (unsigned long long)x);

        return json_string(digits);
    }
    return json_integer((json_int_t)x);
}

static json_t *value_to_json(const ProtobufCFieldDescriptor *field, const void *slot, bool defaults)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)slot);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_integer(*(const int64_t *)slot);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)slot);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return unsigned_to_json(*(const uint64_t *)slot);
    case PROTOBUF_C_TYPE_FLOAT:
        return real_to_json(*(const float *)slot);
    case PROTOBUF_C_TYPE_DOUBLE:
        return real_to_json(*(const double *)slot);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)slot);
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)slot);

        return value ? json_string(value->name) : json_integer(*(const int *)slot);
    }
    case PROTOBUF_C_TYPE_STRING:
        return string_to_json(*(char *const *)slot);
    case PROTOBUF_C_TYPE_MESSAGE:
        return rb_reflect_to_json(*(ProtobufCMessage *const *)slot, defaults);
    case PROTOBUF_C_TYPE_BYTES:
        break;
    }
    return json_null();
}

json_t *rb_reflect_to_json(const ProtobufCMessage *message, bool defaults)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        char key[RB_FIELD_KEY];
        json_t *value;

        if (field->type == PROTOBUF_C_TYPE_BYTES)
            continue;
        if (!rb_field_present(message, field) && !(defaults && field->default_value))
            continue;
        if (repeated) {
            value = json_array();
            for (size_t j = 0; j < rb_field_count(message, field); j++)
                json_array_append_new(
                    value, value_to_json(field, rb_field_at(message, field, j), defaults));
        } else {
            value = value_to_json(field, rb_field_at(message, field, 0), defaults);
        }
        rb_field_key(field, key);
        json_object_set_new(object, key, value);
    }
    return object;
}

char *rb_reflect_to_text(const ProtobufCMessage *message)
{
    json_t *json = rb_reflect_to_json(message, false);
    char *text = json_dumps(json, JSON_COMPACT);

    json_decref(json);
    if (!text)
        abort(); /* only for want of memory */
    return text;
}

/* ---- From JSON ---- */

static int integer_from_json(const json_t *json, const ProtobufCFieldDescriptor *field, void *slot,
                             struct rb_why *why)
{
    bool negative;
    uint64_t magnitude;

    if (json_is_integer(json)) {
        json_int_t x = json_integer_value(json);

        negative = x < 0;
        magnitude = negative ? 0 - (uint64_t)x : (uint64_t)x;
    } else if (!json_is_string(json) ||
               !rb_field_parse_integer(json_string_value(json), &negative, &magnitude)) {
        return rb_why_set(why, RB_EINVAL, "expected an integer");
    }
    if (rb_field_put_integer(field, slot, negative, magnitude))
        return rb_why_set(why, RB_EINVAL, "the number is out of range");
    return 0;
}

static int real_from_json(const json_t *json, const ProtobufCFieldDescriptor *field, void *slot,
                          struct rb_why *why)
{
    const char *text = json_string_value(json);
    double x;

    if (json_is_number(json))
        x = json_number_value(json);
    else if (text && strcmp(text, "nan") == 0)
        x = NAN;
    else if (text && strcmp(text, "inf") == 0)
        x = INFINITY;
    else if (text && strcmp(text, "-inf") == 0)
        x = -INFINITY;
    else
        return rb_why_set(why, RB_EINVAL, "expected a number");
    rb_field_put_real(field, slot, x);
    return 0;
}

static int value_from_json(const json_t *json, const ProtobufCFieldDescriptor *field, void *slot,
                           struct rb_why *why)
{
    if (rb_field_is_integer(field))
        return integer_from_json(json, field, slot, why);
    if (rb_field_is_real(field))
        return real_from_json(json, field, slot, why);
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(json))
            return rb_why_set(why, RB_EINVAL, "expected true or false");
        *(protobuf_c_boolean *)slot = json_is_true(json);
        return 0;
    case PROTOBUF_C_TYPE_STRING:
        if (!json_is_string(json))
            return rb_why_set(why, RB_EINVAL, "expected a string");
        *(char **)slot = rb_string(json_string_value(json));
        return 0;
    case PROTOBUF_C_TYPE_ENUM:
        if (!json_is_string(json) || rb_field_put_enum(field, slot, json_string_value(json)))
            return rb_why_set(why, RB_EINVAL, "unknown word");
        return 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return rb_reflect_from_json(json, field->descriptor, slot, why);
    default:
        return rb_why_set(why, RB_EUNSUPPORTED, "bytes have no JSON form");
    }
}

static int field_from_json(const json_t *json, ProtobufCMessage *message,
                           const ProtobufCFieldDescriptor *field, struct rb_why *why)
{
    const json_t *element;
    size_t i;

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return value_from_json(json, field, rb_field_slot(message, field), why);
    if (!json_is_array(json) && field->type == PROTOBUF_C_TYPE_STRING) /* as in YAML */
        return value_from_json(json, field, rb_field_slot(message, field), why);
    if (!json_is_array(json))
        return rb_why_set(why, RB_EINVAL, "expected an array");
    json_array_foreach(json, i, element)
    {
        int err = value_from_json(element, field, rb_field_slot(message, field), why);

        if (err && field->type == PROTOBUF_C_TYPE_MESSAGE) /* a NULL in it could not be freed */
            --*(size_t *)((char *)message + field->quantifier_offset);
        if (err)
            return rb_why_add(why, err, "[%zu]", i);
    }
    return 0;
}

int rb_reflect_from_json(const json_t *json, const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why)
{
    ProtobufCMessage *message;
    int err = 0;

    if (!json_is_object(json))
        return rb_why_set(why, RB_EINVAL, "expected an object");
    message = rb_field_new(descriptor);
    for (unsigned i = 0; i < descriptor->n_fields && !err; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        char key[RB_FIELD_KEY];
        const json_t *value;

        rb_field_key(field, key);
        value = json_object_get(json, key);
        if (value && !json_is_null(value)) {
            err = field_from_json(value, message, field, why);
            if (err)
                rb_why_add(why, err, "%s", key);
        } else if (field->label == PROTOBUF_C_LABEL_REQUIRED) {
            err = rb_why_set(why, RB_EINVAL, "'%s' is missing", key);
        }
    }
    if (err) {
        protobuf_c_message_free_unpacked(message, NULL);
        return err;
    }
    *ret_message = message;
    return 0;
}

int rb_reflect_from_text(const char *text, size_t size,
                         const ProtobufCMessageDescriptor *descriptor,
                         ProtobufCMessage **ret_message, struct rb_why *why)
{
    json_error_t error;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    int err;

    if (!json)
        return rb_why_set(why, RB_EINVAL, "not JSON: %s at line %d, column %d", error.text,
                          error.line, error.column);
    err = rb_reflect_from_json(json, descriptor, ret_message, why);
    json_decref(json);
    return err;
}
