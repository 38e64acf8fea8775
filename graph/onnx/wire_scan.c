/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/onnx/wire_scan.h"

#include <stdbool.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte;

        if (*at == end)
            return false;
        byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static int broken(const ProtobufCMessageDescriptor *type, struct rb_why *why)
{
    return rb_why_set(why, RB_EINVAL, "truncated or malformed protobuf (in a %s)",
                      type->short_name);
}

int rb_wire_scan(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size,
                 int depth, struct rb_why *why)
{
    const uint8_t *at = bytes, *end = bytes + size;

    if (depth <= 0)
        return rb_why_set(why, RB_ELIMIT, "messages are nested too deep");
    while (at < end) {
        const ProtobufCFieldDescriptor *field;
        uint64_t tag, length;
        int err;

        if (!read_varint(&at, end, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
            return broken(type, why);
        switch (tag & 7) {
        case VARINT:
            if (!read_varint(&at, end, &length))
                return broken(type, why);
            continue;
        case FIXED64:
            length = 8;
            break;
        case FIXED32:
            length = 4;
            break;
        case BYTES:
            if (!read_varint(&at, end, &length))
                return broken(type, why);
            break;
        default:
            return broken(type, why);
        }
        if (length > (uint64_t)(end - at))
            return broken(type, why);
        field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if ((tag & 7) == BYTES && field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            err = rb_wire_scan(field->descriptor, at, (size_t)length, depth - 1, why);
            if (err)
                return err;
        }
        at += length;
    }
    return 0;
}
