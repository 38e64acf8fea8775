/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect.h"

#include "proto/reflect_field.h"

#include <string.h>

static int find_part(const ProtobufCMessageDescriptor *descriptor, const char *path, size_t size,
                     const ProtobufCFieldDescriptor **ret_field, struct rb_why *why)
{
    char text[400];

    *ret_field = rb_field_find(descriptor, path, size);
    if (*ret_field)
        return 0;
    rb_field_unknown(descriptor, path, size, text, sizeof text);
    return rb_why_set(why, RB_EINVAL, "%s", text);
}

int rb_reflect_set(ProtobufCMessage *message, const char *path, const char *value,
                   struct rb_why *why)
{
    const ProtobufCFieldDescriptor *field;

    for (;;) {
        size_t size = strcspn(path, ".");
        int err = find_part(message->descriptor, path, size, &field, why);
        ProtobufCMessage **slot;

        if (err)
            return err;
        if (!path[size])
            break;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED)
            return rb_why_set(why, RB_EINVAL, "'%.*s' has no keys of its own",
                              (int)(size < RB_FIELD_KEY ? size : RB_FIELD_KEY), path);
        slot = rb_field_slot(message, field);
        if (!*slot)
            *slot = rb_field_new(field->descriptor);
        message = *slot;
        path += size + 1;
    }
    rb_field_clear(message, field);
    return rb_field_read_yaml(message, field, value, why);
}
