/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for protobuf-c that hands out at most a given number of bytes at once.
 *
 * frame, onnx > [capped_alloc] > protobuf-c
 *
 * A message can grow a hundredfold when it is unpacked; with a cap, unpacking fails instead.  The
 * memory is malloc's, so that the default allocator may free it too. */
#ifndef RB_PROTO_CAPPED_ALLOC_H
#define RB_PROTO_CAPPED_ALLOC_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

struct rb_capped_alloc {
    ProtobufCAllocator protobuf; /* points to this struct, which must therefore stay in place */
    uint64_t left;               /* counts what malloc really took; freed memory comes back */
};

void rb_capped_alloc_init(struct rb_capped_alloc *capped, uint64_t bytes);

#endif
