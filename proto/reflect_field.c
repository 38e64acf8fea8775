/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect_field.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rb_field_key(const ProtobufCFieldDescriptor *field, char ret_key[RB_FIELD_KEY])
{
    size_t n = 0;
    bool upper = false;

    for (const char *at = field->name; *at && n + 1 < RB_FIELD_KEY; at++) {
        if (*at == '_') {
            upper = true;
            continue;
        }
        ret_key[n++] = (char)(upper && *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
        upper = false;
    }
    ret_key[n] = '\0';
}

const ProtobufCFieldDescriptor *rb_field_find(const ProtobufCMessageDescriptor *descriptor,
                                              const char *key, size_t size)
{
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        char name[RB_FIELD_KEY];

        rb_field_key(&descriptor->fields[i], name);
        if (strlen(name) == size && memcmp(name, key, size) == 0)
            return &descriptor->fields[i];
    }
    return NULL;
}

void rb_field_unknown(const ProtobufCMessageDescriptor *descriptor, const char *key, size_t size,
                      char *ret_text, size_t room)
{
    struct rb_buffer text = {0};
    size_t best = RB_FIELD_KEY;
    char nearest[RB_FIELD_KEY] = "", name[RB_FIELD_KEY];
    int shown = size < RB_FIELD_KEY ? (int)size : RB_FIELD_KEY;

    for (unsigned i = 0; i < descriptor->n_fields && size < RB_FIELD_KEY; i++) {
        size_t d;

        rb_field_key(&descriptor->fields[i], name);
        d = rb_near_distance(key, size, name);
        if (d < best) {
            best = d;
            memcpy(nearest, name, sizeof nearest);
        }
    }
    rb_buffer_format(&text, "unknown key '%.*s'", shown, key);
    if (nearest[0] && rb_near_enough(best, size)) {
        rb_buffer_format(&text, ", did you mean '%s'?", nearest);
    } else {
        rb_buffer_text(&text, "; known here:");
        for (unsigned i = 0; i < descriptor->n_fields; i++) {
            rb_field_key(&descriptor->fields[i], name);
            rb_buffer_format(&text, "%s %s", i ? "," : "", name);
        }
    }
    snprintf(ret_text, room, "%s", text.data);
    rb_buffer_done(&text);
}

ProtobufCMessage *rb_field_new(const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = rb_alloc(descriptor->sizeof_message);

    protobuf_c_message_init(descriptor, message);
    return message;
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(double);
    case PROTOBUF_C_TYPE_FLOAT:
        return sizeof(float);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return sizeof(uint32_t);
    }
}

static void *member(const ProtobufCMessage *message, unsigned offset)
{
    return (char *)message + offset;
}

static bool is_pointer(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
}

bool rb_field_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return rb_field_count(message, field) > 0;
    if (is_pointer(field)) {
        const void *value = *(void **)member(message, field->offset);

        return value && value != field->default_value;
    }
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL)
        return *(protobuf_c_boolean *)member(message, field->quantifier_offset);
    return true;
}

size_t rb_field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return 1;
    return *(size_t *)member(message, field->quantifier_offset);
}

const void *rb_field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                        size_t i)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return member(message, field->offset);
    return *(char **)member(message, field->offset) + i * value_size(field);
}

static void free_value(const ProtobufCFieldDescriptor *field, const void *slot)
{
    if (field->type == PROTOBUF_C_TYPE_STRING && *(void **)slot != field->default_value)
        free(*(void **)slot);
    else if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)slot)
        protobuf_c_message_free_unpacked(*(ProtobufCMessage **)slot, NULL);
    else if (field->type == PROTOBUF_C_TYPE_BYTES)
        free(((ProtobufCBinaryData *)slot)->data);
}

void rb_field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    void *slot = member(message, field->offset);
    RB_CLEANUP(rb_freep) ProtobufCMessage *fresh = rb_field_new(message->descriptor);

    for (size_t i = 0; i < rb_field_count(message, field); i++)
        free_value(field, rb_field_at(message, field, i));
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        free(*(void **)slot);
        *(void **)slot = NULL;
        *(size_t *)member(message, field->quantifier_offset) = 0;
        return;
    }
    memcpy(slot, member(fresh, field->offset), value_size(field));
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointer(field))
        *(protobuf_c_boolean *)member(message, field->quantifier_offset) = 0;
}

void *rb_field_slot(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t *n = member(message, field->quantifier_offset), size = value_size(field);
        char **array = member(message, field->offset);

        if ((*n & (*n - 1)) == 0) /* room grows by doubling: full at 0, 1, 2, 4, ... */
            *array = rb_realloc(*array, (*n ? *n * 2 : 1) * size);
        memset(*array + *n * size, 0, size);
        return *array + (*n)++ * size;
    }
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointer(field))
        *(protobuf_c_boolean *)member(message, field->quantifier_offset) = 1;
    return member(message, field->offset);
}

bool rb_field_is_signed(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return true;
    default:
        return false;
    }
}

bool rb_field_is_integer(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return true;
    default:
        return rb_field_is_signed(field);
    }
}

bool rb_field_is_real(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_DOUBLE || field->type == PROTOBUF_C_TYPE_FLOAT;
}

int rb_field_put_integer(const ProtobufCFieldDescriptor *field, void *slot, bool negative,
                         uint64_t magnitude)
{
    bool wide = value_size(field) == sizeof(uint64_t), has_sign = rb_field_is_signed(field);
    uint64_t top = wide ? UINT64_MAX : UINT32_MAX, x = negative ? 0 - magnitude : magnitude;

    if (has_sign)
        top = negative ? top / 2 + 1 : top / 2;
    else if (negative && magnitude)
        return RB_ELIMIT;
    if (magnitude > top)
        return RB_ELIMIT;
    if (wide)
        memcpy(slot, &x, sizeof x);
    else
        memcpy(slot, &(uint32_t){(uint32_t)x}, sizeof(uint32_t));
    return 0;
}

void rb_field_put_real(const ProtobufCFieldDescriptor *field, void *slot, double x)
{
    if (field->type == PROTOBUF_C_TYPE_FLOAT)
        *(float *)slot = (float)x;
    else
        *(double *)slot = x;
}

int rb_field_put_enum(const ProtobufCFieldDescriptor *field, void *slot, const char *name)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(field->descriptor, name);

    if (!value)
        return RB_EINVAL;
    *(int *)slot = value->value;
    return 0;
}

bool rb_field_parse_integer(const char *text, bool *ret_negative, uint64_t *ret_magnitude)
{
    bool negative = *text == '-';
    uint64_t x = 0;

    text += *text == '-' || *text == '+';
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(x, (uint64_t)10, &x) ||
            __builtin_add_overflow(x, (uint64_t)(*text - '0'), &x))
            return false;
    }
    *ret_negative = negative;
    *ret_magnitude = x;
    return true;
}
