/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include "proto/capped_alloc.h"

#include <inttypes.h>
#include <string.h>

static const uint8_t magic[4] = {'R', 'B', 'F', '1'};

static void put_le(uint8_t *at, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(x >> (8 * i));
}

static uint64_t get_le(const uint8_t *at, int bytes)
{
    uint64_t x = 0;

    for (int i = bytes; i-- > 0;)
        x = x << 8 | at[i];
    return x;
}

void rb_frame_put(struct rb_buffer *out, enum rb_frame_type type, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *at = (uint8_t *)rb_buffer_reserve(out, RB_FRAME_HEADER + size);

    memcpy(at, magic, sizeof magic);
    put_le(at + 4, type, 4);
    put_le(at + 8, size, 8);
    protobuf_c_message_pack(message, at + RB_FRAME_HEADER);
    out->size += RB_FRAME_HEADER + size;
    out->data[out->size] = '\0';
}

/* Memory that unpacking a payload may have at once: protobuf-c asks for up to a hundred bytes for
 * two on the wire. */
static uint64_t memory_for(uint64_t payload)
{
    uint64_t overhead = 65536 + 32 * payload;

    return payload + (overhead < RB_FRAME_LIMIT ? overhead : RB_FRAME_LIMIT);
}

int rb_frame_take(struct rb_buffer *in, enum rb_frame_type type,
                  const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **ret_message,
                  struct rb_why *why)
{
    const uint8_t *bytes = (const uint8_t *)in->data;
    struct rb_capped_alloc capped;
    ProtobufCMessage *message;
    uint64_t size;

    if (in->size == 0)
        return RB_EAGAIN;
    if (memcmp(bytes, magic, in->size < sizeof magic ? in->size : sizeof magic) != 0)
        return rb_why_set(why, RB_EINVAL, "this is not Rubato's protocol");
    if (in->size < RB_FRAME_HEADER)
        return RB_EAGAIN;
    if (get_le(bytes + 4, 4) != (uint64_t)type)
        return rb_why_set(why, RB_EINVAL, "a frame of type %" PRIu64 " where %d was expected",
                          get_le(bytes + 4, 4), (int)type);
    size = get_le(bytes + 8, 8);
    if (size > RB_FRAME_LIMIT)
        return rb_why_set(why, RB_ELIMIT, "a frame of %" PRIu64 " bytes; at most %d are taken",
                          size, RB_FRAME_LIMIT);
    if (in->size - RB_FRAME_HEADER < size)
        return RB_EAGAIN;
    rb_capped_alloc_init(&capped, memory_for(size));
    message = protobuf_c_message_unpack(descriptor, &capped.protobuf, (size_t)size,
                                        bytes + RB_FRAME_HEADER);
    if (!message)
        return rb_why_set(why, RB_EINVAL, "a frame that does not hold a whole %s",
                          descriptor->short_name);
    rb_buffer_drop(in, RB_FRAME_HEADER + (size_t)size);
    *ret_message = message;
    return 0;
}
