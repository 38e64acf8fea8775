/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: how protobuf messages and raw bytes travel on a stream.
 *
 * rubatoctl, rubatod, worker control > [frame] > socket
 *
 * u32 magic "RBF1", u32 type, u64 payload bytes, payload; all little-endian.  A decoder never
 * allocates more than the limit it is given and never reads past what it was fed. */
#ifndef RB_PROTO_FRAME_H
#define RB_PROTO_FRAME_H

#include "base/buffer.h"
#include "base/error.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum {
    RB_FRAME_HEADER = 16,
    RB_FRAME_LIMIT = 64 << 20, /* the largest payload of a control or RPC frame */
};

enum rb_frame_type {
    RB_FRAME_TO_WORKER = 1,
    RB_FRAME_FROM_WORKER = 2,
    RB_FRAME_CALL = 3,
    RB_FRAME_REPLY = 4,
};

/* Append one frame with `message` as payload. */
void rb_frame_put(struct rb_buffer *out, enum rb_frame_type type, const ProtobufCMessage *message);

/* Take the first whole frame off `in` and unpack it as `descriptor`.
 *
 * Returns RB_OK with *ret_message (free with protobuf_c_message_free_unpacked), RB_EAGAIN when more
 * bytes are needed, RB_EINVAL for a wrong magic, type or payload, RB_ELIMIT for one too large. */
int rb_frame_take(struct rb_buffer *in, enum rb_frame_type type,
                  const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **ret_message,
                  struct rb_why *why);

#endif
