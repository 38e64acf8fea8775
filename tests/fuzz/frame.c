/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of every type; messages that decode go through JSON too. */
#include "proto/frame.h"

#include "control.pb-c.h"
#include "proto/reflect.h"
#include "rpc.pb-c.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try(const uint8_t *data, size_t size, enum rb_frame_type type,
                const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = NULL;
    struct rb_buffer in = {0};
    struct rb_why why = {0};

    rb_buffer_add(&in, data, size);
    while (rb_frame_take(&in, type, descriptor, &message, &why) == 0) {
        free(rb_reflect_to_text(message));
        protobuf_c_message_free_unpacked(message, NULL);
    }
    rb_buffer_done(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try(data, size, RB_FRAME_TO_WORKER, &rb__to_worker__descriptor);
    try(data, size, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor);
    try(data, size, RB_FRAME_CALL, &rb__call__descriptor);
    try(data, size, RB_FRAME_REPLY, &rb__reply__descriptor);
    return 0;
}
